"""Control: the one object that the server talks to. It asks the parts; the parts do the work.

`control.at(who)` is the same control plane as somebody in particular may use it. A job that is not his to see is
not there for him; what he may see and not change is refused.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import dataclass

from crucible.backends.base import Backend
from crucible.control import checkpoints, queries, repository, restored
from crucible.control.bundles import StoredFile
from crucible.control.crashpoints import crashpoint
from crucible.control.feed import Watch
from crucible.control.logs import LogPage
from crucible.control.parts import Deployment, Parts
from crucible.control.people import People, audit
from crucible.control.ports import Ports
from crucible.control.roles import Duty
from crucible.control.rounds import Rounds
from crucible.control.submit import Accepted
from crucible.control.unit import Unit
from crucible.control.views import View, backend_view
from crucible.core.errors import NotFound
from crucible.core.ids import short
from crucible.core.lifecycle.facts import CancelRequested
from crucible.core.people import OWNER, Identity, Permission
from crucible.core.spec import JobSpec
from crucible.storage import Store
from crucible.storage.layout import artifact_key

RECENT_BYTES = 4096
RECENT_LINES = 20


@dataclass(frozen=True)
class Submitted:
    view: View
    created: bool


class Control:
    def __init__(self, ports: Ports, backends: Mapping[str, Backend], deployment: Deployment) -> None:
        self._ports = ports
        self._parts = Parts(ports, backends, deployment)
        self._rounds = Rounds(self._parts)
        self.agents = self._parts.agents
        self.people = People(ports)
        self.vault = self._parts.vault
        self._who = OWNER
        self._ready = False

    def at(self, who: Identity) -> Control:
        """This control plane as `who` may use it; until told otherwise it serves the owner."""
        seen = copy(self)
        seen._who = who
        return seen

    async def start(self) -> None:
        await self._parts.vault.settle()
        await self._rounds.start()
        self._ready = True

    async def stop(self) -> None:
        self._ready = False
        await self._rounds.stop()

    def ready(self) -> bool:
        return self._ready

    async def identify(self, token: str) -> Identity | None:
        return await self.people.identify(token)

    @property
    def store(self) -> Store:
        return self._ports.store

    async def submit(self, spec: JobSpec, key: str | None) -> Submitted:
        """The job, durable: when this returns it survives anything."""

        def store(unit: Unit) -> Accepted:
            return self._parts.submit.store(unit, spec, key, self._who)

        accepted = await self._parts.writer.write(store)
        crashpoint("submit.after_commit")
        self._ask_scheduler()
        return Submitted(await self._view(accepted.job), accepted.created)

    async def cancel(self, ref: str) -> tuple[View, bool]:
        """Asks for the job's end; whether that changed anything."""
        job = await self._writable(ref)

        def ask(unit: Unit) -> bool:
            world = repository.load_world(unit.conn, job)
            assert world is not None, "found a moment ago, and jobs are never deleted"
            after = unit.advance(world, CancelRequested())
            self._note(unit, "job.cancel", job, world.job.project)
            if after.live is None and after.job != world.job:
                self._parts.scheduler.place(unit)
            return after.job != world.job

        changed = await self._parts.writer.write(ask)
        crashpoint("cancel.after_commit")
        return await self._view(job), changed

    async def resume(self, ref: str, *, checkpoint: str | None, backend: str | None) -> View:
        """The ended job goes on, from a checkpoint, at a place."""
        job = await self._writable(ref)
        await self._parts.revival.resume(job, checkpoint, backend)
        self._ask_scheduler()
        return await self._view(job)

    async def rerun(self, ref: str, key: str | None) -> Submitted:
        """A new job that repeats this one."""
        accepted = await self._parts.revival.rerun(await self.find_job(ref), key, self._who)
        self._ask_scheduler()
        return Submitted(await self._view(accepted.job), accepted.created)

    async def ask_checkpoint(self, ref: str) -> View:
        job = await self._writable(ref)
        await self._parts.revival.ask_checkpoint(job)
        return await self._view(job)

    async def checkpoints(self, ref: str) -> list[View]:
        """Newest first, also those that were removed."""
        job = await self.find_job(ref)
        return await self._ports.db.read(lambda conn: queries.list_checkpoints(conn, job))

    async def checkpoint_file(self, ref: str, checkpoint: str) -> tuple[View, StoredFile]:
        job = await self.find_job(ref)
        view = checkpoints.found(await self.checkpoints(job), checkpoint, job)
        return view, checkpoints.stored_file(job, view)

    async def find_job(self, ref: str) -> str:
        return (await self._found(ref)).id

    async def share(self, ref: str, *, name: str, seconds: float) -> View:
        """A token that shows this job and nothing else."""
        found = await self._found(ref)
        return await self.people.keys.share(self._who, found.id, found.project, name, seconds)

    async def _found(self, ref: str) -> queries.Found:
        return await self._ports.db.read(lambda conn: queries.find_job(conn, ref, self._who))

    async def _writable(self, ref: str) -> str:
        """The job, if it is his to change."""
        found = await self._found(ref)
        self._who.need(Permission.WRITE, found.project)
        return found.id

    def _note(self, unit: Unit, action: str, job: str, project: str) -> None:
        """Of the owner's own jobs their events tell enough."""
        if self._who is not OWNER:
            audit.note(unit.conn, self._who, action, job, unit.now, project)

    async def job(self, ref: str) -> View:
        job = await self.find_job(ref)
        view = await self._view(job)
        latest = await self._ports.db.read(lambda conn: queries.latest_metrics(conn, job))
        return {**view, "recent_logs": await self._recent(job), "metrics": latest}

    async def view(self, ref: str) -> View:
        """The job without its output and metrics: cheap enough to be asked at every change."""
        return await self._view(await self.find_job(ref))

    async def jobs(self, *, statuses: frozenset[str] | None, active: bool, limit: int, cursor: str | None) -> View:
        now = self._ports.clock.now()
        return await self._ports.db.read(
            lambda conn: queries.list_jobs(conn, statuses or frozenset(), active, limit, cursor, now, self._who)
        )

    async def logs(self, ref: str, *, attempt: int | None, offset: int, limit: int, since: float | None) -> LogPage:
        return await self._parts.logs.page(await self.find_job(ref), attempt, offset, limit, since)

    async def metrics(self, ref: str, *, series: list[str], points: int) -> View:
        job = await self.find_job(ref)
        return await self._ports.db.read(lambda conn: queries.metrics(conn, job, series, points))

    async def events(self, ref: str | None, *, after: int, limit: int) -> list[View]:
        job = None if ref is None else await self.find_job(ref)
        return await self._ports.db.read(lambda conn: queries.list_events(conn, job, after, limit, self._who))

    async def artifacts(self, ref: str) -> list[View]:
        job = await self.find_job(ref)
        return await self._ports.db.read(lambda conn: queries.list_artifacts(conn, job))

    async def artifact(self, ref: str, path: str) -> StoredFile:
        job = await self.find_job(ref)
        for item in await self.artifacts(job):
            if item["path"] == path:
                key = artifact_key(job, str(item["attempt_id"]), path)
                return StoredFile(key, int(str(item["size"])), str(item["sha256"]))
        raise NotFound(
            f"Job {short(job)} has no artifact {path!r}.",
            fix=f"crucible download {short(job)} fetches all it has.",
        )

    async def backends(self) -> list[View]:
        return [
            backend_view(self._parts.places.backend(n), self._parts.places.offers(n))
            for n in self._parts.places.names()
        ]

    async def machines(self, *, all: bool = False) -> list[View]:
        return await self._parts.fleet.listed(gone_too=all, who=self._who)

    async def orphans(self) -> list[View]:
        self._who.need(Permission.OPERATE)
        return await self._parts.fleet.orphans()

    async def terminate_machine(self, ref: str) -> View:
        self._who.need(Permission.OPERATE)
        return await self._parts.fleet.terminate(ref)

    async def prune(self, *, older_than: float | None, dry_run: bool) -> View:
        self._who.need(Permission.OPERATE)
        return await self._parts.retention.prune(older_than=older_than, dry_run=dry_run)

    async def backup(self, target: str) -> View:
        self._who.need(Permission.OPERATE)
        return await self._parts.backup.make(target)

    async def confirm_restore(self) -> View:
        """After a restore: what was held back is due, and jobs are placed again."""
        self._who.need(Permission.OPERATE)
        done = await self._parts.writer.write(lambda unit: restored.confirm(unit.conn, unit.now))
        for topic in ("effects", "jobs"):
            self._ports.wakeups.wake(topic)
        return done.view

    async def status(self) -> View:
        deployment = self._parts.deployment
        going = await self._ports.db.read(lambda conn: queries.counts(conn, self._who))
        held = await self._ports.db.read(restored.status)
        return {"deployment": deployment.id, "agents_url": deployment.agents_url, **going, "restored": held}

    @asynccontextmanager
    async def watch(self, job: str | None) -> AsyncIterator[Watch]:
        with self._parts.feed.watch(job) as watch:
            yield watch

    async def has_bundle(self, sha: str) -> bool:
        return await self._parts.bundles.has(sha, self._who)

    async def put_bundle(self, sha: str, chunks: AsyncIterator[bytes]) -> bool:
        """Stores a bundle whole; whether it is new."""
        if self._who.projects(Permission.WRITE) == frozenset():
            raise self._who.refusal(Permission.WRITE, self._who.default_project)
        return await self._parts.bundles.put(sha, chunks, self._who)

    def _ask_scheduler(self) -> None:
        """Where another process has the scheduler's duty, it is told that there is work."""
        if not self._parts.duties.has(Duty.SCHEDULER):
            self._ports.wakeups.wake("jobs")

    async def _view(self, job: str) -> View:
        now = self._ports.clock.now()
        return await self._ports.db.read(lambda conn: queries.one_job(conn, job, now))

    async def _recent(self, job: str) -> list[str]:
        page = await self._parts.logs.page(job, None, -RECENT_BYTES, RECENT_BYTES, None)
        return page.data.decode(errors="replace").splitlines()[-RECENT_LINES:]
