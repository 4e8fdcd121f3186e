"""Settings of backends in the user's file, and in files that must not have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from crucible.client.server.user_config import set_setting, unset_setting
from crucible.core.errors import BadInput
from crucible.core.settings_source import SettingsSource
from crucible.settings import Settings, load_backend_tables, load_settings

TABLES = """\
request_seconds = 5

[backends]
connected = ["local", "moon"]

[backends.moon]
region = "eu"
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


def load(config: Path, folder: Path | None = None, **environ: str) -> tuple[Settings, dict[str, SettingsSource]]:
    settings = load_settings(environ=environ, folder=folder or config.parent / "project", user_config=config)
    return settings, load_backend_tables(settings, user_config=config)


def test_the_users_file_names_backends_and_their_settings(config: Path) -> None:
    config.write_text(TABLES)
    settings, tables = load(config)
    assert (settings.backends.value, settings.backends.origin) == (("local", "moon"), str(config))
    assert tables == {"moon": SettingsSource(f"[backends.moon] in {config}", {"region": "eu"})}


def test_a_table_alone_connects_nothing(config: Path) -> None:
    config.write_text('[backends.moon]\nregion = "eu"\n')
    assert load(config)[0].backends.value == ("local",)


def test_a_plain_list_still_works(config: Path) -> None:
    config.write_text('backends = ["moon"]')
    settings, tables = load(config)
    assert (settings.backends.value, tables) == (("moon",), {})


@pytest.mark.parametrize(("name", "before"), [("crucible.toml", ""), ("pyproject.toml", "tool.crucible.")])
def test_a_folders_file_must_not_have_them(config: Path, name: str, before: str) -> None:
    folder = config.parent / "project"
    folder.mkdir()
    (folder / name).write_text(f'[{before}backends.moon]\nregion = "eu"\n')
    with pytest.raises(BadInput, match="only your own configuration may have") as caught:
        load(config, folder)
    assert "crucible backends connect" in caught.value.fix
    assert str(config) in caught.value.fix


def test_what_is_no_table_is_refused(config: Path) -> None:
    config.write_text("[backends]\nmoon = 3\n")
    with pytest.raises(BadInput, match=r"Write \[backends\.moon\]"):
        load(config)


def test_the_setting_of_0_1_0_is_a_field_of_its_backend(config: Path) -> None:
    config.write_text('rehearsal_state = "/srv/cloud"\n')
    (table,) = load(config)[1].values()
    assert (table.values, table.origins) == ({"state": "/srv/cloud"}, {"state": str(config)})
    config.write_text('rehearsal_state = "/srv/cloud"\n[backends.rehearsal]\nstate = "/srv/other"\n')
    (table,) = load(config)[1].values()
    assert (table.values, dict(table.origins)) == ({"state": "/srv/other"}, {})


def test_setting_and_unsetting_leaves_the_tables(config: Path) -> None:
    config.write_text(TABLES)
    set_setting(config, "ask_above", "3")
    assert config.read_text() == TABLES.replace("\n\n[backends]", "\n\nask_above = 3\n[backends]")
    assert unset_setting(config, "ask_above")
    assert not unset_setting(config, "ask_above")
    assert config.read_text() == TABLES
    with pytest.raises(BadInput, match=r"connected = \[\.\.\.\]"):
        set_setting(config, "backends", "local")
    config.write_text("[servers]\n")
    with pytest.raises(BadInput, match="has tables"):
        set_setting(config, "ask_above", "3")
