"""The worker: the same profiles as in this process, from children with limits, of which none is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.analysis.hard import HUGE
from benchmarks.analysis.snippets import WHOLE
from tests.analysis.process.processes import GENEROUS, Process, alive, children, everyone, process, until
from tests.analysis.programs import sources

from crucible.analysis import AnalysisWorker, Sources, analyse, analyse_isolated
from crucible.analysis.conclusions.compute.runtime import CPU
from crucible.core.errors import BadInput
from crucible.core.routing.profile import Entrypoint

CALLS = HUGE["calls"].encode()


@pytest.fixture(scope="module")
def worker() -> Iterator[AnalysisWorker]:
    with AnalysisWorker(GENEROUS) as made:
        yield made


NOTEBOOK = json.dumps({"cells": [{"cell_type": "code", "source": ["%pip install torch\n", "import torch\n", "x = 1"]}]})
CONFIGURED = """
import json, tomllib, yaml, torch
sizes = yaml.safe_load(open("a.yaml"))
more = json.load(open("b.json"))
last = tomllib.load(open("c.toml", "rb"))
torch.nn.Linear(sizes["width"], more["width"] * last["width"]).cuda()
"""
PROGRAMS = {
    "sound": sources(WHOLE),
    "broken": sources(WHOLE.replace("):", ")")),
    "empty": sources(""),
    "binary": sources(b"\0\xff\xfe"),
    "notebook": sources(NOTEBOOK, "a.ipynb"),
    "no notebook": sources("[", "a.ipynb"),
    "several files": Sources(
        {"a.py": b"import b\nb.make()", "b.py": b"import torch\ndef make(): torch.nn.Linear(3, 4)"}, "a.py"
    ),
    "settings": Sources(
        {"a.py": CONFIGURED.encode(), "a.yaml": b"width: 3", "b.json": b'{"width": 4}', "c.toml": b"width = 5"}, "a.py"
    ),
    "arguments": Sources({"a.py": WHOLE.encode()}, "a.py", ("--width", "64"), ("Only a part was read.",)),
    "beyond ASCII": sources("import torch\nmodèle = torch.nn.Linear(1, '\\N{DIGIT ONE}'.count('1'))\nmodèle.cuda()\n"),
    "infinite": sources("epochs = float('inf')\nlearning_rate = float('nan')\nwidth = 1e999\n"),
    "lone half of a pair": sources(r"name = '\ud800'" + "\nimport torch\ntorch.load('\\udfff')\n"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_profile_is_the_same_as_reading_here_gives(worker: AnalysisWorker, name: str) -> None:
    assert worker.profile(PROGRAMS[name]) == analyse(PROGRAMS[name])


def test_settings_of_all_kinds_can_be_read_though_no_file_can_be_opened(worker: AnalysisWorker) -> None:
    assert worker.profile(PROGRAMS["settings"]).parameters.value == 3 * 20 + 20


def test_the_reference_is_handed_on(worker: AnalysisWorker) -> None:
    other = replace(CPU, name="an abacus")
    assert worker.profile(sources(WHOLE), other) == analyse(sources(WHOLE), other)


def test_an_entry_that_is_not_there_is_an_error_of_the_caller(worker: AnalysisWorker) -> None:
    with pytest.raises(BadInput, match="not among the files"):
        worker.profile(Sources({"b.py": b""}, "a.py"))


# Speed


def test_from_the_second_on_a_question_costs_a_fraction_of_starting_python(worker: AnalysisWorker) -> None:
    """The kernel itself ends a child that uses more; starting Python and loading analysis takes several times that."""
    with AnalysisWorker(replace(GENEROUS, cpu_seconds=0.25)) as quick:
        assert quick.profile(sources(WHOLE)) == analyse(sources(WHOLE))
        assert quick.profile(sources(WHOLE)) == analyse(sources(WHOLE))


def test_the_worker_does_hardly_anything_for_a_question() -> None:
    questions, hertz = 20, os.sysconf("SC_CLK_TCK")
    with AnalysisWorker(GENEROUS) as made:
        made.profile(sources("x = 1"))
        assert made.pid is not None
        before = process(made.pid)
        for _ in range(questions):
            made.profile(sources("x = 1"))
        after = process(made.pid)
    assert before is not None
    assert after is not None
    spent = (after.ticks - before.ticks) / hertz / questions
    print(f"{spent * 1e3:.1f} ms of processor time of the worker for each question")
    assert spent < 0.05


def test_one_process_serves_all_questions(worker: AnalysisWorker) -> None:
    worker.profile(sources("x = 1"))
    first = worker.pid
    worker.profile(sources("x = 2"))
    assert first is not None
    assert worker.pid == first


# Bounds


def test_a_program_that_takes_too_much_processor_time_is_given_up() -> None:
    profile = analyse_isolated(sources(CALLS), replace(GENEROUS, cpu_seconds=0.001))
    assert not profile.gpu.known
    assert profile.notes == ("a.py: The analysis took longer than 0.001 s.",)


def test_a_program_that_takes_too_long_is_given_up() -> None:
    profile = analyse_isolated(sources(CALLS), replace(GENEROUS, wall_seconds=0.001))
    assert "longer" in profile.notes[0]


@pytest.mark.parametrize("mib", [1, 50])
def test_a_program_that_takes_too_much_memory_is_given_up(mib: int) -> None:
    profile = analyse_isolated(sources(CALLS), replace(GENEROUS, memory_bytes=mib * 2**20))
    assert f"more than {mib} MiB" in profile.notes[0]
    assert profile.gpu.question


def test_the_next_program_is_read_all_the_same() -> None:
    with AnalysisWorker(replace(GENEROUS, memory_bytes=50 * 2**20)) as small:
        assert not small.profile(sources(CALLS)).gpu.known
        assert small.profile(sources("import torch")).frameworks.value == ("torch",)


def test_what_could_not_be_read_is_still_of_a_kind() -> None:
    profile = analyse_isolated(
        sources(b'{"cells": []}' + b" " * 10**6, "a.ipynb"), replace(GENEROUS, memory_bytes=2**20)
    )
    assert profile.entrypoint.value is Entrypoint.NOTEBOOK
    assert profile.runtime_hours.question


def test_a_child_has_its_limits_and_one_socket_and_can_open_nothing(worker: AnalysisWorker) -> None:
    pid = idle(worker)
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(worker.profile, sources(CALLS))
        child = confined_child(pid)
        limits, descriptors = _limits(child.pid), child.descriptors
        assert answer.result().frameworks.value == ("torch",)
    assert f"Max address space         {GENEROUS.memory_bytes}" in limits
    assert "Max cpu time              31" in limits, "a program that has taken the child over can set a timer back"
    assert "Max core file size        0" in limits
    assert "Max file size             0" in limits
    assert [descriptors.pop(number) for number in (0, 1, 2)] == ["/dev/null"] * 3
    assert [each.partition(":")[0] for each in descriptors.values()] == ["socket"]


_CONFINED = "Max open files            0"


def idle(worker: AnalysisWorker) -> int:
    """The pid of the worker process, which has nothing to do."""
    worker.profile(sources("x = 1"))
    pid = worker.pid
    assert pid is not None
    until(lambda: not children(pid), "the end of its children")
    return pid


def confined(pid: int) -> list[Process]:
    return [each for each in children(pid) if _CONFINED in _limits(each.pid)]


def confined_child(pid: int) -> Process:
    """The child of a worker that was idle and was then asked for something that takes a while."""
    until(lambda: confined(pid), "a child with its limits")
    return confined(pid)[0]


def _limits(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/limits").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""  # it has ended meanwhile


def test_a_child_reads_one_program_and_is_gone(worker: AnalysisWorker) -> None:
    """Whatever a program did to the process that read it, the next one is read by another, whoever sends it."""
    pid = idle(worker)
    found = []
    for _ in range(2):
        with ThreadPoolExecutor() as pool:
            answer = pool.submit(worker.profile, sources(CALLS))
            found.append(confined_child(pid).pid)
            assert answer.result().frameworks.value == ("torch",)
        until(lambda: not children(pid), "its end")
    assert found[0] != found[1]


def test_our_own_limits_stay(worker: AnalysisWorker) -> None:
    before = _limits(os.getpid())
    worker.profile(sources("x = 1"))
    assert _limits(os.getpid()) == before


# Nothing leaks in


def test_the_worker_gets_neither_environment_nor_descriptors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CRUCIBLE_TOKEN", "secret")
    with (tmp_path / "open").open("w") as file, AnalysisWorker(GENEROUS) as made:
        os.set_inheritable(file.fileno(), True)
        made.profile(sources("x = 1"))
        found = process(made.pid or 0)
        assert found is not None
        assert Path(f"/proc/{found.pid}/environ").read_bytes() == b""
        assert os.readlink(f"/proc/{found.pid}/cwd") == "/"
        descriptors = found.descriptors
    assert [descriptors.pop(number) for number in (0, 1, 2)] == ["/dev/null"] * 3
    assert {each.partition(":")[0] for each in descriptors.values()} == {"socket"}


# Start and end


def test_nothing_is_started_before_the_first_question() -> None:
    with AnalysisWorker(GENEROUS) as made:
        assert made.pid is None


def test_a_worker_that_was_killed_is_replaced(worker: AnalysisWorker) -> None:
    worker.profile(sources("x = 1"))
    first = worker.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    assert worker.profile(sources(WHOLE)) == analyse(sources(WHOLE))
    assert worker.pid not in (None, first)


def test_a_child_that_was_killed_is_told_from_one_that_took_too_long(worker: AnalysisWorker) -> None:
    pid = idle(worker)
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(worker.profile, sources(CALLS))
        child = confined_child(pid)
        os.kill(child.pid, signal.SIGKILL)
        assert answer.result().notes == ("a.py: The analysis process died; it may need more than 256 MiB.",)
    assert worker.pid == pid


def test_without_work_it_ends_by_itself_and_is_started_again() -> None:
    with AnalysisWorker(GENEROUS, idle_seconds=0.05) as made:
        made.profile(sources("x = 1"))
        until(lambda: made.pid is None, "its end")
        assert made.profile(sources(WHOLE)) == analyse(sources(WHOLE))


def test_no_zombies_are_left() -> None:
    with AnalysisWorker(GENEROUS, idle_seconds=0.05) as made:
        made.profile(sources("x = 1"))
        first = made.pid
        until(lambda: made.pid is None, "its end")
        assert first not in [each.pid for each in everyone()]
    with AnalysisWorker(GENEROUS) as made:
        for _ in range(5):
            made.profile(sources("x = 1"))
        pid = idle(made)
    until(lambda: not alive(pid), "the end of all of them")
    assert pid not in [each.pid for each in everyone()]


def test_closing_ends_it_and_whoever_asks_then_is_told() -> None:
    made = AnalysisWorker(GENEROUS)
    made.profile(sources("x = 1"))
    group = made.pid or 0
    made.close()
    made.close()
    assert made.pid is None
    until(lambda: not alive(group), "its end")
    assert made.profile(sources("x = 1")).notes == ("a.py: No process could be started to analyse it.",)
    assert made.pid is None


def test_closing_ends_what_is_being_read() -> None:
    made = AnalysisWorker(GENEROUS)
    pid = idle(made)
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(made.profile, sources(CALLS))
        confined_child(pid)
        made.close()
        assert not answer.result().gpu.known
    until(lambda: not alive(pid), "the end of its children")


OWNER = """
import sys, threading
from crucible.analysis import AnalysisWorker, Limits, Sources
worker = AnalysisWorker(Limits(cpu_seconds=60.0, wall_seconds=60.0))
worker.profile(Sources({"a.py": b"x = 1"}, "a.py"))
print(worker.pid, flush=True)
big = Sources({"a.py": sys.stdin.buffer.read()}, "a.py")
while True:
    worker.profile(big)
"""


def test_an_owner_that_is_killed_leaves_no_process_behind() -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with owner:
        assert owner.stdin is not None
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        owner.stdin.write(CALLS)
        owner.stdin.close()
        until(lambda: confined(pid), "a child")
        owner.kill()
    until(lambda: not alive(pid), "the end of all of them")


# Several at once


def test_several_threads_get_their_own_answers() -> None:
    programs = [sources(f"import torch\ntorch.nn.Linear({n}, 1).cuda()") for n in range(1, 25)]
    with AnalysisWorker(GENEROUS, max_concurrent=3) as made, ThreadPoolExecutor(8) as pool:
        profiles = list(pool.map(made.profile, programs))
    assert [each.parameters.value for each in profiles] == [n + 1 for n in range(1, 25)]


def test_threads_that_start_together_start_one_process() -> None:
    gate = threading.Barrier(4)

    def ask(_: int) -> int | None:
        gate.wait()
        made.profile(sources("x = 1"))
        return made.pid

    with AnalysisWorker(GENEROUS) as made, ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(ask, range(4)))) == 1


def test_only_so_many_are_read_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crucible.analysis.process.client.QUEUE_SECONDS", 0.05)
    with AnalysisWorker(GENEROUS, max_concurrent=1) as made, ThreadPoolExecutor(2) as pool:
        made.profile(sources("x = 1"))
        assert made.pid is not None
        os.kill(made.pid, signal.SIGSTOP)  # whoever has the turn keeps it
        both = [pool.submit(made.profile, sources("import torch")) for _ in range(2)]
        refused, kept = wait(both, return_when=FIRST_COMPLETED)
        os.kill(made.pid, signal.SIGCONT)
        assert refused.pop().result().notes == ("a.py: Too many programs are being analysed at the same time.",)
        assert kept.pop().result().frameworks.value == ("torch",)


def test_where_nothing_can_be_forked_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "fork")
    with AnalysisWorker(GENEROUS) as made:
        profile = made.profile(sources("import torch"))
        assert made.pid is None
    assert "cannot limit the process" in profile.notes[0]
