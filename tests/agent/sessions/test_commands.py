"""Test commands of sessions, as real processes with a real socket to the user."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from tests.agent.sessions.callers import Callers, around, new_session
from tests.agent.waiting import poll

from crucible.agent.process.process_groups import find_by_variables
from crucible.agent.sessions import SessionManager, command
from crucible.wire.http import sessions as s
from crucible.wire.process import find_process

pytestmark = pytest.mark.enable_socket


def sh(text: str, terminal: s.Size | None = None) -> s.Command:
    return s.Command(("/bin/sh", "-c", text), terminal, "xterm")


def left_of(callers: Callers) -> list[object]:
    """Return the remaining processes of the sessions."""
    return [process for id in callers.sessions for process in find_by_variables({command.SESSION: id})]


def test_output_error_and_code_come_apart(callers: Callers, tmp_path: Path) -> None:
    seen = callers.open(around(tmp_path), sh("pwd; echo wrong >&2; exit 7")).to_the_end()
    assert (seen.stdout, seen.stderr) == (f"{tmp_path}\n".encode(), b"wrong\n")
    assert seen.over == s.Over(code=7)
    assert callers.dialled == callers.sessions


def test_variables_are_the_jobs_and_nothing_of_the_agents(
    callers: Callers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTS_OWN", "1")
    seen = callers.open(around(tmp_path, {"MINE": "ä b"}), sh("echo $MINE:$AGENTS_OWN")).to_the_end()
    assert seen.stdout.decode() == "ä b:\n"


def test_signals_are_those_of_a_new_process(callers: Callers, tmp_path: Path) -> None:
    """The runner ignores some signals; processes that it starts must not."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        seen = callers.open(around(tmp_path), sh("kill -HUP $$; echo still here")).to_the_end()
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (seen.stdout, seen.over.exit_code) == (b"", 129)


def test_input_goes_in_until_its_end(callers: Callers, tmp_path: Path) -> None:
    caller = callers.open(around(tmp_path), s.Command(("cat",))).ready()
    caller.send(s.data_frame(b"one\n"), s.data_frame(b"\xff\x00\xfe"), s.end_frame())
    assert caller.to_the_end().stdout == b"one\n\xff\x00\xfe"


def test_much_input_comes_with_credit_and_passes_untouched(callers: Callers, tmp_path: Path) -> None:
    caller = callers.open(around(tmp_path), s.Command(("cat",))).ready()
    content = os.urandom(3 * s.WINDOW)
    window, sent = s.WINDOW, 0
    while sent < len(content):
        if window - sent + caller.seen.credit < s.CHUNK:
            caller.take()
            continue
        caller.send(s.data_frame(content[sent : sent + s.CHUNK]))
        sent += s.CHUNK
    caller.send(s.end_frame())
    assert caller.to_the_end().stdout == content


def test_a_command_that_reads_nothing_holds_nothing_up(callers: Callers, tmp_path: Path) -> None:
    """Its input waits within the window, and its output still arrives."""
    caller = callers.open(around(tmp_path), sh("sleep 0.3; echo done")).ready()
    caller.send(*(s.data_frame(b"x" * s.CHUNK) for _ in range(s.WINDOW // s.CHUNK)))
    assert caller.to_the_end().stdout == b"done\n"


def test_more_input_than_there_is_credit_for_ends_the_session(callers: Callers, tmp_path: Path) -> None:
    caller = callers.open(around(tmp_path), s.Command(("sleep", "100"))).ready()
    caller.send(*(s.data_frame(b"x" * s.CHUNK) for _ in range(s.WINDOW // s.CHUNK + 4)))
    over = caller.to_the_end().over
    assert over.problem is not None
    assert "credit" in over.problem.why
    poll(lambda: not left_of(callers))


def test_without_credit_no_more_than_a_window_comes(callers: Callers, tmp_path: Path) -> None:
    caller = callers.open(around(tmp_path), sh("head -c 2000000 /dev/zero")).ready()
    came = 0
    while came < s.WINDOW:
        came += len(caller.frame()) - 1
    assert came == s.WINDOW
    caller.send(s.credit_frame(came))
    assert s.frame_kind(caller.frame(), s.FROM_AGENT) is s.FrameKind.DATA


@pytest.mark.parametrize(("words", "code"), [(("no-such-thing",), 127), (("/",), 126), (("./x/y",), 127)])
def test_what_cannot_be_run_says_so(callers: Callers, tmp_path: Path, words: tuple[str, ...], code: int) -> None:
    seen = callers.open(around(tmp_path), s.Command(words)).to_the_end()
    assert seen.over == s.Over(code=code)
    assert seen.stderr.startswith(f"crucible: cannot run '{words[0]}'".encode())


def test_it_is_put_under_the_limits_before_it_runs(callers: Callers, tmp_path: Path) -> None:
    admitted: list[int] = []
    seen = callers.open(around(tmp_path, admit=admitted.append), sh("echo $$")).to_the_end()
    assert admitted == [int(seen.stdout)]


def test_where_the_limits_fail_nothing_runs(callers: Callers, tmp_path: Path) -> None:
    def refuse(pid: int) -> None:
        raise PermissionError("no group for it")

    seen = callers.open(around(tmp_path, admit=refuse), sh(f"touch {tmp_path}/ran")).to_the_end()
    assert seen.over.problem is not None
    assert "no group" in seen.over.problem.why
    assert not (tmp_path / "ran").exists()


def test_secrets_are_redacted_over_the_borders_of_what_is_read(callers: Callers, tmp_path: Path) -> None:
    value = "hf_0123456789abcdef"
    text = "printf 'a hf_01234'; sleep 0.1; printf '56789abcdef b'; printf $TOKEN >&2"
    seen = callers.open(around(tmp_path, {"TOKEN": value}, secrets=(value,)), sh(text)).to_the_end()
    assert (seen.stdout, seen.stderr) == (b"a *** b", b"***")


def test_what_is_left_in_the_background_ends_with_the_command(callers: Callers, tmp_path: Path) -> None:
    seen = callers.open(
        around(tmp_path), sh("setsid sleep 1000 & nohup sleep 1000 & sleep 1000 & echo $!")
    ).to_the_end()
    assert seen.over == s.Over(code=0)
    assert not left_of(callers)


def test_who_leaves_has_his_command_hung_up(callers: Callers, tmp_path: Path) -> None:
    note = tmp_path / "note"
    caller = callers.open(
        around(tmp_path), sh(f"trap 'echo hup > {note}; exit' HUP; echo on; sleep 1000 & wait")
    ).ready()
    caller.until(b"on")
    caller.leave()
    poll(lambda: note.exists() and not left_of(callers))


def test_what_does_not_hang_up_is_killed(callers: Callers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "HANG_UP_SECONDS", 0.1)
    caller = callers.open(around(tmp_path), sh("trap '' HUP; echo on; while :; do sleep 0.05; done")).ready()
    caller.until(b"on")
    caller.leave()
    poll(lambda: not left_of(callers))


def test_the_end_of_the_job_is_told(callers: Callers, tmp_path: Path) -> None:
    alive = threading.Event()
    alive.set()
    caller = callers.open(around(tmp_path, alive=alive.is_set), sh("echo $$; exec sleep 1000")).ready()
    pid = int(caller.until(b"\n"))
    alive.clear()
    os.kill(pid, signal.SIGKILL)
    assert caller.to_the_end().over == s.Over(signal=9, job_ended=True)


def test_a_kill_that_is_not_the_jobs_end(callers: Callers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "JOB_END_SECONDS", 0.05)
    assert callers.open(around(tmp_path), sh("kill -KILL $$")).to_the_end().over == s.Over(signal=9)


# In a terminal


def test_a_terminal_has_the_size_and_the_keys_of_its_user(callers: Callers, tmp_path: Path) -> None:
    caller = callers.open(around(tmp_path), sh("stty size; tty; echo $TERM; cat", s.Size(33, 101))).ready()
    caller.until(b"xterm\r\n")
    assert caller.seen.stdout.startswith(b"33 101\r\n/dev/")
    caller.send(s.data_frame(b"typed\n"))
    caller.until(b"typed\r\ntyped\r\n")  # by the terminal, and by cat, which runs now
    caller.send(s.data_frame(b"\x03"))
    assert caller.to_the_end().over.exit_code == 130


def test_a_change_of_size_arrives(callers: Callers, tmp_path: Path) -> None:
    text = "trap 'stty size; exit 0' WINCH; echo on; while :; do sleep 0.02; done"
    caller = callers.open(around(tmp_path), sh(text, s.Size())).ready()
    caller.until(b"on")
    caller.send(s.resize_frame(s.Size(50, 132)))
    assert b"50 132" in caller.to_the_end().stdout


def test_the_end_of_input_is_ctrl_d(callers: Callers, tmp_path: Path) -> None:
    caller = callers.open(around(tmp_path), sh("cat; echo over", s.Size())).ready()
    caller.send(s.data_frame(b"line\n"), s.end_frame())
    seen = caller.to_the_end()
    assert (seen.stdout, seen.over) == (b"line\r\nline\r\nover\r\n", s.Over(code=0))


def test_without_words_it_is_the_users_shell(callers: Callers, tmp_path: Path) -> None:
    caller = callers.open(around(tmp_path, {"SHELL": "/bin/sh", "PS1": "> "}), s.Command(terminal=s.Size())).ready()
    caller.send(s.data_frame(b"echo $0; exit 3\n"))
    seen = caller.to_the_end()
    assert b"/bin/sh\r\n" in seen.stdout
    assert seen.over == s.Over(code=3)


def test_closing_a_terminal_ends_what_runs_in_it(callers: Callers, tmp_path: Path) -> None:
    caller = callers.open(around(tmp_path), sh("echo $$; sleep 1000", s.Size())).ready()
    pid = int(caller.until(b"\n"))
    assert find_process(pid) is not None
    caller.leave()
    poll(lambda: not left_of(callers))


# What goes wrong


def test_a_job_that_does_not_run_has_nothing_to_enter(callers: Callers) -> None:
    over = callers.open(None, s.Command(("true",))).to_the_end().over
    assert over.problem is not None
    assert (over.problem.code, over.problem.status) == ("conflict", 409)


def test_a_job_that_ends_meanwhile_leaves_no_command(callers: Callers, tmp_path: Path) -> None:
    """A command that starts after the job's processes were killed was not killed with them."""
    alive = iter([False])
    over = (
        callers.open(around(tmp_path, alive=lambda: next(alive, False)), s.Command(("sleep", "1000"))).to_the_end().over
    )
    assert over.problem is not None
    assert not left_of(callers)


def test_at_the_end_no_session_begins_and_none_is_left(callers: Callers, tmp_path: Path) -> None:
    sessions = SessionManager(callers.dial, lambda: around(tmp_path))
    caller = callers.call(sessions)
    caller.send(s.open_frame(sh("echo $$; exec sleep 1000")))
    pid = int(caller.until(b"\n"))
    ending = threading.Thread(target=sessions.end)
    ending.start()
    os.kill(pid, signal.SIGKILL)
    ending.join(20)
    assert not ending.is_alive()
    assert not left_of(callers)
    late = callers.call(sessions)
    late.send(s.open_frame(sh("true")))
    assert late.to_the_end().over.problem is not None


@pytest.mark.parametrize(
    "frame", [b"", b"?", b"D123", b"O{", b'O{"kind":"command","words":["a\\u0000"]}', s.end_frame()]
)
def test_what_opens_nothing_is_refused(callers: Callers, tmp_path: Path, frame: bytes) -> None:
    caller = callers.call(SessionManager(callers.dial, lambda: around(tmp_path)))
    caller.send(frame)
    problem = caller.to_the_end().over.problem
    assert problem is not None
    assert problem.code == "bad_input"


@pytest.mark.parametrize(
    "frame", [s.open_frame(s.Ports()), b"S{}1", b"C1", s.credit_frame(1), s.ready_frame(), b"S" + b"[" * 50_000]
)
def test_a_frame_out_of_place_ends_the_session_and_its_command(callers: Callers, tmp_path: Path, frame: bytes) -> None:
    caller = callers.open(around(tmp_path), s.Command(("sleep", "1000"))).ready()
    caller.send(frame)
    assert caller.to_the_end().over.problem is not None
    poll(lambda: not left_of(callers))


def test_a_session_is_dialled_once_however_often_it_is_told(callers: Callers, tmp_path: Path) -> None:
    sessions = SessionManager(callers.dial, lambda: around(tmp_path))
    first = callers.call(sessions)
    second = callers.call(sessions)
    sessions.start_sessions([])
    for caller in (first, second):
        caller.send(s.open_frame(sh("echo $CRUCIBLE_SESSION_ID")))
    assert [first.to_the_end().stdout, second.to_the_end().stdout] == [f"{id}\n".encode() for id in callers.sessions]
    assert callers.dialled == callers.sessions


def test_many_sessions_leave_no_descriptors_and_no_threads(callers: Callers, tmp_path: Path) -> None:
    def held() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    callers.open(around(tmp_path), sh("true")).to_the_end()
    time.sleep(0)
    poll(lambda: not [t for t in threading.enumerate() if t.name.startswith("session")])
    before = held()
    sessions = SessionManager(callers.dial, lambda: around(tmp_path))
    for number in range(8):
        caller = callers.call(sessions)
        caller.send(s.open_frame(sh("echo $$" if number % 2 else "exit 3", s.Size() if number % 3 else None)))
        caller.to_the_end()
        caller.leave()
    poll(lambda: held()[0] <= before[0] and held()[1] <= before[1])


@pytest.mark.parametrize("terminal", [None, s.Size(24, 80)])
def test_a_folder_that_has_gone_costs_no_descriptors(tmp_path: Path, terminal: s.Size | None) -> None:
    """A program may remove its own folder; repeated sessions must not use up the runner's descriptors."""
    before = os.listdir("/proc/self/fd")
    for _ in range(3):
        with pytest.raises(FileNotFoundError):
            command.CommandEndpoint(new_session(), s.Command(("true",), terminal), around(tmp_path / "gone"))
    assert len(os.listdir("/proc/self/fd")) <= len(before)  # what tests before it left open may end meanwhile


def test_a_bell_that_nobody_hears_is_put_away(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    peer = command.CommandEndpoint(new_session(), s.Command(("sleep", "100")), around(tmp_path))
    assert peer.waker is not None
    os.close(peer.waker)
    peer.waker = None
    peer.end_now()
    poll(lambda: len(os.listdir("/proc/self/fd")) == len(before))
