"""Results that jobs return, one row for each attempt, stored once its process has ended."""

from __future__ import annotations

import json
from collections.abc import Mapping

from sqlalchemy import Connection, bindparam, select, update

from crucible.control.db import schema as t
from crucible.control.db.statement import Statement, insert_row
from crucible.core.views.jobs import ResultView
from crucible.wire.documents.results import read_result_document

_r = t.results.c
_REPLACE = Statement(
    update(t.results)
    .where(_r.attempt == bindparam("its_attempt"))
    .values(kind=bindparam("kind"), value=bindparam("value"), stored_at=bindparam("stored_at"))
)
_ADD = Statement(insert_row(t.results, ["attempt", "job", "kind", "value", "stored_at"]))
_NEWEST = Statement(
    select(_r.kind, _r.value, t.attempts.c.number)
    .join(t.attempts, t.attempts.c.id == _r.attempt)
    .where(_r.job == bindparam("job"))
    .order_by(t.attempts.c.number.desc())
    .limit(1)
)


def store(conn: Connection, job: str, attempt: str, data: Mapping[str, object], now: float) -> None:
    """Store the result in a runner's message; a later one replaces it. Raises BadResult."""
    result = read_result_document(data)
    values = {"kind": result.kind, "value": json.dumps(result.value), "stored_at": now}
    if _REPLACE.run(conn, its_attempt=attempt, **values) == 0:
        _ADD.run(conn, attempt=attempt, job=job, **values)


def result_of_job(conn: Connection, job: str) -> ResultView | None:
    """Return the result of the job's latest attempt that has one."""
    row = _NEWEST.first(conn, job=job)
    if row is None:
        return None
    return ResultView(kind=row["kind"], value=json.loads(row["value"]), attempt=row["number"])
