"""Settings in the user's config.toml, as TOML reads them again."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crucible.client.server.user_config import set_setting, unset_setting
from crucible.core.errors import BadInput


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(st.text(min_size=1).filter(lambda text: text not in ("true", "false")))
def test_any_text_is_read_again_and_can_be_removed(file: Path, text: str) -> None:
    set_setting(file, "oidc_name", f"x{text}")
    assert tomllib.loads(file.read_text(encoding="utf-8")) == {"oidc_name": f"x{text}"}
    assert unset_setting(file, "oidc_name")
    assert file.read_text(encoding="utf-8") == ""


@pytest.mark.parametrize(
    "text", ["🚀", "a\u2028b", "a\x85b", "a\x7fb", "007", "-01.5", "१२", "1_000", "１２.５", 'a"b\\']
)
def test_what_is_no_number_of_toml_is_a_text(file: Path, text: str) -> None:
    set_setting(file, "oidc_name", text)
    assert tomllib.loads(file.read_text(encoding="utf-8")) == {"oidc_name": text}


@pytest.mark.parametrize(("text", "value"), [("0", 0), ("7", 7), ("0.5", 0.5), ("12.50", 12.5)])
def test_a_number_is_a_number(file: Path, text: str, value: float) -> None:
    set_setting(file, "ask_above", text)
    assert tomllib.loads(file.read_text(encoding="utf-8")) == {"ask_above": value}


@pytest.mark.parametrize(
    ("name", "text"),
    [("oidc_name", "123456"), ("oidc_name", "true"), ("oidc_client_id", "12.50"), ("home", "7"), ("backends", "5")],
)
def test_a_setting_that_is_text_is_written_as_text(file: Path, name: str, text: str) -> None:
    set_setting(file, name, text)
    assert tomllib.loads(file.read_text(encoding="utf-8")) == {name: text}


@pytest.mark.parametrize(("name", "text", "value"), [("shared_computer", "true", True), ("queued_limit", "70", 70)])
def test_a_setting_that_is_none_is_not(file: Path, name: str, text: str, value: object) -> None:
    set_setting(file, name, text)
    assert tomllib.loads(file.read_text(encoding="utf-8")) == {name: value}


def test_what_no_file_can_hold_is_refused(file: Path) -> None:
    with pytest.raises(BadInput):
        set_setting(file, "oidc_name", "\udcff")
    assert not file.exists()
