"""Simulated users: they submit jobs, cancel and resume them, and prune at the end."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from contextlib import suppress

from crucible.control.objects.gc_marks import ARRIVAL_SECONDS
from crucible.core.compute.offers import Market
from crucible.core.compute.resources import GiB, Resources
from crucible.core.errors import CrucibleError
from crucible.core.job.spec import JobSpec, KeepPolicy, Retries
from crucible.core.people.identity import OWNER
from crucible.core.requests import Resumption
from crucible.simulation.faults.checks.event_order import InvariantBroken
from crucible.simulation.faults.fault_rates import FaultRates, RandomStream
from crucible.simulation.faults.ground_truth import GroundTruth
from crucible.simulation.faults.trace import Trace
from crucible.simulation.faults.world.api import ApiClient
from crucible.simulation.faults.world.network import NoAnswer, pieces
from crucible.simulation.faults.world.ports import WallClock
from crucible.simulation.faults.world.program import Script
from crucible.simulation.faults.world.task_group import TaskGroup

RETRY_SECONDS = 5.0
MAX_PRUNE_ATTEMPTS = 60
STOP_SECONDS = 300.0
"""Mean time between two attempts that are stopped without their jobs."""
RUSH_SHARE = 0.4
"""Share of the seeds with several backends over nodes in which all users submit within seconds."""
GANG_SHARE, GANG_JOBS = 0.4, 0.5
"""Share of the seeds in which jobs ask for several machines, and of their jobs that do."""
MOST_HOSTS = 2
RETENTION_SECONDS = 600.0
"""Time for several rounds of retention, until all that the first prune marked is removed."""
REQUESTS = ("cancel", "resume", "resume", "resume", "checkpoint")
CODES = (b"train", b"fine-tune", b"evaluate")
"""Contents of bundles. Several jobs have the same one."""


class SimulatedUsers:
    """Each job has one user, who retries until the submission is acknowledged. `waiting`: users who still retry."""

    def __init__(
        self,
        api: ApiClient,
        clock: WallClock,
        faults: FaultRates,
        truth: GroundTruth,
        trace: Trace,
        rng: RandomStream,
    ) -> None:
        self._api = api
        self._clock = clock
        self._faults = faults
        self._truth = truth
        self._trace = trace
        self._rng = rng
        self.tasks = TaskGroup("people")
        self.waiting = 0
        self._extra: list[str] = []
        self._choices = rng
        self._rush: float | None = None
        self._gangs: RandomStream | None = None

    def choose_among(self, extra: Sequence[str], rng: RandomStream) -> None:
        """Let jobs name these backends too, which not every world has."""
        self._extra, self._choices = [*extra], rng
        if extra and rng.chance(RUSH_SHARE):
            self._rush = rng.uniform(0.0, 1000.0)

    def ask_for_gangs(self, rng: RandomStream) -> bool:
        """Let some jobs ask for several machines, in a share of the seeds. Return whether they do."""
        self._gangs = rng if rng.chance(GANG_SHARE) else None
        return self._gangs is not None

    def start(self, jobs: int) -> None:
        for n in range(jobs):
            self.waiting += 1
            code = self._rng.choose(CODES)
            self.tasks.start(self._person(f"key-{n}", self._spec(n, code), code))
        self.tasks.start(self._visitor())
        if self._extra:
            self.tasks.start(self._stop_some())

    def stop_launches(self, rng: RandomStream) -> None:
        """Stop attempts whose machines are still being made, as an operator does during an outage."""
        self.tasks.start(self._stop_launches(rng))

    def stop(self) -> None:
        self.tasks.die()

    async def prune(self) -> None:
        """Prune all that ended jobs have stored, and again a week later. Raises InvariantBroken if that fails."""
        await self._prune()
        await asyncio.sleep(RETENTION_SECONDS)
        self._clock.step(ARRIVAL_SECONDS)
        await self._prune()

    async def _prune(self) -> None:
        for _ in range(MAX_PRUNE_ATTEMPTS):
            with suppress(NoAnswer, CrucibleError):
                await self._api.ask(lambda control: control.maintenance.prune(OWNER, older_than=0.0, dry_run=False))
                return
            await asyncio.sleep(RETRY_SECONDS)
        raise InvariantBroken("nothing can be pruned")

    async def _person(self, key: str, spec: JobSpec, code: bytes) -> None:
        seconds = self._rng.uniform(0.0, 1200.0)
        await asyncio.sleep(seconds if self._rush is None else self._rush + seconds / 200.0)
        job = await self._submit(key, spec, code)
        self.waiting -= 1
        if self._rng.chance(0.3):
            await asyncio.sleep(self._rng.uniform(0.0, 60.0))
            await self._request(job, "cancel")
        while not self._faults.calm:
            await asyncio.sleep(self._rng.waiting_time(600.0))
            if not self._faults.calm:
                await self._request(job, self._rng.choose(REQUESTS))

    async def _stop_some(self) -> None:
        """Stop attempts without their jobs, as an operator does who needs their machines."""
        while not self._faults.calm:
            await asyncio.sleep(self._choices.waiting_time(STOP_SECONDS))
            jobs = list(self._truth.submitted.values())
            if jobs and not self._faults.calm:
                await self._stop(self._choices.choose(jobs))

    async def _stop_launches(self, rng: RandomStream) -> None:
        while True:
            await asyncio.sleep(rng.waiting_time(STOP_SECONDS))
            if self._faults.calm:
                return
            for job in list(self._truth.submitted.values()):
                await self._stop(job, launching=True)

    async def _stop(self, job: str, *, launching: bool = False) -> None:
        with suppress(NoAnswer, CrucibleError):
            if await self._api.ask(lambda control: control.stop_attempt(job, launching=launching)):
                self._trace("people", f"stops the attempt of {job}")

    async def _visitor(self) -> None:
        """Upload code without a retry, and submit nothing."""
        await asyncio.sleep(self._rng.uniform(0.0, 2400.0))
        with suppress(NoAnswer, CrucibleError):
            await self._upload(b"a visitor's")

    async def _submit(self, key: str, spec: JobSpec, code: bytes) -> str:
        while True:
            try:
                await self._upload(code)
                done = await self._api.ask(lambda control: control.jobs.submit(OWNER, spec, key))
                break
            except (NoAnswer, CrucibleError) as error:
                self._trace("people", f"{key} is not answered: {error}")
                await asyncio.sleep(RETRY_SECONDS)
        job = done.view.id
        self._trace("people", f"{key} is acknowledged as {job}")
        self._truth.acknowledged(key, job)
        return job

    async def _upload(self, code: bytes) -> None:
        """Upload a bundle as the client does: only if the server does not have it."""
        sha256 = _sha256(code)
        if not await self._api.ask(lambda control: control.bundles.has(OWNER, sha256)):
            await self._api.ask(lambda control: control.bundles.put(OWNER, sha256, pieces(code)))

    async def _request(self, job: str, request: str) -> None:
        """Send a request once, without a retry."""
        try:
            if request == "cancel":
                await self._api.ask(lambda control: control.jobs.cancel(OWNER, job))
                self._truth.cancel(job)
            elif request == "resume":
                self._truth.resume(job)
                await self._api.ask(lambda control: control.jobs.resume(OWNER, job, Resumption()))
            else:
                await self._api.ask(lambda control: control.checkpoints.request(OWNER, job))
            self._trace("people", f"{request} {job}")
        except (NoAnswer, CrucibleError) as error:
            self._trace("people", f"{request} {job}: {error}")

    def _spec(self, n: int, code: bytes) -> JobSpec:
        rng = self._rng
        script = Script(
            steps=rng.integer(8, 50),
            step_seconds=rng.uniform(10.0, 40.0),
            every=rng.integer(2, 10),
            fails_at=rng.integer(5, 30) if rng.chance(0.15) else None,
            deaf=rng.chance(0.15),
        )
        backend = rng.choose(("cloud", "cloud", "cloud", "cloud", "local"))
        spec = JobSpec(
            command=script.command(),
            bundle=_sha256(code),
            name=f"job-{n}",
            backend=backend,
            fallback=rng.choose(((), ("local",), ("cloud",))),
            market=rng.choose((Market.SPOT, Market.SPOT, Market.ON_DEMAND)),
            resources=Resources(
                cpus=1.0, memory_bytes=GiB, seconds=rng.uniform(150.0, 900.0) if rng.chance(0.35) else None
            ),
            retries=Retries(interruption=50, infrastructure=50),
            keep=KeepPolicy(latest=rng.integer(1, 3)),
        )
        spec = self._spread(spec) if self._extra else spec
        return spec if self._gangs is None else self._ask_for_nodes(spec, self._gangs)

    def _ask_for_nodes(self, spec: JobSpec, rng: RandomStream) -> JobSpec:
        """Let the job ask for several machines, or not. One that none of its backends could hold goes to the cloud."""
        if not rng.chance(GANG_JOBS):
            return spec
        nodes = rng.choose((2, 2, 3))
        able = {"cloud", *(["hosts"] if nodes <= MOST_HOSTS else [])}
        if spec.market is Market.ON_DEMAND or spec.spot_fallback:
            able.add("cluster")
        backend = spec.backend if able.intersection(spec.backends) else "cloud"
        fallback = tuple(name for name in spec.fallback if name != backend)
        return spec.model_copy(update={"nodes": nodes, "backend": backend, "fallback": fallback})

    def _spread(self, spec: JobSpec) -> JobSpec:
        """Return the job with other backends: the cloud, the laptop, and those that only this world has."""
        rng, names = self._choices, ["cloud", "local", *self._extra, *self._extra]
        first = rng.choose(names)
        others = list(dict.fromkeys(name for name in (rng.choose(names), rng.choose(names)) if name != first))
        fallback = tuple(others[: rng.integer(0, 2)])
        wait = rng.choose((None, 0.0, 60.0, 600.0))
        # The cluster has no spot machines: a job that names nothing else and asks for spot alone could wait for ever.
        spot_fallback = spec.market is Market.SPOT and (rng.chance(0.4) or {first, *fallback} == {"cluster"})
        return spec.model_copy(
            update={
                "backend": first,
                "fallback": fallback,
                "spot_fallback": spot_fallback,
                "max_wait_seconds": wait,
            }
        )


def _sha256(code: bytes) -> str:
    return hashlib.sha256(code).hexdigest()
