"""A control plane in memory, with the behaviour the server relies on."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from crucible.core.errors import Conflict, CrucibleError, NotAllowed, NotFound
from crucible.core.jobfilter import JobFilter
from crucible.core.models import Order
from crucible.core.people import Identity
from crucible.core.planrequest import PlanRequest
from crucible.core.spec import JobSpec
from crucible.core.views.jobs import JobPage, JobView
from crucible.wire.desired import Desired
from crucible.wire.messages import Batch, decode_batch, derive_secret

KEY = b"k" * 32
ATTEMPT = "att-00000000000000000000000001"
MACHINE = "mch-00000000000000000000000001"
OLD_MACHINE = "mch-00000000000000000000000002"


class Gap(Conflict):
    code = "gap"


class Gone(CrucibleError):
    code = "gone"
    http_status = 410


@dataclass(frozen=True)
class Submitted:
    view: JobView
    created: bool


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


class FakePeople:
    """Nobody but the owner; what is asked of real people is tested over real ones."""

    def __init__(self) -> None:
        self.tokens: dict[str, Identity] = {}

    async def identify(self, token: str) -> Identity | None:
        return self.tokens.get(token)

    async def me(self, who: Identity) -> dict[str, Any]:
        return {"user": who.name}


class FakeVault:
    """Empty; what is asked of secrets and hooks is tested over real ones."""

    async def listed(self, who: Identity, project: str) -> list[dict[str, Any]]:
        return []


class FakeControl:
    def __init__(self) -> None:
        self.store = FakeStore()
        self.keys: dict[str, JobView] = {}
        self.submitted: list[tuple[JobSpec, str | None]] = []
        self.asked: list[dict[str, Any]] = []
        self.stored: dict[str, bytes] = {}
        self.acked = 0
        self.batches: list[Batch] = []
        self.wanted: Desired | None = None
        self.wanted_of_attempt: dict[str, Any] | None = None
        self.released: asyncio.Event = asyncio.Event()
        self.uploads: dict[str, bytes] = {}
        self.is_ready = True
        self.started = self.stopped = False
        self.breaks: Exception | None = None
        self.machine_states: dict[str, str] = {MACHINE: "up", OLD_MACHINE: "gone"}
        self.strangers: list[dict[str, Any]] = []
        self.pruned: list[tuple[float | None, bool]] = []
        self.backups: list[str] = []
        self.confirmed = 0
        self.people = FakePeople()
        self.hooks = FakeVault()

    @property
    def agents(self) -> FakeControl:
        return self

    @property
    def jobs(self) -> FakeControl:
        """Every resource of the control plane is this one object."""
        return self

    plans = backends = catalog = machines = models = maintenance = jobs

    # what the public API asks

    async def submit(self, who: Identity, spec: JobSpec, key: str | None) -> Submitted:
        self.submitted.append((spec, key))
        if key and key in self.keys:
            return Submitted(self.keys[key], False)
        job = JobView(id=f"job-{len(self.submitted):026d}", status="queued", phase="queued")
        if key:
            self.keys[key] = job
        return Submitted(job, True)

    async def list_models(self, who: Identity) -> list[dict[str, Any]]:
        return [{"name": "counter", "error": None}]

    async def model(self, who: Identity, name: str) -> dict[str, Any]:
        if name != "counter":
            raise NotFound(f"There is no model {name!r}.", fix="Did you mean 'counter'?")
        return {"name": name, "error": None}

    async def job_spec(self, who: Identity, order: Order, job: Mapping[str, object]) -> JobSpec:
        await self.model(who, order.model)
        return JobSpec.model_validate({**job, "command": order.command, "kind": order.kind})

    async def gauges(self, who: Identity) -> dict[str, Any]:
        if self.breaks:
            raise self.breaks
        return {
            "jobs": {"queued": 3, "running": 2},
            "queue": 1,
            "machines": [{"backend": "local", "state": "up", "count": 1}],
            "agents": 1,
            "submitted": 9,
            "placed": 6,
            "retried": 0,
            "ended": {"completed": 4, "failed": 0, "cancelled": 0},
            "launches": [{"backend": "local", "outcome": "made", "count": 1}],
            "hooks_waiting": 2,
            "webhooks": {"delivered": 5, "failed": 1, "times": {"bounds": [0.1, 1.0], "counts": [4, 5, 6], "sum": 2.5}},
            "writes": {"bounds": [0.1, 1.0], "counts": [5, 6, 7], "sum": 3.5},
        }

    async def list_jobs(self, who: Identity, wanted: JobFilter, *, limit: int, cursor: str | None) -> JobPage:
        return JobPage()

    async def plan(self, who: Identity, ask: PlanRequest) -> dict[str, Any]:
        return {"chosen": None, "offers": [], "rejected": []}

    async def predictions(self, who: Identity, *, limit: int, cursor: str | None) -> dict[str, Any]:
        return {"items": [], "next": None, "accuracy": {"count": 0, "median_error": None, "close": None}}

    async def list_backends(self) -> dict[str, Any]:
        others = [{"name": "aws", "why": "Not connected, and no command connects aws yet."}]
        return {"items": [{"name": "local", "connected": True}], "others": others}

    async def list_machines(self, who: Identity, *, all: bool = False) -> dict[str, Any]:
        known = [{"id": name, "state": state} for name, state in self.machine_states.items()]
        return {"items": [view for view in known if all or view["state"] != "gone"]}

    async def list_orphans(self, who: Identity) -> dict[str, Any]:
        return {"items": self.strangers}

    async def terminate(self, who: Identity, ref: str) -> dict[str, Any]:
        if ref not in self.machine_states:
            raise NotFound(f"There is no machine {ref!r}.", fix="`crucible machines` lists them.")
        self.machine_states[ref] = "gone" if self.machine_states[ref] == "gone" else "releasing"
        return {"id": ref, "state": self.machine_states[ref]}

    async def prune(self, who: Identity, *, older_than: float | None, dry_run: bool) -> dict[str, Any]:
        self.pruned.append((older_than, dry_run))
        return {"jobs": 1, "bytes": 7, "dry_run": dry_run, "items": []}

    async def backup(self, who: Identity, target: str) -> dict[str, Any]:
        if target in self.backups:
            raise Conflict(f"{target} is already there.", fix="Choose another name.")
        self.backups.append(target)
        return {"path": target, "bytes": 7, "sha256": "0" * 64}

    async def confirm_restore(self, who: Identity) -> dict[str, Any]:
        self.confirmed += 1
        return {"confirmed": True}

    async def status(self, who: Identity) -> dict[str, Any]:
        return {
            "deployment": "dep-1",
            "running": 1,
            "queued": 0,
            "billing": 0,
        }

    def ready(self) -> bool:
        return self.is_ready

    async def start(self) -> None:
        self.started = True

    async def stop(self) -> None:
        self.stopped = True

    # what agents ask

    def check_machine(self, machine: str, bearer: str) -> None:
        self._check("machine", machine, bearer)

    def check_attempt(self, attempt: str, bearer: str) -> None:
        self._check("attempt", attempt, bearer)

    def _check(self, purpose: str, name: str, bearer: str) -> None:
        if bearer != derive_secret(KEY, purpose, name).decode():
            raise NotAllowed(f"This is not the secret of the {purpose}.", fix="Claim the machine first.")

    async def claim(self, machine: str, nonce: str, native_id: str) -> str:
        if nonce != "right":
            raise NotAllowed("The nonce is wrong.")
        if native_id == "second":
            raise Conflict("Another host has claimed this machine.")
        if native_id == "late":
            raise Gone("The machine is not wanted any more.")
        return derive_secret(KEY, "machine", machine).decode()

    async def desired(
        self, machine: str, version: int, wait: float, devices: Mapping[str, object] | None = None
    ) -> Desired | None:
        self.asked.append({"machine": machine, "version": version, "wait": wait, "devices": devices})
        if self.wanted is None and wait:
            await self.released.wait()
        return self.wanted if self.wanted and self.wanted.version != version else None

    async def attempt_desired(
        self,
        attempt: str,
        rank: int,
        stop: bool,
        checkpoint: int,
        wait: float,
        sessions: Collection[str] | None = None,
    ) -> dict[str, Any] | None:
        asked = {"rank": rank, "stop": stop, "checkpoint": checkpoint, "wait": wait, "sessions": sessions}
        self.asked.append(asked)
        return self.wanted_of_attempt

    async def ingest(self, attempt: str, rank: int, raw: bytes) -> int:
        batch = decode_batch(raw, derive_secret(KEY, "attempt", attempt))
        if batch.messages[0].n > self.acked + 1:
            raise Gap("Messages are missing.", acked=self.acked)
        if attempt != ATTEMPT:
            raise Gone("There is no such attempt.")
        self.batches.append(batch)
        self.acked = batch.messages[-1].n
        return self.acked

    async def put_log(self, attempt: str, rank: int, n: int, start: int, lines: int, sha256: str, data: bytes) -> None:
        self.uploads[f"log/{rank}/{n}@{start}+{lines}"] = data

    def put_tail(self, attempt: str, rank: int, start: int, data: bytes) -> None:
        self.uploads[f"tail@{start}"] = data

    async def put_artifact(self, attempt: str, rank: int, path: str, sha256: str, chunks: AsyncIterator[bytes]) -> None:
        self.uploads[f"artifact/{path}"] = b"".join([chunk async for chunk in chunks])

    async def put_checkpoint(self, attempt: str, rank: int, sha256: str, chunks: AsyncIterator[bytes]) -> None:
        self.uploads[f"checkpoint/{rank}/{sha256}"] = b"".join([chunk async for chunk in chunks])

    async def open_checkpoint(self, attempt: str, rank: int, sha256: str) -> StoredFile:
        if f"checkpoint/{rank}/{sha256}" not in self.uploads:
            raise NotFound("This job has no such checkpoint.")
        return self.store.put(f"checkpoints/{sha256}", self.uploads[f"checkpoint/{rank}/{sha256}"])

    async def secrets(self, attempt: str) -> dict[str, str]:
        return {}

    async def open_bundle(self, sha: str) -> StoredFile:
        if sha not in self.stored:
            raise NotFound("There is no such bundle.")
        return self.store.put(f"bundles/{sha}", self.stored[sha])
