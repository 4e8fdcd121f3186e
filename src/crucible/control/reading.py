"""Reading: what somebody may see of jobs, machines and places. Nothing here changes anything."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from sqlalchemy import Connection

from crucible.control import (
    checkpoints,
    comparing,
    gauges,
    labels,
    listing,
    notes,
    predictions,
    queries,
    restored,
    training,
)
from crucible.control.bundles import StoredFile
from crucible.control.connecting import unconnected, why_unconnected
from crucible.control.face import Face
from crucible.control.feed import Watch
from crucible.control.grep import Pattern
from crucible.control.logs import LogPage
from crucible.control.logsearch import Query
from crucible.control.portrait import portrait
from crucible.control.views import View, backend_view
from crucible.core.errors import NotFound
from crucible.core.ids import short
from crucible.core.jobfilter import JobFilter
from crucible.core.offerfilter import OfferFilter
from crucible.core.people import Permission
from crucible.core.planask import PlanAsk
from crucible.storage.layout import artifact_key

RECENT_BYTES = 4096
RECENT_LINES = 20


class Reading(Face):
    async def job(self, ref: str) -> View:
        now = self._ports.clock.now()

        def drawn(conn: Connection) -> View:
            return portrait(conn, queries.find_job(conn, ref, self._who).id, now)

        view = await self._ports.db.read(drawn)
        return {**view, "recent_logs": await self._recent(str(view["id"]))}

    async def health(self, ref: str) -> View:
        """How the job does, with evidence and advice."""
        job, now = await self.find_job(ref), self._ports.clock.now()
        return await self._ports.db.read(lambda conn: queries.job_health(conn, job, now))

    async def training(self, ref: str) -> View:
        """The job in the words of the training routes."""
        job, now = await self.find_job(ref), self._ports.clock.now()
        return await self._ports.db.read(lambda conn: training.record(conn, job, now))

    async def compare(self, refs: Sequence[str]) -> View:
        """Two jobs or more side by side, in this order; the same one twice is shown once."""
        comparing.check_count(refs)
        jobs = list(dict.fromkeys([await self.find_job(ref) for ref in refs]))
        comparing.check_count(jobs)
        views = [{**await self._view(job), "health": await self.health(job)} for job in jobs]
        return await self._ports.db.read(lambda conn: comparing.compared(conn, views))

    async def view(self, ref: str) -> View:
        """The job without its output and metrics: cheap enough to be asked at every change."""
        return await self._view(await self.find_job(ref))

    async def jobs(self, wanted: JobFilter, *, limit: int, cursor: str | None) -> View:
        now = self._ports.clock.now()
        return await self._ports.db.read(lambda conn: listing.list_jobs(conn, wanted, limit, cursor, now, self._who))

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

    async def checkpoints(self, ref: str) -> list[View]:
        """Newest first, also those that were removed."""
        job = await self.find_job(ref)
        return await self._ports.db.read(lambda conn: queries.list_checkpoints(conn, job))

    async def checkpoint_file(self, ref: str, checkpoint: str) -> tuple[View, StoredFile]:
        job = await self.find_job(ref)
        view = checkpoints.found(await self.checkpoints(job), checkpoint, job)
        return view, checkpoints.stored_file(job, view)

    async def tags(self, ref: str) -> list[str]:
        job = await self.find_job(ref)
        return [str(tag) for tag in await self._ports.db.read(lambda conn: labels.tags_of(conn, job))]

    async def notes(self, ref: str) -> list[View]:
        job = await self.find_job(ref)
        return await self._ports.db.read(lambda conn: notes.listed(conn, job))

    async def plan(self, ask: PlanAsk) -> View:
        """Where the job would run, for how much, and the call that would be sent; nothing is sent."""
        self._need_work()
        return await self._parts.plans.of(ask, self._ports.clock.now(), self._who.authority)

    async def predictions(self, *, limit: int, cursor: str | None) -> View:
        """What was predicted of jobs beside what they took, newest first, and how good that was on the whole."""
        return await self._ports.db.read(lambda conn: predictions.listed(conn, limit, cursor, self._who))

    async def backends(self) -> list[View]:
        return [
            backend_view(self._parts.places.backend(n), self._parts.places.offers(n))
            for n in self._parts.places.names()
        ]

    async def other_backends(self) -> list[View]:
        """Places that are known and not connected, each with what connects it, or that nothing does."""
        here = self._parts.places.names()
        return [{"name": name, "why": f"{why_unconnected(name, here)}."} for name in unconnected(here)]

    async def catalog(self, wanted: OfferFilter, *, limit: int, cursor: str | None) -> View:
        """What can be rented, cheapest first, whether its provider is connected or not."""
        return await self._parts.prices.page(wanted, limit=limit, cursor=cursor)

    async def catalog_type(self, name: str) -> View:
        return await self._parts.prices.type(name)

    async def catalog_audit(self) -> View:
        return await self._parts.prices.audited()

    async def compare_prices(self, text: str, *, provider: str | None, over: float) -> View:
        self._need_work()
        return await self._parts.prices.compared(text, provider, over)

    async def machines(self, *, all: bool = False) -> list[View]:
        return await self._parts.fleet.listed(gone_too=all, who=self._who)

    async def status(self) -> View:
        deployment = self._parts.deployment
        going = await self._ports.db.read(lambda conn: queries.counts(conn, self._who))
        held = await self._ports.db.read(restored.status)
        return {"deployment": deployment.id, "agents_url": deployment.agents_url, **going, "restored": held}

    async def gauges(self) -> View:
        """How much goes on, for monitoring; what is counted, this process has done since it started."""
        self._who.need(Permission.READ)
        parts, now = self._parts, self._ports.clock.now()
        stored = await self._ports.db.read(lambda conn: gauges.stored(conn, now))
        counted = gauges.counted(parts.writer.counted, parts.performer.launches)
        webhooks = gauges.webhooks(parts.sender.calls)
        return {**stored, **counted, "webhooks": webhooks, "writes": gauges.write_times(self._ports.db)}

    @asynccontextmanager
    async def watch(self, job: str | None) -> AsyncIterator[Watch]:
        with self._parts.feed.watch(job) as watch:
            yield watch

    async def has_bundle(self, sha: str) -> bool:
        return await self._parts.bundles.has(sha, self._who)

    async def _recent(self, job: str) -> list[str]:
        page = await self._parts.logs.page(job, None, -RECENT_BYTES, RECENT_BYTES, None)
        return page.data.decode(errors="replace").splitlines()[-RECENT_LINES:]
