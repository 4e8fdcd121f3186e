"""Comparing jobs: their settings, measures, duration, cost and health in one answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from sqlalchemy import Connection

from crucible.control import points, repository
from crucible.control.views import View
from crucible.core.comparison import Compared, Comparison, Line, Measured, Value, arguments_of, compare
from crucible.core.errors import BadInput
from crucible.core.health import SYSTEM

FEWEST, MOST = 2, 20
_SHOWN = ("kind", "tier", "backend", "market", "rerun_of")


def check_count(refs: Sequence[str]) -> None:
    if not FEWEST <= len(refs) <= MOST:
        raise BadInput(
            f"{len(refs)} {'job' if len(refs) == 1 else 'jobs'} cannot be compared.",
            why=f"It takes {FEWEST} to {MOST}.",
            fix="Name each of them: crucible compare ID ID …",
        )


def compared(conn: Connection, jobs: Sequence[View]) -> View:
    """The jobs side by side. `jobs` are their views, in the order in which they are to be shown."""
    found = compare([Compared(_config(view), _measured(conn, str(view["id"]))) for view in jobs])
    return {"jobs": [_job(view) for view in jobs], **_sections(found)}


def _sections(found: Comparison) -> View:
    return {
        "config": [_line(line) for line in found.config],
        "metrics": {"last": [_line(line) for line in found.last], "best": [_line(line) for line in found.best]},
    }


def _line(line: Line) -> View:
    return {"name": line.name, "values": list(line.values), "differs": line.differs, "winner": line.winner}


def _job(view: View) -> View:
    told = (
        *("id", "short", "name", "source", "status", "phase", "simulated", "created_at"),
        *("ran_seconds", "cost", "progress", "exit_code"),
    )
    health = view.get("health")
    verdict = health.get("verdict") if isinstance(health, Mapping) else None
    return {**{name: view[name] for name in told}, "verdict": verdict}


def _config(view: View) -> dict[str, Value]:
    """What may be shown of a job's settings: never its environment variables, which may hold secrets."""
    command = view["command"]
    plain = {name: _value(view[name]) for name in _SHOWN}
    resources, source, environment = (_mapping(view[name]) for name in ("resources", "source", "environment"))
    said = arguments_of([str(word) for word in command]) if isinstance(command, list) else {}
    return {
        **{f"--{name}" if name != "command" else name: value for name, value in said.items()},
        **plain,
        **{f"resources.{name}": _value(value) for name, value in resources.items()},
        **{f"source.{name}": _value(source.get(name)) for name in ("kind", "path", "url", "commit", "dirty")},
        "python": _value(environment.get("interpreter") or environment.get("origin")),
        "tags": ", ".join(map(str, tags)) if isinstance(tags := view["tags"], list) else "",
    }


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _value(value: object) -> Value:
    return value if value is None or isinstance(value, str | int | float | bool) else json.dumps(value, default=str)


def _measured(conn: Connection, job: str) -> dict[str, Measured]:
    """Of the latest attempt that reported anything, what its last rows know of the whole."""
    for attempt in reversed(repository.load_attempts(conn, job)):
        found = points.summaries(conn, attempt.id)
        if found:
            return {name: Measured(*one) for name, one in found.items() if not name.startswith(SYSTEM)}
    return {}
