"""A model by its name as a job: what is asked, checked, and sized."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.plugin_packages import COUNTER, HEAD, install, make_python

from crucible.client.modeljobs import ModelAsk, take_model
from crucible.client.payload import Request
from crucible.client.pythons import Surroundings
from crucible.client.wishes import Wishes
from crucible.core.errors import BadInput
from crucible.core.resources import GiB
from crucible.core.spec import Kind

LARGE = f"{HEAD}\nclass Large(BaseModel):\n    model_metadata = ModelMetadata(min_gpu_memory_gb=12)\n"
LARGE += "    def train(self, train_loader, val_loader, callbacks): pass\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose ./.venv has two models."""
    site = make_python(tmp_path / ".venv")
    install(site, "counting", COUNTER, {"counter": "counting:Counter"})
    install(site, "large", LARGE, {"large": "large:Large"})
    return tmp_path


def request(folder: Path, **more: Any) -> Request:
    return Request(around=Surroundings({"PATH": "/usr/bin:/bin"}, folder), scratch=folder, **more)


@pytest.mark.parametrize(
    ("kind", "method"), [(None, "train"), (Kind.INFERENCE, "infer"), (Kind.BENCHMARK, "benchmark")]
)
def test_the_kind_of_job_says_what_is_done(folder: Path, kind: Kind | None, method: str) -> None:
    payload, wishes = take_model(ModelAsk("counter", folder), request(folder), Wishes(kind=kind))
    assert payload.command[6] == method
    assert (wishes.name, wishes.kind) == ("counter", kind or Kind.TRAIN)


def test_a_model_is_no_service(folder: Path) -> None:
    with pytest.raises(BadInput, match="cannot be a job of the kind serve"):
        take_model(ModelAsk("counter", folder), request(folder), Wishes(kind=Kind.SERVE))


def test_a_model_asks_for_the_gpu_it_needs_unless_a_size_was_given(folder: Path) -> None:
    asked = ModelAsk("large", folder)
    _, wishes = take_model(asked, request(folder), Wishes(resources={"cpus": 2}))
    assert wishes.resources == {"cpus": 2, "gpus": 1, "gpu_memory_bytes": 12 * GiB}
    _, wishes = take_model(asked, request(folder), Wishes(resources={"gpus": 2}))
    assert wishes.resources == {"gpus": 2}
    _, wishes = take_model(asked, request(folder), Wishes(tier="GPU_SMALL"))
    assert wishes.resources == {}


@pytest.mark.parametrize(
    "more", [{"arguments": ("x",)}, {"entry": "a.py"}, {"ref": "main"}, {"include": ("*",)}, {"in_place": True}]
)
def test_what_is_for_code_is_not_passed_over_in_silence(folder: Path, more: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=r"does not go with a model|takes no arguments"):
        take_model(ModelAsk("counter", folder), request(folder, **more), Wishes())


def test_flags_stand_over_what_was_written(tmp_path: Path) -> None:
    written = ModelAsk("tiny", tmp_path / "there", {"epochs": 3, "rate": 0.1}, (), ".", [1], ("a:A",))
    flags = ModelAsk("ignored", tmp_path, {}, ("epochs=5",), None, None, ("b:B",))
    joined = flags.over(written)
    assert (joined.name, joined.plugin, joined.inputs, joined.callbacks) == ("tiny", ".", [1], ("a:A", "b:B"))
    assert joined.read(None) == {"epochs": 5, "rate": 0.1}
    assert flags.over(ModelAsk("tiny", tmp_path)).plugin is None
