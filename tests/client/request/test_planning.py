"""From code to a question, and from the answer to what is submitted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crucible.client.payload.base import Payload
from crucible.client.request.job_request import make_spec
from crucible.client.request.planning import apply_plan, needs_no_plan, plan_request, program_files
from crucible.core.compute.offers import Market
from crucible.core.compute.resources import Capacity
from crucible.core.errors import BadInput
from crucible.core.job.spec import EnvironmentSpec, JobSpec, Source, SourceKind
from crucible.core.routing.plan_request import Goal, Objective, PlanRequest
from crucible.core.views.plans import PlannedView, PlanView, SizesView, SubmissionView
from crucible.wire.files.archive import Entry, Link

PAYLOAD = Payload(
    command=("{python}", "train.py", "--epochs", "3"),
    environment=EnvironmentSpec(),
    source=Source(),
    entries=(
        Entry.of_bytes("model.py", b"import torch"),
        Entry.of_bytes("config.yaml", b"lr: 1"),
        Entry.of_bytes("weights.bin", b"\x00" * 100),
        Entry.of_bytes("train.py", b"import model\xff"),
        Entry("link.py", Link("train.py")),
    ),
)


def job(payload: Payload = PAYLOAD, **fields: object) -> JobSpec:
    return make_spec({**fields, **payload.fields()})


def planned(payload: Payload = PAYLOAD, **fields: object) -> PlanRequest:
    return plan_request(job(payload, **fields), payload, Goal())


def test_the_texts_of_a_program_are_sent_the_one_that_is_started_first() -> None:
    assert list(program_files(PAYLOAD)) == ["train.py", "model.py", "config.yaml"]
    assert program_files(PAYLOAD)["train.py"] == "import model\ufffd"


def test_a_huge_bundle_is_read_in_part() -> None:
    many = tuple(Entry.of_bytes(f"m{n}.py", b"x" * 10) for n in range(1000))
    assert len(program_files(replace(PAYLOAD, entries=(*many, *(PAYLOAD.entries or ()))))) == 400
    assert "train.py" in program_files(replace(PAYLOAD, entries=(*many, *(PAYLOAD.entries or ()))))
    large = tuple(Entry.of_bytes(f"m{n}.py", b"x" * 900_000) for n in range(20))
    assert sum(map(len, program_files(replace(PAYLOAD, entries=large)).values())) <= 6_000_000


def test_of_a_huge_program_the_beginning_is_read(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("import torch\n" + "x = 1\n" * 200_000)
    large = Entry("train.py", file, size=file.stat().st_size)
    other = Entry("model.py", file, size=file.stat().st_size)
    for payload in (replace(PAYLOAD, entries=(large, other)), replace(PAYLOAD, entries=None, in_place=str(tmp_path))):
        found = program_files(payload)
        assert list(found) == ["train.py"]
        assert found["train.py"].startswith("import torch")
        assert len(found["train.py"]) == 1_000_000


def test_what_runs_in_place_is_read_there(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch")
    (tmp_path / "model.py").write_text("1")
    (tmp_path / "data.csv").write_text("1")
    found = program_files(replace(PAYLOAD, entries=None, in_place=str(tmp_path)))
    assert found == {"train.py": "import torch", "model.py": "1"}


def test_a_question_holds_what_was_said_and_no_secrets() -> None:
    spec = job(backend="local", env={"TOKEN": "s3cret"}, secrets={"KEY": "key"}, gpu_types=("T4",))
    goal = Goal(optimize=Objective.SPEED, hours=2.0, allowed_backends=("local",), limit=3)
    ask = plan_request(spec, PAYLOAD, goal)
    assert (ask.optimize, ask.hours, ask.allowed_backends, ask.limit) == (Objective.SPEED, 2.0, ("local",), 3)
    assert (ask.backend, ask.gpu_types, ask.env, ask.secrets) == ("local", ("T4",), {}, {})
    assert ask.program is not None
    assert ask.program.arguments == ("--epochs", "3")


def test_a_kind_of_gpu_and_no_gpu() -> None:
    with pytest.raises(BadInput, match="--gpu T4 conflicts with --gpus 0"):
        planned(gpu_types=("T4",), resources={"gpus": 0})
    assert planned(gpu_types=("T4",)).gpu_types == ("T4",)


@pytest.mark.parametrize(
    ("fields", "entries", "plain"),
    [
        ({"backend": "local"}, True, True),
        ({}, False, True),
        ({}, True, False),
        ({"backend": "rehearsal"}, False, False),
        ({"fallback": ("rehearsal",)}, False, False),
        ({"resources": {"gpus": 1}}, False, False),
        ({"tier": "GPU_SMALL"}, False, False),
    ],
)
def test_what_is_plain_is_not_asked(fields: dict[str, object], entries: bool, plain: bool) -> None:
    payload = PAYLOAD if entries else replace(PAYLOAD, entries=None, command=("sh", "-c", "true"))
    assert needs_no_plan(planned(payload, **fields)) is plain


def plan_for(backend: str, **job: Any) -> PlanView:
    """Return a plan whose chosen offer is this backend's; `job` is what a submission has to add."""
    chosen = PlannedView(backend=backend, capacity=Capacity(cpus=2, memory_bytes=8 * 2**30))
    return PlanView(chosen=chosen, offers=(chosen,), offers_count=1, job=SubmissionView(backend=backend, **job))


def test_the_plan_is_followed_where_nothing_was_named() -> None:
    plan = plan_for("cloud", market=Market.SPOT, resources=SizesView(gpus=1, gpu_memory_bytes=7))
    spec = apply_plan(plan, job(resources={"gpus": 2}))
    assert (spec.backend, spec.market) == ("cloud", Market.SPOT)
    assert (spec.resources.gpus, spec.resources.gpu_memory_bytes) == (2, 7)
    assert apply_plan(plan, job(market=Market.ON_DEMAND)).market is Market.ON_DEMAND


def test_spot_that_the_plan_chose_falls_back_as_planned_and_spot_that_the_user_chose_as_they_said() -> None:
    plan = plan_for("cloud", market=Market.SPOT, spot_fallback=True)
    assert apply_plan(plan, job()).spot_fallback
    assert not apply_plan(plan, job(market=Market.SPOT)).spot_fallback
    assert apply_plan(plan_for("cloud"), job(spot_fallback=True)).spot_fallback


def test_at_a_place_that_was_named_it_asks_for_what_the_program_needs() -> None:
    plan = plan_for("cloud", resources=SizesView(gpus=1, gpu_memory_bytes=7))
    spec = apply_plan(plan, job(backend="cloud", resources={"gpus": 2}))
    assert (spec.resources.gpus, spec.resources.gpu_memory_bytes) == (2, 7)


@pytest.mark.parametrize("spec", [job(backend="rehearsal"), job(name="x")])
def test_what_was_named_stands_and_here_needs_no_name(spec: JobSpec) -> None:
    assert apply_plan(plan_for("local"), spec) == spec


def test_of_a_notebook_the_cells_are_read(tmp_path: Path) -> None:
    picture = {"output_type": "display_data", "metadata": {}, "data": {"image/png": "A" * 2_000_000}}
    cell = {"cell_type": "code", "metadata": {}, "execution_count": 1, "source": "import torch", "outputs": [picture]}
    notebook = {"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": [cell]}
    (tmp_path / "mine.ipynb").write_text(json.dumps(notebook))
    source = Source(kind=SourceKind.NOTEBOOK, path=str(tmp_path / "mine.ipynb"))
    entries = (Entry.of_bytes("mine.py", b"1"), Entry.of_bytes("model.py", b"2"))
    ask = planned(replace(PAYLOAD, source=source, entries=entries, command=("{python}", "mine.py")))
    assert ask.program is not None
    assert (ask.program.entry, sorted(ask.program.files)) == ("mine.ipynb", ["mine.ipynb", "model.py"])
    sent = json.loads(ask.program.files["mine.ipynb"])
    assert sent["cells"] == [{"cell_type": "code", "source": "import torch"}]
