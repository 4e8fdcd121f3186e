"""Read and write the rows of hooks. The callers check permissions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, bindparam, delete, func, select, update

from crucible.control.db import schema as t
from crucible.control.db.statement import Row, Statement, insert_row
from crucible.core.errors import Conflict, NotFound
from crucible.core.hooks import DeliveryOutcome, DeliveryVerdict, FailureStreak, HookEvent, HookFormat
from crucible.core.ids import Prefix

_c = t.hooks.c
_COLUMNS = (
    *("id", "project", "url", "events", "format", "made_by", "created_at"),
    *("enabled", "disabled", "cursor", "not_before", "failures"),
)
_ADD = Statement(insert_row(t.hooks, _COLUMNS))
_ONE = Statement(select(t.hooks).where(_c.id == bindparam("hook")))
_OF_PROJECT = Statement(select(t.hooks).where(_c.project == bindparam("in_project")).order_by(_c.id))
_ENABLED = Statement(select(t.hooks).where(_c.enabled.is_(True)).order_by(_c.id))
_NEWEST = Statement(select(func.max(t.events.c.cursor)))


@dataclass(frozen=True)
class Hook:
    """`cursor`: feed position up to which events are settled. `disabled_why`: why the server disabled it, or empty."""

    id: str
    project: str
    url: str
    events: tuple[HookEvent, ...]
    format: HookFormat
    made_by: str
    created_at: float
    enabled: bool
    disabled_why: str
    cursor: int
    not_before: float
    standing: FailureStreak
    given_up: int = 0
    rotated_at: float | None = None

    @property
    def secret_name(self) -> str:
        """The name of its signing secret in the vault, which users cannot give to their own secrets."""
        return f"hook:{self.id}"


def add(conn: Connection, new: Hook) -> None:
    _ADD.run(
        conn,
        id=new.id,
        project=new.project,
        url=new.url,
        events=_events_text(new.events),
        format=new.format.value,
        made_by=new.made_by,
        created_at=new.created_at,
        enabled=new.enabled,
        disabled="",
        cursor=new.cursor,
        not_before=0.0,
        failures=0,
    )


def newest_cursor(conn: Connection) -> int:
    """Return the end of the feed. Events that are not numbered yet have cursors below 0."""
    return max(int(_NEWEST.value(conn) or 0), 0)


def get_hook(conn: Connection, hook: str) -> Hook | None:
    row = _ONE.first(conn, hook=hook)
    return None if row is None else _hook(row)


def list_hooks(conn: Connection, project: str) -> list[Hook]:
    return [_hook(row) for row in _OF_PROJECT.all(conn, in_project=project)]


def list_enabled(conn: Connection) -> list[Hook]:
    return [_hook(row) for row in _ENABLED.all(conn)]


def find(conn: Connection, project: str, ref: str) -> Hook:
    """Return the hook of the project with this id, or the only one whose id ends so. Raises NotFound or Conflict."""
    ending = ref.lower().removeprefix(f"{Prefix.HOOK}-")
    matches = [hook for hook in list_hooks(conn, project) if len(ending) >= 3 and hook.id.endswith(ending)]
    if not matches:
        fix = f"`crucible notifications --project {project}` lists them."
        raise NotFound(f"The project {project!r} has no hook {ref[:80]!r}.", fix=fix, hook=ref[:80])
    if len(matches) > 1:
        candidates = [hook.id for hook in matches]
        raise Conflict(f"{ref!r} matches several hooks.", fix="Type more of the id.", candidates=candidates)
    return matches[0]


def change(conn: Connection, hook: Hook, url: str, events: Sequence[HookEvent]) -> None:
    _update(conn, hook, url=url, events=_events_text(events))


def set_enabled(conn: Connection, hook: Hook, *, on: bool) -> None:
    """Enable or disable the hook. Enabling a disabled hook moves its position to the end of the feed."""
    cursor = newest_cursor(conn) if on and not hook.enabled else hook.cursor
    _update(conn, hook, enabled=on, disabled="", cursor=cursor, not_before=0.0, failures=0, failing_since=None)


def mark_rotated(conn: Connection, hook: Hook, now: float) -> None:
    _update(conn, hook, rotated_at=now)


def record_outcome(conn: Connection, hook: Hook, cursor: int, verdict: DeliveryVerdict) -> bool:
    """Store the outcome of sending the event at `cursor`. Return False if the hook has changed meanwhile."""
    return _update(
        conn,
        hook,
        _c.cursor == hook.cursor,
        _c.enabled.is_(True),
        enabled=not verdict.disabled,
        disabled=verdict.disabled,
        cursor=cursor if verdict.is_final else hook.cursor,
        not_before=verdict.not_before,
        failures=verdict.streak.failures,
        failing_since=verdict.streak.since,
        given_up=_c.given_up + int(verdict.outcome is DeliveryOutcome.GIVEN_UP),
    )


def advance_cursor(conn: Connection, hook: Hook, cursor: int) -> None:
    """Move the hook's position forward, because nothing up to there is for it."""
    _update(conn, hook, _c.cursor == hook.cursor, cursor=cursor)


def remove(conn: Connection, hook: Hook) -> None:
    """Delete the hook and its deliveries."""
    conn.execute(delete(t.deliveries).where(t.deliveries.c.hook == hook.id))
    conn.execute(delete(t.hooks).where(_c.id == hook.id))


def _update(conn: Connection, hook: Hook, *conditions: ColumnElement[bool], **values: Any) -> bool:
    """Update the row if it still meets the conditions. Return whether it did."""
    return conn.execute(update(t.hooks).where(_c.id == hook.id, *conditions).values(**values)).rowcount == 1


def _events_text(events: Sequence[HookEvent]) -> str:
    return json.dumps([event.value for event in HookEvent if event in events])


def _hook(row: Row) -> Hook:
    return Hook(
        id=row["id"],
        project=row["project"],
        url=row["url"],
        events=tuple(map(HookEvent, json.loads(row["events"]))),
        format=HookFormat(row["format"]),
        made_by=row["made_by"],
        created_at=row["created_at"],
        enabled=bool(row["enabled"]),
        disabled_why=row["disabled"],
        cursor=row["cursor"],
        not_before=row["not_before"],
        standing=FailureStreak(row["failures"], row["failing_since"]),
        given_up=row["given_up"],
        rotated_at=row["rotated_at"],
    )
