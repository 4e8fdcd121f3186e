from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace

import pytest

from crucible.control.reconcile.crashpoints import NAMES
from crucible.simulation.faults import command
from crucible.simulation.faults.run import RunOutcome
from crucible.simulation.faults.trace import Trace

ALONE = ("--processes", "1")


def outcome(seed: int) -> RunOutcome:
    trace = Trace(lambda: 1.5)
    trace("world", f"seed {seed} ran")
    trace("server", "dies at any moment")
    return RunOutcome(seed, "", 3600.0, trace.digest, trace)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the list of seeds that were run. Seed 7 breaks, and seed 99 is interrupted with Ctrl-C."""
    seeds: list[int] = []

    def run(seed: int) -> RunOutcome:
        if seed == 99:
            raise KeyboardInterrupt
        seeds.append(seed)
        return replace(outcome(seed), broken="two programs run" if seed == 7 else "")

    monkeypatch.setattr(command, "run", run)
    return seeds


def test_counts_come_last(ran: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--seeds", "3", "--from", "2", *ALONE]) == 0
    assert ran == [2, 3, 4]
    assert capsys.readouterr().out.splitlines()[-1].startswith("3 seeds, 3 virtual hours, 0 broken")


def test_a_broken_seed_fails_and_says_how_to_see_it_again(ran: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--seeds", "2", "--from", "6", *ALONE]) == 1
    output = capsys.readouterr().out
    assert "seed 7 ran" in output
    assert "seed 6 ran" not in output
    assert "seed 7: two programs run" in output
    assert "crucible-sim --seed 7 --trace" in output


def test_where_the_control_plane_died_is_told(ran: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    command.main(["--seeds", "3", *ALONE])
    points = f"at 0 of {len(NAMES)} named points, never at "
    assert f"the control plane died 3 times, {points}" in capsys.readouterr().out


def test_one_seed_shows_its_trace(ran: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--seed", "9"]) == 0
    assert "seed 9 ran" in capsys.readouterr().out


def test_ctrl_c_ends_it_with_the_counts_so_far(ran: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--seeds", "5", "--from", "97", *ALONE]) == 130
    assert capsys.readouterr().out.splitlines()[-1].startswith("2 seeds of 5, 2 virtual hours, 0 broken")


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        (["--seeds", "0"], "--seeds 200"),
        (["--seeds", "-3"], "--seeds 200"),
        (["--seeds", "99999999999"], "--seeds 200"),
        (["--from", "-1"], "--from 1"),
        (["--from", str(2**63)], "--from 1"),
        (["--from", "many"], "invalid int"),
        (["--seed", "-1"], "--seed 1"),
        (["--seeds", "4", "--trace"], "--seed 1 --trace"),
        (["--seed", "3", "--seeds", "4"], "leave out"),
        (["--seed", "3", "--from", "4"], "leave out"),
        (["--processes", "0"], "from 1 to"),
        (["--processes", "99999"], "from 1 to"),
    ],
)
def test_what_cannot_be_run_is_refused_with_the_fix(
    words: list[str], fix: str, ran: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        command.main(words)
    assert left.value.code == 2
    assert fix in capsys.readouterr().err
    assert ran == []


@pytest.mark.timeout(300)
def test_ctrl_c_ends_its_processes_quietly() -> None:
    words = [sys.executable, "-c", f"from {command.__name__} import main; print('on', flush=True); exit(main())"]
    shell = subprocess.Popen(
        [*words, "--seeds", "1000", "--processes", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=_hear_ctrl_c,
    )
    assert shell.stdout is not None
    assert shell.stdout.readline() == "on\n"
    while sum(_works(child) for child in _children(shell.pid)) < 2:
        assert shell.poll() is None
        time.sleep(0.05)
    os.killpg(shell.pid, signal.SIGINT)
    try:
        output, complaints = shell.communicate(timeout=200)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
    assert shell.returncode == 130
    assert re.match(r"\d+ seeds? of 1000, ", output.splitlines()[-1])
    assert complaints == "1000 seeds from 1, 2 at a time, about a second each.\n"


@pytest.mark.timeout(120)
def test_who_reads_no_further_ends_it_quietly() -> None:
    code = f"from {command.__name__} import main; exit(main())"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "--seed", "3", "--trace"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 130


def _hear_ctrl_c() -> None:
    """Restore the default handler, which a shell's background processes do not have."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _children(process: int) -> list[str]:
    with open(f"/proc/{process}/task/{process}/children") as file:
        return file.read().split()


def _works(process: str) -> bool:
    """Return whether the process has used some CPU time, and so has begun to work."""
    with open(f"/proc/{process}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[11]) > 20
