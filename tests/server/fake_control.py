"""A control plane in memory, with the behaviour the server relies on."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from crucible.core.errors import BadInput, Conflict, CrucibleError, NotAllowed, NotFound, UnknownName
from crucible.core.jobfilter import JobFilter
from crucible.core.models import Order
from crucible.core.people import Identity
from crucible.core.spec import JobSpec
from crucible.wire.messages import derive_secret

KEY = b"k" * 32
JOB = "job-00000000000000000000000001"
ATTEMPT = "att-00000000000000000000000001"

Point = tuple[float, float, float]
"""Step, value, the agent's time."""


class HashMismatch(CrucibleError):
    code = "hash_mismatch"
    http_status = 422


@dataclass(frozen=True)
class Submitted:
    view: dict[str, Any]
    created: bool


@dataclass(frozen=True)
class LogPage:
    attempt: int
    attempts: int
    start: int
    next: int
    complete: bool
    data: bytes


@dataclass(frozen=True)
class StoredFile:
    key: str
    size: int
    sha256: str
    path: str = ""


class FakeStore:
    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def open_range(self, key: str, start: int, end: int) -> Iterator[bytes]:
        data = self.objects[key][start:end]
        return (data[i : i + 4] for i in range(0, len(data), 4))

    def put(self, key: str, data: bytes) -> StoredFile:
        self.objects[key] = data
        return StoredFile(key, len(data), hashlib.sha256(data).hexdigest())


class FakeWatch:
    def __init__(self) -> None:
        self._hints: set[str] = set()
        self._event = asyncio.Event()

    def tell(self, *hints: str) -> None:
        self._hints.update(hints)
        self._event.set()

    async def changed(self, timeout: float) -> set[str]:
        try:
            await asyncio.wait_for(self._event.wait(), timeout)
        except TimeoutError:
            return set()
        hints, self._hints = self._hints, set()
        self._event.clear()
        return hints


@dataclass(frozen=True)
class FakeCheckpoint:
    id: str = "ckp-00000000000000000000000001"
    name: str = "step_00000100.pt"
    data: bytes = b"weights"
    form: str = "file"
    step: int | None = 100
    best: bool = False

    def view(self, *, latest: bool) -> dict[str, Any]:
        return {
            "id": self.id,
            "short": f"ckp-{self.id[-6:]}",
            "name": self.name,
            "form": self.form,
            "step": self.step,
            "size": len(self.data),
            "sha256": hashlib.sha256(self.data).hexdigest(),
            "latest": latest,
            "best": self.best,
        }


@dataclass
class FakeJob:
    """One job; `outputs` holds the output of each attempt, `ended` how many of them are over.

    `series` are shown as they are; those `reported`, by attempt `reporter`, are shown as they are asked for.
    """

    id: str = JOB
    status: str = "running"
    phase: str = "running"
    outputs: list[bytes] = field(default_factory=list)
    ended: int = 0
    events: list[dict[str, Any]] = field(default_factory=list)
    progress: dict[str, Any] | None = None
    series: dict[str, Any] = field(default_factory=dict)
    reported: dict[str, list[Point]] = field(default_factory=dict)
    reporter: int = 1
    artifacts: dict[str, bytes] = field(default_factory=dict)
    checkpoints: list[FakeCheckpoint] = field(default_factory=list)
    verdict: str = "healthy"

    def view(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "status": self.status,
            "phase": self.phase,
            "progress": self.progress,
            "attempts": [{"number": n + 1} for n in range(len(self.outputs))],
        }

    def report(self, *points: Point, name: str = "loss") -> None:
        """Adds points at the end of a series."""
        self.reported.setdefault(name, []).extend(points)


def _shown(found: list[Point], points: int) -> dict[str, Any]:
    """A series with its last points for a number below 0, else with some that draw it."""
    values = [value for _step, value, _at in found]
    shown = found[points:] if points < 0 else found[:: -(-len(found) // points)]
    return {
        "count": len(found),
        "last": values[-1],
        "min": min(values),
        "max": max(values),
        "points": [list(point) for point in shown],
    }


class FakePeople:
    """Nobody but the owner; what is asked of real people is tested over real ones."""

    def __init__(self) -> None:
        self.tokens: dict[str, Identity] = {}
        self.projects: list[str | None] = []

    async def identify(self, token: str) -> Identity | None:
        return self.tokens.get(token)

    async def ensure_project(self, who: Identity, name: str) -> None:
        self.projects.append(name)


class FakeMeeting:
    def __init__(self) -> None:
        self.came: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.over = asyncio.Event()


@dataclass(frozen=True)
class FakeEntrance:
    """Every session is called `ses-1`."""

    meetings: dict[str, FakeMeeting]
    job: str
    wanted: list[Any] = field(default_factory=list)

    @asynccontextmanager
    async def session(self, wanted: Any) -> AsyncIterator[Any]:
        self.wanted.append(wanted)
        meeting = self.meetings["ses-1"] = FakeMeeting()
        try:
            async with asyncio.timeout(2):
                line = await meeting.came
            yield line
        finally:
            del self.meetings["ses-1"]
            meeting.over.set()


class FakeControl:
    def __init__(self) -> None:
        self.meetings: dict[str, FakeMeeting] = {}
        self.store = FakeStore()
        self.known: dict[str, FakeJob] = {}
        self.keys: dict[str, tuple[JobSpec, FakeJob]] = {}
        self.submitted: list[tuple[JobSpec, str | None]] = []
        self.asked: list[dict[str, Any]] = []
        self.whole_jobs = 0
        self.stored: dict[str, bytes] = {}
        self.watches: dict[str | None, list[FakeWatch]] = {}
        self.breaks: Exception | None = None
        self.people = self.tokens = FakePeople()
        self.searching: asyncio.Event | None = None

    @property
    def agents(self) -> FakeControl:
        return self

    @property
    def jobs(self) -> FakeControl:
        """Every resource of the control plane is this one object."""
        return self

    labels = outputs = checkpoints = sessions = bundles = plans = backends = catalog = machines = jobs
    models = maintenance = jobs

    async def share(self, who: Identity, ref: str, *, name: str, seconds: float) -> dict[str, Any]:
        job = await self.find(who, ref)
        return {"job": job, "name": name, "seconds": seconds, "token": "crt_shared"}

    # what the public API asks

    def add(self, job: FakeJob) -> FakeJob:
        self.known[job.id] = job
        return job

    def tell(self, job: str | None, *hints: str) -> None:
        for name in (job, None):
            for watch in self.watches.get(name, ()):
                watch.tell(*hints)

    async def submit(self, who: Identity, spec: JobSpec, key: str | None) -> Submitted:
        if spec.backend not in (None, "local"):
            raise UnknownName("backend", spec.backend, ["local"])
        self.submitted.append((spec, key))
        if key and key in self.keys:
            known, job = self.keys[key]
            if known != spec:
                raise Conflict("This key was used for another job.", fix="Use a new key.")
            return Submitted(job.view(), False)
        job = self.add(FakeJob(f"job-{len(self.known):026d}", "queued", "queued"))
        if key:
            self.keys[key] = spec, job
        return Submitted(job.view(), True)

    async def model(self, who: Identity, name: str) -> dict[str, Any]:
        if name != "counter":
            raise NotFound(f"There is no model {name!r}.", fix="Did you mean 'counter'?")
        return {"name": name, "error": None}

    async def job_spec(self, who: Identity, order: Order, job: Mapping[str, object]) -> JobSpec:
        await self.model(who, order.model)
        return JobSpec.model_validate({**job, "command": order.command, "kind": order.kind})

    async def find(self, who: Identity, ref: str) -> str:
        if self.breaks:
            raise self.breaks
        found = [name for name in self.known if name.endswith(ref)]
        if not found:
            raise NotFound(f"There is no job {ref!r}.", fix="`crucible jobs` lists them.")
        if len(found) > 1:
            raise Conflict(f"{ref!r} names several jobs.", fix="Type more of it.", matches=found)
        return found[0]

    async def details(self, who: Identity, ref: str) -> dict[str, Any]:
        self.whole_jobs += 1
        return {**await self.view(who, ref), "recent_logs": ["secret line"], "metrics": {}}

    async def view(self, who: Identity, ref: str) -> dict[str, Any]:
        return self.known[await self.find(who, ref)].view()

    async def health(self, who: Identity, ref: str) -> dict[str, Any]:
        verdict = self.known[await self.find(who, ref)].verdict
        return {"verdict": verdict, "level": "good", "message": "It runs.", "advice": None, "findings": []}

    async def training_record(self, who: Identity, ref: str) -> dict[str, Any]:
        job = self.known[await self.find(who, ref)]
        progress = job.progress or {}
        return {
            "job_id": job.id,
            "status": job.status,
            "phase": job.phase,
            "created_at": "2026-11-15T10:00:00.000Z",
            "current_epoch": progress.get("epoch"),
            "total_epochs": progress.get("total_epochs"),
            "current_metrics": {name: points[-1][1] for name, points in job.reported.items()},
            "progress": job.progress,
            "waiting": "for its turn" if job.status == "queued" else None,
            "reason": None,
        }

    async def compare(self, who: Identity, refs: Sequence[str]) -> dict[str, Any]:
        if len(refs) < 2:
            raise BadInput("1 job cannot be compared.", fix="Name two.")
        return {"jobs": [{"id": await self.find(who, ref)} for ref in refs], "config": [], "metrics": {}}

    async def list_jobs(self, who: Identity, wanted: JobFilter, *, limit: int, cursor: str | None) -> dict[str, Any]:
        self.asked.append({"wanted": wanted, "limit": limit, "cursor": cursor})
        return {"items": [job.view() for job in self.known.values()], "next": None}

    async def submit_many(
        self, who: Identity, orders: Sequence[tuple[JobSpec, str | None]]
    ) -> list[Submitted | CrucibleError]:
        found: list[Submitted | CrucibleError] = []
        for spec, key in orders:
            try:
                found.append(await self.submit(who, spec, key))
            except CrucibleError as error:
                found.append(error)
        return found

    async def cancel_matching(
        self, who: Identity, wanted: JobFilter, *, limit: int, dry_run: bool
    ) -> tuple[list[dict[str, Any]], bool]:
        self.asked.append({"wanted": wanted, "limit": limit, "dry_run": dry_run})
        return [job.view() for job in self.known.values()], False

    async def cancel_named(
        self, who: Identity, refs: Sequence[str], *, dry_run: bool
    ) -> list[dict[str, Any] | CrucibleError]:
        self.asked.append({"refs": list(refs), "dry_run": dry_run})
        found: list[dict[str, Any] | CrucibleError] = []
        for ref in refs:
            try:
                found.append(await self.view(who, ref))
            except CrucibleError as error:
                found.append(error)
        return found

    async def cancel(self, who: Identity, ref: str) -> tuple[dict[str, Any], bool]:
        job = self.known[await self.find(who, ref)]
        return job.view(), job.status in ("queued", "running")

    async def resume(self, who: Identity, ref: str, *, checkpoint: str | None, backend: str | None) -> dict[str, Any]:
        job = self.known[await self.find(who, ref)]
        self.asked.append({"checkpoint": checkpoint, "backend": backend})
        if job.status in ("queued", "running"):
            fix = "Wait for its end with `crucible logs -f`, or end it with `crucible cancel`."
            raise Conflict("The job has not ended, so it cannot be resumed.", fix=fix)
        if checkpoint is not None:
            self._checkpoint(job, checkpoint)
        job.status = job.phase = "queued"
        return job.view()

    async def rerun(self, who: Identity, ref: str, key: str | None) -> Submitted:
        await self.find(who, ref)
        return await self.submit(who, JobSpec(command=("true",), rerun_of=ref), key)

    async def request(self, who: Identity, ref: str) -> dict[str, Any]:
        job = self.known[await self.find(who, ref)]
        if job.status != "running":
            raise Conflict("Nothing runs that could save a checkpoint.", fix="Start it first.")
        self.asked.append({"checkpoint_now": job.id})
        return job.view()

    async def list_checkpoints(self, who: Identity, ref: str) -> list[dict[str, Any]]:
        found = self.known[await self.find(who, ref)].checkpoints
        return [item.view(latest=item is found[0]) for item in found]

    async def file(self, who: Identity, ref: str, checkpoint: str) -> tuple[dict[str, Any], StoredFile]:
        job = self.known[await self.find(who, ref)]
        found = self._checkpoint(job, checkpoint)
        view = found.view(latest=found is job.checkpoints[0])
        return view, self.store.put(f"checkpoints/{found.id}", found.data)

    def _checkpoint(self, job: FakeJob, ref: str) -> FakeCheckpoint:
        for item in job.checkpoints:
            named = (item.id, item.name, "best" if item.best else "", "latest" if item is job.checkpoints[0] else "")
            if ref in named:
                return item
        raise NotFound(f"There is no checkpoint {ref!r}.", fix=f"`crucible checkpoints {job.id}` lists them.")

    async def logs(
        self, who: Identity, ref: str, *, attempt: int | None, offset: int, limit: int, since: float | None
    ) -> LogPage:
        job = self.known[await self.find(who, ref)]
        self.asked.append({"attempt": attempt, "offset": offset, "limit": limit, "since": since})
        count = len(job.outputs)
        if not count:
            return LogPage(0, 0, 0, 0, False, b"")
        number = attempt or count
        output = job.outputs[number - 1]
        data = output[offset : offset + limit]
        following = offset + len(data)
        complete = number <= job.ended and following >= len(output)
        return LogPage(number, count, offset, following, complete, data)

    async def search_logs(self, who: Identity, ref: str, **wish: Any) -> dict[str, Any]:
        await self.find(who, ref)
        self.asked.append(wish)
        if self.searching is not None:
            try:
                await self.searching.wait()
            except asyncio.CancelledError:
                self.asked.append({"cancelled": True})
                raise
        return {"items": [{"attempt": 1, "line": 3, "offset": 9, "text": "found"}], "next": None, "complete": True}

    async def metrics(self, who: Identity, ref: str, *, series: list[str], points: int) -> dict[str, Any]:
        job = self.known[await self.find(who, ref)]
        self.asked.append({"series": series, "points": points})
        known = {**job.series, **{name: _shown(found, points) for name, found in job.reported.items()}}
        wanted = {name: known[name] for name in known if not series or name in series}
        return {"attempt": job.reporter if known else None, "series": wanted}

    async def events(self, who: Identity, ref: str | None, *, after: int, limit: int) -> list[dict[str, Any]]:
        jobs = [self.known[await self.find(who, ref)]] if ref else self.known.values()
        cursor = "n" if ref else "cursor"
        items = [event for job in jobs for event in job.events if event[cursor] > after]
        return sorted(items, key=lambda event: event[cursor])[:limit]

    async def artifacts(self, who: Identity, ref: str) -> list[dict[str, Any]]:
        job = self.known[await self.find(who, ref)]
        return [{"path": path, "size": len(data)} for path, data in job.artifacts.items()]

    async def artifact(self, who: Identity, ref: str, path: str) -> StoredFile:
        job = self.known[await self.find(who, ref)]
        if path not in job.artifacts:
            raise NotFound(f"There is no artifact {path!r}.", fix="List them first.")
        return self.store.put(f"artifacts/{path}", job.artifacts[path])

    async def has(self, who: Identity, sha: str) -> bool:
        return sha in self.stored

    async def put(self, who: Identity, sha: str, chunks: AsyncIterator[bytes]) -> bool:
        data = b"".join([chunk async for chunk in chunks])
        if hashlib.sha256(data).hexdigest() != sha:
            raise HashMismatch("The bundle is not what was announced.", fix="Send it again.")
        new = sha not in self.stored
        self.stored[sha] = data
        return new

    @asynccontextmanager
    async def watch(self, job: str | None) -> AsyncIterator[FakeWatch]:
        watch = FakeWatch()
        self.watches.setdefault(job, []).append(watch)
        try:
            yield watch
        finally:
            self.watches[job].remove(watch)

    # what agents ask

    def check_attempt(self, attempt: str, bearer: str) -> None:
        self._check("attempt", attempt, bearer)

    def _check(self, purpose: str, name: str, bearer: str) -> None:
        if bearer != derive_secret(KEY, purpose, name).decode():
            raise NotAllowed(f"This is not the secret of the {purpose}.", fix="Claim the machine first.")

    async def enter(self, who: Identity, ref: str) -> FakeEntrance:
        job = await self.find(who, ref)
        return FakeEntrance(self.meetings, job)

    @contextmanager
    def met(self, attempt: str, session: str) -> Iterator[FakeMeeting]:
        if attempt != ATTEMPT or session not in self.meetings:
            raise NotFound("There is no such session.")
        yield self.meetings[session]
