"""The order of the all-jobs feed on PostgreSQL: events are numbered when they are committed.

A sequence alone numbers rows when they are inserted, and a transaction that inserted first may commit last. A reader
that has read event 6 would then never see event 5. So an event is inserted with a temporary negative number, and COMMIT
itself assigns the next number of the feed, under a lock that is held until the commit is durable and visible. A reader
that sees an event therefore sees all with smaller numbers. The server holds the lock only during COMMIT, so a process
that stops in the middle of a transaction blocks no other.

SQLite has one writer at a time and needs none of this.
"""

from __future__ import annotations

from sqlalchemy import Connection

from crucible.control.db.postgres.locks import FEED, LOCK_CLASS

_NUMBERING = (
    "CREATE SEQUENCE events_passing OWNED BY events.cursor",
    "ALTER TABLE events ALTER COLUMN cursor SET DEFAULT -nextval('events_passing')",
    f"""
    CREATE FUNCTION number_event() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_advisory_xact_lock({LOCK_CLASS}, {FEED});
        UPDATE events SET cursor = nextval('events_cursor_seq') WHERE cursor = NEW.cursor;
        RETURN NULL;
    END $$
    """,  # noqa: S608  two constants
    """
    CREATE CONSTRAINT TRIGGER number_events AFTER INSERT ON events DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.cursor < 0) EXECUTE FUNCTION number_event()
    """,
)

_SERVER_MARK = (
    "CREATE UNLOGGED TABLE server_life"
    " (one boolean PRIMARY KEY DEFAULT true CHECK (one), mark uuid NOT NULL DEFAULT gen_random_uuid())"
)
"""An unlogged table: the server empties it after a crash, and it is empty on a replica that takes over. The same mark
before and after shows that the server has lost nothing in between."""


def install(connection: Connection) -> None:
    """Add the numbering and the server mark on PostgreSQL, inside the transaction that creates the schema.

    Databases of 0.1.0 have exactly these: a change here needs a migration that makes the same change.
    """
    if connection.dialect.name == "postgresql":
        for statement in (*_NUMBERING, _SERVER_MARK):
            connection.exec_driver_sql(statement)
