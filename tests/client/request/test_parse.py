from __future__ import annotations

from pathlib import Path

import pytest

from crucible.client.request.parse import (
    read_data,
    read_env_file,
    read_market,
    read_names,
    read_secrets,
    read_variables,
)
from crucible.core.compute.offers import Market
from crucible.core.errors import BadInput, UnknownName


def test_only_named_variables_pass() -> None:
    shell = {"HF_TOKEN": "secret", "OTHER": "x"}
    assert read_variables(["HF_TOKEN", "MODE=a=b", "EMPTY="], shell) == {
        "HF_TOKEN": "secret",
        "MODE": "a=b",
        "EMPTY": "",
    }


def test_a_variable_the_shell_does_not_have_is_bad_input() -> None:
    with pytest.raises(BadInput) as caught:
        read_variables(["HF_TOKEN"], {})
    assert "export HF_TOKEN" in caught.value.fix


@pytest.mark.parametrize("item", ["1A=x", "=x", "A-B=x", "A B"])
def test_a_bad_name_is_bad_input(item: str) -> None:
    with pytest.raises(BadInput, match="is not the name"):
        read_variables([item], {})


def test_a_file_of_variables_is_read(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("# note\nexport A=1\nB='two words'\nC=\"x\"\n\nD=a#b\n")
    assert read_env_file(file) == {"A": "1", "B": "two words", "C": "x", "D": "a#b"}


def test_a_bad_line_of_a_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("A=1\nnonsense\n")
    with pytest.raises(BadInput, match="line 2"):
        read_env_file(file)
    with pytest.raises(BadInput, match="cannot be read"):
        read_env_file(tmp_path / "nosuch")


def test_data_paths_are_absolute_and_named(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "a=b").write_text("x")
    found = read_data(["images", "train=images/", "a=b", "https://host/set/part.csv"], tmp_path)
    assert [(item.name, item.source) for item in found] == [
        ("images", str(tmp_path / "images")),
        ("train", str(tmp_path / "images")),
        ("a=b", str(tmp_path / "a=b")),
        ("part.csv", "https://host/set/part.csv"),
    ]


def test_bad_data_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    with pytest.raises(BadInput, match="does not exist"):
        read_data(["nosuch"], tmp_path)
    with pytest.raises(BadInput, match="Two --data inputs"):
        read_data(["x", "./x"], tmp_path)
    with pytest.raises(BadInput, match="has no name"):
        read_data(["https://host"], tmp_path)


@pytest.mark.parametrize("item", ["s3://bucket/set", "gs://bucket/set", "set=s3://bucket/set"])
def test_data_that_cannot_be_read_is_refused_with_what_works(tmp_path: Path, item: str) -> None:
    with pytest.raises(BadInput, match="cannot be read") as caught:
        read_data([item], tmp_path)
    assert "file://, http:// and https://" in caught.value.why


def test_a_file_address_has_to_exist(tmp_path: Path) -> None:
    (tmp_path / "a b").write_text("x")
    (found,) = read_data([(tmp_path / "a b").as_uri()], tmp_path)
    assert found.source == (tmp_path / "a b").as_uri()
    with pytest.raises(BadInput, match="does not exist"):
        read_data([(tmp_path / "nosuch").as_uri()], tmp_path)


def test_secrets_are_named_once_or_twice() -> None:
    assert read_secrets(["HF_TOKEN", "KEY=team.key-2", "HF_TOKEN"]) == {"HF_TOKEN": "HF_TOKEN", "KEY": "team.key-2"}


@pytest.mark.parametrize("item", ["1A", "A B", "=x", "KEY=", "KEY=a value!", "KEY=hf_abc/def+x="])
def test_what_is_no_name_of_a_secret_is_refused_and_not_repeated(item: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_secrets([item])
    _, _, value = item.partition("=")
    assert not value or value not in str(caught.value) or len(value) < 2


def test_a_variable_has_one_secret() -> None:
    with pytest.raises(BadInput, match="given twice"):
        read_secrets(["KEY=one", "KEY=two"])


def test_names_come_once_and_in_order() -> None:
    assert read_names(["b,a", "b", ""]) == ("b", "a")


def test_markets_as_people_write_them() -> None:
    assert read_market("SPOT") is Market.SPOT
    assert read_market("on-demand") is Market.ON_DEMAND


def test_a_market_that_is_none() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'reserved'"):
        read_market("reservd")
