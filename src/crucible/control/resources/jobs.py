"""Jobs: submit, read, cancel, resume and rerun them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from sqlalchemy import Connection

from crucible.control.jobs import bulk_views, comparison, listing, queries
from crucible.control.jobs.submit import StoredJob
from crucible.control.planning import forecast
from crucible.control.reconcile.crashpoints import crashpoint
from crucible.control.reconcile.duties import Duty
from crucible.control.reconcile.unit_of_work import UnitOfWork
from crucible.control.runtime.services import Services
from crucible.control.telemetry.feed import Watch
from crucible.core.errors import CrucibleError
from crucible.core.job.job_filter import JobFilter
from crucible.core.job.spec import JobSpec
from crucible.core.people.identity import Identity, Permission
from crucible.core.requests import Resumption
from crucible.core.views.comparisons import ComparisonView
from crucible.core.views.jobs import HealthView, JobPage, JobView
from crucible.core.views.people import TokenView

RECENT_BYTES = 4096
RECENT_LINES = 20


@dataclass(frozen=True)
class SubmittedJob:
    """A job that is stored. `created` is false if the same idempotency key had stored it before."""

    view: JobView
    created: bool


class Jobs:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._ports = services.ports
        self._access = services.access

    # Reading

    async def find(self, who: Identity, ref: str) -> str:
        """Return the id of the job that `ref` names. Raises NotFound, Conflict."""
        return await self._access.readable_job(who, ref)

    async def details(self, who: Identity, ref: str) -> JobView:
        """Return a job in full, with its last lines of output and its latest metrics."""
        now = self._ports.clock.now()

        def read(conn: Connection) -> JobView:
            job = queries.find_job(conn, ref, who).id
            plan = {
                "predicted_seconds": forecast.predicted_seconds(conn, job),
                "plan": forecast.stored_plan(conn, job),
            }
            return queries.read_job_detail(conn, job, now).model_copy(update=plan)

        view = await self._ports.db.read(read)
        page = await self._services.logs.page(view.id, None, -RECENT_BYTES, RECENT_BYTES, None)
        recent = tuple(page.data.decode(errors="replace").splitlines()[-RECENT_LINES:])
        return _visible_to(who, view).model_copy(update={"recent_logs": recent})

    async def view(self, who: Identity, ref: str) -> JobView:
        """Return the job without its output and metrics: cheap enough to read at every change."""
        return _visible_to(who, await self._view(await self.find(who, ref)))

    async def list_jobs(self, who: Identity, job_filter: JobFilter, *, limit: int, cursor: str | None) -> JobPage:
        """Return a page of jobs, newest first. Raises BadInput for an invalid cursor."""
        now = self._ports.clock.now()
        page = await self._ports.db.read(lambda conn: listing.list_jobs(conn, job_filter, limit, cursor, now, who))
        return page.model_copy(update={"items": tuple(_visible_to(who, view) for view in page.items)})

    async def health(self, who: Identity, ref: str) -> HealthView:
        """Return the job's health: verdict, findings with their evidence, and advice."""
        job, now = await self.find(who, ref), self._ports.clock.now()
        return await self._ports.db.read(lambda conn: queries.read_health(conn, job, now))

    async def compare(self, who: Identity, refs: Sequence[str]) -> ComparisonView:
        """Return 2 to 20 jobs side by side, in this order; a job named twice is shown once."""
        comparison.check_count(refs)
        jobs = list(dict.fromkeys([await self.find(who, ref) for ref in refs]))
        comparison.check_count(jobs)
        views = [(await self._view(job)).model_copy(update={"health": await self.health(who, job)}) for job in jobs]
        return await self._ports.db.read(lambda conn: comparison.comparison_view(conn, views))

    @asynccontextmanager
    async def watch(self, job: str | None) -> AsyncIterator[Watch]:
        """Watch a job, or all jobs, for hints that something changed."""
        with self._services.feed.watch(job) as watch:
            yield watch

    # Changing

    async def share(self, who: Identity, ref: str, *, name: str, seconds: float) -> TokenView:
        """Return a token that shows this job, and nothing else, to anyone who has it."""
        job = await self._access.find_job(who, ref)
        return await self._services.tokens.share(who, job.id, job.project, name, seconds)

    async def submit(self, who: Identity, spec: JobSpec, key: str | None) -> SubmittedJob:
        """Store a job; when this returns it is durable. Repeating a `key` returns the same job."""

        def store(unit: UnitOfWork) -> SubmittedJob:
            accepted = self._services.submitter.store(unit, spec, key, who)
            return SubmittedJob(queries.read_job(unit.conn, accepted.job, unit.now), accepted.created)

        await self._services.admission.prepare([spec])
        submitted = await self._services.writer.write(store)
        crashpoint("submit.after_commit")
        self._announce_jobs()
        return submitted

    async def submit_many(
        self, who: Identity, orders: Sequence[tuple[JobSpec, str | None]]
    ) -> list[SubmittedJob | CrucibleError]:
        """Submit specs with their keys. Returns the result of each, in order; one that is refused stops no other.

        Raises QueueFull if the queue has no room for all of them.
        """
        await self._services.admission.prepare([spec for spec, _ in orders])
        done = await self._services.bulk.submit(orders, who)
        self._announce_jobs()
        ids = [one.job for one in done if isinstance(one, StoredJob)]
        views = {view.id: view for view in await self._views(ids)}
        return [SubmittedJob(views[one.job], one.created) if isinstance(one, StoredJob) else one for one in done]

    async def cancel(self, who: Identity, ref: str) -> tuple[JobView, bool]:
        """Cancel a job. Return it, and whether that changed anything."""
        job = await self._access.writable_job(who, ref)
        changed = await self._services.writer.write(lambda unit: self._services.bulk.request_cancel(unit, job, who))
        crashpoint("cancel.after_commit")
        return await self._view(job), changed

    async def cancel_matching(
        self, who: Identity, job_filter: JobFilter, *, limit: int, dry_run: bool
    ) -> tuple[list[JobView], bool]:
        """Cancel the newest `limit` jobs that match and have not ended.

        Return them, and whether there are more. With `dry_run` nothing is cancelled.
        """
        active = listing.restrict_to_visible(job_filter.model_copy(update={"active": True}), who, Permission.WRITE)
        matching = await self._ports.db.read(lambda conn: listing.matching_jobs(conn, active, limit + 1))
        if not dry_run:
            await self._services.bulk.cancel(matching[:limit], who)
        return await self._views(matching[:limit]), len(matching) > limit

    async def cancel_named(self, who: Identity, refs: Sequence[str], *, dry_run: bool) -> list[JobView | CrucibleError]:
        """Cancel jobs by their ids, short ids or endings. One that fails does not stop the others."""
        write = Permission.WRITE
        results = await self._ports.db.read(lambda conn: [queries.find_or_error(conn, ref, who, write) for ref in refs])
        ids = list(dict.fromkeys(job for job in results if isinstance(job, str)))
        if not dry_run:
            await self._services.bulk.cancel(ids, who)
        views = {view.id: view for view in await self._views(ids)}
        return [views[job] if isinstance(job, str) else job for job in results]

    async def resume(self, who: Identity, ref: str, request: Resumption) -> JobView:
        """Reopen a job that has ended, from a checkpoint (default: the newest), perhaps on another backend.

        Raises Conflict while it has not ended, NotFound for a checkpoint that it does not have.
        """
        job = await self._access.writable_job(who, ref)
        await self._services.resumer.resume(job, request.checkpoint, request.backend, who)
        self._announce_jobs()
        return await self._view(job)

    async def rerun(self, who: Identity, ref: str, key: str | None) -> SubmittedJob:
        """Submit a new job with the same code, environment, arguments and seed; `key` as in `submit`."""
        accepted = await self._services.resumer.rerun(await self.find(who, ref), key, who)
        self._announce_jobs()
        return SubmittedJob(await self._view(accepted.job), accepted.created)

    def _announce_jobs(self) -> None:
        """Wake the planner of jobs, and the scheduler if another process holds that duty."""
        self._ports.wakeups.wake(forecast.TOPIC)
        if not self._services.duties.has(Duty.SCHEDULER):
            self._ports.wakeups.wake("jobs")

    async def _view(self, job: str) -> JobView:
        now = self._ports.clock.now()
        return await self._ports.db.read(lambda conn: queries.read_job(conn, job, now))

    async def _views(self, jobs: Sequence[str]) -> list[JobView]:
        now = self._ports.clock.now()
        return await self._ports.db.read(lambda conn: bulk_views.job_views(conn, jobs, now))


def _visible_to(who: Identity, view: JobView) -> JobView:
    """Return the view without the hash of the code for a share link, which does not give the code."""
    return view if who.job is None else view.model_copy(update={"bundle": None})
