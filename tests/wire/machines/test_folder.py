from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from crucible.wire.files.locks import hold_lock
from crucible.wire.machines.folder import Ending, Launched, MachineFolder, Tags, read_doc, write_doc
from crucible.wire.process import Process, find_process

NOBODY = Process(1, "never")


@pytest.fixture
def folder(tmp_path: Path) -> MachineFolder:
    made = MachineFolder(tmp_path / "machines" / "mch-1")
    made.make()
    return made


def me() -> Process:
    found = find_process(os.getpid())
    assert found is not None
    return found


class TestDocuments:
    def test_nobody_else_may_read_them(self, tmp_path: Path) -> None:
        write_doc(tmp_path / "a.json", {"nonce": "x"})
        assert stat.S_IMODE((tmp_path / "a.json").stat().st_mode) == 0o600
        assert [path.name for path in tmp_path.iterdir()] == ["a.json"]

    def test_what_a_crash_left_half_written_is_replaced(self, tmp_path: Path) -> None:
        (tmp_path / ".a.json.part").write_text("hal")
        write_doc(tmp_path / "a.json", {"n": 1})
        write_doc(tmp_path / "a.json", {"n": 2})
        assert read_doc(tmp_path / "a.json") == {"n": 2}

    @pytest.mark.parametrize("text", ["", "{", "[]", "3", "\xff"])
    def test_what_is_no_document_is_empty(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "a.json").write_bytes(text.encode("latin-1"))
        assert read_doc(tmp_path / "a.json") == {}

    def test_what_is_missing_is_empty(self, tmp_path: Path) -> None:
        assert read_doc(tmp_path / "b" / "a.json") == {}


class TestNotes:
    def test_a_new_folder_has_none(self, folder: MachineFolder) -> None:
        assert (folder.tags, folder.launched, folder.ending, folder.host) == (None, None, None, None)
        assert folder.attempts() == ()
        assert folder.processes() == frozenset()

    def test_they_are_read_back(self, folder: MachineFolder) -> None:
        folder.write_tags(Tags("dep-1", "mch-1"))
        folder.write_launched(Launched(NOBODY, 12.5))
        folder.write_ending(Ending(7.0, frozenset({NOBODY, me()})))
        assert folder.tags == Tags("dep-1", "mch-1")
        assert folder.launched == Launched(NOBODY, 12.5)
        assert folder.ending == Ending(7.0, frozenset({NOBODY, me()}))

    def test_a_launch_without_a_known_process_may_still_come_up(self, folder: MachineFolder) -> None:
        folder.write_launched(Launched(None, folder.path.stat().st_mtime))
        assert folder.starting(3600)
        assert not folder.starting(0)

    def test_a_launch_whose_process_has_ended_will_not(self, folder: MachineFolder) -> None:
        folder.write_launched(Launched(NOBODY, folder.path.stat().st_mtime))
        assert not folder.starting(3600)


class TestHost:
    def test_it_lives_when_its_process_does_and_holds_the_lock(self, folder: MachineFolder) -> None:
        write_doc(folder.path / "host.json", {"pid": me().pid, "start_time": me().start_time})
        assert folder.host is None
        with hold_lock(folder.path / "host.lock", 0):
            assert folder.host == me()

    def test_start_times_may_be_numbers(self, folder: MachineFolder) -> None:
        write_doc(folder.path / "host.json", {"pid": me().pid, "start_time": int(me().start_time)})
        with hold_lock(folder.path / "host.lock", 0):
            assert folder.host == me()

    def test_a_lock_without_the_process_is_not_enough(self, folder: MachineFolder) -> None:
        write_doc(folder.path / "host.json", {"pid": me().pid, "start_time": "1"})
        with hold_lock(folder.path / "host.lock", 0):
            assert folder.host is None


class TestAttempts:
    def test_the_id_is_the_name_without_the_rank(self, folder: MachineFolder) -> None:
        (folder.path / "attempts" / "att-01abc-12").mkdir(parents=True)
        assert [attempt.attempt for attempt in folder.attempts()] == ["att-01abc"]

    def test_assigned_and_not_done_is_unfinished(self, folder: MachineFolder) -> None:
        attempt = folder.path / "attempts" / "att-1-0"
        attempt.mkdir(parents=True)
        assert folder.unfinished() == 0
        (attempt / "assignment.json").write_text("{}")
        assert folder.unfinished() == 1
        (attempt / "done").touch()
        assert folder.unfinished() == 0

    def test_a_runner_that_is_done_and_still_there_is_unfinished(self, folder: MachineFolder) -> None:
        attempt = folder.path / "attempts" / "att-1-0"
        attempt.mkdir(parents=True)
        (attempt / "done").touch()
        with hold_lock(attempt / "runner.lock", 0):
            assert folder.unfinished() == 1

    def test_the_group_is_known_from_the_runner_too(self, folder: MachineFolder) -> None:
        attempt = folder.path / "attempts" / "att-1-0"
        attempt.mkdir(parents=True)
        (attempt / "process.json").write_text("{}")
        leader = find_process(os.getpgid(0))
        if leader is None:
            pytest.skip("the process group of the tests has no leader")
        told = {"pid": 1, "start_time": "1", "pgid": leader.pid, "process_start_time": leader.start_time}
        (attempt / "runner.json").write_text(json.dumps(told))
        assert me() in folder.attempts()[0].group()


class TestRemove:
    def test_nothing_is_left(self, folder: MachineFolder) -> None:
        folder.write_tags(Tags("dep-1", "mch-1"))
        (folder.path / "attempts" / "att-1-0").mkdir(parents=True)
        (folder.path / "link").symlink_to(folder.path.parent)
        with folder.hold():
            folder.remove()
        assert list(folder.path.parent.iterdir()) == []

    def test_the_next_to_hold_it_finds_no_folder(self, folder: MachineFolder) -> None:
        with folder.hold():
            folder.remove()
        with pytest.raises(FileNotFoundError), folder.hold():
            pass


def test_no_lock_is_probed_of_who_has_ended(folder: MachineFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Probing takes the lock for a moment, which could keep out a host or runner that is just starting."""
    probed: list[Path] = []
    monkeypatch.setattr("crucible.wire.machines.folder.is_locked", probed.append)
    attempt = folder.path / "attempts" / "att-1-0"
    attempt.mkdir(parents=True)
    for path, process in ((folder.path / "host.json", NOBODY), (attempt / "runner.json", NOBODY)):
        write_doc(path, {"pid": process.pid, "start_time": process.start_time})
    assert folder.living_elsewhere() == frozenset()
    assert probed == []
    write_doc(attempt / "runner.json", {"pid": me().pid, "start_time": me().start_time})
    assert folder.living_elsewhere() == {me()}
    assert probed == [attempt / "runner.lock"]
