"""Machines that vanish, on a cloud whose agents only share a bucket with the server."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.faults.rehearsal_deployment import LONG, RehearsalDeployment, begins_of, open_gate, rehearsed, steps_of
from tests.harness import until
from tests.storage.servers import Server, seaweedfs

from crucible.storage import NotFound, Store

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def bucket() -> Iterator[Server]:
    with seaweedfs() as server:
        yield server


@pytest.fixture
def settings(bucket: Server) -> dict[str, str]:
    return {"CRUCIBLE_CHANNEL": "store", **bucket.settings()}


@pytest.fixture
def store(bucket: Server, settings: dict[str, str]) -> Store:
    return bucket.open(settings["CRUCIBLE_STORE"])


@pytest.fixture
def place(tmp_path: Path, settings: dict[str, str]) -> Iterator[RehearsalDeployment]:
    with rehearsed(tmp_path, settings) as place:
        place.crucible.start()
        yield place


def test_a_machine_gets_the_agent_from_the_bucket_and_has_no_path_of_the_server(
    place: RehearsalDeployment, store: Store, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    job = place.counting(journal, steps=2, every=1, gates=(2,))
    folder = place.cloud.folder(place.instance_of(job, 1))
    (agent,) = store.list("agents")
    assert (folder / agent[0]).stat().st_size == agent[1]
    bootstrap = json.loads((folder / "bootstrap.json").read_text())
    assert "folder" not in bootstrap["store"]
    home = str(place.crucible.home)
    assert {name for name, value in bootstrap.items() if home in str(value)} == {
        "agents_url",
        "agents_url_file",
        "envs",
    }
    open_gate(journal, 2)
    assert place.crucible.wait(job, LONG)["status"] == "completed"


def test_a_noticed_loss(place: RehearsalDeployment, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    job = place.counting(journal, steps=8, every=100, gates=(5,), market="spot")
    instance = place.instance_of(job, 1)
    until(lambda: steps_of(journal) == [1, 2, 3, 4], LONG, "the gate")
    place.reclaim(instance, notice=30.0)
    place.instance_of(job, 2)
    open_gate(journal, 5)
    view = place.crucible.wait(job, LONG)
    assert (view["status"], view["attempt"]) == ("completed", 2)
    assert steps_of(journal) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert begins_of(journal) == [1, 5]
    place.nothing_lives()


def test_what_a_machine_said_before_it_went_counts(place: RehearsalDeployment, store: Store, tmp_path: Path) -> None:
    """The server dies while the machine announces a checkpoint, and is still dead when the machine is taken away."""
    journal = tmp_path / "journal"
    job = place.counting(journal, steps=8, every=4, gates=(4, 5), market="spot")
    instance = place.instance_of(job, 1)
    until(lambda: steps_of(journal) == [1, 2, 3], LONG, "the first gate")
    open_gate(journal, 4)
    until(lambda: _has_checkpoint(store), LONG, "the checkpoint in the bucket")  # the server signs its URL
    place.crucible.kill()
    until(lambda: _announces_checkpoint(store) or _is_recorded(place), LONG, "its announcement")
    place.reclaim(instance, notice=0.0)
    until(lambda: not place.alive(), LONG, "the machine to be gone")
    open_gate(journal, 5)
    place.crucible.start()
    view = place.crucible.wait(job, LONG)
    assert (view["status"], view["attempt"]) == ("completed", 2)
    assert begins_of(journal) == [1, 5]
    assert steps_of(journal) == [1, 2, 3, 4, 5, 6, 7, 8]
    place.nothing_lives()


def _mail(store: Store) -> list[str]:
    return [key for key, _ in store.list("mailboxes")]


def _has_checkpoint(store: Store) -> bool:
    """Whether it is in the mailbox, or the server has taken it already."""
    return any("/blobs/checkpoint-" in key or "/checkpoints/" in key for key, _ in store.list(""))


def _is_recorded(place: RehearsalDeployment) -> bool:
    """Whether the server read the announcement before it died."""
    with closing(sqlite3.connect(f"file:{place.crucible.home / 'crucible.db'}?mode=ro", uri=True)) as database:
        return bool(database.execute("SELECT 1 FROM checkpoints").fetchone())


def _announces_checkpoint(store: Store) -> bool:
    """Whether a batch announces the checkpoint."""
    return any(b'"checkpoint"' in _content(store, key) for key in _mail(store) if "/up/" in key)


def _content(store: Store, key: str) -> bytes:
    """Nothing of one that was taken away meanwhile."""
    try:
        return store.get(key)
    except NotFound:
        return b""
