"""The order of the all-jobs feed on PostgreSQL: events are numbered as they are committed.

A sequence alone numbers rows when they are inserted, and a transaction that inserted first may commit last: who
has read as far as 6 would never see the 5 that came later. So an event is inserted under a passing negative
number, and COMMIT itself gives it the next of the feed, under a lock that is held until the commit is durable
and visible. Whoever sees an event therefore sees all with smaller numbers. The lock is held by the server
inside COMMIT alone: a process that stops in the middle of a transaction holds up nobody.

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
"""Emptied by the server itself after a crash, and empty on a replica that takes over: a mark read here before
and after says that the server forgot nothing in between."""


def install(connection: Connection) -> None:
    """Add this beside the table `events`, inside the transaction that makes the schema.

    Databases of 0.1.0 have it as it is: a change here needs a revision that makes the same change.
    """
    if connection.dialect.name == "postgresql":
        for statement in (*_NUMBERING, _SERVER_MARK):
            connection.exec_driver_sql(statement)
