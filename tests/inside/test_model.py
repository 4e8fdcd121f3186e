from __future__ import annotations

from pathlib import Path

import pytest

import crucible
from crucible import BaseModel, ModelMetadata, Option
from crucible.inside.model import BadPlugin, check_plugin, describe_model, implements
from crucible.wire.models.options import BadConfig, BadSchema


class Trained(BaseModel):
    schema = {"epochs": Option(int, default=2, minimum=1)}  # noqa: RUF012
    model_metadata = ModelMetadata(version="3", framework="none", min_gpu_memory_gb=7.5)

    def train(self, train_loader: object, val_loader: object, callbacks: object) -> None:
        return None


def test_a_model_has_its_config_checked_and_filled() -> None:
    assert Trained({}).config["epochs"] == 2
    assert Trained({"epochs": 5}).config == {"epochs": 5}
    with pytest.raises(BadConfig, match="epochs must be at least 1, not 0"):
        Trained({"epochs": 0})


def test_a_model_without_a_schema_takes_what_it_gets() -> None:
    assert BaseModel({"epochs": 100, "any": "thing"}).config["epochs"] == 100
    assert BaseModel().config == {}


def test_what_a_model_does_not_do_says_so() -> None:
    model = BaseModel({})
    for call in (lambda: model.train(1, 2, 3), lambda: model.infer(1), lambda: model.benchmark()):
        with pytest.raises(NotImplementedError, match="this model"):
            call()
    assert model.prepare_dataloaders(Path("data"), {}) == (Path("data"), None)
    assert list(model.callbacks()) == []


def test_a_model_is_described_as_json() -> None:
    assert describe_model("counter", Trained) == {
        "name": "counter",
        "metadata": {
            "name": "counter",
            "version": "3",
            "description": "",
            "framework": "none",
            "min_gpu_memory_gb": 7.5,
        },
        "methods": ["train"],
        "schema": {"epochs": {"type": "int", "required": False, "default": 2, "minimum": 1}},
    }
    assert implements(Trained, "train")
    assert not implements(Trained, "save")


class NoMethods(BaseModel):
    pass


class BadSchemaModel(Trained):
    schema = {"epochs": 3}  # type: ignore[dict-item]  # noqa: RUF012


class BadMetadata(Trained):
    model_metadata = {"min_gpu_memory_gb": 8}  # type: ignore[assignment]  # noqa: RUF012


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (object(), "is not a subclass of crucible.BaseModel"),
        (dict, "is not a subclass of crucible.BaseModel"),
        (NoMethods, "NoMethods has none of train, infer, benchmark"),
        (BadSchemaModel, "the option 'epochs' is int, not an Option"),
        (BadMetadata, "model_metadata is dict, not a ModelMetadata"),
    ],
)
def test_what_is_no_plugin_is_named_with_its_fault(found: object, says: str) -> None:
    with pytest.raises(BadPlugin, match=f"^mine: .*{says}"):
        check_plugin("mine", found)
    assert check_plugin("mine", Trained) is Trained


@pytest.mark.parametrize("memory", [-1, "8", True, float("nan"), 10**9])
def test_gpu_memory_is_a_number_of_gigabytes(memory: float) -> None:
    with pytest.raises(BadSchema, match="min_gpu_memory_gb is a number of gigabytes"):
        ModelMetadata(min_gpu_memory_gb=memory)
    with pytest.raises(BadSchema, match="framework is a text"):
        ModelMetadata(framework=3)  # type: ignore[arg-type]


def test_the_names_are_crucibles_own() -> None:
    assert crucible.BaseModel is BaseModel
    assert crucible.registry.GROUP == "crucible.models"
    assert {"BaseModel", "registry", "Option", "result"} <= set(dir(crucible))
