"""A machine's folder that goes: noticed soon, and not before it could have been moved and linked."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from crucible.agent.folder_watch import LOOK_SECONDS, LOST_SECONDS, MachineFolderWatch


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "machine"
    path.mkdir()
    return path


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watch(folder: Path, clock: Clock) -> MachineFolderWatch:
    return MachineFolderWatch(folder, clock)


def lost_after(watch: MachineFolderWatch, clock: Clock, seconds: float) -> bool:
    end = clock.now + seconds
    while clock.now < end:
        clock.now += LOOK_SECONDS / 4
        lost = watch.is_lost()
    return lost


def test_a_folder_that_is_there_is_not_lost(watch: MachineFolderWatch, clock: Clock) -> None:
    assert not lost_after(watch, clock, 60)


def test_a_removed_folder_is_lost_after_a_while(watch: MachineFolderWatch, clock: Clock, folder: Path) -> None:
    folder.rmdir()
    assert watch.is_gone
    assert not lost_after(watch, clock, LOST_SECONDS - LOOK_SECONDS)
    assert lost_after(watch, clock, 2 * LOOK_SECONDS)


def test_another_folder_at_its_path_is_not_it(watch: MachineFolderWatch, clock: Clock, folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()
    assert lost_after(watch, clock, LOST_SECONDS + 2 * LOOK_SECONDS)


def test_a_folder_that_is_moved_and_linked_is_not_lost(watch: MachineFolderWatch, clock: Clock, folder: Path) -> None:
    folder.rename(folder.with_name("moved"))
    assert not lost_after(watch, clock, LOST_SECONDS - LOOK_SECONDS)
    folder.symlink_to(folder.with_name("moved"))
    assert not watch.is_gone
    assert not lost_after(watch, clock, 60)


def test_who_waits_learns_that_it_was_moved_or_lost(
    watch: MachineFolderWatch, clock: Clock, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = folder.with_name("moved")

    def sleep(seconds: float) -> None:
        clock.now += seconds
        if clock.now > LOST_SECONDS / 2 and moved.exists() and not folder.is_symlink():
            folder.symlink_to(moved)

    monkeypatch.setattr("crucible.agent.folder_watch.time.sleep", sleep)
    assert not watch.wait_until_known()
    folder.rename(moved)
    assert not watch.wait_until_known(), "a link was put in its place"
    assert LOST_SECONDS / 2 < clock.now < LOST_SECONDS
    moved.rmdir()
    since = clock.now
    assert watch.wait_until_known()
    assert clock.now - since >= LOST_SECONDS - LOOK_SECONDS
