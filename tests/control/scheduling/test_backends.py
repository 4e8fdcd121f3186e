"""The connected backends and their offers; what connects the others is said in one way, wherever it is asked."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.control.fakes import FakeBackend, Gate, InlineCalls
from tests.control.harness import ControlHarness, job_spec, join, service

from crucible.backends import registry
from crucible.backends.registry import ROWS, BackendRow, connect_command
from crucible.catalog import PROVIDERS
from crucible.control.scheduling.backends import ConnectedBackends, list_unconnected, why_unconnected
from crucible.core.compute.offer_filter import OfferFilter
from crucible.core.errors import UnknownName, Unreachable
from crucible.core.lifecycle import JobState
from crucible.core.people.identity import OWNER
from crucible.core.routing.plan_request import PlanRequest


async def test_before_it_is_asked_a_place_has_no_offers() -> None:
    backends = ConnectedBackends({"local": FakeBackend()}, InlineCalls())
    assert backends.offers("local") == ()
    assert backends.runnable_offer("local") is None
    assert backends.check(job_spec(cpus=400)).cpus == 400, "nobody knows yet that it is too large"


async def test_a_refreshed_place_offers_what_it_has() -> None:
    backends = ConnectedBackends({"local": FakeBackend()}, InlineCalls())
    await backends.refresh()
    found = backends.runnable_offer("local")
    assert found is not None
    assert found.offer.instance_type == "this computer"


async def test_one_place_that_does_not_answer_stops_no_other() -> None:
    quiet, well = FakeBackend("a_quiet", down=Unreachable("No answer.")), FakeBackend("well")
    backends = ConnectedBackends({"a_quiet": quiet, "well": well}, InlineCalls())
    await backends.refresh()
    assert backends.offers("a_quiet") == ()
    assert backends.offers("well")


async def test_a_place_that_hangs_delays_no_other() -> None:
    backends = ConnectedBackends({"a_slow": FakeBackend("a_slow"), "well": FakeBackend("well")}, gate := Gate("a_slow"))
    asking = asyncio.create_task(backends.refresh())
    for _ in range(10):
        await asyncio.sleep(0)
    assert (backends.offers("a_slow"), len(backends.offers("well"))) == ((), 1)
    gate.open.set()
    await asking
    assert backends.offers("a_slow")


async def test_a_place_that_falls_silent_keeps_its_last_offers() -> None:
    backend = FakeBackend()
    backends = ConnectedBackends({"local": backend}, InlineCalls())
    await backends.refresh()
    backend.down = Unreachable("No answer.")
    await backends.refresh()
    assert backends.offers("local")


async def test_names_are_sorted_and_unknown_ones_refused(two_backends: ControlHarness) -> None:
    assert two_backends.connected.names() == ["local", "ssh"]
    with pytest.raises(UnknownName):
        two_backends.connected.get("gcp")


async def test_a_job_for_a_place_that_is_not_ready_waits(harness: ControlHarness, tmp_path: Path) -> None:
    cold = join(harness.ports, harness.clock, harness.calls, harness.backends, tmp_path)
    await cold.duties.renew(harness.ports.db, harness.clock)
    job = await cold.submit()
    assert (await cold.world(job)).job.state is JobState.QUEUED
    await cold.connected.refresh()
    await cold.place()
    assert (await cold.world(job)).live is not None


HERE = ("local",)


def test_a_backend_that_needs_only_its_name() -> None:
    said = "rehearsal is not connected. Connect it: crucible down, then CRUCIBLE_BACKENDS=local,rehearsal crucible up"
    assert why_unconnected("rehearsal", HERE) == said
    assert "CRUCIBLE_BACKENDS=local,other,rehearsal" in why_unconnected("rehearsal", ("local", "other"))


@pytest.mark.parametrize("provider", sorted(PROVIDERS))
def test_a_provider_without_a_backend_says_that_nothing_connects_it(provider: str) -> None:
    assert provider not in ROWS
    said = why_unconnected(provider, HERE)
    assert said.startswith(f"Not connected, and no command connects {provider} yet: this version has no backend")
    assert "CRUCIBLE_BACKENDS" not in said


def test_a_name_that_nobody_knows_has_no_reason() -> None:
    assert why_unconnected("nowhere", HERE) == ""


def test_a_backends_row_says_which_command_connects_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one place where a new backend puts it."""
    row = BackendRow("crucible.backends.aws:AwsBackend", "pip install crucible-ml[aws]", connect="crucible connect aws")
    assert connect_command("aws", HERE, {"aws": row}) == "crucible connect aws"
    monkeypatch.setattr(registry, "connect_command", lambda name, on: connect_command(name, on, {**ROWS, "aws": row}))
    assert why_unconnected("aws", HERE) == "aws is not connected. Connect it: crucible connect aws"


async def test_the_places_that_are_not_connected_are_listed(harness: ControlHarness) -> None:
    control = service(harness)
    others = {item.name: item.why for item in (await control.backends.list_backends()).others}
    assert set(others) == (set(PROVIDERS) | set(ROWS)) - {"local"} == set(list_unconnected(HERE))
    assert others["aws"] == f"{why_unconnected('aws', HERE)}."


async def test_every_face_says_the_same(harness: ControlHarness) -> None:
    control, said = service(harness), why_unconnected("aws", HERE)
    await control._services.backends.refresh()
    plan: Any = await control.plans.plan(OWNER, PlanRequest.model_validate({"command": ["true"], "backend": "aws"}))
    assert {(offer.runnable, offer.why) for offer in plan.offers} == {(False, said)}
    page: Any = await control.catalog.page(OfferFilter(provider=("aws",)), limit=3, cursor=None)
    assert {(offer.runnable, offer.why) for offer in page.items} == {(False, said)}
    with pytest.raises(UnknownName) as refused:
        await control.jobs.submit(OWNER, job_spec(backend="aws"), None)
    assert refused.value.fix.endswith(f"{said}.")
    with pytest.raises(UnknownName) as refused:
        await control.plans.plan(OWNER, PlanRequest.model_validate({"command": ["true"], "backend": "rehearsal"}))
    assert refused.value.fix.endswith(f"{why_unconnected('rehearsal', HERE)}.")
