"""Every field of a job can be set on the command line, in a job file and in Python, or an exception says why not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields

import pytest
from pydantic import BaseModel

from crucible.cli.options.job_options import RunOptions, option_fills
from crucible.client.request.job_file import SPELLING
from crucible.client.request.job_request import FieldMapping
from crucible.client.request.requirements import Preferences, Requirements
from crucible.client.request.submit_options import KEYWORDS, SubmitOptions
from crucible.core.job.job_file import WHAT_TO_RUN, JobFile
from crucible.core.job.spec import JobSpec
from crucible.core.routing.plan_request import Goal

TABLES = ("resources", "retries", "keep")
"""Fields of a job whose own fields are set one by one."""
FROM_THE_CODE = "follows from the code that is run"
NOWHERE = {
    "command": FROM_THE_CODE,
    "bundle": FROM_THE_CODE,
    "in_place": FROM_THE_CODE,
    "workdir": FROM_THE_CODE,
    "environment": FROM_THE_CODE,
    "source": FROM_THE_CODE,
    "nodes": "jobs on several machines are not supported yet",
    "shape": "services are not supported yet",
    "rerun_of": "`crucible rerun` sets it",
    "plan": "ignored; clients of version 0.1.0 send it",
}
RARE = "rarely changed; in job files only"
NOT_AN_OPTION = {
    "retries.interruption": RARE,
    "retries.infrastructure": RARE,
    "keep.best": RARE,
    "keep.every": RARE,
    "keep.higher_is_better": RARE,
}
NOT_A_KEYWORD = {
    **NOT_AN_OPTION,
    "fallback": "`places` has it, after the first",
    "gpu_types": "Requirements ask for GPU memory instead",
}


def fields_of_a_job() -> set[str]:
    """Return the fields of a JobSpec, those of a table as `resources.cpus`."""
    plain = set(JobSpec.model_fields) - set(TABLES)
    return plain.union(*(nested(table) for table in TABLES))


def nested(table: str) -> set[str]:
    model = JobSpec.model_fields[table].annotation
    assert isinstance(model, type)
    assert issubclass(model, BaseModel)
    return {f"{table}.{name}" for name in model.model_fields}


def filled(arguments: Iterable[str], mappings: Mapping[str, FieldMapping]) -> set[str]:
    """Return the fields that these arguments fill, by their mapping or their name."""
    named = {mappings[name].field if name in mappings else name for name in arguments}
    return named.union(*(nested(table) for table in named & set(TABLES)))


OPTIONS = filled((item.name for item in fields(RunOptions)), option_fills())
JOB_FILE = filled(JobFile.model_fields.keys() - WHAT_TO_RUN, SPELLING)
PYTHON = filled(
    [*SubmitOptions.__annotations__, *(item.name for kind in (Requirements, Preferences) for item in fields(kind))],
    KEYWORDS,
)


@pytest.mark.parametrize(
    ("settable", "exceptions"),
    [(OPTIONS, NOT_AN_OPTION), (JOB_FILE, {}), (PYTHON, NOT_A_KEYWORD)],
    ids=["an option of run", "a field of a job file", "a keyword of submit"],
)
def test_every_field_of_a_job_is_set_by(settable: set[str], exceptions: Mapping[str, str]) -> None:
    assert NOWHERE.keys() <= fields_of_a_job()
    assert fields_of_a_job() - settable - NOWHERE.keys() == exceptions.keys()


@pytest.mark.parametrize("mappings", [option_fills(), SPELLING, KEYWORDS], ids=["options", "job file", "keywords"])
def test_every_mapping_fills_a_field_of_a_job_or_a_goal(mappings: Mapping[str, FieldMapping]) -> None:
    known = fields_of_a_job() | set(TABLES) | set(Goal.model_fields)
    assert {mapping.field for mapping in mappings.values()} <= known
