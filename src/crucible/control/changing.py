"""Changing: jobs are submitted, ended, reopened and labelled, as far as somebody may."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from crucible.control import labels, listing, notes, queries, repository
from crucible.control.crashpoints import crashpoint
from crucible.control.face import Face
from crucible.control.feed import Hint
from crucible.control.roles import Duty
from crucible.control.submit import Accepted
from crucible.control.unit import Unit
from crucible.control.views import View
from crucible.core.errors import CrucibleError
from crucible.core.jobfilter import JobFilter
from crucible.core.people import Permission
from crucible.core.spec import JobSpec
from crucible.core.tags import parse_tag, parse_tags

T = TypeVar("T")


@dataclass(frozen=True)
class Submitted:
    view: View
    created: bool


class Changing(Face):
    async def submit(self, spec: JobSpec, key: str | None) -> Submitted:
        """The job, durable: when this returns it survives anything."""

        def store(unit: Unit) -> Submitted:
            accepted = self._parts.submit.store(unit, spec, key, self._who)
            return Submitted(queries.one_job(unit.conn, accepted.job, unit.now), accepted.created)

        submitted = await self._parts.writer.write(store)
        crashpoint("submit.after_commit")
        self._ask_scheduler()
        if submitted.created:
            self._parts.foresight.submitted(str(submitted.view["id"]), spec)
        return submitted

    async def submit_many(self, orders: Sequence[tuple[JobSpec, str | None]]) -> list[Submitted | CrucibleError]:
        """What became of each, in their order; a job that is in the answer is durable."""
        done = await self._parts.bulk.submit(orders, self._who)
        self._ask_scheduler()
        for (spec, _), one in zip(orders, done, strict=True):
            if isinstance(one, Accepted) and one.created:
                self._parts.foresight.submitted(one.job, spec)
        ids = [one.job for one in done if isinstance(one, Accepted)]
        views = {str(view["id"]): view for view in await self._views(ids)}
        return [Submitted(views[one.job], one.created) if isinstance(one, Accepted) else one for one in done]

    async def cancel(self, ref: str) -> tuple[View, bool]:
        """Asks for the job's end; whether that changed anything."""
        job = await self._writable(ref)
        changed = await self._parts.writer.write(lambda unit: self._parts.bulk.end(unit, job, self._who))
        crashpoint("cancel.after_commit")
        return await self._view(job), changed

    async def cancel_many(self, wanted: JobFilter, *, limit: int, dry_run: bool) -> tuple[list[View], bool]:
        """Asks for the end of the newest `limit` jobs that fit and have not ended; whether there are more.

        With `dry_run` it is only said which they are.
        """
        active = wanted.model_copy(update={"active": True})
        his = listing.within(active, self._who, Permission.WRITE)
        found = await self._ports.db.read(lambda conn: listing.fitting(conn, his, limit + 1))
        if not dry_run:
            await self._parts.bulk.cancel(found[:limit], self._who)
        return await self._views(found[:limit]), len(found) > limit

    async def cancel_these(self, refs: Sequence[str], *, dry_run: bool) -> list[View | CrucibleError]:
        """The same for jobs by their ids, short ids or endings; what is wrong with one stops none of the others."""
        who, write = self._who, Permission.WRITE
        found = await self._ports.db.read(lambda conn: [queries.try_to_find(conn, ref, who, write) for ref in refs])
        ids = list(dict.fromkeys(job for job in found if isinstance(job, str)))
        if not dry_run:
            await self._parts.bulk.cancel(ids, self._who)
        views = {str(view["id"]): view for view in await self._views(ids)}
        return [views[job] if isinstance(job, str) else job for job in found]

    async def resume(self, ref: str, *, checkpoint: str | None, backend: str | None) -> View:
        """The ended job goes on, from a checkpoint, at a place."""
        job = await self._writable(ref)
        await self._parts.revival.resume(job, checkpoint, backend, self._who)
        self._ask_scheduler()
        return await self._view(job)

    async def rerun(self, ref: str, key: str | None) -> Submitted:
        """A new job that repeats this one."""
        accepted = await self._parts.revival.rerun(await self.find_job(ref), key, self._who)
        self._ask_scheduler()
        if accepted.created:
            world = await self._ports.db.read(lambda conn: repository.load_world(conn, accepted.job))
            assert world is not None, "made a moment ago, and jobs are never deleted"
            self._parts.foresight.submitted(accepted.job, world.job.spec)
        return Submitted(await self._view(accepted.job), accepted.created)

    async def ask_checkpoint(self, ref: str) -> View:
        job = await self._writable(ref)
        await self._parts.revival.ask_checkpoint(job)
        return await self._view(job)

    async def put_bundle(self, sha: str, chunks: AsyncIterator[bytes]) -> bool:
        """Stores a bundle whole; whether it is new."""
        self._need_work()
        return await self._parts.bundles.put(sha, chunks, self._who)

    async def rename(self, ref: str, name: str | None) -> View:
        """Call a job so, or nothing; whatever it is doing, and nothing of that changes."""
        job = await self._writable(ref)
        await self._label(job, lambda unit: labels.rename(unit.conn, job, name))
        return await self._view(job)

    async def change_tags(self, ref: str, *, add: Sequence[str], remove: Sequence[str]) -> list[str]:
        """Removes, then adds; the tags as they are then."""
        job, new, old = await self._writable(ref), parse_tags(add), [parse_tag(text) for text in remove]
        changed = await self._label(job, lambda unit: labels.change_tags(unit.conn, job, new, old))
        return [str(tag) for tag in changed]

    async def add_note(self, ref: str, *, text: str) -> View:
        job, author = await self._writable(ref), self._who.name
        return await self._label(job, lambda unit: notes.add(unit, self._ports.ids, job, author, text))

    async def delete_note(self, ref: str, note: str) -> View:
        job = await self._writable(ref)
        return await self._label(job, lambda unit: notes.remove(unit, job, note))

    async def _label(self, job: str, change: Callable[[Unit], T]) -> T:
        """Whoever watches the job is told."""

        def apply(unit: Unit) -> T:
            unit.changes.hint(job, Hint.EVENT)
            return change(unit)

        return await self._parts.writer.write(apply)

    def _ask_scheduler(self) -> None:
        """Where another process has the scheduler's duty, it is told that there is work."""
        if not self._parts.duties.has(Duty.SCHEDULER):
            self._ports.wakeups.wake("jobs")
