"""What connects a place that a server does not have is said in one way, wherever it is asked."""

from __future__ import annotations

from typing import Any

import pytest
from tests.control.world import Rig, job_spec, service

from crucible.backends import registry
from crucible.backends.registry import ROWS, Row, connecting
from crucible.catalog import PROVIDERS
from crucible.control.scheduling.unconnected import unconnected, why_unconnected
from crucible.core.compute.offer_filter import OfferFilter
from crucible.core.errors import UnknownName
from crucible.core.people.identity import OWNER
from crucible.core.routing.plan_request import PlanRequest

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
    row = Row("crucible.backends.aws:AwsBackend", "pip install crucible-ml[aws]", connect="crucible connect aws")
    assert connecting("aws", HERE, {"aws": row}) == "crucible connect aws"
    monkeypatch.setattr(registry, "connecting", lambda name, here: connecting(name, here, {**ROWS, "aws": row}))
    assert why_unconnected("aws", HERE) == "aws is not connected. Connect it: crucible connect aws"


async def test_the_places_that_are_not_connected_are_listed(rig: Rig) -> None:
    control = service(rig)
    others = {item.name: item.why for item in (await control.backends.list_backends()).others}
    assert set(others) == (set(PROVIDERS) | set(ROWS)) - {"local"} == set(unconnected(HERE))
    assert others["aws"] == f"{why_unconnected('aws', HERE)}."


async def test_every_face_says_the_same(rig: Rig) -> None:
    control, said = service(rig), why_unconnected("aws", HERE)
    await control._parts.backends.refresh()
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
