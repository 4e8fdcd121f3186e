"""A server with the real one's routes and answers, all in memory, on a loopback port."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect
from tests.catalog.serving import catalog_app

from crucible.control.resources.catalog import Catalog
from crucible.core.job.job_filter import JobFilter

TOKEN = "t0ken"
JOB = "job-01hzzzzzzzzzzzzzzzzzabc123"
AGAIN = "job-01hzzzzzzzzzzzzzzzzzdef456"


def job_view(**changes: Any) -> dict[str, Any]:
    """A running job as the server shows it."""
    view: dict[str, Any] = {
        "id": JOB,
        "short": "job-abc123",
        "name": None,
        "kind": "train",
        "status": "running",
        "phase": "running",
        "desired": "run",
        "backend": "local",
        "machine": "mch-1",
        "tier": None,
        "resources": {},
        "reason": None,
        "waiting": None,
        "placement": "local (this computer, 2 CPUs, 24 GiB, free): nothing else was asked for",
        "progress": None,
        "cost": {
            "usd": "0.000000",
            "micros": 0,
            "rate_micros_per_hour": 0,
            "estimated_remaining_micros": 0,
        },
        "conditions": [],
        "exit_code": None,
        "signal": None,
        "attempt": 1,
        "attempts": [{"number": 1, "id": "att-1", "state": "running"}],
        "created_at": "2026-11-15T10:00:00.000Z",
        "started_at": "2026-11-15T10:00:01.000Z",
        "ended_at": None,
        "command": ["{python}", "train.py"],
        "tags": [],
        "simulated": False,
    }
    return {**view, **changes}


def planned_offer(backend: str = "local", **changes: Any) -> dict[str, Any]:
    """An offer of a plan; of this computer unless it is another's."""
    offer: dict[str, Any] = {
        "backend": backend,
        "region": "here",
        "instance_type": "this computer",
        "capacity": {"cpus": 2, "memory_bytes": 8 * 2**30},
        "market": "on_demand",
        "rate_micros_per_hour": 0,
        "availability": "available",
        "runnable": True,
        "why": None,
        "total_micros": 0,
        "eta_seconds": None,
        "most_micros": 0,
        "fit": "fits",
        "pros": ["free"],
        "cons": [],
    }
    return {**offer, **changes}


def plan_view(backend: str = "local", **changes: Any) -> dict[str, Any]:
    """A plan whose only offer is chosen."""
    chosen = planned_offer(backend)
    plan = {"profile": None, "chosen": chosen, "job": {"backend": backend}, "offers": [chosen], "offers_count": 1}
    return {**plan, **changes}


def completed(**changes: Any) -> dict[str, Any]:
    ended = {
        "status": "completed",
        "phase": "completed",
        "exit_code": 0,
        "ended_at": "2026-11-15T10:00:43.000Z",
    }
    return job_view(**{**ended, **changes})


def failed(code: int = 3, **changes: Any) -> dict[str, Any]:
    reason = {"code": "user_error", "message": "The code failed.", "advice": "Look at the last output."}
    return completed(**{"status": "failed", "phase": "failed", "exit_code": code, "reason": reason, **changes})


def checkpoint_view(data: bytes = b"weights", **changes: Any) -> dict[str, Any]:
    """A kept checkpoint as the server shows it."""
    view: dict[str, Any] = {
        "id": "ckp-01hzzzzzzzzzzzzzzzzzaaa111",
        "short": "ckp-aaa111",
        "name": "step_00000600.pt",
        "form": "file",
        "step": 600,
        "metric": 1.25,
        "size": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "attempt": 1,
        "stored_at": "2026-11-15T10:00:30.000Z",
        "kept": True,
        "why": "latest",
        "latest": True,
        "best": False,
    }
    return {**view, **changes}


@dataclass
class FakeServer:
    """What it holds, and how it misbehaves.

    `acts` are the connections to a job's stream, in order: each a list of frames (dicts) and at the end the
    close code; `None` as code breaks the connection off. Without acts left, the whole story is sent.
    """

    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    log: bytes = b""
    attempts: int = 1
    events: list[dict[str, Any]] = field(default_factory=list)
    artifacts: dict[str, bytes] = field(default_factory=dict)
    series: dict[str, Any] = field(default_factory=dict)
    prices: Catalog | None = None
    """Another catalog than the shipped one."""

    backends: list[dict[str, Any]] = field(default_factory=lambda: [{"name": "local", "connected": True}])
    plan: dict[str, Any] | None = None
    """What is answered to a question for one; unless given the place that it names, or this computer."""
    predictions: list[dict[str, Any]] = field(default_factory=list)
    plans_asked: list[dict[str, Any]] = field(default_factory=list)
    acts: list[tuple[list[dict[str, Any]], int | None]] = field(default_factory=list)
    ends_as: dict[str, Any] | None = None
    has_socket: bool = True
    busy_answers: int = 0
    cut_downloads_at: int | None = None
    nonce: str = "n0nce"
    version: str = "0.1.0"
    running: int = 0
    page: int = 500
    stubborn: bool = False
    """Whether a job goes on though it was asked to end."""

    more: bool = False
    """Whether a bulk cancel says that there are others."""

    notes: list[dict[str, Any]] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    machines: list[dict[str, Any]] = field(default_factory=list)
    orphans: list[dict[str, Any]] = field(default_factory=list)
    checkpoints: list[dict[str, Any]] = field(default_factory=list)
    contents: dict[str, bytes] = field(default_factory=dict)
    """What is in the checkpoints, by their id."""

    health: dict[str, Any] = field(
        default_factory=lambda: {"verdict": "healthy", "level": "good", "message": "It runs as it should."}
    )
    comparison: dict[str, Any] = field(default_factory=dict)
    prunable: list[dict[str, Any]] = field(default_factory=list)
    bodies: list[tuple[str, Any]] = field(default_factory=list)
    """Paths and bodies of the requests that change something."""

    bundles: dict[str, bytes] = field(default_factory=dict)
    specs: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    streams: list[dict[str, str]] = field(default_factory=list)
    stopped: bool = False
    on_stop: Callable[[], object] = lambda: None
    url: str = ""

    # Answers

    async def _bundle(self, request: Request) -> Response:
        sha = request.path_params["sha"]
        if request.method == "HEAD":
            return Response(status_code=200 if sha in self.bundles else 404)
        data = await request.body()
        if hashlib.sha256(data).hexdigest() != sha:
            return problem(422, "bad_input", "The hash differs.")
        created = sha not in self.bundles
        self.bundles[sha] = data
        return JSONResponse({}, 201 if created else 200)

    async def _submit(self, request: Request) -> Response:
        spec, key = await request.json(), request.headers["Idempotency-Key"]
        if key not in self.keys:
            self.specs.append(spec)
        self.keys.append(key)
        self.jobs.setdefault(JOB, job_view(name=spec["name"], status="queued", phase="queued", placement=None))
        return JSONResponse(self.jobs[JOB], 201)

    async def _orchestrate(self, request: Request) -> Response:
        self.specs.append(await self._heard(request))
        self.keys.append(request.headers["Idempotency-Key"])
        self.jobs.setdefault(JOB, job_view(name=self.specs[-1]["custom_name"], status="queued", phase="queued"))
        return JSONResponse(_task(self.jobs[JOB]), 201)

    async def _task_status(self, request: Request) -> Response:
        view = self._find(request.query_params["task_id"])
        return problem(404, "not_found", "There is no such job.") if view is None else JSONResponse(_task(view))

    async def _list(self, request: Request) -> Response:
        self.queries.append(str(request.url.query))
        found = self._fitting(JobFilter.model_validate(_filter_of(request.query_params.multi_items())))
        cursor, limit = request.query_params.get("cursor"), int(request.query_params["limit"])
        start = next((n for n, view in enumerate(found, 1) if view["id"] == cursor), 0)
        page = found[start : start + min(limit, self.page)]
        more = len(found) > start + len(page)
        return JSONResponse({"items": page, "next": page[-1]["id"] if more else None})

    def _fitting(self, wanted: JobFilter) -> list[dict[str, Any]]:
        def fits(view: dict[str, Any]) -> bool:
            keys = {part for tag in view["tags"] for part in (tag, tag.partition("=")[0])}
            return (
                (not wanted.status or view["status"] in wanted.status)
                and (not wanted.active or view["status"] in ("queued", "running"))
                and (not wanted.backend or view["backend"] in wanted.backend)
                and (wanted.name is None or wanted.name in (view["name"] or ""))
                and (wanted.named is None or wanted.named == view["name"])
                and set(wanted.tag) <= keys
            )

        return [view for view in self.jobs.values() if fits(view)]

    async def _cancel_many(self, request: Request) -> Response:
        wish = await self._heard(request)
        if "ids" in wish:
            meant = [self.jobs[ref] for ref in wish["ids"]]
        else:
            meant = [v for v in self._fitting(JobFilter.model_validate(wish["filter"])) if not v["ended_at"]]
        if not wish["dry_run"]:
            for view in meant:
                self._end(view)
        items = [{"job": self.jobs[view["id"]]} for view in meant]
        return JSONResponse({"items": items, "jobs": len(items), "more": self.more, "dry_run": wish["dry_run"]})

    async def _submit_many(self, request: Request) -> Response:
        wish = await self._heard(request)
        told = problem(422, "bad_input", "No.", fix="Another.").body
        items = [
            {"index": n, "status": 422, "problem": json.loads(told)}
            if item["spec"]["command"] == ["bad"]
            else {"index": n, "status": 201, "job": job_view(name=item["spec"]["name"])}
            for n, item in enumerate(wish["jobs"])
        ]
        refused = sum("problem" in item for item in items)
        return JSONResponse({"items": items, "created": len(items) - refused, "refused": refused})

    async def _rename(self, request: Request) -> Response:
        view = self._find(request.path_params["ref"]) or {}
        view["name"] = (await self._heard(request))["name"]
        return JSONResponse(view)

    async def _tags(self, request: Request) -> Response:
        view = self._find(request.path_params["ref"]) or {}
        if request.method == "POST":
            wish = await self._heard(request)
            view["tags"] = sorted((set(view["tags"]) - set(wish["remove"])) | set(wish["add"]))
        return JSONResponse({"items": view["tags"]})

    async def _notes(self, request: Request) -> Response:
        if request.method == "GET":
            return JSONResponse({"items": self.notes})
        if request.method == "DELETE":
            gone = next(note for note in self.notes if note["id"] == request.path_params["note"])
            self.notes.remove(gone)
            return JSONResponse(gone)
        text, n = (await self._heard(request))["text"], len(self.notes)
        note = {
            "id": f"nte-{n}",
            "short": f"nte-{n}",
            "author": "owner",
            "text": text,
            "at": "2026-11-15T10:00:00.000Z",
        }
        self.notes.append(note)
        return JSONResponse(note, 201)

    async def _search(self, request: Request) -> Response:
        given = request.query_params
        self.queries.append(str(request.url.query))
        flags = 0 if given["case"] == "true" else re.IGNORECASE
        try:
            pattern = re.compile(given["q"] if given["regex"] == "true" else re.escape(given["q"]), flags)
        except re.error:
            return problem(422, "bad_input", "That is no expression.", fix="Write another.")
        lines = self.log.decode().split("\n")
        found = [n for n, line in enumerate(lines) if pattern.search(line)]
        start, around = int(given.get("cursor", 0)), int(given["context"])
        items = [
            {
                "attempt": self.attempts,
                "line": n + 1,
                "offset": sum(len(line.encode()) + 1 for line in lines[:n]),
                "text": lines[n],
                "before": lines[max(n - around, 0) : n],
                "after": lines[n + 1 : n + 1 + around],
            }
            for n in found[start : start + self.page]
        ]
        more = len(found) > start + len(items)
        return JSONResponse({"items": items, "next": str(start + len(items)) if more else None, "complete": not more})

    async def _job(self, request: Request) -> Response:
        view = self._find(request.path_params["ref"])
        if view is None:
            return problem(404, "not_found", "There is no such job.", fix="`crucible jobs` lists them.")
        if self.ends_as is not None and not self.acts and not self.has_socket:
            self.jobs[view["id"]] = view = self.ends_as
        return JSONResponse({**view, "recent_logs": ["last line"], "metrics": {"loss": 0.5}})

    async def _cancel(self, request: Request) -> Response:
        view = self._find(request.path_params["ref"])
        if view is None:
            return problem(404, "not_found", "There is no such job.")
        return JSONResponse(self._end(view), 202)

    def _end(self, view: dict[str, Any]) -> dict[str, Any]:
        asked = {**view, "desired": "cancel"}
        ended = {"status": "cancelled", "phase": "cancelled", "ended_at": "2026-11-15T10:00:43.000Z"}
        self.jobs[view["id"]] = asked if self.stubborn or view["ended_at"] else {**asked, **ended}
        return asked

    async def _resume(self, request: Request) -> Response:
        view, wish = self._find(request.path_params["ref"]), await self._heard(request)
        if view is None:
            return problem(404, "not_found", "There is no such job.")
        if not view["ended_at"]:
            return problem(409, "conflict", "The job has not ended.", fix="Wait for it, or: crucible cancel job-abc123")
        named = wish.get("checkpoint")
        if named is not None and self._checkpoint_of(named) is None:
            return self._no_checkpoint(named)
        again = {"status": "queued", "phase": "queued", "ended_at": None, "exit_code": None, "reason": None}
        self.jobs[view["id"]] = {**view, **again, "generation": 2, "backend": wish.get("backend") or view["backend"]}
        return JSONResponse(self.jobs[view["id"]], 202)

    async def _rerun(self, request: Request) -> Response:
        if self._find(request.path_params["ref"]) is None:
            return problem(404, "not_found", "There is no such job.")
        self.keys.append(request.headers["Idempotency-Key"])
        view = job_view(id=AGAIN, short="job-def456", status="queued", phase="queued", placement=None)
        self.jobs.setdefault(AGAIN, view)
        return JSONResponse(self.jobs[AGAIN], 201)

    async def _ask_checkpoint(self, request: Request) -> Response:
        view = self._find(request.path_params["ref"]) or {}
        await self._heard(request)
        if view.get("status") != "running":
            return problem(409, "conflict", "Nothing runs that could save one.", fix="Start it first.")
        return JSONResponse(view, 202)

    async def _checkpoints(self, request: Request) -> Response:
        return JSONResponse({"items": self.checkpoints})

    async def _checkpoint(self, request: Request) -> Response:
        found = self._checkpoint_of(request.path_params["checkpoint"])
        return self._no_checkpoint(request.path_params["checkpoint"]) if found is None else JSONResponse(found)

    async def _content(self, request: Request) -> Response:
        return self._part(request, self.contents[request.path_params["checkpoint"]])

    def _checkpoint_of(self, ref: str) -> dict[str, Any] | None:
        def names(view: dict[str, Any]) -> tuple[str, ...]:
            return view["id"], view["short"], view["name"], *(mark for mark in ("latest", "best") if view[mark])

        return next((view for view in self.checkpoints if ref in names(view)), None)

    def _no_checkpoint(self, ref: str) -> Response:
        fix = "`crucible checkpoints job-abc123` lists them."
        return problem(404, "not_found", f"There is no checkpoint {ref!r}.", fix=fix)

    async def _terminate(self, request: Request) -> Response:
        ref = request.path_params["ref"]
        await self._heard(request)
        known = next((view for view in self.machines if view["id"] == ref), None)
        if known is None and all(view["native_id"] != ref for view in self.orphans):
            return problem(404, "not_found", f"There is no machine {ref!r}.", fix="`crucible machines` lists them.")
        return JSONResponse({**(known or {"native_id": ref}), "state": "releasing"}, 202)

    async def _orphans(self, request: Request) -> Response:
        return JSONResponse({"items": self.orphans})

    async def _prune(self, request: Request) -> Response:
        wish, items = await self._heard(request), self.prunable
        if not wish["dry_run"]:
            self.prunable = []
        size = sum(item["bytes"] for item in items)
        return JSONResponse({"checkpoints": len(items), "bytes": size, "dry_run": wish["dry_run"], "items": items})

    async def _backup(self, request: Request) -> Response:
        path = (await self._heard(request))["path"]
        return JSONResponse({"path": path, "bytes": 4096, "sha256": "ab" * 32})

    async def _confirm(self, request: Request) -> Response:
        await self._heard(request)
        return JSONResponse({"confirmed": True, "restored_at": "2026-01-01T00:00:00Z", "effects": 0})

    async def _heard(self, request: Request) -> Any:
        """The body, kept with its path."""
        text = await request.body()
        body = json.loads(text) if text else None
        self.bodies.append((request.url.path, body))
        return body

    async def _logs(self, request: Request) -> Response:
        offset = int(request.query_params.get("offset", 0))
        offset = offset if offset >= 0 else max(0, len(self.log) + offset)
        data = self.log[offset : offset + int(request.query_params["limit"])]
        view = self._find(request.path_params["ref"]) or {}
        headers = {
            "X-Crucible-Attempt": str(self.attempts),
            "X-Crucible-Attempts": str(self.attempts),
            "X-Crucible-Offset": str(offset),
            "X-Crucible-Next": str(offset + len(data)),
            "X-Crucible-Complete": "true" if view.get("ended_at") else "false",
        }
        return Response(data, headers=headers, media_type="text/plain")

    async def _events(self, request: Request) -> Response:
        after = int(request.query_params.get("after", 0))
        return JSONResponse({"items": [event for event in self.events if event["n"] > after]})

    async def _metrics(self, request: Request) -> Response:
        return JSONResponse({"series": self.series})

    async def _judged(self, request: Request) -> Response:
        view = self._find(request.path_params["ref"])
        if view is None:
            return problem(404, "not_found", "There is no such job.")
        return JSONResponse(self.health)

    async def _compare(self, request: Request) -> Response:
        refs = request.query_params.getlist("job")
        if len(refs) < 2:
            return problem(422, "bad_input", f"{len(refs)} job cannot be compared.", fix="Name each of them.")
        return JSONResponse({**self.comparison, "jobs": [{**self.jobs[ref], "verdict": "healthy"} for ref in refs]})

    async def _artifacts(self, request: Request) -> Response:
        items = [
            {"path": path, "size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "attempt": 1}
            for path, data in self.artifacts.items()
        ]
        return JSONResponse({"items": items})

    async def _artifact(self, request: Request) -> Response:
        return self._part(request, self.artifacts[request.path_params["path"]])

    def _part(self, request: Request, data: bytes) -> Response:
        start = int(request.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        part = data[start:]
        if self.cut_downloads_at is not None:
            cut, self.cut_downloads_at = self.cut_downloads_at, None
            return Response(_CutOff(part[:cut]), 206 if start else 200, {"Content-Length": str(len(part))})
        return Response(part, 206 if start else 200)

    async def _server(self, request: Request) -> Response:
        about = {"version": self.version, "deployment": "dep-1", "pid": 1, "url": self.url, "home": "/h"}
        return JSONResponse({**about, "running": self.running, "queued": 0, "billing": 0})

    async def _stop(self, request: Request) -> Response:
        self.stopped = True
        self.on_stop()
        return JSONResponse({"stopping": True}, 202)

    async def _health(self, request: Request) -> Response:
        return JSONResponse({"ok": True, "ready": True, "nonce": self.nonce, "version": self.version})

    async def _plan(self, request: Request) -> Response:
        asked = await request.json()
        self.plans_asked.append(asked)
        return JSONResponse(self.plan if self.plan is not None else plan_view(asked.get("backend") or "local"))

    async def _predictions(self, request: Request) -> Response:
        """A page; the cursor is where it begins."""
        size, start = int(request.query_params["limit"]), int(request.query_params.get("cursor") or 0)
        counted = [one["error"] for one in self.predictions if one.get("error") is not None]
        accuracy = {"count": len(counted), "median_error": 0.25, "close": 0.5} if counted else {"count": 0}
        after = start + size
        more = str(after) if after < len(self.predictions) else None
        return JSONResponse({"items": self.predictions[start:after], "next": more, "accuracy": accuracy})

    async def _places(self, request: Request) -> Response:
        if request.url.path.endswith("backends"):
            others = [{"name": "aws", "why": "Not connected, and no command connects aws yet: prices are compared."}]
            return JSONResponse({"items": self.backends, "others": others})
        every = request.query_params.get("all") == "true"
        return JSONResponse({"items": [view for view in self.machines if every or view["state"] != "gone"]})

    async def _stream(self, socket: WebSocket) -> None:
        if socket.headers.get("Authorization") != f"Bearer {TOKEN}" or not self.has_socket:
            await socket.send_denial_response(problem(404, "not_found", "There is no socket here."))
            return
        self.streams.append(dict(socket.query_params))
        await socket.accept()
        frames, code = self.acts.pop(0) if self.acts else (self._story(socket), 1000)
        with contextlib.suppress(WebSocketDisconnect):
            for frame in frames:
                await socket.send_json(frame)
            if code is None:
                await asyncio.sleep(0.01)
                raise ConnectionResetError
            if code == 0:  # stay silent until the reader goes
                await socket.receive()
            else:
                await socket.close(code)

    def _story(self, socket: WebSocket) -> list[dict[str, Any]]:
        offset = int(socket.query_params.get("offset", 0))
        text = self.log[offset:].decode()
        log = [{"stream": "log", "attempt": self.attempts, "cursor": len(self.log), "text": text}] if text else []
        events = [{"stream": "event", "cursor": e["n"], "event": e} for e in self.events]
        end = self.ends_as or completed()
        self.jobs[end["id"]] = end
        return [*events, {"stream": "job", "job": job_view()}, *log, {"stream": "job", "job": end}]

    def _find(self, ref: str) -> dict[str, Any] | None:
        known = self.jobs.values()
        return next((v for v in known if ref in ("last", v["id"], v["short"]) or v["id"].endswith(ref)), None)

    # Running it

    def app(self) -> Any:
        jobs, catalog = "/api/v1/jobs", catalog_app(self.prices)
        starlette = Starlette(
            routes=[
                Route("/healthz", self._health),
                Route("/readyz", self._health),
                Route("/orchestrate", self._orchestrate, methods=["POST"]),
                Route("/status", self._task_status),
                Route("/api/v1/bundles/{sha}", self._bundle, methods=["HEAD", "PUT"]),
                Route(jobs, self._submit, methods=["POST"]),
                Route(jobs, self._list),
                Route(f"{jobs}/bulk", self._submit_many, methods=["POST"]),
                Route(f"{jobs}/cancel", self._cancel_many, methods=["POST"]),
                Route(f"{jobs}/{{ref}}", self._rename, methods=["PATCH"]),
                Route(f"{jobs}/{{ref}}/tags", self._tags, methods=["GET", "POST"]),
                Route(f"{jobs}/{{ref}}/notes", self._notes, methods=["GET", "POST"]),
                Route(f"{jobs}/{{ref}}/notes/{{note}}", self._notes, methods=["DELETE"]),
                Route(f"{jobs}/{{ref}}/logs/search", self._search),
                Route(f"{jobs}/{{ref}}", self._job),
                Route(f"{jobs}/{{ref}}/cancel", self._cancel, methods=["POST"]),
                Route(f"{jobs}/{{ref}}/logs", self._logs),
                Route(f"{jobs}/{{ref}}/events", self._events),
                Route(f"{jobs}/{{ref}}/metrics", self._metrics),
                Route(f"{jobs}/{{ref}}/health", self._judged),
                Route("/api/v1/compare", self._compare),
                Route(f"{jobs}/{{ref}}/artifacts", self._artifacts),
                Route(f"{jobs}/{{ref}}/artifacts/{{path:path}}", self._artifact),
                Route(f"{jobs}/{{ref}}/resume", self._resume, methods=["POST"]),
                Route(f"{jobs}/{{ref}}/rerun", self._rerun, methods=["POST"]),
                Route(f"{jobs}/{{ref}}/checkpoint", self._ask_checkpoint, methods=["POST"]),
                Route(f"{jobs}/{{ref}}/checkpoints", self._checkpoints),
                Route(f"{jobs}/{{ref}}/checkpoints/{{checkpoint}}", self._checkpoint),
                Route(f"{jobs}/{{ref}}/checkpoints/{{checkpoint}}/content", self._content),
                Route("/api/v1/backends", self._places),
                Route("/api/v1/plan", self._plan, methods=["POST"]),
                Route("/api/v1/predictions", self._predictions),
                Route("/api/v1/catalog", catalog),
                Route("/api/v1/catalog/{rest:path}", catalog),
                Route("/api/v1/machines", self._places),
                Route("/api/v1/machines/orphans", self._orphans),
                Route("/api/v1/machines/{ref}/terminate", self._terminate, methods=["POST"]),
                Route("/api/v1/prune", self._prune, methods=["POST"]),
                Route("/api/v1/db/backup", self._backup, methods=["POST"]),
                Route("/api/v1/db/confirm", self._confirm, methods=["POST"]),
                Route("/api/v1/server", self._server),
                Route("/api/v1/server/stop", self._stop, methods=["POST"]),
                WebSocketRoute(f"{jobs}/{{ref}}/stream", self._stream),
            ]
        )
        return _Guard(self, starlette)


def _task(view: dict[str, Any]) -> dict[str, Any]:
    """A job as the tenants' routes tell it."""
    told, reason = view["progress"] or {}, view["reason"] or {}
    progress = {
        "epoch": told.get("epoch") or 0,
        "total_epochs": told.get("total_epochs"),
        "progress_percent": 100 if view["status"] == "completed" else (told.get("fraction") or 0) * 100,
        "message": reason.get("message") or told.get("message") or view["phase"].capitalize(),
    }
    return {"task_id": view["id"], "status": view["status"], "created_at": view["created_at"], "progress": progress}


def _filter_of(given: list[tuple[str, str]]) -> dict[str, Any]:
    several = ("status", "backend", "kind", "project", "tag")
    found: dict[str, Any] = {name: value for name, value in given if name not in (*several, "limit", "cursor")}
    return {**found, **{name: [v for n, v in given if n == name] for name in several if dict(given).get(name)}}


class _CutOff(bytes):
    """A body that is shorter than its Content-Length says."""


class _Guard:
    """Token, record of requests, and the moments in which the server is too busy."""

    def __init__(self, fake: FakeServer, app: Any) -> None:
        self._fake, self._app = fake, app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        fake, request = self._fake, Request(scope)
        fake.requests.append((request.method, request.url.path))
        if fake.busy_answers:
            fake.busy_answers -= 1
            await problem(503, "unreachable", "Too busy.")(scope, receive, send)
        elif request.url.path.startswith("/api") and request.headers.get("Authorization") != f"Bearer {TOKEN}":
            await problem(401, "not_allowed", "The token is wrong.")(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def problem(status: int, code: str, detail: str, **more: Any) -> JSONResponse:
    body = {"type": "about:blank", "title": "x", "status": status, "detail": detail, "code": code, **more}
    return JSONResponse(body, status, media_type="application/problem+json")


@contextlib.contextmanager
def serving(fake: FakeServer, port: int = 0) -> Iterator[FakeServer]:
    """Serve on a loopback port until the block ends."""
    config = uvicorn.Config(fake.app(), "127.0.0.1", port, log_level="critical", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 20
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.005)
    fake.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    try:
        yield fake
    finally:
        server.should_exit = True
        server.force_exit = True
        thread.join(20)
