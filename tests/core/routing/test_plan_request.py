"""What may be asked of a plan, and which program it is about."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from crucible.core.errors import UnknownName
from crucible.core.job.spec import JobSpec
from crucible.core.routing.plan_request import PlanRequest, Program


def test_code_alone_will_do() -> None:
    ask = PlanRequest(code="import torch")
    assert ask.program == Program({"main.py": "import torch"}, "main.py", ())


def test_all_of_a_submission_may_be_said() -> None:
    spec = JobSpec(command=("python", "train.py"), backend="local", tags=("a",), seed=3)
    ask = PlanRequest.model_validate({**spec.model_dump(), "files": {"train.py": "1"}})
    assert {name: getattr(ask, name) for name in JobSpec.model_fields} == dict(spec)


@pytest.mark.parametrize(
    ("said", "entry", "arguments"),
    [
        ({"command": ("{python}", "b.py", "--epochs", "3")}, "b.py", ("--epochs", "3")),
        ({"command": ("torchrun", "--nproc_per_node", "4", "b.py", "x")}, "b.py", ("x",)),
        ({"entry": "a.py"}, "a.py", ()),
        ({"command": ("make", "train")}, "a.py", ()),
    ],
)
def test_the_program_is_the_one_that_is_started(said: dict[str, object], entry: str, arguments: tuple[str]) -> None:
    ask = PlanRequest.model_validate({"files": {"c.yaml": "x: 1", "a.py": "", "b.py": ""}, **said})
    assert ask.program is not None
    assert (ask.program.entry, ask.program.arguments) == (entry, arguments)


@pytest.mark.parametrize(
    ("command", "processes"),
    [
        (("torchrun", "--nproc_per_node", "4", "b.py"), 4),
        (("torchrun", "--nproc-per-node=8", "b.py"), 8),
        (("accelerate", "launch", "--num_processes", "2", "b.py"), 2),
        (("deepspeed", "--num_gpus", "4", "b.py", "--deepspeed"), 4),
        (("torchrun", "--nproc-per-node", "gpu", "b.py"), None),
        (("torchrun", "--nproc-per-node"), None),
        (("python", "b.py", "--num_gpus", "4"), None),
        (("python", "b.py"), None),
    ],
)
def test_a_launcher_says_how_many_processes_it_starts(command: tuple[str, ...], processes: int | None) -> None:
    assert PlanRequest(command=command, files={"b.py": ""}).processes == processes


@pytest.mark.parametrize("said", [{}, {"command": ("make",)}, {"files": {"data.yaml": "x: 1"}}])
def test_there_may_be_nothing_to_read(said: dict[str, object]) -> None:
    assert PlanRequest.model_validate(said).program is None


@pytest.mark.parametrize(
    "said",
    [
        {"code": "1", "files": {"a.py": "1"}},
        {"files": {"a.py": "1"}, "entry": "b.py"},
        {"hours": 0},
        {"hours": float("nan")},
        {"deadline_hours": -1},
        {"max_cost_usd": -0.01},
        {"optimize": "cheapest"},
        {"limit": 0},
        {"limit": 5001},
        {"code": "x" * 1_000_001},
        {"files": {f"{n}.py": "" for n in range(401)}},
        {"files": {"": ""}},
        {"files": {"a\0.py": ""}},
        {"unknown": 1},
    ],
)
def test_what_no_plan_can_be_asked(said: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        PlanRequest.model_validate(said)


def test_a_gpu_by_any_name_that_people_use() -> None:
    assert PlanRequest.model_validate({"gpu_types": ["tesla t4"]}).gpu_types == ("T4",)
    assert len(PlanRequest.model_validate({"gpu_types": ["A100"]}).gpu_types) == 4
    with pytest.raises(UnknownName) as raised:
        PlanRequest.model_validate({"gpu_types": ["A1000"]})
    assert raised.value.meant is not None


def test_the_digest_tells_programs_apart() -> None:
    base = Program({"a.py": "1", "b.py": "2"}, "a.py", ("x",))
    same = Program({"b.py": "2", "a.py": "1"}, "a.py", ("x",))
    others = [
        Program({"a.py": "1", "b.py": "2"}, "b.py", ("x",)),
        Program({"a.py": "1", "b.py": "2"}, "a.py", ()),
        Program({"a.py": "12", "b.py": ""}, "a.py", ("x",)),
        Program({"a.py": "1", "b.p": "y2"}, "a.py", ("x",)),
        Program({"a.py": "\ud800", "b.py": "2"}, "a.py", ("x",)),
    ]
    assert same.digest == base.digest
    assert len({base.digest, *(other.digest for other in others)}) == 6


def test_money_is_whole() -> None:
    assert PlanRequest(max_cost_usd=0.1).max_cost_micros == 100_000
    assert PlanRequest().max_cost_micros is None


def test_code_is_the_same_script_whatever_it_is_told() -> None:
    plain = PlanRequest(command=("python", "train.py"), files={"train.py": "import model", "model.py": "x = 1"})
    told = plain.model_copy(update={"command": ("python", "train.py", "--epochs", "3")})
    settled = plain.model_copy(update={"files": {**plain.files, "settings.yaml": "epochs: 3"}})
    other = plain.model_copy(update={"files": {**plain.files, "model.py": "x = 2"}})
    programs = [ask.program for ask in (plain, told, settled, other)]
    digests, scripts = [one and one.digest for one in programs], [one and one.script for one in programs]
    assert len(set(digests)) == 4
    assert scripts[0] == scripts[1] == scripts[2] != scripts[3]
