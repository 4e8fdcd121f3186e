"""Programs are read once for each asker, by a reader that is made when it is needed and ended with its owner."""

from __future__ import annotations

import os
import time
from collections.abc import Hashable, Iterator

import pytest
from tests.authorisation.town import found_town, token_of
from tests.control.fakes import InlineCalls
from tests.control.world import Rig

from crucible.analysis import Sources, analyse
from crucible.control.readings import KEPT, LANE, Readings
from crucible.core.planask import PlanAsk, Program
from crucible.core.profile import GpuNeed, Profile


@pytest.fixture
def calls() -> InlineCalls:
    return InlineCalls()


@pytest.fixture
def readings(calls: InlineCalls, own_reader: None) -> Iterator[Readings]:
    found = Readings(calls)
    yield found
    found.close()


def program(text: str, *arguments: str) -> Program:
    return Program({"main.py": text}, "main.py", arguments)


async def test_the_same_program_is_read_once(readings: Readings, calls: InlineCalls) -> None:
    text = "import torch\nx = torch.zeros(3).cuda()\n"
    first, second = await readings.of(program(text)), await readings.of(program(text))
    assert first is second
    assert first.gpu.value is GpuNeed.REQUIRED
    assert calls.lanes == [LANE]


async def test_other_arguments_are_another_program(readings: Readings, calls: InlineCalls) -> None:
    await readings.of(program("1", "--epochs", "3"))
    await readings.of(program("1", "--epochs", "4"))
    assert len(calls.lanes) == 2


async def test_what_was_read_for_one_is_not_told_to_another(readings: Readings, calls: InlineCalls) -> None:
    for whose in ("ada", "bob", None, "ada", "bob", None):
        await readings.of(program("1"), whose)
    assert len(calls.lanes) == 3


async def test_half_characters_are_read_too(readings: Readings) -> None:
    assert (await readings.of(program("import torch  # \ud83d"))).frameworks.value == ("torch",)


async def test_only_so_many_are_remembered(readings: Readings, calls: InlineCalls) -> None:
    for number in range(KEPT + 1):
        readings._kept[None, str(number)] = await readings.of(program("1"))
    await readings.of(program("2"))
    assert len(readings._kept) == KEPT


async def test_nothing_is_started_for_nobody(calls: InlineCalls) -> None:
    Readings(calls).close()
    assert calls.lanes == []


async def test_the_reader_ends_with_its_owner(readings: Readings) -> None:
    await readings.of(program("1"))
    pid = readings._reader.pid
    assert pid is not None
    readings.close()
    deadline = time.monotonic() + 10
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{pid}")


class Noting:
    """A reader that notes for whom it reads."""

    def __init__(self) -> None:
        self.asked: list[Hashable] = []

    def profile(self, sources: Sources, whose: Hashable = None) -> Profile:
        self.asked.append(whose)
        return analyse(sources)


async def test_a_plan_is_read_for_whoever_asks_and_a_forecast_for_nobody(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    noting = Noting()
    monkeypatch.setattr(Readings, "_reader", noting)
    town = await found_town(rig)
    member, manager = await town.identity("member"), await town.identity("manager")
    narrow = await town.control.identify(await token_of(town.control, "member", project="alpha"))
    assert narrow is not None
    for who in (member, manager, narrow, member):
        await town.control.at(who).plan(PlanAsk(code=f"import torch  # {len(noting.asked)}"))
    assert noting.asked == [member.authority, manager.authority, narrow.authority, member.authority]
    assert len({*noting.asked}) == 3, "a token for one project has been given to somebody"
    await rig.parts.plans.forecast(PlanAsk(code="import torch  # of a job", backend="local"), rig.clock.now())
    assert noting.asked[4:] == [None]
