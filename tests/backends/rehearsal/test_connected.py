"""Test the backend as a server uses it: the cloud starts with the first call and stops with the server if idle."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.backends.rehearsal.place import AT_ONCE, WAIT, Cloud

from crucible.backends.bootstrap import AgentFile
from crucible.backends.context import BackendContext
from crucible.backends.rehearsal import Address, make_backend, stop_cloud, stop_idle_cloud
from crucible.backends.rehearsal.connection import CallFailed, Connection
from crucible.backends.rehearsal.settings import RehearsalSettings
from crucible.core.compute.offers import Need
from crucible.core.errors import BadInput, Trouble


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for state in (tmp_path / "rehearsal", tmp_path / "shared"):
        stop_cloud(state)


def context(home: Path, state: Path | None = None, **changes: object) -> BackendContext[RehearsalSettings]:
    agent = AgentFile(home / "a", "0" * 64)
    given = {"home": home, "agents_url_file": home / "agents.url", "agent_file": agent, "python": sys.executable}
    return BackendContext(RehearsalSettings(state=state), **{**given, **changes})  # type: ignore[arg-type]


def answers(state: Path) -> bool:
    try:
        return bool(Connection(state).call("GET", "/health"))
    except CallFailed:
        return False


def test_it_starts_when_offers_are_wanted_and_again_when_it_has_died(home: Path) -> None:
    backend, state = make_backend(context(home)), home / "rehearsal"
    assert not state.exists()
    assert backend.offers(Need())
    first = Address.read(state)
    Cloud(state).kill9()
    assert backend.offers(Need())
    second = Address.read(state)
    assert first is not None
    assert second is not None
    assert (second.key, second.pid != first.pid) == (first.key, True)


def test_it_stops_with_the_server_unless_a_machine_lives_there(home: Path) -> None:
    backend = make_backend(context(home))
    backend.offers(Need())
    cloud = Cloud(home / "rehearsal")
    cloud.faults(**AT_ONCE)
    id = cloud.running(WAIT)["id"]
    backend.leave()
    assert answers(cloud.state)
    cloud.call("POST", f"/admin/instances/{id}/kill")
    backend.leave()
    assert not answers(cloud.state)
    backend.leave()


def test_one_that_others_use_too_is_started_and_not_stopped(home: Path) -> None:
    state = home / "shared"
    backend = make_backend(context(home, state=state))
    backend.offers(Need())
    backend.leave()
    assert answers(state)
    assert not (home / "rehearsal").exists()


def test_where_it_cannot_start_the_offers_fail_and_say_so(home: Path) -> None:
    backend = make_backend(context(home, python="/no/such/python"))
    with pytest.raises(Trouble, match="could not be started"):
        backend.offers(Need())


def test_a_state_folder_that_cannot_be_made_is_named(home: Path) -> None:
    (home / "file").touch()
    with pytest.raises(BadInput, match="cannot be made") as caught:
        make_backend(context(home, state=home / "file" / "cloud" / "deep"))
    assert "state" in caught.value.fix


def test_stopping_one_that_does_not_run_is_fine(home: Path) -> None:
    assert stop_idle_cloud(home / "rehearsal")


def test_everything_of_it_is_marked_simulated(home: Path) -> None:
    assert make_backend(context(home)).capabilities.simulated
