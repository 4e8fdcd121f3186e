from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.plugin_packages import COUNTER, HEAD, install

from crucible.inside import registry
from crucible.inside.model import BadPlugin


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_models_are_listed_without_being_imported(site: Path) -> None:
    install(site, "counting_one", COUNTER, {"counter": "counting_one:Counter"})
    install(site, "broken_one", "raise RuntimeError", {"broken": "broken_one:Model"}, version="2.1")
    found = {item.name: item for item in registry.models()}
    assert found["counter"] == registry.ModelEntry("counter", "counting_one:Counter", "counting_one", "1.0")
    assert found["broken"].version == "2.1"
    assert "counting_one" not in sys.modules


def test_a_model_is_found_by_its_name(site: Path) -> None:
    install(site, "counting_two", COUNTER, {"counter": "counting_two:Counter"})
    model = registry.get_model("counter")
    assert model.__name__ == "Counter"
    assert model({}).config["epochs"] == 3


def test_a_name_that_nobody_offers(site: Path) -> None:
    with pytest.raises(registry.UnknownModel, match=r"There is no model 'counter'. No package of .* has any"):
        registry.get_model("counter")
    install(site, "counting_three", COUNTER, {"counter": "counting_three:Counter"})
    with pytest.raises(registry.UnknownModel, match=r"Did you mean 'counter'?"):
        registry.get_model("countre")
    with pytest.raises(registry.UnknownModel, match=r"Known: counter"):
        registry.get_model("resnet")


@pytest.mark.parametrize(
    "value", ["my-package:Model", "counting", ":Counter", "counting:", "a b:C", "counting.py:1Model"]
)
def test_an_entry_point_that_names_nothing_is_told_with_its_right_form(site: Path, value: str) -> None:
    install(site, "malformed", COUNTER, {"counter": value})
    with pytest.raises(BadPlugin) as raised:
        registry.get_model("counter")
    assert f"counter: its entry point {value!r} does not name a class" in str(raised.value)
    assert '`counter = "package.module:Class"` under [project.entry-points."crucible.models"]' in str(raised.value)


def test_a_name_that_two_packages_offer(site: Path) -> None:
    install(site, "counting_four", COUNTER, {"counter": "counting_four:Counter"})
    install(site, "counting_five", COUNTER, {"counter": "counting_five:Counter"})
    with pytest.raises(
        BadPlugin, match=r"two packages define it: counting_five .* and counting_four .*; uninstall one"
    ):
        registry.get_model("counter")


def test_what_it_names_has_to_be_a_plugin(site: Path) -> None:
    install(site, "wrong_one", HEAD + "value = 3\n", {"wrong": "wrong_one:value"})
    with pytest.raises(BadPlugin, match=r"wrong: 3 is not a subclass"):
        registry.get_model("wrong")
    install(site, "gone_one", HEAD, {"gone": "gone_one:Model"})
    with pytest.raises(AttributeError):
        registry.get_model("gone")
