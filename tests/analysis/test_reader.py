"""The reader: the same profiles as reading here, from processes that are bounded, quick and never left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.analysis.hard import HUGE
from benchmarks.analysis.snippets import WHOLE
from tests.analysis.processes import PATIENT, Process, alive, children, everyone, process, until
from tests.analysis.programs import sources

from crucible.analysis import Bounds, Reader, Sources, analyse, analyse_within
from crucible.analysis.answering import is_worn
from crucible.analysis.conclusions.runtime import CPU
from crucible.core.errors import BadInput
from crucible.core.profile import Entrypoint

CALLS = HUGE["calls"].encode()


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    with Reader(PATIENT) as made:
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
def test_a_profile_is_the_same_as_reading_here_gives(reader: Reader, name: str) -> None:
    assert reader.profile(PROGRAMS[name]) == analyse(PROGRAMS[name])


def test_settings_of_all_kinds_can_be_read_though_no_file_can_be_opened(reader: Reader) -> None:
    assert reader.profile(PROGRAMS["settings"]).parameters.value == 3 * 20 + 20


def test_the_reference_is_handed_on(reader: Reader) -> None:
    other = replace(CPU, name="an abacus")
    assert reader.profile(sources(WHOLE), other) == analyse(sources(WHOLE), other)


def test_an_entry_that_is_not_there_is_an_error_of_the_caller(reader: Reader) -> None:
    with pytest.raises(BadInput, match="not among the files"):
        reader.profile(Sources({"b.py": b""}, "a.py"))


# Speed


def test_from_the_second_on_a_question_costs_a_fraction_of_starting_python(reader: Reader) -> None:
    """The kernel itself ends a child that uses more; starting Python and loading analysis takes several times that."""
    with Reader(replace(PATIENT, seconds=0.25)) as quick:
        assert quick.profile(sources(WHOLE)) == analyse(sources(WHOLE))
        assert quick.profile(sources(WHOLE)) == analyse(sources(WHOLE))


def test_the_warm_process_does_hardly_anything_for_a_question() -> None:
    questions, hertz = 20, os.sysconf("SC_CLK_TCK")
    with Reader(PATIENT) as made:
        made.profile(sources("x = 1"))
        assert made.pid is not None
        before = process(made.pid)
        for _ in range(questions):
            made.profile(sources("x = 1"))
        after = process(made.pid)
    assert before is not None
    assert after is not None
    spent = (after.ticks - before.ticks) / hertz / questions
    print(f"{spent * 1e3:.1f} ms of processor time of the warm process for each question")
    assert spent < 0.05


def test_one_process_serves_all_questions(reader: Reader) -> None:
    reader.profile(sources("x = 1"))
    first = reader.pid
    reader.profile(sources("x = 2"))
    assert first is not None
    assert reader.pid == first


# Bounds


def test_a_program_that_takes_too_much_processor_time_is_given_up() -> None:
    profile = analyse_within(sources(CALLS), replace(PATIENT, seconds=0.001))
    assert not profile.gpu.known
    assert profile.notes == ("a.py: Reading it took longer than 0.001 s.",)


def test_a_program_that_takes_too_long_is_given_up() -> None:
    profile = analyse_within(sources(CALLS), replace(PATIENT, patience=0.001))
    assert "longer" in profile.notes[0]


@pytest.mark.parametrize("mib", [1, 50])
def test_a_program_that_takes_too_much_memory_is_given_up(mib: int) -> None:
    profile = analyse_within(sources(CALLS), replace(PATIENT, memory=mib * 2**20))
    assert f"more than {mib} MiB" in profile.notes[0]
    assert profile.as_json()["unknown"]


def test_the_next_program_is_read_all_the_same() -> None:
    with Reader(replace(PATIENT, memory=50 * 2**20)) as small:
        assert not small.profile(sources(CALLS)).gpu.known
        assert small.profile(sources("import torch")).frameworks.value == ("torch",)


def test_what_could_not_be_read_is_still_of_a_kind() -> None:
    profile = analyse_within(sources(b'{"cells": []}' + b" " * 10**6, "a.ipynb"), replace(PATIENT, memory=2**20))
    assert profile.entrypoint.value is Entrypoint.NOTEBOOK
    assert profile.runtime_hours.question


def test_a_child_has_its_limits_and_one_socket_and_can_open_nothing(reader: Reader) -> None:
    pid = idle(reader)
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(reader.profile, sources(CALLS))
        child = confined_child(pid)
        limits, descriptors = _limits(child.pid), child.descriptors
        assert answer.result().frameworks.value == ("torch",)
    assert f"Max address space         {PATIENT.memory}" in limits
    assert "Max core file size        0" in limits
    assert "Max file size             0" in limits
    assert [descriptors.pop(number) for number in (0, 1, 2)] == ["/dev/null"] * 3
    assert [each.partition(":")[0] for each in descriptors.values()] == ["socket"]


_CONFINED = "Max open files            0"


def idle(reader: Reader) -> int:
    """The pid of its warm process, which has nothing to do but to keep a spare."""
    reader.profile(sources("x = 1"))
    pid = reader.pid
    assert pid is not None
    until(lambda: len(children(pid)) == 1 and spares(pid), "the end of its other children")
    return pid


def spares(pid: int) -> list[Process]:
    """Its children that have not begun to read."""
    found = [(each, _limits(each.pid)) for each in children(pid) if each.state != "Z"]
    return [each for each, limits in found if limits and _CONFINED not in limits]


def kinds_of_descriptors(process: Process) -> list[str]:
    return sorted(each.partition(":")[0] for each in process.descriptors.values())


def confined(pid: int) -> list[Process]:
    return [each for each in children(pid) if _CONFINED in _limits(each.pid)]


def confined_child(pid: int) -> Process:
    """Of an idle one that was asked something that takes a while: the child that has begun with it."""
    until(lambda: confined(pid), "a child with its limits")
    return confined(pid)[0]


def _limits(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/limits").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""  # it has ended meanwhile


def test_our_own_limits_stay(reader: Reader) -> None:
    before = _limits(os.getpid())
    reader.profile(sources("x = 1"))
    assert _limits(os.getpid()) == before


# Nothing leaks in


def test_the_warm_process_gets_neither_environment_nor_descriptors(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CRUCIBLE_TOKEN", "secret")
    with (tmp_path / "open").open("w") as file, Reader(PATIENT) as made:
        os.set_inheritable(file.fileno(), True)
        made.profile(sources("x = 1"))
        found = process(made.pid or 0)
        assert found is not None
        assert Path(f"/proc/{found.pid}/environ").read_bytes() == b""
        assert os.readlink(f"/proc/{found.pid}/cwd") == "/"
        descriptors = found.descriptors
    assert [descriptors.pop(number) for number in (0, 1, 2)] == ["/dev/null"] * 3
    assert {each.partition(":")[0] for each in descriptors.values()} == {"socket"}


# Coming and going


def test_nothing_is_started_before_the_first_question() -> None:
    with Reader(PATIENT) as made:
        assert made.pid is None


def test_a_warm_process_that_was_killed_is_replaced(reader: Reader) -> None:
    reader.profile(sources("x = 1"))
    first = reader.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    assert reader.profile(sources(WHOLE)) == analyse(sources(WHOLE))
    assert reader.pid not in (None, first)


def test_a_child_that_was_killed_is_told_from_one_that_took_too_long(reader: Reader) -> None:
    pid = idle(reader)
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(reader.profile, sources(CALLS))
        child = confined_child(pid)
        os.kill(child.pid, signal.SIGKILL)
        assert answer.result().notes == ("a.py: Its reader broke down, most likely for want of more than 256 MiB.",)
    assert reader.pid == pid


def test_without_work_it_ends_by_itself_and_is_started_again() -> None:
    with Reader(PATIENT, idle=0.05) as made:
        made.profile(sources("x = 1"))
        until(lambda: made.pid is None, "its end")
        assert made.profile(sources(WHOLE)) == analyse(sources(WHOLE))


def test_no_zombies_are_left() -> None:
    with Reader(PATIENT, idle=0.05) as made:
        made.profile(sources("x = 1"))
        first = made.pid
        until(lambda: made.pid is None, "its end")
        assert first not in [each.pid for each in everyone()]
    with Reader(PATIENT) as made:
        for _ in range(5):
            made.profile(sources("x = 1"))
        pid = idle(made)
    until(lambda: not alive(pid), "the end of all of them")
    assert pid not in [each.pid for each in everyone()]


def test_closing_ends_it_and_whoever_asks_then_is_told() -> None:
    made = Reader(PATIENT)
    made.profile(sources("x = 1"))
    group = made.pid or 0
    made.close()
    made.close()
    assert made.pid is None
    until(lambda: not alive(group), "the end of its spare")
    assert made.profile(sources("x = 1")).notes == ("a.py: No process could be started to read it.",)
    assert made.pid is None


def test_closing_ends_what_is_being_read() -> None:
    made = Reader(PATIENT)
    pid = idle(made)
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(made.profile, sources(CALLS))
        confined_child(pid)
        made.close()
        assert not answer.result().gpu.known
    until(lambda: not alive(pid), "the end of its children")


OWNER = """
import sys, threading
from crucible.analysis import Bounds, Reader, Sources
reader = Reader(Bounds(seconds=60.0, patience=60.0))
reader.profile(Sources({"a.py": b"x = 1"}, "a.py"))
print(reader.pid, flush=True)
big = Sources({"a.py": sys.stdin.buffer.read()}, "a.py")
while True:
    reader.profile(big)
"""


def test_an_owner_that_is_killed_leaves_no_process_behind() -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with owner:
        assert owner.stdin is not None
        assert owner.stdout is not None
        warm = int(owner.stdout.readline())
        owner.stdin.write(CALLS)
        owner.stdin.close()
        until(lambda: confined(warm), "a child")
        owner.kill()
    until(lambda: not alive(warm), "the end of all of them")


# The spare


def test_a_question_is_answered_by_the_child_that_was_there_before(reader: Reader) -> None:
    pid = idle(reader)
    [spare] = spares(pid)
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(reader.profile, sources(CALLS))
        assert confined_child(pid).pid == spare.pid
        assert answer.result().frameworks.value == ("torch",)
    until(lambda: spare.pid not in [each.pid for each in children(pid)], "its end: it reads one program")


def test_a_spare_has_only_its_line(reader: Reader) -> None:
    [spare] = spares(idle(reader))
    until(
        lambda: kinds_of_descriptors(spare) == ["/dev/null"] * 3 + ["socket"], "what it has of its parent to be closed"
    )


def test_a_spare_that_was_killed_is_done_without(reader: Reader) -> None:
    pid = idle(reader)
    os.kill(spares(pid)[0].pid, signal.SIGKILL)
    until(lambda: not children(pid), "its end; none is made before the next question")
    assert reader.profile(sources(WHOLE)) == analyse(sources(WHOLE))
    assert reader.pid == pid


def test_a_child_that_was_no_spare_has_one_socket_too(reader: Reader) -> None:
    pid = idle(reader)
    os.kill(spares(pid)[0].pid, signal.SIGKILL)
    until(lambda: not children(pid), "its end")
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(reader.profile, sources(CALLS))
        descriptors = confined_child(pid).descriptors
        assert answer.result().frameworks.value == ("torch",)
    assert sorted(each.partition(":")[0] for each in descriptors.values()) == ["/dev/null"] * 3 + ["socket"]


def test_a_spare_ends_with_the_warm_process(reader: Reader) -> None:
    pid = idle(reader)
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid), "the end of both")


# Asked again


def at_rest(reader: Reader, whose: str = "ada") -> Process:
    """The child that has answered her and waits for more."""
    before = {each.pid for each in confined(reader.pid or 0)}
    reader.profile(sources("x = 1"), whose=whose)
    pid = reader.pid
    assert pid is not None
    until(lambda: {each.pid for each in confined(pid)} - before, "a child that stays")
    [child] = [each for each in confined(pid) if each.pid not in before]
    until(lambda: sleeps(child.pid), "its rest")
    return child


def sleeps(pid: int) -> bool:
    found = process(pid)
    return found is not None and found.state == "S"


def asked(reader: Reader, whose: str | None) -> set[int]:
    """Who has a share in an answer: the children there are afterwards or that have ended."""
    before = {each.pid: each.ticks for each in confined(reader.pid or 0)}
    profile = reader.profile(sources(CALLS), whose=whose)
    assert profile.frameworks.value == ("torch",)
    after = {each.pid: each.ticks for each in confined(reader.pid or 0)}
    return {pid for pid in {*before, *after} if before.get(pid) != after.get(pid)}


@pytest.fixture
def own() -> Iterator[Reader]:
    with Reader(PATIENT) as made:
        yield made


def test_whoever_asks_again_is_answered_by_the_same_child(own: Reader) -> None:
    child = at_rest(own)
    assert asked(own, "ada") == {child.pid}
    assert own.profile(sources(WHOLE), whose="ada") == analyse(sources(WHOLE))


def test_nobody_else_is_answered_by_it(own: Reader) -> None:
    child = at_rest(own)
    assert child.pid not in asked(own, "bob")
    assert child.pid not in asked(own, None)


def test_it_reads_one_program_after_the_other_as_if_each_were_the_first(own: Reader) -> None:
    for name in (*PROGRAMS, *reversed(PROGRAMS)):
        assert own.profile(PROGRAMS[name], whose="ada") == analyse(PROGRAMS[name]), name


def test_it_has_its_limits_and_one_socket_while_it_rests(own: Reader) -> None:
    child = at_rest(own)
    assert _CONFINED in _limits(child.pid)
    assert kinds_of_descriptors(child) == ["/dev/null"] * 3 + ["socket"]


def test_one_that_died_at_rest_is_not_missed(own: Reader) -> None:
    child = at_rest(own)
    os.kill(child.pid, signal.SIGKILL)
    until(lambda: process(child.pid) is None, "its end")
    assert own.profile(sources(WHOLE), whose="ada") == analyse(sources(WHOLE))


def test_one_that_does_not_answer_at_all_is_not_waited_for(own: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crucible.analysis.reader.KNOCKING", 0.05)
    child = at_rest(own)
    os.kill(child.pid, signal.SIGSTOP)
    assert own.profile(sources(WHOLE), whose="ada") == analyse(sources(WHOLE))
    os.kill(child.pid, signal.SIGCONT)
    until(lambda: process(child.pid) is None, "its end: nobody asks it any more")


def test_each_program_has_the_time_of_one() -> None:
    tick = 1 / os.sysconf("SC_CLK_TCK")
    with Reader(replace(PATIENT, seconds=0.25)) as strict:
        child = at_rest(strict)
        while (found := process(child.pid)) is not None and found.ticks * tick < 0.5:
            assert strict.profile(sources(WHOLE), whose="ada").frameworks.known
            until(lambda: sleeps(child.pid), "its rest")
        assert found is not None, "all that it read together took longer than one may"


def test_one_that_takes_too_long_is_given_up_though_others_were_read_before() -> None:
    with Reader(replace(PATIENT, seconds=0.05)) as strict:
        child = at_rest(strict)
        assert strict.profile(sources(CALLS), whose="ada").notes == ("a.py: Reading it took longer than 0.05 s.",)
        until(lambda: process(child.pid) is None, "its end")


def test_after_much_work_another_takes_its_place() -> None:
    with Reader(replace(PATIENT, life=0.0)) as made:
        assert made.profile(sources("x = 1"), whose="ada") == analyse(sources("x = 1"))
        until(lambda: not confined(made.pid or 0), "its end")
        assert made.profile(sources("x = 2"), whose="ada") == analyse(sources("x = 2"))


@pytest.mark.parametrize(
    ("bounds", "worn"),
    [(Bounds(life=1e6, memory=2**50), False), (Bounds(life=0, memory=2**50), True), (Bounds(life=1e6, memory=1), True)],
)
def test_much_memory_wears_it_out_too(bounds: Bounds, worn: bool) -> None:
    assert is_worn(bounds) is worn


def test_its_rest_is_over_some_time() -> None:
    with Reader(PATIENT, idle=0.2) as made:
        made.profile(sources("x = 1"), whose="ada")
        until(lambda: made.pid is None, "the end of the child, and then of the process it comes from")
        assert made.profile(sources(WHOLE), whose="ada") == analyse(sources(WHOLE))


def test_only_so_many_are_kept() -> None:
    with Reader(PATIENT, at_once=2) as made:
        first, *_ = [at_rest(made, whose).pid for whose in ("ada", "bob", "eve")]
        until(lambda: process(first) is None, "the end of the one that was asked longest ago")
        assert len(confined(made.pid or 0)) == 2


def test_closing_ends_those_at_rest() -> None:
    made = Reader(PATIENT)
    child = at_rest(made)
    made.close()
    until(lambda: not alive(child.group), "its end")


def test_those_at_rest_end_with_their_owner_though_the_process_they_come_from_is_gone() -> None:
    with Reader(PATIENT) as made:
        child = at_rest(made)
        os.kill(made.pid or 0, signal.SIGKILL)
        assert made.profile(sources(WHOLE), whose="ada") == analyse(sources(WHOLE))
    until(lambda: not alive(child.group), "its end")


def test_the_process_they_come_from_waits_for_them_and_does_nothing() -> None:
    """Longer than it would wait for work: it does not end before them, nor go round and round."""
    with Reader(PATIENT, idle=0.5) as made:
        child = at_rest(made)
        begun, warm = time.monotonic(), process(made.pid or 0)
        assert warm is not None
        while time.monotonic() - begun < 1.5:
            assert made.profile(sources("x = 1"), whose="ada").entrypoint.known
            until(lambda: sleeps(child.pid), "its rest")
        after = process(warm.pid)
        assert after is not None
        assert (after.ticks - warm.ticks) / os.sysconf("SC_CLK_TCK") < 0.4


# Several at once


def test_several_threads_get_their_own_answers() -> None:
    programs = [sources(f"import torch\ntorch.nn.Linear({n}, 1).cuda()") for n in range(1, 25)]
    with Reader(PATIENT, at_once=3) as made, ThreadPoolExecutor(8) as pool:
        profiles = list(pool.map(made.profile, programs))
    assert [each.parameters.value for each in profiles] == [n + 1 for n in range(1, 25)]


def test_threads_that_start_together_start_one_process() -> None:
    gate = threading.Barrier(4)

    def ask(_: int) -> int | None:
        gate.wait()
        made.profile(sources("x = 1"))
        return made.pid

    with Reader(PATIENT) as made, ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(ask, range(4)))) == 1


def test_only_so_many_are_read_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crucible.analysis.reader.TURN", 0.05)
    with Reader(PATIENT, at_once=1) as made, ThreadPoolExecutor(2) as pool:
        made.profile(sources("x = 1"))
        assert made.pid is not None
        os.kill(made.pid, signal.SIGSTOP)  # whoever has the turn keeps it
        both = [pool.submit(made.profile, sources("import torch")) for _ in range(2)]
        refused, kept = wait(both, return_when=FIRST_COMPLETED)
        os.kill(made.pid, signal.SIGCONT)
        assert refused.pop().result().notes == ("a.py: Too many programs are being read at the same time.",)
        assert kept.pop().result().frameworks.value == ("torch",)


def test_where_nothing_can_be_forked_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "fork")
    with Reader(PATIENT) as made:
        profile = made.profile(sources("import torch"))
        assert made.pid is None
    assert "cannot end a reader" in profile.notes[0]
