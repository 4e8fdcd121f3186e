from __future__ import annotations

import re
from pathlib import Path

import pytest

from crucible.core.errors import BadInput, UnknownName
from crucible.settings import (
    NAMES,
    SERVER_NAMES,
    Settings,
    default_logins,
    default_user_config,
    load_settings,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def load(folder: Path, flags: dict[str, object] | None = None, **environ: str) -> Settings:
    return load_settings(flags, environ=environ, folder=folder, user_config=folder.parent / "config.toml")


def test_defaults(folder: Path) -> None:
    settings = load(folder)
    assert settings.server.value is None
    assert settings.home.value.name == "crucible"
    assert settings.bundle_limit.value == 500_000_000
    assert settings.home.origin == "default"


def test_the_order_is_flag_variable_project_user_default(folder: Path) -> None:
    (folder.parent / "config.toml").write_text('server = "http://user"')
    assert load(folder).server.value == "http://user"
    (folder / "pyproject.toml").write_text('[tool.crucible]\nserver = "http://pyproject"')
    assert load(folder).server.value == "http://pyproject"
    (folder / "crucible.toml").write_text('server = "http://project"')
    assert load(folder).server.value == "http://project"
    assert load(folder, CRUCIBLE_SERVER="http://variable").server.value == "http://variable"
    found = load(folder, {"server": "http://flag"}, CRUCIBLE_SERVER="http://variable").server
    assert (found.value, found.origin) == ("http://flag", "--server")


def test_every_value_knows_its_origin(folder: Path) -> None:
    (folder / "crucible.toml").write_text("request_seconds = 5")
    settings = load(folder, CRUCIBLE_HOME="/var/crucible", CRUCIBLE_BUNDLE_LIMIT="1G")
    assert settings.home.origin == "CRUCIBLE_HOME"
    assert settings.bundle_limit.value == 1024**3
    assert settings.request_seconds.origin == str(folder / "crucible.toml")


def test_a_token_is_not_shown(folder: Path) -> None:
    settings = load(folder, CRUCIBLE_TOKEN="t0ken")
    assert settings.token.value is not None
    assert settings.token.value.reveal() == "t0ken"
    assert "t0ken" not in repr(settings)


def test_the_home_folder_holds_what_is_the_users_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, usual = folder.parent / "all", folder.parent / "usual"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(usual))
    here = {"CRUCIBLE_HOME": str(home)}
    assert (default_user_config(here), default_logins(here)) == (home / "config.toml", home / "logins.json")
    for environ in ({}, {"CRUCIBLE_HOME": ""}):
        assert default_user_config(environ) == usual / "crucible" / "config.toml"
        assert default_logins(environ) == usual / "crucible" / "logins.json"
    for place, most in ((home, 1), (usual / "crucible", 2)):
        place.mkdir(parents=True)
        (place / "config.toml").write_text(f"ask_above = {most}")
        (place / "logins.json").write_text(f'{{"current": "http://server-{most}"}}')
    for environ, most in ((here, 1), ({}, 2)):
        found = load_settings(environ=environ, folder=folder)
        assert (found.ask_above.value, found.server.value) == (most, f"http://server-{most}")


def test_an_empty_variable_says_nothing(folder: Path) -> None:
    assert load(folder, CRUCIBLE_SERVER="").server.value is None


def test_a_relative_home_is_made_absolute(folder: Path) -> None:
    assert load(folder, CRUCIBLE_HOME="state").home.value.is_absolute()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CRUCIBLE_SERVER", "example.org"),
        ("CRUCIBLE_BUNDLE_LIMIT", "much"),
        ("CRUCIBLE_BUNDLE_LIMIT", "0"),
        ("CRUCIBLE_START_SECONDS", "-1"),
        ("CRUCIBLE_START_SECONDS", "soon"),
        ("CRUCIBLE_REQUEST_SECONDS", "nan"),
        ("CRUCIBLE_MACHINE_SECONDS", "1"),
        ("CRUCIBLE_LEASE_SECONDS", "nan"),
    ],
)
def test_a_bad_value_names_where_it_stands(folder: Path, name: str, value: str) -> None:
    with pytest.raises(BadInput) as caught:
        load(folder, **{name: value})
    assert name in caught.value.fix


def test_an_unknown_setting_of_a_file_is_told_with_the_nearest(folder: Path) -> None:
    (folder / "crucible.toml").write_text('sever = "http://x"')
    with pytest.raises(UnknownName) as caught:
        load(folder)
    assert caught.value.meant == "server"


def test_a_broken_file_of_ours_is_told_but_a_broken_pyproject_is_not_ours(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("not = = toml")
    assert load(folder).server.value is None
    (folder / "crucible.toml").write_text("not = = toml")
    with pytest.raises(BadInput, match=r"crucible\.toml"):
        load(folder)


def test_a_wrong_type_in_a_file(folder: Path) -> None:
    (folder / "crucible.toml").write_text("server = 3")
    with pytest.raises(BadInput, match="server"):
        load(folder)


def test_rented_machines_live_a_day_unless_said_otherwise(folder: Path) -> None:
    assert load(folder).backends.value == ("local",)
    assert (load(folder).machine_seconds.value, load(folder).lease_seconds.value) == (86400, 21600)
    settings = load(folder, CRUCIBLE_MACHINE_SECONDS="90", CRUCIBLE_BACKENDS="local, rehearsal")
    assert (settings.machine_seconds.value, settings.backends.value) == (90, ("local", "rehearsal"))
    assert load(folder, CRUCIBLE_REHEARSAL_STATE="cloud").rehearsal_state.value == Path.cwd() / "cloud"


def test_agents_may_reach_the_server_by_another_way(folder: Path) -> None:
    assert load(folder).agents_url.value is None
    assert load(folder, CRUCIBLE_AGENTS_URL="https://a.example/agents/").agents_url.value == "https://a.example/agents"


def test_a_database_is_shown_without_its_password(folder: Path) -> None:
    url = "postgresql://crucible:s3/cr@t@db.example:5432/crucible?sslpassword=hush&sslmode=require"
    settings = load(folder, CRUCIBLE_DATABASE=url)
    assert settings.database.value is not None
    assert settings.database.value.reveal() == url
    shown = "postgresql://crucible:***@db.example:5432/crucible?sslpassword=***&sslmode=require"
    assert str(settings.database.value) == shown
    assert "s3/cr@t" not in repr(settings)
    assert "hush" not in repr(settings)


def test_a_database_without_a_password_is_shown_as_it_is(folder: Path) -> None:
    settings = load(folder, CRUCIBLE_DATABASE="postgresql://db.example/crucible")
    assert str(settings.database.value) == "postgresql://db.example/crucible"


def test_a_wrong_database_is_not_repeated(folder: Path) -> None:
    with pytest.raises(BadInput) as caught:
        load(folder, CRUCIBLE_DATABASE="mysql://crucible:secret@db/crucible")
    assert "secret" not in str(caught.value)
    assert "postgresql://" in caught.value.why


def test_backends_are_a_list_of_names(folder: Path) -> None:
    assert load(folder).backends.value == ("local",)
    assert load(folder, CRUCIBLE_BACKENDS="local, rehearsal,local").backends.value == ("local", "rehearsal")
    assert load(folder, CRUCIBLE_BACKENDS="none").backends.value == ()
    (folder / "crucible.toml").write_text('backends = ["rehearsal"]')
    assert load(folder).backends.value == ("rehearsal",)


def test_a_store_is_a_folder_made_absolute_or_a_url(folder: Path) -> None:
    assert load(folder).store.value is None
    assert load(folder, CRUCIBLE_STORE="/var/store").store.value == "/var/store"
    assert load(folder, CRUCIBLE_STORE="kept here").store.value == str(Path.cwd() / "kept here")
    assert load(folder, CRUCIBLE_STORE="s3://bucket/a").store.value == "s3://bucket/a"


def test_how_a_bucket_is_reached(folder: Path) -> None:
    (folder / "crucible.toml").write_text('store_endpoint = "http://127.0.0.1:9000/"\nstore_region = "eu-west-1"')
    settings = load(folder, CRUCIBLE_STORE_ACCESS_KEY="hunter1", CRUCIBLE_STORE_SECRET_KEY="hunter2")
    assert settings.store_endpoint.value == "http://127.0.0.1:9000"
    assert settings.store_region.value == "eu-west-1"
    assert settings.store_access_key.value is not None
    assert settings.store_secret_key.value is not None
    assert settings.store_secret_key.value.reveal() == "hunter2"
    assert "hunter" not in repr(settings)


@pytest.mark.parametrize("name", ["store", "store_access_key", "store_secret_key", "oidc_client_secret"])
def test_what_may_hold_a_secret_is_not_repeated_when_it_is_wrong(name: str, folder: Path) -> None:
    (folder / "crucible.toml").write_text(f"{name} = 12345")
    with pytest.raises(BadInput) as caught:
        load(folder)
    assert "12345" not in str(caught.value)


def test_the_channel_of_agents(folder: Path) -> None:
    assert load(folder).channel.value == "https"
    assert load(folder, CRUCIBLE_CHANNEL="store").channel.value == "store"
    with pytest.raises(BadInput, match="https or store"):
        load(folder, CRUCIBLE_CHANNEL="tunnel")


def test_the_python_of_models_is_an_interpreter_or_an_environment(folder: Path, tmp_path: Path) -> None:
    assert load(folder).models_python.value is None
    assert load(folder, CRUCIBLE_MODELS_PYTHON="/usr/bin/python3").models_python.value == "/usr/bin/python3"
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "python").touch()
    found = load(folder, CRUCIBLE_MODELS_PYTHON=str(tmp_path / "venv")).models_python.value
    assert found == str(tmp_path / "venv" / "bin" / "python")


def test_the_openid_provider(folder: Path) -> None:
    assert (load(folder).oidc_issuer.value, load(folder).oidc_name.value) == (None, "OpenID")
    (folder / "crucible.toml").write_text('oidc_domains = ["Example.org", "@example.com"]\noidc_client_id = "crucible"')
    settings = load(folder, CRUCIBLE_OIDC_ISSUER="https://id.example.org/", CRUCIBLE_OIDC_CLIENT_SECRET="hunter2")
    assert settings.oidc_issuer.value == "https://id.example.org"
    assert settings.oidc_domains.value == ("example.org", "example.com")
    assert settings.oidc_client_secret.value is not None
    assert settings.oidc_client_secret.value.reveal() == "hunter2"
    assert "hunter2" not in repr(settings)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("oidc_issuer", "id.example.org"),
        ("oidc_domains", "*"),
        ("oidc_domains", "example"),
        ("oidc_domains", "none"),
        ("oidc_domains", "ada@example.org"),
        ("oidc_create_users", "No Project"),
    ],
)
def test_what_no_provider_is_set_up_with(name: str, value: str, folder: Path) -> None:
    with pytest.raises(BadInput, match=name):
        load(folder, **{f"CRUCIBLE_{name.upper()}": value})


def test_the_page_of_the_command_lists_every_setting_and_says_which_are_a_servers() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8").partition("\n## Settings\n")[2]
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    listed = [name for cell in rows for name in re.findall(r"`([a-z_]+)`", cell)]
    assert sorted(listed) == sorted(NAMES)
    assert set(listed[listed.index("backends") :]) == set(SERVER_NAMES)
    assert "From `backends` on they are a server's" in page


def test_proxies_are_addresses_and_networks(tmp_path: Path) -> None:
    found = load_settings(environ={"CRUCIBLE_PROXIES": "10.0.0.7,10.1.0.0/16,::1"}, folder=tmp_path)
    assert found.proxies.value == ("10.0.0.7", "10.1.0.0/16", "::1")
    for wrong in ("proxy.example.org", "10.0.0.7/8", "10.0.0"):
        with pytest.raises(BadInput, match="not an address or network"):
            load_settings(environ={"CRUCIBLE_PROXIES": wrong}, folder=tmp_path)


def test_the_limit_before_spending_is_dollars(tmp_path: Path) -> None:
    assert load_settings(environ={}, folder=tmp_path).ask_above.value == 5.0
    assert load_settings(environ={"CRUCIBLE_ASK_ABOVE": "0"}, folder=tmp_path).ask_above.value == 0.0
    for wrong in ("-1", "much", "nan", "2e9"):
        with pytest.raises(BadInput):
            load_settings(environ={"CRUCIBLE_ASK_ABOVE": wrong}, folder=tmp_path)
