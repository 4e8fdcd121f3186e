"""Control: the one object that the server talks to. It joins the rooms' parts; the parts do the work."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import Connection, update

from crucible.backends.base import Backend
from crucible.control import queries, repository, roles
from crucible.control.agents import Agents, Tools
from crucible.control.bundles import Bundles, StoredFile
from crucible.control.contacts import Contacts
from crucible.control.crashpoints import crashpoint
from crucible.control.db import schema as t
from crucible.control.effects import Bearings, Performer
from crucible.control.feed import Feed, Watch
from crucible.control.ingest import Ingest
from crucible.control.janitor import Janitor
from crucible.control.logs import LogPage, Logs
from crucible.control.loops import Loop, Loops
from crucible.control.places import Places
from crucible.control.poller import Poller
from crucible.control.pools import release_idle
from crucible.control.ports import Ports
from crucible.control.reconcile import Reconciler
from crucible.control.roles import Duties, Duty
from crucible.control.scheduler import Scheduler
from crucible.control.submit import Accepted, Submit
from crucible.control.tails import Tails
from crucible.control.unit import Unit, Writer
from crucible.control.uploads import Uploads
from crucible.control.views import View, backend_view
from crucible.core.errors import NotFound
from crucible.core.ids import short
from crucible.core.lifecycle.facts import CancelRequested
from crucible.core.lifecycle.machines import SIGHTINGS
from crucible.core.spec import JobSpec
from crucible.storage import Store
from crucible.storage.layout import artifact_key

SWEEP_SECONDS = 2.0
POLL_SECONDS = 3.0
TIDY_SECONDS = 60.0
DUTY_SECONDS = 10.0
LONGEST_IDLE = 5.0
FIRST_LOOK_SECONDS = 2.0
LEAVE_TRIES = 6
LEAVE_WAIT = 0.2
RECENT_BYTES = 4096
RECENT_LINES = 20


@dataclass(frozen=True)
class Deployment:
    """Who we are: the id on our machines' tags, the key of our agents' secrets, where they find us."""

    id: str
    key: bytes = field(repr=False)
    agents_url: str
    scratch: Path
    bundle_limit: int


@dataclass(frozen=True)
class Submitted:
    view: View
    created: bool


class Control:
    def __init__(self, ports: Ports, backends: Mapping[str, Backend], deployment: Deployment) -> None:
        self._ports = ports
        self._deployment = deployment
        self._feed = Feed()
        tails, self._contacts = Tails(), Contacts()
        self._writer = Writer(ports, self._feed)
        self._places = Places(backends, ports.calls)
        self._duties = Duties(ports.worker)
        self._scheduler = Scheduler(self._places, ports.ids, deployment.id, self._duties)
        self._submit = Submit(self._places, self._scheduler, ports.ids)
        self._uploads = uploads = Uploads(ports, deployment.scratch)
        tools = Tools(ports, self._writer, self._feed, tails, self._contacts, deployment.key)
        self._bundles = Bundles(ports, uploads, deployment.bundle_limit)
        self.agents = Agents(tools, Ingest(self._scheduler), uploads, self._bundles)
        self._logs = Logs(ports, tails)
        bearings = Bearings(deployment.key, deployment.agents_url)
        self._performer = Performer(ports, self._places, self._writer, bearings)
        self._poller = Poller(ports, self._places, self._writer)
        self._janitor = Janitor(ports, self._places, self._writer, deployment.id)
        self._reconciler = Reconciler(ports, self._writer, self._scheduler, self._contacts)
        self._loops = Loops(ports, self._make_loops())
        self._ready = False

    async def start(self) -> None:
        """Takes up whatever was left, then starts the loops. A place that hangs does not keep us from it."""
        await self._ports.db.write(self._take_up)
        await self._uploads.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_LOOK_SECONDS):
                await self._first_look()
        self._loops.start()
        self._ready = True

    async def _first_look(self) -> None:
        await self._places.refresh()
        for _ in range(SIGHTINGS):
            await self._poller.poll()

    async def stop(self) -> None:
        """Gives back machines that nobody uses, then ends the loops. What runs goes on without us."""
        self._ready = False
        await self._loops.stop()
        await self._performer.stop()
        try:
            await self._leave()
            await self._ports.db.write(lambda conn: roles.release(conn, self._ports.worker))
        finally:
            await self._ports.db.close()
            await self._ports.calls.close()

    def ready(self) -> bool:
        return self._ready

    async def _leave(self) -> None:
        """Idle pool machines are released; a release that takes longer goes on at the next start."""
        if not await self._writer.write(release_idle):
            return
        for _ in range(LEAVE_TRIES):
            if not await self._performer.perform_due():
                await self._ports.clock.sleep(LEAVE_WAIT)

    def _take_up(self, conn: Connection) -> None:
        """A worker of this name that died left its claims behind; they are ours now."""
        for table in (t.effects, t.jobs):
            mine = table.c.claimed_by == self._ports.worker
            conn.execute(update(table).where(mine).values(claimed_by=None, claimed_until=None))
        self._duties.renew(conn, self._ports.clock.now())

    def _make_loops(self) -> list[Loop]:
        return [
            Loop("effects", "effects", self._perform),
            Loop("sweep", "jobs", self._sweep_round),
            Loop("duties", "duties", self._renew),
            Loop("poller", "poll", self._poll),
            Loop("janitor", "janitor", self._tidy),
        ]

    async def _perform(self) -> float:
        await self._performer.start_due()
        due = await self._performer.next_due()
        return LONGEST_IDLE if due is None else min(max(due - self._ports.clock.now(), 0.05), LONGEST_IDLE)

    async def _sweep_round(self) -> float:
        await self._reconciler.round()
        return SWEEP_SECONDS

    async def _renew(self) -> float:
        await self._ports.db.write(lambda conn: self._duties.renew(conn, self._ports.clock.now()))
        return DUTY_SECONDS

    async def _poll(self) -> float:
        if self._duties.has(Duty.POLLER):
            await self._poller.poll()
        return POLL_SECONDS

    async def _tidy(self) -> float:
        if self._duties.has(Duty.JANITOR):
            await self._places.refresh()
            await self._janitor.tidy()
            await self._janitor.release_stuck()
        return TIDY_SECONDS

    @property
    def store(self) -> Store:
        return self._ports.store

    async def submit(self, spec: JobSpec, key: str | None) -> Submitted:
        """The job, durable: when this returns it survives anything."""

        def store(unit: Unit) -> Accepted:
            return self._submit.store(unit, spec, key)

        accepted = await self._writer.write(store)
        crashpoint("submit.after_commit")
        return Submitted(await self._view(accepted.job), accepted.created)

    async def cancel(self, ref: str) -> tuple[View, bool]:
        """Asks for the job's end; whether that changed anything."""
        job = await self.find_job(ref)

        def ask(unit: Unit) -> bool:
            world = repository.load_world(unit.conn, job)
            assert world is not None, "found a moment ago, and jobs are never deleted"
            after = unit.advance(world, CancelRequested())
            if after.live is None and after.job != world.job:
                self._scheduler.place(unit)
            return after.job != world.job

        changed = await self._writer.write(ask)
        crashpoint("cancel.after_commit")
        return await self._view(job), changed

    async def find_job(self, ref: str) -> str:
        return await self._ports.db.read(lambda conn: queries.find_job(conn, ref))

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
            lambda conn: queries.list_jobs(conn, statuses or frozenset(), active, limit, cursor, now)
        )

    async def logs(self, ref: str, *, attempt: int | None, offset: int, limit: int, since: float | None) -> LogPage:
        return await self._logs.page(await self.find_job(ref), attempt, offset, limit, since)

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
            fix=f"crucible download {short(job)} --list shows them.",
        )

    async def backends(self) -> list[View]:
        return [backend_view(self._places.backend(n), self._places.offers(n)) for n in self._places.names()]

    async def machines(self) -> list[View]:
        now = self._ports.clock.now()
        return await self._ports.db.read(lambda conn: queries.list_machines(conn, now))

    async def status(self) -> View:
        going = await self._ports.db.read(queries.counts)
        return {"deployment": self._deployment.id, "agents_url": self._deployment.agents_url, **going}

    @asynccontextmanager
    async def watch(self, job: str | None) -> AsyncIterator[Watch]:
        with self._feed.watch(job) as watch:
            yield watch

    async def has_bundle(self, sha: str) -> bool:
        return await self._bundles.has(sha)

    async def put_bundle(self, sha: str, chunks: AsyncIterator[bytes]) -> bool:
        """Stores a bundle whole; whether it is new."""
        return await self._bundles.put(sha, chunks)

    async def _view(self, job: str) -> View:
        now = self._ports.clock.now()
        return await self._ports.db.read(lambda conn: queries.one_job(conn, job, now))

    async def _recent(self, job: str) -> list[str]:
        page = await self._logs.page(job, None, -RECENT_BYTES, RECENT_BYTES, None)
        return page.data.decode(errors="replace").splitlines()[-RECENT_LINES:]
