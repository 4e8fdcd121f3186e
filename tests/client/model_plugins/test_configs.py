from __future__ import annotations

from pathlib import Path

import pytest

from crucible.client.model_plugins import read_config, read_inputs
from crucible.core.errors import BadInput
from crucible.wire.models.options import Option

SCHEMA = {
    "epochs": Option(int, default=3, minimum=1),
    "rate": Option(float, default=0.5),
    "label": Option(str, default=""),
    "goal": Option(str, default=None),
    "layers": Option(list, default=[]),
}


def test_pairs_are_read_by_their_options(tmp_path: Path) -> None:
    items = ["epochs=5", "label=123", "layers=[1, 2]", "goal=null", "rate=1"]
    assert read_config(items, tmp_path, SCHEMA, "m") == {
        "epochs": 5,
        "label": "123",
        "layers": [1, 2],
        "goal": None,
        "rate": 1,
    }


def test_without_a_schema_a_value_is_json_or_text(tmp_path: Path) -> None:
    items = ["a=1", "b=text", "c=true", 'd="1"', "e=x=y"]
    assert read_config(items, tmp_path, None, "m") == {"a": 1, "b": "text", "c": True, "d": "1", "e": "x=y"}


@pytest.mark.parametrize(
    ("name", "text"),
    [("c.json", '{"epochs": 7}'), ("c.toml", "epochs = 7"), ("c.yaml", "epochs: 7"), ("c.yml", "epochs: 7")],
)
def test_files_and_pairs_are_joined_in_their_order(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert read_config([name, "rate=0.1"], tmp_path, SCHEMA, "m") == {"epochs": 7, "rate": 0.1}
    assert read_config([name, "epochs=8"], tmp_path, SCHEMA, "m") == {"epochs": 8}
    assert read_config(["epochs=8", str(tmp_path / name)], tmp_path, SCHEMA, "m") == {"epochs": 7}


def test_all_that_is_wrong_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as error:
        read_config(["epoch=3", "rate=fast"], tmp_path, SCHEMA, "mine")
    assert error.value.what == "The config of 'mine' is wrong: there is no option 'epoch'; did you mean 'epochs'?"
    assert error.value.why == "Also: rate must be a number, not 'fast'."
    assert error.value.fix == "`crucible models show mine` lists its options."


@pytest.mark.parametrize(
    ("item", "content", "says"),
    [
        ("epochs", None, "--config epochs is neither a file nor KEY=VALUE"),
        ("not-a-name=3", None, "is neither a file nor KEY=VALUE"),
        ("absent.toml", None, "absent.toml does not exist"),
        ("c.toml", b"epochs = ", "--config c.toml is not valid TOML"),
        ("c.json", b"{", "--config c.json is not valid JSON"),
        ("c.yaml", b"a: [", "--config c.yaml is not valid YAML"),
        ("c.json", b"[1]", "is not a table of names and values"),
        ("c.yaml", b"", "is not a table of names and values"),
        ("c.yaml", b"1: 2", "is not a table of names and values"),
        ("c.json", b"\xff", "c.json cannot be read"),
        ("c.json", b" " * 70_000, "c.json is larger than 64 KiB"),
        ("c.toml", b"day = 2026-01-01", "The config contains a value that JSON does not support"),
        ("c.yaml", b"rate: .nan", "The config contains a value that JSON does not support"),
    ],
)
def test_what_is_no_config_is_refused(tmp_path: Path, item: str, content: bytes | None, says: str) -> None:
    if content is not None:
        (tmp_path / item).write_bytes(content)
    with pytest.raises(BadInput) as error:
        read_config([item], tmp_path, None, "m")
    assert says in error.value.what
    assert error.value.fix


def test_inputs_are_json_files_or_text(tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text('{"x": 1}')
    (tmp_path / "in.txt").write_text("hello\n")
    assert read_inputs([], tmp_path) is None
    assert read_inputs(['{"x": 1}'], tmp_path) == {"x": 1}
    assert read_inputs(["a cat"], tmp_path) == "a cat"
    assert read_inputs(["@in.json"], tmp_path) == {"x": 1}
    assert read_inputs(["@in.txt"], tmp_path) == "hello\n"
    assert read_inputs(["1", "two"], tmp_path) == [1, "two"]


@pytest.mark.parametrize("item", ["@absent.json", "NaN", "x" * 70_000])
def test_what_is_no_input_is_refused(tmp_path: Path, item: str) -> None:
    with pytest.raises(BadInput):
        read_inputs([item], tmp_path)


def test_a_number_that_yaml_takes_for_a_text_is_read_by_its_option(tmp_path: Path) -> None:
    schema = {"rate": Option(float), "epochs": Option(int), "name": Option(str)}
    (tmp_path / "c.yaml").write_text("rate: 1e-3\nepochs: '7'\nname: '5'\n")
    assert read_config(["c.yaml"], tmp_path, schema, "m") == {"rate": 0.001, "epochs": 7, "name": "5"}
    with pytest.raises(BadInput, match="rate must be a number, not 'fast'"):
        read_config([], tmp_path, schema, "m", {"rate": "fast", "epochs": 1, "name": "x"})


def test_items_stand_over_a_table(tmp_path: Path) -> None:
    base = {"a": 1, "b": [1]}
    assert read_config(["a=2"], tmp_path, None, "m", base) == {"a": 2, "b": [1]}
    assert base == {"a": 1, "b": [1]}
