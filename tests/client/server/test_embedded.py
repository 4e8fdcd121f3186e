from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from crucible.client.server.discovery import find_server, read_discovery
from crucible.client.server.embedded import Embedded, last_error
from crucible.client.transport.http import Endpoint
from crucible.core.errors import CrucibleError, Trouble, Unreachable
from crucible.core.secret import Secret
from crucible.wire.process import Process, is_locked, start_time

pytestmark = pytest.mark.enable_socket

FAKE_APP = Path(__file__).parents[1] / "fake_app.py"
Make = Callable[..., Embedded]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def embedded(home: Path) -> Iterator[Make]:
    """Makes embedded servers over the fake app, and ends every process it left."""

    def make(mode: str = "ok", *, version: str = "0.1.0", seconds: float = 15, **more: str) -> Embedded:
        environ = {"PATH": os.environ["PATH"], "FAKE_MODE": mode, "FAKE_VERSION": version, **more}
        return Embedded(home, version, environ, (sys.executable, str(FAKE_APP)), start_seconds=seconds)

    yield make
    for pid in starts(home):
        started = start_time(pid)
        command = Path(f"/proc/{pid}/cmdline")
        if started and command.exists() and str(FAKE_APP).encode() in command.read_bytes():
            Process(pid, started).send(signal.SIGKILL)


def starts(home: Path) -> list[int]:
    file = home / "starts"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def pid_of(home: Path) -> int:
    found = read_discovery(home)
    assert found is not None
    return found.pid


def test_the_first_command_starts_it_and_the_second_finds_it(embedded: Make, home: Path) -> None:
    first = embedded().ensure()
    assert first.embedded
    assert first.token == Secret("t0ken")
    assert "t0ken" not in repr(first)
    assert embedded().ensure() == first
    assert len(starts(home)) == 1


def test_it_lives_in_a_session_of_its_own_and_holds_none_of_our_files(embedded: Make, home: Path) -> None:
    with open(home.parent / "ours", "w") as ours:
        os.set_inheritable(ours.fileno(), True)
        embedded().ensure()
    pid = pid_of(home)
    assert os.getsid(pid) == pid
    held = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
    assert str(home.parent / "ours") not in held
    assert str(home / "start.lock") not in held
    assert str(home / "server.log") in held


def test_its_folder_is_said_and_its_environment_is_ours(embedded: Make, home: Path) -> None:
    """With $CRUCIBLE_HOME it would look there for the settings that we read elsewhere."""
    embedded().ensure()
    process = Path(f"/proc/{pid_of(home)}")
    assert b"CRUCIBLE_HOME" not in process.joinpath("environ").read_bytes()
    assert f"--home\0{home}\0".encode() in process.joinpath("cmdline").read_bytes()


def test_state_is_for_its_owner_alone(embedded: Make, home: Path) -> None:
    embedded().ensure()
    assert home.stat().st_mode & 0o077 == 0
    assert (home / "server.log").stat().st_mode & 0o077 == 0


def test_of_two_starters_the_loser_uses_the_winners(embedded: Make, home: Path) -> None:
    found: list[Endpoint] = []
    threads = [threading.Thread(target=lambda: found.append(embedded().ensure())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(found) == 4
    assert len(set(found)) == 1
    assert len(starts(home)) == 1


def test_what_kept_it_from_starting_is_told_in_its_own_words(embedded: Make) -> None:
    with pytest.raises(Trouble) as caught:
        embedded("error").ensure()
    error = caught.value
    assert (error.what, error.why, error.fix) == ("Port 4242 is taken.", "By another.", "Take another.")
    assert error.data["code"] == "port_in_use"


def test_one_that_ends_without_a_word_is_told_with_its_log(embedded: Make, home: Path) -> None:
    with pytest.raises(Trouble, match="code 3") as caught:
        embedded("silent").ensure()
    assert "a last word" in caught.value.why
    assert str(home / "server.log") in caught.value.fix


def test_one_killed_between_lock_and_ready_is_started_anew(embedded: Make, home: Path) -> None:
    embedded("killed-once").ensure()
    assert len(starts(home)) == 2


def test_one_that_never_gets_ready_is_told_with_its_log(embedded: Make, home: Path) -> None:
    with pytest.raises(Unreachable, match="did not start") as caught:
        embedded("hang", seconds=1).ensure()
    assert "thinking about it" in caught.value.why
    assert str(home / "server.log") in caught.value.fix


def test_a_lock_held_by_something_that_is_not_ready_is_an_error(embedded: Make, home: Path) -> None:
    home.mkdir()
    with open(home / "server.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert is_locked(home / "server.lock")
        with pytest.raises(Unreachable, match="did not start") as caught:
            embedded(seconds=0.3).ensure()
    assert "holds the state folder" in caught.value.why
    assert starts(home) == []


def test_a_file_left_by_a_dead_server_is_passed_over(embedded: Make, home: Path) -> None:
    first = embedded().ensure()
    pid = pid_of(home)
    left = (home / "server.json").read_text()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: start_time(pid) is None)
    (home / "server.json").write_text(left)
    assert find_server(home) is None
    assert embedded().ensure() != first


def test_a_file_that_names_another_process_is_passed_over(embedded: Make, home: Path) -> None:
    embedded().ensure()
    said = json.loads((home / "server.json").read_text())
    (home / "server.json").write_text(json.dumps({**said, "start_time": "1"}))
    assert find_server(home) is None


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"url": 3', '{"url": "x", "pid": "y"}'])
def test_a_file_that_makes_no_sense_is_passed_over(home: Path, content: str) -> None:
    home.mkdir()
    (home / "server.json").write_text(content)
    assert find_server(home) is None


def test_another_version_of_ours_is_stopped_and_replaced(embedded: Make, home: Path) -> None:
    old = embedded(version="0.0.9").ensure()
    old_pid = pid_of(home)
    new = embedded(version="0.1.0").ensure()
    assert new != old
    assert start_time(old_pid) is None
    found = read_discovery(home)
    assert found is not None
    assert found.version == "0.1.0"


def test_inside_a_job_nothing_is_started(embedded: Make, home: Path) -> None:
    with pytest.raises(Unreachable, match="Inside a job"):
        embedded(CRUCIBLE_JOB_ID="job-1").ensure()
    assert starts(home) == []


def test_stopping_waits_for_the_end_and_again_is_harmless(embedded: Make, home: Path) -> None:
    server = embedded()
    server.ensure()
    pid = pid_of(home)
    assert server.stop()
    assert start_time(pid) is None
    assert not server.stop()
    assert server.find_running() is None


def test_one_that_does_not_listen_is_ended_by_a_signal(embedded: Make, home: Path) -> None:
    server = embedded(FAKE_DEAF="1")
    server.ensure()
    pid = pid_of(home)
    assert server.stop()
    assert start_time(pid) is None


def test_a_home_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    server = Embedded(tmp_path / "file" / "home", "0.1.0", {}, (sys.executable, str(FAKE_APP)))
    with pytest.raises(CrucibleError) as caught:
        server.ensure()
    assert "CRUCIBLE_HOME" in caught.value.fix


def test_the_last_line_of_the_log_is_an_error_or_nothing(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    assert last_error(log) is None
    log.write_text('{"error": {"code": "disk_full", "what": "Full."}}\n')
    told = last_error(log)
    assert told is not None
    assert (told.code, told.what) == ("disk_full", "Full.")
    log.write_text('{"error": {"code": "disk_full", "what": "Full."}}\nready again\n')
    assert last_error(log) is None


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_suspended_server_is_told_with_its_process(embedded: Make, home: Path) -> None:
    embedded().ensure()
    pid = pid_of(home)
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(Unreachable, match=f"process {pid}.* does not answer") as caught:
        embedded(seconds=0.1).ensure()
    assert f"kill -CONT {pid}" in caught.value.fix
    assert starts(home) == [pid]
    assert embedded().stop(), "it is resumed to handle the signal"
    assert start_time(pid) is None


def test_the_server_of_the_original_is_not_that_of_a_copy(embedded: Make, home: Path, tmp_path: Path) -> None:
    """Neither found nor stopped; a copy of the folder has the same token, and names the same process."""
    embedded(FAKE_FOLDER="1").ensure()
    pid = pid_of(home)
    copy = tmp_path / "copy"
    shutil.copytree(home, copy)
    copied = Embedded(copy, "0.1.0", {}, (sys.executable, str(FAKE_APP)))
    assert read_discovery(copy) is None
    assert copied.find_running() is None
    assert not copied.stop()
    assert start_time(pid) is not None
    home.rename(tmp_path / "moved")
    assert find_server(tmp_path / "moved") is not None, "the same folder by another name"
    (tmp_path / "moved").rename(home)


def test_a_removed_lock_file_starts_no_second_server(embedded: Make, home: Path) -> None:
    home.mkdir()
    folder = os.open(home, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    try:
        with pytest.raises(Unreachable):
            embedded(seconds=0.3).ensure()
    finally:
        os.close(folder)
    assert starts(home) == []
