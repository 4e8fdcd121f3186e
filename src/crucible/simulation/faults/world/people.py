"""People: they submit, change their minds, and resume what ended."""

from __future__ import annotations

import asyncio
import hashlib
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

AGAIN_SECONDS = 5.0
PRUNE_TRIES = 60
ROUNDS_SECONDS = 600.0
"""Several rounds of retention: what the last ones removed they do not look for again."""
WISHES = ("cancel", "resume", "resume", "resume", "checkpoint")
CODES = (b"train", b"fine-tune", b"evaluate")
"""What bundles hold: several jobs have the same."""


class People:
    """Each job has one person, who does not rest before the submission is acknowledged."""

    def __init__(
        self,
        door: ApiClient,
        clock: WallClock,
        faults: FaultRates,
        truth: GroundTruth,
        trace: Trace,
        dice: RandomStream,
    ) -> None:
        self._door = door
        self._clock = clock
        self._faults = faults
        self._truth = truth
        self._trace = trace
        self._dice = dice
        self.crew = TaskGroup("people")
        self.waiting = 0

    def start(self, jobs: int) -> None:
        for n in range(jobs):
            self.waiting += 1
            code = self._dice.choose(CODES)
            self.crew.start(self._person(f"key-{n}", self._spec(n, code), code))
        self.crew.start(self._visitor())

    def stop(self) -> None:
        self.crew.die()

    async def prune(self) -> None:
        """Somebody removes all that ended jobs have stored, and again a week later. Raises Broken."""
        await self._prune()
        await asyncio.sleep(ROUNDS_SECONDS)
        self._clock.step(ARRIVAL_SECONDS)
        await self._prune()

    async def _prune(self) -> None:
        for _ in range(PRUNE_TRIES):
            with suppress(NoAnswer, CrucibleError):
                await self._door.ask(lambda control: control.maintenance.prune(OWNER, older_than=0.0, dry_run=False))
                return
            await asyncio.sleep(AGAIN_SECONDS)
        raise InvariantBroken("nothing can be pruned")

    async def _person(self, key: str, spec: JobSpec, code: bytes) -> None:
        await asyncio.sleep(self._dice.uniform(0.0, 1200.0))
        job = await self._submit(key, spec, code)
        self.waiting -= 1
        if self._dice.chance(0.3):
            await asyncio.sleep(self._dice.uniform(0.0, 60.0))
            await self._request(job, "cancel")
        while not self._faults.calm:
            await asyncio.sleep(self._dice.waiting_time(600.0))
            if not self._faults.calm:
                await self._request(job, self._dice.choose(WISHES))

    async def _visitor(self) -> None:
        """Brings code, gives up when there is no answer, and submits nothing."""
        await asyncio.sleep(self._dice.uniform(0.0, 2400.0))
        with suppress(NoAnswer, CrucibleError):
            await self._upload(b"a visitor's")

    async def _submit(self, key: str, spec: JobSpec, code: bytes) -> str:
        while True:
            try:
                await self._upload(code)
                done = await self._door.ask(lambda control: control.jobs.submit(OWNER, spec, key))
                break
            except (NoAnswer, CrucibleError) as error:
                self._trace("people", f"{key} is not answered: {error}")
                await asyncio.sleep(AGAIN_SECONDS)
        job = done.view.id
        self._trace("people", f"{key} is acknowledged as {job}")
        self._truth.acknowledged(key, job)
        return job

    async def _upload(self, code: bytes) -> None:
        """As the client does: what is there already is not sent again."""
        sha256 = _sha256(code)
        if not await self._door.ask(lambda control: control.bundles.has(OWNER, sha256)):
            await self._door.ask(lambda control: control.bundles.put(OWNER, sha256, pieces(code)))

    async def _request(self, job: str, wish: str) -> None:
        """Asks once; a refusal is an answer too."""
        try:
            if wish == "cancel":
                await self._door.ask(lambda control: control.jobs.cancel(OWNER, job))
                self._truth.cancel(job)
            elif wish == "resume":
                self._truth.resume(job)
                await self._door.ask(lambda control: control.jobs.resume(OWNER, job, Resumption()))
            else:
                await self._door.ask(lambda control: control.checkpoints.request(OWNER, job))
            self._trace("people", f"{wish} {job}")
        except (NoAnswer, CrucibleError) as error:
            self._trace("people", f"{wish} {job}: {error}")

    def _spec(self, n: int, code: bytes) -> JobSpec:
        dice = self._dice
        script = Script(
            steps=dice.integer(8, 50),
            step_seconds=dice.uniform(10.0, 40.0),
            every=dice.integer(2, 10),
            fails_at=dice.integer(5, 30) if dice.chance(0.15) else None,
            deaf=dice.chance(0.15),
        )
        backend = dice.choose(("cloud", "cloud", "cloud", "cloud", "local"))
        return JobSpec(
            command=script.command(),
            bundle=_sha256(code),
            name=f"job-{n}",
            backend=backend,
            fallback=dice.choose(((), ("local",), ("cloud",))),
            market=dice.choose((Market.SPOT, Market.SPOT, Market.ON_DEMAND)),
            resources=Resources(
                cpus=1.0, memory_bytes=GiB, seconds=dice.uniform(150.0, 900.0) if dice.chance(0.35) else None
            ),
            retries=Retries(interruption=50, infrastructure=50),
            keep=KeepPolicy(latest=dice.integer(1, 3)),
        )


def _sha256(code: bytes) -> str:
    return hashlib.sha256(code).hexdigest()
