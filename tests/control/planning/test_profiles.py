"""Programs are analysed once for each caller, by a worker that is started when needed and ended with its owner."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest
from tests.authorisation.populated_app import populate, token_of
from tests.control.fakes import InlineCalls
from tests.control.harness import ControlHarness

from crucible.control.planning.profiles import LANE, MAX_CACHED, Profiles
from crucible.core.people.identity import OWNER, Identity
from crucible.core.routing.plan_request import PlanRequest, Program
from crucible.core.routing.profile import GpuNeed


@pytest.fixture
def calls() -> InlineCalls:
    return InlineCalls()


@pytest.fixture
def profiles(calls: InlineCalls, own_worker: None) -> Iterator[Profiles]:
    found = Profiles(calls)
    yield found
    found.close()


def program(text: str, *arguments: str) -> Program:
    return Program({"main.py": text}, "main.py", arguments)


async def test_the_same_program_is_read_once(profiles: Profiles, calls: InlineCalls) -> None:
    text = "import torch\nx = torch.zeros(3).cuda()\n"
    first, second = await profiles.get(program(text)), await profiles.get(program(text))
    assert first is second
    assert first.gpu.value is GpuNeed.REQUIRED
    assert calls.lanes == [LANE]


async def test_other_arguments_are_another_program(profiles: Profiles, calls: InlineCalls) -> None:
    await profiles.get(program("1", "--epochs", "3"))
    await profiles.get(program("1", "--epochs", "4"))
    assert len(calls.lanes) == 2


async def test_what_was_read_for_one_is_not_told_to_another(profiles: Profiles, calls: InlineCalls) -> None:
    for authority in ("ada", "bob", None, "ada", "bob", None):
        await profiles.get(program("1"), authority)
    assert len(calls.lanes) == 3


async def test_half_characters_are_read_too(profiles: Profiles) -> None:
    assert (await profiles.get(program("import torch  # \ud83d"))).frameworks.value == ("torch",)


async def test_only_so_many_are_remembered(profiles: Profiles, calls: InlineCalls) -> None:
    for number in range(MAX_CACHED + 1):
        profiles._cache[None, str(number)] = await profiles.get(program("1"))
    await profiles.get(program("2"))
    assert len(profiles._cache) == MAX_CACHED


async def test_nothing_is_started_for_nobody(calls: InlineCalls) -> None:
    Profiles(calls).close()
    assert calls.lanes == []


async def test_the_worker_ends_with_its_owner(profiles: Profiles) -> None:
    await profiles.get(program("1"))
    pid = profiles._worker.pid
    assert pid is not None
    profiles.close()
    deadline = time.monotonic() + 10
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{pid}")


async def test_a_plan_is_cached_for_the_same_authority_alone(harness: ControlHarness) -> None:
    populated_app = await populate(harness)
    member, manager = await populated_app.identity("member"), await populated_app.identity("manager")
    narrow = await populated_app.control.tokens.identify(
        await token_of(populated_app.control, "member", project="alpha")
    )
    assert narrow is not None

    async def analysed(who: Identity) -> bool:
        before = harness.calls.lanes.count(LANE)
        await populated_app.control.plans.plan(who, PlanRequest(code="import torch"))
        return harness.calls.lanes.count(LANE) > before

    assert [await analysed(who) for who in (member, manager, narrow)] == [True] * 3, "a token may have been given away"
    assert [await analysed(who) for who in (member, manager, narrow)] == [False] * 3


async def test_a_forecast_shares_nothing_with_plans(harness: ControlHarness) -> None:
    ask = PlanRequest(code="import torch", backend="local")
    await harness.services.plans.plan(OWNER, ask)
    before = harness.calls.lanes.count(LANE)
    await harness.services.plans.plan_job(ask)
    assert harness.calls.lanes.count(LANE) == before + 1
