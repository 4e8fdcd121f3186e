"""The connected backends; what connects the others is said in one way, wherever it is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.control.harness import ControlHarness, job_spec, join, service

from crucible.backends.registry import ROWS
from crucible.catalog import PROVIDERS
from crucible.control.scheduling.backends import list_unconnected, why_unconnected
from crucible.core.compute.offer_filter import OfferFilter
from crucible.core.errors import UnknownName, Unreachable
from crucible.core.lifecycle import JobState
from crucible.core.people.identity import OWNER
from crucible.core.routing.plan_request import PlanRequest


async def test_names_are_sorted_and_unknown_ones_refused(two_backends: ControlHarness) -> None:
    assert two_backends.connected.names() == ["local", "ssh"]
    with pytest.raises(UnknownName):
        two_backends.connected.get("gcp")


async def test_a_job_for_a_backend_that_has_not_answered_waits(harness: ControlHarness, tmp_path: Path) -> None:
    """A server that has just started takes jobs at once."""
    harness.backend.down = Unreachable("Not yet.")
    cold = join(harness.ports, harness.clock, harness.calls, harness.backends, tmp_path)
    await cold.duties.renew(harness.ports.db, harness.clock)
    job = await cold.submit()
    assert (await cold.world(job)).job.state is JobState.QUEUED
    assert (await cold.world(job)).job.waiting == "local has not reported its offers yet"
    harness.backend.down = None
    await cold.offers.refresh()
    await cold.place()
    assert (await cold.world(job)).live is not None


HERE = ("local",)


def test_a_backend_that_is_not_connected_names_the_command() -> None:
    assert why_unconnected("rehearsal") == "rehearsal is not connected. Connect it: crucible backends connect rehearsal"


@pytest.mark.parametrize("provider", sorted(PROVIDERS))
def test_a_provider_without_a_backend_says_that_nothing_connects_it(provider: str) -> None:
    assert provider not in ROWS
    said = why_unconnected(provider)
    assert said.startswith(f"Not connected, and no command connects {provider} yet: this version only compares prices")
    assert "backends connect" not in said


def test_a_name_that_nobody_knows_has_no_reason() -> None:
    assert why_unconnected("nowhere") == ""


async def test_the_backends_that_are_not_connected_are_listed(harness: ControlHarness) -> None:
    control = service(harness)
    others = {item.name: item.why for item in (await control.backends.list_backends()).others}
    assert set(others) == (set(PROVIDERS) | set(ROWS)) - {"local"} == set(list_unconnected(HERE))
    assert others["aws"] == f"{why_unconnected('aws')}."


async def test_every_face_says_the_same(harness: ControlHarness) -> None:
    control, said = service(harness), why_unconnected("aws")
    await control._services.offers.refresh()
    plan: Any = await control.plans.plan(OWNER, PlanRequest.model_validate({"command": ["true"], "backend": "aws"}))
    assert {(offer.runnable, offer.why) for offer in plan.offers} == {(False, said)}
    page: Any = await control.catalog.page(OfferFilter(provider=("aws",)), limit=3, cursor=None)
    assert {(offer.runnable, offer.why) for offer in page.items} == {(False, said)}
    with pytest.raises(UnknownName) as refused:
        await control.jobs.submit(OWNER, job_spec(backend="aws"), None)
    assert refused.value.fix.endswith(f"{said}.")
    with pytest.raises(UnknownName) as refused:
        await control.plans.plan(OWNER, PlanRequest.model_validate({"command": ["true"], "backend": "rehearsal"}))
    assert refused.value.fix.endswith(f"{why_unconnected('rehearsal')}.")
