"""What a job found out, at its end: told to a person, or printed for a program."""

from __future__ import annotations

import json

from crucible.cli.output.output import Output
from crucible.cli.session import Session
from crucible.client.api import Api
from crucible.core.job.spec import Kind
from crucible.core.views.jobs import JobView, ResultView


def tell_result(session: Session, api: Api, job: str) -> None:
    """The result, if there is one, in words; standard output stays the program's."""
    if not session.out.as_json:
        _tell(session.out, api.job(job))


def show_result(session: Session, api: Api, job: str) -> None:
    """The same; but a prediction and a benchmark are data, and their lack is said."""
    if session.out.as_json:
        return
    view = api.job(job)
    if view.kind == Kind.TRAIN.value:
        _tell(session.out, view)
    elif view.result is not None:
        session.out.data(_written(view.result))
    elif view.status == "completed":
        session.out.warn("The job left no result. A script leaves one with crucible.result(value).")


def _tell(out: Output, job: JobView) -> None:
    if job.result is not None:
        out.say(f"  Result: {_written(job.result)}")


def _written(result: ResultView) -> str:
    return json.dumps(result.value, ensure_ascii=False)
