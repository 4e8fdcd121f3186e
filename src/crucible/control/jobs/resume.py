"""Resume an ended job, or rerun one from its record."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from sqlalchemy import select

from crucible.control.agents.desired import job_seed
from crucible.control.db import schema as t
from crucible.control.jobs.submit import StoredJob, Submitter
from crucible.control.objects import checkpoints
from crucible.control.people import audit
from crucible.control.reconcile import repository
from crucible.control.reconcile.crashpoints import crashpoint
from crucible.control.reconcile.unit_of_work import UnitOfWork, Writer
from crucible.control.runtime.ports import Ports
from crucible.control.scheduling.admission import Admission
from crucible.control.scheduling.scheduler import Scheduler
from crucible.control.secrets import Vault
from crucible.core.errors import Conflict, NotFound
from crucible.core.ids import short
from crucible.core.job.spec import EnvironmentSpec, JobSpec
from crucible.core.lifecycle import AttemptState, JobState, World
from crucible.core.lifecycle.facts import CheckpointRequested, ResumeRequested
from crucible.core.people.identity import OWNER, Identity

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[^\]]*\])?\s*([<>=!~;,].*)?$")
"""A requirement by name. Others (URLs, files and options) cannot be pinned."""


@dataclass(frozen=True)
class Resumer:
    ports: Ports
    writer: Writer
    admission: Admission
    scheduler: Scheduler
    submit: Submitter
    vault: Vault

    async def resume(self, job: str, checkpoint: str | None, backend: str | None, who: Identity = OWNER) -> None:
        """Queue the job again, from a checkpoint (default: the newest), perhaps on another backend.

        Raises Conflict while it has not ended, NotFound for an unknown checkpoint, and RefusedByPolicy for a backend
        that the user may not run jobs on.
        """

        def reopen(unit: UnitOfWork) -> None:
            world = _load_world(unit, job)
            chosen = self._check(unit, world, checkpoint, backend, who)
            unit.advance(world, ResumeRequested(chosen, backend))
            data = {"checkpoint": chosen, "backend": backend}
            audit.record_job(unit.conn, who, "job.resume", world.job, unit.now, data)
            self.scheduler.place_at_once(unit, job)
            crashpoint("resume.before_commit")

        await self._ask_for_offers(job, backend)
        await self.writer.write(reopen)
        crashpoint("resume.after_commit")

    async def _ask_for_offers(self, job: str, backend: str | None = None) -> None:
        world = await self.ports.db.read(lambda conn: repository.load_world(conn, job))
        if world is not None:
            await self.admission.prepare([_spec_on(world.job.spec, backend)])

    def _check(
        self, unit: UnitOfWork, world: World, checkpoint: str | None, backend: str | None, who: Identity
    ) -> str | None:
        job = world.job
        if not job.state.terminal:
            raise Conflict(
                f"Job {short(job.id)} has not ended: it is {job.state.value}.",
                fix=f"Wait for it, or cancel it first: crucible cancel {short(job.id)}",
            )
        _refuse_pruned(unit, job.id)
        self.submit.queue_limit.check(unit.conn, job.user)
        if job.state is JobState.COMPLETED and checkpoint is None:
            raise Conflict(
                f"Job {short(job.id)} completed: there is nothing left to do.",
                fix=f"Run it again: crucible rerun {short(job.id)}; or name a checkpoint with --checkpoint.",
            )
        spec = _spec_on(job.spec, backend)
        self.admission.check(spec)
        for name in spec.backends:
            self.submit.access.require(name, who, job.project)
        self.vault.require(unit.conn, job.project, job.spec.secrets.values())
        if checkpoint is None:
            return None
        views = checkpoints.list_checkpoints(unit.conn, job.id, higher_is_better=job.spec.keep.higher_is_better)
        return checkpoints.find_checkpoint(views, checkpoint, job.id).id

    async def rerun(self, job: str, key: str | None, who: Identity = OWNER) -> StoredJob:
        """Submit a new job from the record of an old one: same code, command and seed, and packages if known."""

        def submit_again(unit: UnitOfWork) -> StoredJob:
            return self.submit.store(unit, _rerun_spec(_load_world(unit, job), unit), key, who, rerun=True)

        await self._ask_for_offers(job)
        return await self.writer.write(submit_again)

    async def request_checkpoint(self, job: str) -> None:
        """Ask the running program for a checkpoint. Raises Conflict if the job is not running."""

        def ask(unit: UnitOfWork) -> None:
            world = _load_world(unit, job)
            if world.live is None or world.live.state is not AttemptState.RUNNING:
                raise Conflict(
                    f"Job {short(job)} is not running: it is {world.job.state.value}.",
                    fix=f"crucible checkpoints {short(job)} lists those it has saved.",
                )
            unit.advance(world, CheckpointRequested())

        await self.writer.write(ask)


def _spec_on(spec: JobSpec, backend: str | None) -> JobSpec:
    """Return the spec for this backend alone, if one is named."""
    return spec if backend is None else spec.model_copy(update={"backend": backend, "fallback": ()})


def _load_world(unit: UnitOfWork, job: str) -> World:
    world = repository.load_world(unit.conn, job)
    if world is None:
        raise NotFound(f"There is no job {short(job)}.", fix="`crucible jobs` lists them.")
    return world


def _refuse_pruned(unit: UnitOfWork, job: str) -> None:
    """Raise Conflict for a pruned job: what it could start from is removed or being removed."""
    if unit.conn.execute(select(t.jobs.c.pruned_at).where(t.jobs.c.id == job)).scalar() is not None:
        raise Conflict(
            f"Job {short(job)} was pruned: nothing is left of it to resume from.",
            fix=f"Run it again with crucible rerun {short(job)}, if its code is still stored.",
        )


def _rerun_spec(world: World, unit: UnitOfWork) -> JobSpec:
    """Return the spec that repeats the job, with its seed and, if the runner reported them, its packages pinned."""
    job = world.job
    pinned = _recorded_packages(unit, world)
    changes: dict[str, object] = {"seed": job_seed(job.id, job.spec), "rerun_of": job.id, "project": job.project}
    if pinned is not None and all(map(_PLAIN.match, job.spec.environment.requirements)):
        changes["environment"] = pinned
    return job.spec.model_copy(update=changes)


def _recorded_packages(unit: UnitOfWork, world: World) -> EnvironmentSpec | None:
    """Return the exact packages and Python of the last attempt that reported them; None if the job names none."""
    if not world.job.spec.environment.requirements:
        return None
    facts = select(t.attempts.c.facts).where(t.attempts.c.job == world.job.id).order_by(t.attempts.c.number.desc())
    for text in unit.conn.execute(facts).scalars():
        started = json.loads(text).get("started", {})
        packages = started.get("packages")
        if isinstance(packages, list) and packages and all(isinstance(p, str) for p in packages):
            origin = f"the packages that {short(world.job.id)} ran with"
            python = started.get("python_version")
            version = python if isinstance(python, str) else world.job.spec.environment.python
            return EnvironmentSpec(requirements=tuple(packages), python=version, origin=origin)
    return None
