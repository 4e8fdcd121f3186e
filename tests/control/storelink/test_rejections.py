"""Backends whose agents could not talk with the server: plan and scheduler reject their offers and say what to do."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.control.fakes import FakeBackend
from tests.control.harness import ControlHarness, give_back, job_spec, join, make_harness

from crucible.backends.base import (
    Reach,
)
from crucible.control.runtime.services import Services
from crucible.control.storelink.invitations import lacks_cryptography
from crucible.core.channels import Channel
from crucible.core.compute.offers import Nodes, OnDemand
from crucible.core.errors import NoCapacity
from crucible.core.lifecycle import JobState
from crucible.core.people.identity import OWNER
from crucible.core.routing.plan_request import PlanRequest
from crucible.core.secret import Secret

SECRETS = {"HF": "TOKEN"}


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ControlHarness]:
    harness = await make_harness(tmp_path, FakeBackend("ssh"))
    yield harness
    await give_back(harness.ports.db)


async def over_a_store(harness: ControlHarness, store: str, *, python: str, **deployment: Any) -> ControlHarness:
    """The same control plane, which talks through the store; `python` runs the agents of `local`."""
    harness.backend.capabilities = replace(harness.backend.capabilities, agent_python=python)
    given = {"store_url": store, "channel": Channel.STORE, **deployment}
    services = Services(harness.ports, harness.backends, replace(harness.deployment, **given))
    made = ControlHarness(
        clock=harness.clock, calls=harness.calls, backend=harness.backend, backends=harness.backends, services=services
    )
    await made.offers.refresh()
    await made.duties.renew(harness.ports.db, harness.clock)
    await made.services.vault.set(OWNER, "default", "TOKEN", Secret("some value"))
    return made


def folder(tmp_path: Path, mode: int) -> str:
    path = tmp_path / "store"
    path.mkdir()
    path.chmod(mode)
    return str(path)


async def plan(harness: ControlHarness, **more: Any) -> Any:
    ask = PlanRequest.model_validate(dict(job_spec(backend="local", **more)))
    return (await harness.services.plans.plan(OWNER, ask)).as_json()


@pytest.mark.parametrize("kind", ["open folder", "bucket"])
async def test_where_all_has_to_be_encrypted_no_job_is_taken(
    harness: ControlHarness, tmp_path: Path, bare_python: str, kind: str
) -> None:
    store = "s3://bucket" if kind == "bucket" else folder(tmp_path, 0o750)
    harness = await over_a_store(harness, store, python=bare_python)
    (offer,) = harness.offers.get("local") or ()
    assert not offer.runnable
    assert f"{bare_python}, has no cryptography" in offer.why_not
    assert not any(offer.runnable for offer in harness.offers.get("local") or ())
    with pytest.raises(NoCapacity, match="has no cryptography") as caught:
        await harness.submit()
    assert caught.value.fix == f"Install it there: {bare_python} -m pip install cryptography."
    found = await plan(harness)
    assert (found["chosen"], found["waits"]) == (None, False)
    assert "has no cryptography" in found["why"]
    assert "pip install cryptography" in found["why"]


async def test_in_a_private_folder_only_jobs_with_secrets_are_refused(
    harness: ControlHarness, tmp_path: Path, bare_python: str
) -> None:
    harness = await over_a_store(harness, folder(tmp_path, 0o700), python=bare_python)
    job = await harness.submit()
    assert (await harness.world(job)).job.state is JobState.PROVISIONING
    assert (await plan(harness))["chosen"] is not None
    with pytest.raises(NoCapacity, match="the job's secrets would have to be encrypted"):
        await harness.submit(secrets=SECRETS)
    found = await plan(harness, secrets=SECRETS)
    assert found["chosen"] is None
    assert "has no cryptography" in found["why"]


@pytest.mark.parametrize("python", ["", sys.executable, "/no/such/python"])
async def test_what_has_it_or_is_not_known_is_taken(harness: ControlHarness, python: str) -> None:
    """Where nobody knows it beforehand the agent says so by itself."""
    harness = await over_a_store(harness, "s3://bucket", python=python)
    job = await harness.submit(secrets=SECRETS)
    assert (await harness.world(job)).job.state is JobState.PROVISIONING


async def test_over_https_nobody_asks(harness: ControlHarness, bare_python: str) -> None:
    harness = await over_a_store(harness, "s3://bucket", python=bare_python, channel=Channel.HTTPS)
    job = await harness.submit(secrets=SECRETS)
    assert (await harness.world(job)).job.state is JobState.PROVISIONING


async def test_once_it_is_installed_jobs_are_taken_again(harness: ControlHarness, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o700)
    harness = await over_a_store(harness, "s3://bucket", python=str(python))
    with pytest.raises(NoCapacity):
        await harness.submit()
    python.write_text("#!/bin/sh\nexit 0\n")
    await harness.offers.refresh()
    await harness.submit()


async def stored(harness: ControlHarness, **more: Any) -> str:
    """Store a job, and place nothing."""
    spec = job_spec(**more)
    return (await harness.writer.write(lambda unit: harness.submitter.store(unit, spec, None))).job


@pytest.mark.parametrize("capacity", [Nodes(), OnDemand()])
async def test_a_job_that_waits_there_already_says_why_or_goes_on_to_its_next(
    harness: ControlHarness, tmp_path: Path, bare_python: str, capacity: Nodes | OnDemand
) -> None:
    """It was taken when its agents could talk: the server was told since to use the store."""
    harness.backend.capabilities = replace(harness.backend.capabilities, capacity=capacity)
    await harness.services.vault.set(OWNER, "default", "TOKEN", Secret("some value"))
    cold = join(harness.ports, harness.clock, harness.calls, harness.backends, tmp_path)  # it knows no offers
    plain, bound = await stored(cold), await stored(cold, secrets=SECRETS)
    moving = await stored(cold, secrets=SECRETS, backend="local", fallback=("ssh",))
    harness = await over_a_store(harness, folder(tmp_path, 0o700), python=bare_python)
    await harness.place()
    assert (await harness.world(plain)).job.state is JobState.PROVISIONING
    waits = (await harness.world(bound)).job
    assert (waits.state, "has no cryptography" in waits.waiting) == (JobState.QUEUED, True)
    await harness.place()
    assert (await harness.attempt(moving)).backend == "ssh"


async def test_a_backend_without_any_channel_is_rejected_with_the_setting(
    harness: ControlHarness, tmp_path: Path
) -> None:
    harness.backend.capabilities = replace(harness.backend.capabilities, reach=Reach.INTERNET)
    harness = await over_a_store(harness, folder(tmp_path, 0o700), python="", agents_url="http://127.0.0.1:1")
    with pytest.raises(NoCapacity, match="no agent can talk with this server") as caught:
        await harness.submit(backend="local")
    assert "s3://" in (caught.value.fix or "")
    assert not any(offer.runnable for offer in harness.offers.get("local") or ())


def test_a_python_is_asked_as_agents_are_started(bare_python: str) -> None:
    assert lacks_cryptography(bare_python)
    assert not lacks_cryptography(sys.executable)
    assert not lacks_cryptography("/no/such/python")
