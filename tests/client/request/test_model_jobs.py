"""A model by its name as a job: what is asked, checked, and sized."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.plugin_packages import COUNTER, HEAD, install, make_python

from crucible.client.model_plugins import read_config
from crucible.client.payload import CodeSource, ModelOptions
from crucible.client.request.model_jobs import build_model_payload
from crucible.client.request.pythons import SubmitHost
from crucible.core.compute.resources import GiB
from crucible.core.errors import BadInput
from crucible.core.job.spec import Kind

LARGE = f"{HEAD}\nclass Large(BaseModel):\n    model_metadata = ModelMetadata(min_gpu_memory_gb=12)\n"
LARGE += "    def train(self, train_loader, val_loader, callbacks): pass\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose ./.venv has two models."""
    site = make_python(tmp_path / ".venv")
    install(site, "counting", COUNTER, {"counter": "counting:Counter"})
    install(site, "large", LARGE, {"large": "large:Large"})
    return tmp_path


def model(name: str, folder: Path, **more: Any) -> CodeSource:
    host = SubmitHost({"PATH": "/usr/bin:/bin"}, folder)
    return CodeSource(host, "model", name, model=ModelOptions(folder), scratch=folder, **more)


@pytest.mark.parametrize(
    ("kind", "method"), [(None, "train"), (Kind.INFERENCE, "infer"), (Kind.BENCHMARK, "benchmark")]
)
def test_the_kind_of_job_says_what_is_done(folder: Path, kind: Kind | None, method: str) -> None:
    payload, fields = build_model_payload(model("counter", folder), {} if kind is None else {"kind": kind})
    assert payload.command[6] == method
    assert (fields["name"], fields["kind"]) == ("counter", kind or Kind.TRAIN)


def test_a_model_is_no_service(folder: Path) -> None:
    with pytest.raises(BadInput, match="cannot be a job of the kind serve"):
        build_model_payload(model("counter", folder), {"kind": Kind.SERVE})


def test_a_model_asks_for_the_gpu_it_needs_unless_a_size_was_given(folder: Path) -> None:
    asked = model("large", folder)
    _, fields = build_model_payload(asked, {"resources": {"cpus": 2}})
    assert fields["resources"] == {"cpus": 2, "gpus": 1, "gpu_memory_bytes": 12 * GiB}
    _, fields = build_model_payload(asked, {"resources": {"gpus": 2}})
    assert fields["resources"] == {"gpus": 2}
    _, fields = build_model_payload(asked, {"tier": "GPU_SMALL"})
    assert "resources" not in fields


@pytest.mark.parametrize(
    "more", [{"arguments": ("x",)}, {"entry": "a.py"}, {"ref": "main"}, {"include": ("*",)}, {"in_place": True}]
)
def test_what_is_for_code_is_not_passed_over_in_silence(folder: Path, more: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=r"does not go with a model|takes no arguments"):
        build_model_payload(model("counter", folder, **more), {})


def test_flags_stand_over_what_was_written(tmp_path: Path) -> None:
    written = ModelOptions(tmp_path / "there", {"epochs": 3, "rate": 0.1}, (), ".", [1], ("a:A",))
    flags = ModelOptions(tmp_path, {}, ("epochs=5",), None, None, ("b:B",))
    joined = flags.merged_onto(written)
    assert (joined.folder, joined.plugin, joined.inputs, joined.callbacks) == (tmp_path, ".", [1], ("a:A", "b:B"))
    assert read_config(joined.items, joined.folder, None, "tiny", joined.config) == {"epochs": 5, "rate": 0.1}
    assert flags.merged_onto(ModelOptions(tmp_path)).plugin is None
