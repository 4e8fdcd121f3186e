"""Control: the one object that the server talks to. It asks the parts; the parts do the work."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from crucible.backends.base import Backend
from crucible.control import checkpoints, crowds, labels, listing, notes, queries, restored
from crucible.control.bulk import Order
from crucible.control.bundles import StoredFile
from crucible.control.crashpoints import crashpoint
from crucible.control.feed import Hint, Watch
from crucible.control.grep import Pattern
from crucible.control.logs import LogPage
from crucible.control.logsearch import Query
from crucible.control.parts import Deployment, Parts
from crucible.control.ports import Ports
from crucible.control.roles import Duty
from crucible.control.rounds import Rounds
from crucible.control.submit import Accepted
from crucible.control.unit import Unit
from crucible.control.views import View, backend_view
from crucible.core.errors import CrucibleError, NotFound
from crucible.core.ids import short
from crucible.core.jobfilter import JobFilter
from crucible.core.spec import JobSpec
from crucible.core.tags import parse_tag, parse_tags
from crucible.storage import Store
from crucible.storage.layout import artifact_key

T = TypeVar("T")

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
        self._ready = False

    async def start(self) -> None:
        await self._rounds.start()
        self._ready = True

    async def stop(self) -> None:
        self._ready = False
        await self._rounds.stop()

    def ready(self) -> bool:
        return self._ready

    @property
    def store(self) -> Store:
        return self._ports.store

    async def submit(self, spec: JobSpec, key: str | None) -> Submitted:
        """The job, durable: when this returns it survives anything."""

        def store(unit: Unit) -> Accepted:
            return self._parts.submit.store(unit, spec, key)

        accepted = await self._parts.writer.write(store)
        crashpoint("submit.after_commit")
        self._ask_scheduler()
        return Submitted(await self._view(accepted.job), accepted.created)

    async def cancel(self, ref: str) -> tuple[View, bool]:
        """Asks for the job's end; whether that changed anything."""
        job = await self.find_job(ref)

        changed = await self._parts.writer.write(lambda unit: self._parts.bulk.end(unit, job))
        crashpoint("cancel.after_commit")
        return await self._view(job), changed

    async def submit_many(self, orders: Sequence[Order]) -> list[Submitted | CrucibleError]:
        """What became of each, in their order; a job that is in the answer is durable."""
        done = await self._parts.bulk.submit(orders)
        self._ask_scheduler()
        ids = [one.job for one in done if isinstance(one, Accepted)]
        views = {str(view["id"]): view for view in await self._views(ids)}
        return [Submitted(views[one.job], one.created) if isinstance(one, Accepted) else one for one in done]

    async def cancel_many(self, wanted: JobFilter, *, limit: int, dry_run: bool) -> tuple[list[View], bool]:
        """Asks for the end of the newest `limit` jobs that fit and have not ended; whether there are more.

        With `dry_run` it is only said which they are.
        """
        active = wanted.model_copy(update={"active": True})
        found = await self._ports.db.read(lambda conn: listing.fitting(conn, active, limit + 1))
        if not dry_run:
            await self._parts.bulk.cancel(found[:limit])
        return await self._views(found[:limit]), len(found) > limit

    async def cancel_these(self, refs: Sequence[str], *, dry_run: bool) -> list[View | CrucibleError]:
        """The same for jobs by their ids, short ids or endings; what is wrong with one stops none of the others."""
        found = await self._ports.db.read(lambda conn: [queries.try_to_find(conn, ref) for ref in refs])
        ids = list(dict.fromkeys(job for job in found if isinstance(job, str)))
        if not dry_run:
            await self._parts.bulk.cancel(ids)
        views = {str(view["id"]): view for view in await self._views(ids)}
        return [views[job] if isinstance(job, str) else job for job in found]

    async def rename(self, ref: str, name: str | None) -> View:
        """Call a job so, or nothing; whatever it is doing, and nothing of that changes."""
        job = await self.find_job(ref)
        await self._label(job, lambda unit: labels.rename(unit.conn, job, name))
        return await self._view(job)

    async def tags(self, ref: str) -> list[str]:
        job = await self.find_job(ref)
        return [str(tag) for tag in await self._ports.db.read(lambda conn: labels.tags_of(conn, job))]

    async def change_tags(self, ref: str, *, add: Sequence[str], remove: Sequence[str]) -> list[str]:
        """Removes, then adds; the tags as they are then."""
        job, new, old = await self.find_job(ref), parse_tags(add), [parse_tag(text) for text in remove]
        changed = await self._label(job, lambda unit: labels.change_tags(unit.conn, job, new, old))
        return [str(tag) for tag in changed]

    async def notes(self, ref: str) -> list[View]:
        job = await self.find_job(ref)
        return await self._ports.db.read(lambda conn: notes.listed(conn, job))

    async def add_note(self, ref: str, *, author: str, text: str) -> View:
        job = await self.find_job(ref)
        return await self._label(job, lambda unit: notes.add(unit, self._ports.ids, job, author, text))

    async def delete_note(self, ref: str, note: str) -> View:
        job = await self.find_job(ref)
        return await self._label(job, lambda unit: notes.remove(unit, job, note))

    async def resume(self, ref: str, *, checkpoint: str | None, backend: str | None) -> View:
        """The ended job goes on, from a checkpoint, at a place."""
        job = await self.find_job(ref)
        await self._parts.revival.resume(job, checkpoint, backend)
        self._ask_scheduler()
        return await self._view(job)

    async def rerun(self, ref: str, key: str | None) -> Submitted:
        """A new job that repeats this one."""
        accepted = await self._parts.revival.rerun(await self.find_job(ref), key)
        self._ask_scheduler()
        return Submitted(await self._view(accepted.job), accepted.created)

    async def ask_checkpoint(self, ref: str) -> View:
        job = await self.find_job(ref)
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
        return await self._ports.db.read(lambda conn: queries.find_job(conn, ref))

    async def job(self, ref: str) -> View:
        job = await self.find_job(ref)
        view = await self._view(job)
        latest = await self._ports.db.read(lambda conn: queries.latest_metrics(conn, job))
        said = await self._ports.db.read(lambda conn: notes.listed(conn, job))
        return {**view, "recent_logs": await self._recent(job), "metrics": latest, "notes": said}

    async def view(self, ref: str) -> View:
        """The job without its output and metrics: cheap enough to be asked at every change."""
        return await self._view(await self.find_job(ref))

    async def jobs(self, wanted: JobFilter, *, limit: int, cursor: str | None) -> View:
        now = self._ports.clock.now()
        return await self._ports.db.read(lambda conn: listing.list_jobs(conn, wanted, limit, cursor, now))

    async def logs(self, ref: str, *, attempt: int | None, offset: int, limit: int, since: float | None) -> LogPage:
        return await self._parts.logs.page(await self.find_job(ref), attempt, offset, limit, since)

    async def search_logs(
        self,
        ref: str,
        *,
        text: str,
        regex: bool,
        case: bool,
        attempt: int | None,
        context: int,
        limit: int,
        cursor: str | None,
    ) -> View:
        """A page of the lines that match; whoever gives up waiting ends the search."""
        query = Query(Pattern(text, regex, case), attempt, context, limit, cursor)
        return await self._parts.logsearch.find(await self.find_job(ref), query)

    async def metrics(self, ref: str, *, series: list[str], points: int) -> View:
        job = await self.find_job(ref)
        return await self._ports.db.read(lambda conn: queries.metrics(conn, job, series, points))

    async def events(self, ref: str | None, *, after: int, limit: int) -> list[View]:
        job = None if ref is None else await self.find_job(ref)
        return await self._ports.db.read(lambda conn: queries.list_events(conn, job, after, limit))

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
        return await self._parts.fleet.listed(gone_too=all)

    async def orphans(self) -> list[View]:
        return await self._parts.fleet.orphans()

    async def terminate_machine(self, ref: str) -> View:
        return await self._parts.fleet.terminate(ref)

    async def prune(self, *, older_than: float | None, dry_run: bool) -> View:
        return await self._parts.retention.prune(older_than=older_than, dry_run=dry_run)

    async def backup(self, target: str) -> View:
        return await self._parts.backup.make(target)

    async def confirm_restore(self) -> View:
        """After a restore: what was held back is due, and jobs are placed again."""
        done = await self._parts.writer.write(lambda unit: restored.confirm(unit.conn, unit.now))
        for topic in ("effects", "jobs"):
            self._ports.wakeups.wake(topic)
        return done.view

    async def status(self) -> View:
        deployment = self._parts.deployment
        going = await self._ports.db.read(queries.counts)
        held = await self._ports.db.read(restored.status)
        return {"deployment": deployment.id, "agents_url": deployment.agents_url, **going, "restored": held}

    @asynccontextmanager
    async def watch(self, job: str | None) -> AsyncIterator[Watch]:
        with self._parts.feed.watch(job) as watch:
            yield watch

    async def has_bundle(self, sha: str) -> bool:
        return await self._parts.bundles.has(sha)

    async def put_bundle(self, sha: str, chunks: AsyncIterator[bytes]) -> bool:
        """Stores a bundle whole; whether it is new."""
        return await self._parts.bundles.put(sha, chunks)

    def _ask_scheduler(self) -> None:
        """Where another process has the scheduler's duty, it is told that there is work."""
        if not self._parts.duties.has(Duty.SCHEDULER):
            self._ports.wakeups.wake("jobs")

    async def _view(self, job: str) -> View:
        now = self._ports.clock.now()
        return await self._ports.db.read(lambda conn: queries.one_job(conn, job, now))

    async def _views(self, jobs: Sequence[str]) -> list[View]:
        now = self._ports.clock.now()
        return await self._ports.db.read(lambda conn: crowds.job_views(conn, jobs, now))

    async def _label(self, job: str, change: Callable[[Unit], T]) -> T:
        """Whoever watches the job is told."""

        def apply(unit: Unit) -> T:
            unit.changes.hint(job, Hint.EVENT)
            return change(unit)

        return await self._parts.writer.write(apply)

    async def _recent(self, job: str) -> list[str]:
        page = await self._parts.logs.page(job, None, -RECENT_BYTES, RECENT_BYTES, None)
        return page.data.decode(errors="replace").splitlines()[-RECENT_LINES:]
