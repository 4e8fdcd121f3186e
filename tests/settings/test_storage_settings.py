from __future__ import annotations

from pathlib import Path

import pytest

from crucible.core.errors import BadInput
from crucible.settings import Settings, load_settings


def load(folder: Path, **environ: str) -> Settings:
    return load_settings(environ=environ, folder=folder, user_config=folder / "none.toml")


def test_a_gibibyte_stays_free_and_nothing_goes_by_itself(tmp_path: Path) -> None:
    settings = load(tmp_path)
    assert settings.disk_reserve.value == 1024**3
    assert settings.store_quota.value is None
    assert settings.prune_after.value is None


def test_how_many_jobs_of_a_user_may_be_queued(tmp_path: Path) -> None:
    assert load(tmp_path).queued_limit.value == 500
    assert load(tmp_path, CRUCIBLE_QUEUED_LIMIT="2000").queued_limit.value == 2000


@pytest.mark.parametrize(("days", "seconds"), [("30d", 30 * 86400), ("1", 86400), ("0.5d", 43200)])
def test_how_the_store_is_bounded(tmp_path: Path, days: str, seconds: float) -> None:
    settings = load(tmp_path, CRUCIBLE_DISK_RESERVE="0", CRUCIBLE_STORE_QUOTA="100G", CRUCIBLE_PRUNE_AFTER=days)
    assert settings.disk_reserve.value == 0
    assert settings.store_quota.value == 100 * 1024**3
    assert settings.prune_after.value == seconds


@pytest.mark.parametrize(
    "wrong",
    [
        {"CRUCIBLE_PRUNE_AFTER": "soon"},
        {"CRUCIBLE_PRUNE_AFTER": "0"},
        {"CRUCIBLE_STORE_QUOTA": "0"},
        {"CRUCIBLE_QUEUED_LIMIT": "0"},
        {"CRUCIBLE_QUEUED_LIMIT": "2.5"},
        {"CRUCIBLE_QUEUED_LIMIT": "9" * 5000},
    ],
)
def test_what_makes_no_sense_is_told(tmp_path: Path, wrong: dict[str, str]) -> None:
    with pytest.raises(BadInput):
        load(tmp_path, **wrong)


def test_no_host_of_ones_own_is_called_unless_it_is_named(tmp_path: Path) -> None:
    assert load(tmp_path).webhook_hosts.value == ()
    (tmp_path / "crucible.toml").write_text('webhook_hosts = ["hooks.internal", "10.1.0.0/16"]\n')
    assert load(tmp_path).webhook_hosts.value == ("hooks.internal", "10.1.0.0/16")
    assert load(tmp_path, CRUCIBLE_WEBHOOK_HOSTS="127.0.0.1, ::1").webhook_hosts.value == ("127.0.0.1", "::1")
