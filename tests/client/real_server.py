"""The real API over a real control plane in memory and in virtual time, on a loopback port."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from starlette.types import Message, Receive, Scope, Send
from tests.client.faults import Faults
from tests.control.fakes import FakeBackend
from tests.control.harness import ControlHarness, FakeRunner, job_spec, pieces, sha
from tests.server.app import App, running_app
from tests.server.loopback import Loopback, background_loop, transport_of

from crucible import __version__
from crucible.backends.base import Seen
from crucible.control.db import schema as t
from crucible.control.planning.forecast import IDLE_SECONDS
from crucible.core.ids import short
from crucible.core.job.states import DesiredState, MachineState
from crucible.core.people.identity import OWNER
from crucible.core.views.jobs import JobView
from crucible.server.security.size_limits import MAX_BUNDLE
from crucible.server.streams.follow import StreamTiming
from crucible.wire.documents.messages import Cause, MessageKind
from crucible.wire.files.archive import Entry, pack

P = ParamSpec("P")
T = TypeVar("T")
Play = Callable[["RunningJob"], Awaitable[None]]

TIMING = StreamTiming(send=5.0, close=1.0, look=5.0, points=0.0, settle=0.05, look_at_end=0.01)
SECONDS = 20.0
_JOB = re.compile(r"/api/v1/jobs/(job-[0-9a-z]{26})(/|$)")


class RunningJob:
    """Acts as a job's machine and process. Once a method returns, clients that follow the job got what it did."""

    def __init__(self, server: RealServer, job: str) -> None:
        self._server = server
        self.id = job
        self.short = short(job)
        self._attempt = self._written = self._segments = 0
        self._steps: dict[str, int] = {}

    @property
    def harness(self) -> ControlHarness:
        return self._server.harness

    async def start(self, pid: int = 77) -> None:
        """Start its process, on a machine that comes up if needed."""
        harness = self.harness
        await harness.place()
        attempt = await harness.attempt(self.id)
        machine = attempt.slots[0].machine
        while await harness.performer.perform_due():
            pass
        if (await harness.machine(machine)).state is not MachineState.UP:
            await harness.host_speaks(machine, f"i-{machine}")
        self._runner = FakeRunner(self._server.app.control.agents, attempt.id)
        self._attempt, self._written, self._segments = attempt.number, 0, 0
        await self.say(MessageKind.STARTED, pid=pid)
        self._server.running.append(self)
        await self._seen("job", self._is_running)

    def _is_running(self, frame: dict[str, Any]) -> bool:
        return (frame["job"]["phase"], frame["job"]["attempt"]) == ("running", self._attempt)

    async def say(self, kind: MessageKind, /, **data: object) -> None:
        await self._runner.say(kind, **data)

    async def write(self, text: bytes) -> None:
        """Store a piece of its output."""
        await self._runner.log(self._segments, self._written, text)
        self._segments += 1
        self._written += len(text)
        await self.heard()

    async def heard(self) -> None:
        """Wait until its followers got all of its output."""
        written = (self._attempt, self._written)
        await self._seen("log", lambda frame: (frame["attempt"], frame["cursor"]) >= written)

    async def progress(self, **told: object) -> None:
        await self.say(MessageKind.PROGRESS, **told)
        await self._seen("progress", lambda frame: all(frame["progress"].get(k) == v for k, v in told.items()))

    async def points(self, **series: list[float]) -> None:
        """Append values to each series, one per step."""
        at = self.harness.clock.now()
        told = {}
        for name, values in series.items():
            first = self._steps.get(name, 0) + 1
            self._steps[name] = first + len(values) - 1
            told[name] = [[n, value, at] for n, value in enumerate(values, first)]
        await self.say(MessageKind.POINTS, series=told)

    async def artifact(self, path: str, data: bytes) -> None:
        agents = self._server.app.control.agents
        await agents.put_artifact(self._runner.attempt, 0, path, sha(data), pieces(data))
        await self.say(MessageKind.ARTIFACT, path=path, size=len(data), sha256=sha(data))

    async def checkpoint(self, name: str, data: bytes, step: int, **more: object) -> None:
        agents = self._server.app.control.agents
        await agents.put_checkpoint(self._runner.attempt, 0, sha(data), pieces(data))
        told = {"name": name, "form": "file", "size": len(data), "sha256": sha(data), "step": step, "metric": None}
        await self.say(MessageKind.CHECKPOINT, **{**told, **more})

    async def result(self, kind: str, value: object) -> None:
        await self.say(MessageKind.RESULT, kind=kind, value=value)

    async def end(self, code: int | None = 0, seconds: float = 42.0, **data: object) -> None:
        """Let its process exit after `seconds`."""
        self.harness.clock.move(seconds)
        cause = {"cause": Cause.EXIT.value, **data}
        await self._runner.send([self._runner.message(MessageKind.EXITED, code=code, **cause)])
        await self.say(MessageKind.ENDED, complete=True)
        if self in self._server.running:
            self._server.running.remove(self)

    async def judged(self, verdict: str) -> None:
        """Wait until its followers got this health verdict."""
        await self._seen("health", lambda frame: frame["health"]["verdict"] == verdict)

    async def lose_machine(self) -> None:
        """Let the provider take the machine back."""
        attempt = await self.harness.attempt(self.id)
        machine, backend = attempt.slots[0].machine, self.harness.backends[attempt.backend]
        backend.show(machine, Seen.INTERRUPTED)
        for _ in range(2):
            await self.harness.poller.poll()
            self.harness.clock.move(6)
        await self.harness.listen(10)

    async def says(self, text: str) -> None:
        """Wait until its followers got a frame with this text."""
        await self._seen("job", lambda frame: text in json.dumps(frame))

    async def cancel(self) -> None:
        await self._server.app.control.jobs.cancel(OWNER, self.id)

    async def obey(self) -> None:
        """End if the server wants that."""
        if (await self.harness.world(self.id)).job.desired is DesiredState.CANCEL:
            await self.end(None, 1.0, cause=Cause.STOPPED.value, signal=15)

    async def view(self) -> JobView:
        return await self._server.app.control.jobs.details(OWNER, self.id)

    async def _seen(self, stream: str, is_it: Callable[[dict[str, Any]], bool]) -> None:
        await self._server.until(lambda: self._server.shows(self.id, stream, is_it))


class RealServer:
    """The app of one test. Calls from the test's thread run in the server's loop.

    `obeys`: whether running jobs end when they are cancelled. `page`: how many items one answer lists at most, whatever
    was asked for.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, app: App) -> None:
        self._loop = loop
        self.app = app
        self.harness = app.harness
        self.url = ""
        self.faults = Faults()
        self.obeys = True
        self.on_stop: Callable[[], object] = lambda: None
        self.page: int | None = None
        self.running: list[RunningJob] = []
        self.requests: list[tuple[str, str]] = []
        self.queries: list[str] = []
        self.sent: list[tuple[str, Any]] = []
        """Paths and bodies of changing requests with a JSON body or none."""
        self.bundles: list[str] = []
        """Hashes of the uploaded bundles."""
        self.keys: list[str] = []
        """Idempotency keys of these requests."""
        self.streams: list[str] = []
        """Queries of the sockets that were opened."""
        self._play: Play | None = None
        self._plays: dict[str, Play] = {}
        self._own: set[str] = set()
        self._played: dict[str, asyncio.Task[None]] = {}
        self._sockets: set[asyncio.BaseTransport] = set()
        self._open: dict[str, list[list[dict[str, Any]]]] = {}
        self._news = asyncio.Condition()

    # From a test's thread

    def run(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a coroutine function in the server's loop and return its result."""

        async def call() -> T:
            return await function(*args, **kwargs)

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(SECONDS)

    def play(self, play: Play | None = None, **scene: Any) -> None:
        """Say how jobs run from now on that a client submits: from the moment that it follows one or asks about it.

        `scene` are the arguments of `perform`.
        """

        async def perform(job: RunningJob) -> None:
            await self.perform(job, **scene)

        self._play = play or perform

    def play_now(self, job: RunningJob, play: Play) -> None:
        """Do the same for an existing job, once a socket follows it."""
        self._plays[job.id] = lambda _: play(job)

    def submit(self, **spec: Any) -> RunningJob:
        """Submit a job that waits for its machine; `spec` as for `job_spec`."""
        return self.run(self._submit, **spec)

    def submit_program(self, code: str, **spec: Any) -> RunningJob:
        """Submit a waiting job that runs this program, and plan it."""
        return self.run(self._submit_program, code, spec)

    def start(self, **spec: Any) -> RunningJob:
        """Submit a job and start it."""
        job = self.submit(**spec)
        self.run(job.start)
        return job

    def complete(self, code: int = 0, *, spec: Mapping[str, Any] | None = None, **scene: Any) -> RunningJob:
        """Submit a job and run it to its end; `scene` are the arguments of `perform`."""
        job = self.submit(**(spec or {}))
        self.run(self.perform, job, code=code, **scene)
        return job

    def view(self, job: RunningJob) -> JobView:
        return self.run(job.view)

    @property
    def specs(self) -> list[Any]:
        """Return the bodies of single submissions."""
        return [body for path, body in self.sent if path == "/api/v1/jobs"]

    @property
    def last(self) -> RunningJob:
        """Return the newest job."""
        return RunningJob(self, self.run(self.harness.rows, t.jobs)[-1]["id"])

    # In the server's loop

    async def _submit(self, **spec: Any) -> RunningJob:
        given = {"command": ("{python}", "train.py"), **spec}
        submitted = await self.app.control.jobs.submit(OWNER, job_spec(**given), None)
        self._own.add(submitted.view.id)
        return RunningJob(self, submitted.view.id)

    async def _submit_program(self, code: str, spec: Mapping[str, Any]) -> RunningJob:
        packed = io.BytesIO()
        pack([Entry.of_bytes("main.py", code.encode())], packed)
        bundle = sha(packed.getvalue())
        await self.app.control.bundles.put(OWNER, bundle, pieces(packed.getvalue()))
        job = await self._submit(**{"command": ("{python}", "main.py"), "bundle": bundle, **spec})
        await self.plan_jobs()
        return job

    async def perform(
        self,
        job: RunningJob,
        *,
        output: bytes = b"",
        artifacts: Mapping[str, bytes] | None = None,
        progress: Mapping[str, Any] | None = None,
        series: Mapping[str, list[float]] | None = None,
        result: tuple[str, object] | None = None,
        code: int | None = 0,
        **end: Any,
    ) -> None:
        """Run a job from its start to its end."""
        await job.start()
        if progress:
            await job.progress(**progress)
        if output:
            await job.write(output)
        if series:
            await job.points(**series)
        for path, data in (artifacts or {}).items():
            await job.artifact(path, data)
        if result is not None:
            await job.result(*result)
        await job.end(code, **end)

    async def plan_jobs(self) -> None:
        """Plan the jobs that have no plan."""
        self.harness.clock.move(2)
        while await self.harness.services.forecasts.round() < IDLE_SECONDS:
            pass

    async def perform_effects(self) -> None:
        """Terminate the machines that are not wanted."""
        await self.harness.listen(60)
        while await self.harness.performer.perform_due():
            self.harness.clock.move(10)
            await self.harness.poller.poll()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(SECONDS), self._news:
            await self._news.wait_for(holds)

    def shows(self, job: str, stream: str, is_it: Callable[[dict[str, Any]], bool]) -> bool:
        """Return whether every follower of the job got such a frame."""
        return all(any(f["stream"] == stream and is_it(f) for f in frames) for frames in self._open.get(job, ()))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        found = _JOB.match(path)
        if scope["type"] == "websocket":
            self.streams.append(scope["query_string"].decode())
            await self._serve_socket(found[1] if found else "", scope, receive, send)
            return
        self.requests.append((scope["method"], path))
        self.queries.append(scope["query_string"].decode())
        scope = self._paged(scope)
        if scope["method"] == "PUT":
            self.bundles.append(path.rpartition("/")[2])
        if scope["method"] == "POST" and dict(scope["headers"]).get(b"content-length", b"0") == b"0":
            self.sent.append((path, None))
        await self.faults.pass_on(self.app.api, scope, self._noting(scope, receive), send, transport_of(send))
        if found and scope["method"] == "GET":
            self._begin(found[1])
        if path == "/api/v1/server/stop":
            self.on_stop()
        if path.endswith("/cancel") and self.obeys:
            for job in tuple(self.running):
                await job.obey()

    def _paged(self, scope: Scope) -> Scope:
        if self.page is None:
            return scope
        smaller = re.sub(rb"\blimit=\d+", b"limit=%d" % self.page, scope["query_string"])
        return {**scope, "query_string": smaller}

    def _noting(self, scope: Scope, receive: Receive) -> Receive:
        """Keep the bodies of changing requests."""
        headers = dict(scope["headers"])
        if scope["method"] not in ("POST", "PATCH", "DELETE"):
            return receive
        if key := headers.get(b"idempotency-key"):
            self.keys.append(key.decode())
        body = b""

        async def read() -> Message:
            nonlocal body
            message = await receive()
            body += message.get("body", b"")
            if message["type"] == "http.request" and not message.get("more_body"):
                with contextlib.suppress(ValueError):
                    self.sent.append((scope["path"], json.loads(body)))
            return message

        return read

    async def _serve_socket(self, job: str, scope: Scope, receive: Receive, send: Send) -> None:
        frames: list[dict[str, Any]] = []

        async def outward(message: Message) -> None:
            await send(message)
            if message["type"] == "websocket.accept":
                self._open.setdefault(job, []).append(frames)
                self._begin(job, self._plays.pop(job, None))
            elif message["type"] == "websocket.send":
                frames.append(json.loads(message["text"]))
                await self._tell()

        connection = transport_of(send)
        self._sockets.add(connection)
        try:
            await self.faults.pass_on(self.app.api, scope, receive, outward, connection)
        finally:
            self._sockets.discard(connection)
            with contextlib.suppress(KeyError, ValueError):
                self._open[job].remove(frames)
            await self._tell()

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()

    def _begin(self, job: str, play: Play | None = None) -> None:
        play = play or (None if job in self._own else self._play)
        if play is not None and job not in self._played:
            self._played[job] = asyncio.ensure_future(self._perform(play, RunningJob(self, job)))

    async def _perform(self, play: Play, job: RunningJob) -> None:
        try:
            await play(job)
        except Exception:
            # The client would wait for ever; the error is raised at the end of the test.
            self.faults.refuse("*", 400, times=float("inf"))
            for connection in self._sockets:
                connection.close()
            raise

    async def finish(self) -> None:
        """End the plays that still run; one that went wrong says so."""
        for task in self._played.values():
            if not task.done():
                task.cancel()
        for outcome in await asyncio.gather(*self._played.values(), return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome


@asynccontextmanager
async def _serving(
    loop: asyncio.AbstractEventLoop, folder: Path, backends: tuple[FakeBackend, ...]
) -> AsyncIterator[RealServer]:
    async with running_app(folder, *backends, version=__version__, timing=TIMING, bundle_limit=MAX_BUNDLE) as app:
        app.control._ready = True  # it is, without its loops, which would not know of virtual time
        server = RealServer(loop, app)
        listener = Loopback(server)
        server.url = listener.url
        await listener.start()
        try:
            yield server
        finally:
            await server.finish()
            await listener.close()


@contextmanager
def serving(folder: Path, *backends: FakeBackend) -> Iterator[RealServer]:
    """Serve until the block ends, with further backends besides `local`."""
    loop = background_loop()
    folder.mkdir(exist_ok=True)
    context = _serving(loop, folder, backends)
    server = asyncio.run_coroutine_threadsafe(context.__aenter__(), loop).result(SECONDS)
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(context.__aexit__(None, None, None), loop).result(SECONDS)
