from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crucible.backends.settings import (
    MAX_ITEMS,
    MAX_VALUE,
    BackendSettings,
    MissingSettings,
    SecretValue,
    describe,
    environment_source,
    fill,
    setting,
    stored_values,
)
from crucible.core.errors import BadInput, UnknownName
from crucible.core.secret import Secret
from crucible.core.settings_source import SettingsSource


class MoonSettings(BackendSettings):
    hosts: tuple[str, ...] = setting(description="Hosts.")
    region: str = setting("eu", description="Region.", variables=("MOON_REGION", "MOON_DEFAULT_REGION"))
    api_key: SecretValue | None = setting(None, description="Key.", variables=("MOON_KEY",))
    folder: Path | None = setting(None, description="Folder.")
    most: int | None = setting(None, description="Most machines.")
    secure: bool = setting(True, description="Whether it is secure.", option="tls")


def filled(*values: dict[str, object], environ: dict[str, str] | None = None) -> Any:
    sources = [SettingsSource(f"source {n}", each) for n, each in enumerate(values)]
    return fill("moon", MoonSettings, [*sources, environment_source("moon", MoonSettings, environ or {})])


def test_fields_are_described_with_their_options_and_variables() -> None:
    fields = {field.name: field for field in describe("moon", MoonSettings)}
    assert list(fields) == ["hosts", "region", "api_key", "folder", "most", "secure", "projects"]
    assert [field.kind for field in fields.values()] == [
        "list", "text", "text", "path", "whole number", "true or false", "list",
    ]  # fmt: skip
    assert [field.option for field in fields.values()] == [
        "host", "region", "api-key", "folder", "most", "tls", "project",
    ]  # fmt: skip
    assert [name for name, field in fields.items() if field.required] == ["hosts"]
    assert [name for name, field in fields.items() if field.secret] == ["api_key"]
    assert fields["region"].variables == ("CRUCIBLE_MOON_REGION", "MOON_REGION", "MOON_DEFAULT_REGION")
    assert (fields["region"].default, fields["hosts"].default) == ("eu", None)


def test_later_sources_win_and_each_value_knows_its_origin() -> None:
    found = filled(
        {"hosts": ["a"], "region": "us"}, {"region": "af", "most": "3"}, environ={"MOON_REGION": "sa", "MOON_KEY": "k"}
    )
    assert found.settings.hosts == ("a",)
    assert (found.settings.region, found.settings.most, found.settings.secure) == ("sa", 3, True)
    assert found.settings.api_key == Secret("k")
    assert found.origins == {"hosts": "source 0", "region": "MOON_REGION", "most": "source 1", "api_key": "MOON_KEY"}


def test_our_own_variable_counts_before_the_providers_and_an_empty_one_not_at_all() -> None:
    environ = {"MOON_REGION": "sa", "CRUCIBLE_MOON_REGION": "as", "CRUCIBLE_MOON_MOST": ""}
    found = filled({"hosts": ["a"]}, environ=environ)
    assert (found.settings.region, found.settings.most) == ("as", None)


def test_the_text_of_a_list_is_split_at_commas() -> None:
    assert filled({"hosts": "a, b,,c"}).settings.hosts == ("a", "b", "c")


def test_what_is_missing_is_named_with_its_option_and_variable() -> None:
    with pytest.raises(MissingSettings) as caught:
        filled({})
    assert caught.value.data["missing"] == ["hosts"]
    assert caught.value.fix.startswith("crucible backends connect moon --host VALUE; or set CRUCIBLE_MOON_HOSTS")


def test_an_unknown_setting_names_the_nearest_and_its_source() -> None:
    with pytest.raises(UnknownName, match=r"There is no setting of moon 'hots'\. Did you mean 'hosts'\?") as caught:
        filled({"hots": ["a"]})
    assert "source 0" in caught.value.fix


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"most": "many"}, "should be a valid integer"),
        ({"secure": "perhaps"}, "should be a valid boolean"),
        ({"hosts": [3]}, "should be a valid string"),
        ({"hosts": {}}, "tuple"),
        ({"region": None}, "should be a valid string"),
        ({"region": "a\0b"}, r"U\+0000"),
        ({"region": "a\x1b[2J"}, r"U\+001B"),
        ({"hosts": ["a", "b\u202ec"]}, r"U\+202E"),
        ({"region": "x" * 1_000_000}, f"at most {MAX_VALUE} are allowed"),
        ({"api_key": "x" * 1_000_000}, f"at most {MAX_VALUE} are allowed"),
        ({"hosts": ["h"] * (MAX_ITEMS + 1)}, "at most 1000 are allowed"),
        ({"api_key": 3}, "It must be text"),
    ],
)
def test_a_bad_value_is_refused_with_its_source_and_not_repeated(values: dict[str, object], why: str) -> None:
    with pytest.raises(BadInput, match=why) as caught:
        filled({"hosts": ["a"], **values})
    assert "source 0" in caught.value.fix
    assert len(str(caught.value)) < 500


def test_a_bad_secret_is_not_repeated() -> None:
    with pytest.raises(BadInput) as caught:
        filled({"hosts": ["a"], "api_key": "hunter2\0"})
    assert "hunter2" not in str(caught.value)


def test_a_secret_may_have_lines_and_is_shown_nowhere() -> None:
    found = filled({"hosts": ["a"], "api_key": "-----BEGIN\nhunter2\n"})
    assert found.settings.api_key.reveal() == "-----BEGIN\nhunter2\n"
    assert "hunter2" not in f"{found} {found.settings!r} {found.settings.model_dump_json()} {found.settings.secrets()}"


def test_only_the_named_values_are_stored_and_no_secret() -> None:
    settings = filled({"hosts": ["a"], "api_key": "k", "folder": "/x", "region": "us"}).settings
    assert stored_values(settings, ["hosts", "api_key", "folder"]) == {"hosts": ["a"], "folder": "/x"}


def test_sources_do_not_print_their_values() -> None:
    assert "hunter2" not in repr(SettingsSource("a file", {"api_key": "hunter2"}))
