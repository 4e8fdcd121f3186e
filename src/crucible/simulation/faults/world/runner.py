"""A simulated runner: the real reducer `runner_state` in a shell for virtual time."""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from crucible.agent.link.backoff import Backoff
from crucible.agent.runner import runner_events as ev
from crucible.agent.runner import runner_state as rs
from crucible.agent.runner.lease import WAIT_SECONDS, ContactTracker
from crucible.control.agents.ingest import Gap
from crucible.simulation.faults.ground_truth import OutputFile, OutputSegment, RunningProgram, SavedCheckpoint
from crucible.simulation.faults.virtual_loop import virtual_loop
from crucible.simulation.faults.world.attempt_folder import SimulatedAttemptFolder
from crucible.simulation.faults.world.network import NoAnswer, NotWanted, Request, RequestRefused, pieces
from crucible.simulation.faults.world.program import ProgramExit, Script, SimulatedProgram
from crucible.simulation.faults.world.task_group import TaskGroup
from crucible.wire.documents.messages import Batch, Cause, MessageKind, encode_batch

if TYPE_CHECKING:
    from crucible.simulation.faults.world.machine import SimulatedMachine

T = TypeVar("T")

TURN_SECONDS, STOPPING_TURN_SECONDS = 10.0, 1.0
ANSWER_SECONDS = 60.0
BATCH = 50


class SimulatedRunner:
    """The runner of one attempt. `on_exit` is called when it leaves, but not when it is killed."""

    def __init__(self, machine: SimulatedMachine, folder: SimulatedAttemptFolder, on_exit: Callable[[], None]) -> None:
        self._machine = machine
        self._folder = folder
        self._assignment = folder.assignment
        self._on_exit = on_exit
        self.tasks = TaskGroup(folder.assignment.attempt)
        self._contacts = ContactTracker(lambda: self.happen(ev.AttemptReleased()), folder.lease, machine.clock)
        self._events: deque[ev.Event] = deque()
        self._busy = False
        self._woken = asyncio.Event()
        self._finish: ev.Finish | None = None
        self._stage: asyncio.Task[None] | None = None
        self._noticed = False
        self._state: rs.RunnerState

    @property
    def alive(self) -> bool:
        return self.tasks.alive

    @property
    def _key(self) -> tuple[str, int]:
        return self._assignment.attempt, self._assignment.rank

    def start(self) -> None:
        self.tasks.start(self._live())

    def kill(self) -> None:
        """Kill the runner, as the kernel does when memory runs out; its program continues."""
        self.tasks.die()

    def happen(self, event: ev.Event) -> None:
        """Handle an event, and all events that follow from it, before this returns."""
        self._events.append(event)
        if self._busy:
            return
        self._busy = True
        while self._events:
            first = self._events.popleft()
            self._apply(*rs.step(self._state, ev.Tick(self._machine.clock())))
            self._apply(*rs.step(self._state, first))
        self._busy = False
        self._woken.set()

    async def _live(self) -> None:
        recovers = self._folder.began or self._folder.has_message(MessageKind.EXITED)
        self._state, actions = self._recover() if recovers else self._begin()
        for work in (self._deliver(), self._listen(), self._upload_all()):
            self.tasks.start(work)
        self._busy = True
        self._apply(self._state, actions)
        self._busy = False
        if self._assignment.stop and not recovers:
            self.happen(ev.StopRequested())
        while not self._may_leave():
            self._housekeep()
            await self._pause(self._turn())
        self._folder.done = True
        self.tasks.die()
        self._on_exit()

    def _begin(self) -> rs.Step:
        self._say(MessageKind.STAGING, {"what": "preparing"})
        a = self._assignment
        return rs.begin(a.grace, a.limits.seconds, self._machine.clock(), self._folder.deadline, a.checkpoint)

    def _recover(self) -> rs.Step:
        """Take over from a runner that died: end its program, report that, and deliver its messages."""
        program = self._machine.programs.get(self._key)
        if program is not None:
            program.die()
        now = self._machine.clock()
        if self._folder.has_message(MessageKind.ENDED):
            return rs.RunnerState(0.0, None, now, rs.Phase.ENDED), (ev.Finish(),)
        state = rs.RunnerState(0.0, None, now, rs.Phase.SAVING)
        if self._folder.has_message(MessageKind.EXITED):
            return state, (ev.StoreOutputs(),)
        lost = {"code": None, "signal": None, "cause": Cause.RUNNER_LOST.value, "text": "the runner died"}
        return state, (ev.SendMessage(MessageKind.EXITED, dict(lost)), ev.StoreOutputs())

    def _turn(self) -> float:
        """Return the seconds between ticks: short while a program is being stopped, so that it is killed in time."""
        stopping = self._state.phase is rs.Phase.RUNNING and self._state.kill_at is not None
        return STOPPING_TURN_SECONDS if stopping else TURN_SECONDS

    async def _pause(self, seconds: float) -> None:
        self._woken.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            self.happen(ev.Tick(self._machine.clock()))

    def _housekeep(self) -> None:
        if self._contacts.has_lease_expired():
            self.happen(ev.LeaseExpired())
        taken_at = self._machine.reclaimed_at
        if taken_at is not None and not self._noticed:
            self._noticed = True
            self.happen(ev.InterruptionNoticed(taken_at - self._machine.clock()))

    def _may_leave(self) -> bool:
        if self._finish is None:
            return False
        return not self._finish.deliver or not self._folder.unsent()

    # Actions

    def _apply(self, state: rs.RunnerState, actions: ev.Actions) -> None:
        self._state = state
        for action in actions:
            self._act(action)

    def _act(self, action: ev.Action) -> None:
        program = self._machine.programs.get(self._key)
        match action:
            case ev.SendMessage(kind, data):
                self._say(kind, data)
            case ev.StartStaging():
                self._stage = self.tasks.start(self._prepare())
            case ev.AbortStaging():
                if self._stage is not None:
                    self._stage.cancel()
            case ev.StartProcess():
                self._spawn()
            case ev.SendSignal(number):
                if program is not None:
                    program.signal(number)
            case ev.RequestCheckpoint():
                if program is not None:
                    program.checkpoint()
            case ev.StoreOutputs():
                self.tasks.start(self._store_outputs())
            case ev.Finish():
                self._finish = action

    def _say(self, kind: MessageKind, data: dict[str, object]) -> None:
        self._folder.add_message(kind, data, self._machine.clock())
        self._woken.set()

    def _spawn(self) -> None:
        a = self._assignment
        start = 0 if a.resume_from is None else a.resume_from.step or 0
        due = None if a.limits.seconds is None else virtual_loop().time() + a.limits.seconds + a.grace
        running = RunningProgram(
            a.job, a.attempt, self._machine.native_id, start, due, self._machine.node, a.limits.cpus or 0.0, a.rank
        )
        folder, machine = self._folder, self._machine
        save = folder.save if a.rank == 0 else folder.skip
        program = SimulatedProgram(running, Script.from_command(a.command), machine.truth, save, self._exited)
        folder.began = True
        machine.programs[self._key] = program
        machine.trace(machine.native_id, f"{a.attempt} runs from step {start}")
        program.start()
        self.happen(ev.ProcessStarted(len(folder.spool) + 100))

    def _exited(self, how: ProgramExit) -> None:
        if how.code == 0:
            attempt, rank = self._key
            self._folder.outputs[f"model/weights-{rank}.bin"] = f"made by {attempt}, rank {rank}".encode()
        self._folder.write(f"exits {how.code} {how.signal}", last=True)
        self._machine.trace(self._machine.native_id, f"{self._assignment.attempt} exits {how.code} {how.signal}")
        if self.alive:
            self.happen(ev.ProcessEnded(how.code, how.signal, by_itself=how.by_itself))

    async def _prepare(self) -> None:
        await asyncio.sleep(self._machine.rng.uniform(1.0, 25.0))
        try:
            await self._fetch()
        except RequestRefused as error:
            return self.happen(ev.StagingFailed(str(error)))
        except NotWanted:
            return self.happen(ev.AttemptReleased())
        self.happen(ev.StagingDone())

    async def _fetch(self) -> None:
        """Download the bundle, and the checkpoint to resume from."""
        (attempt, rank), bundle, resume = self._key, self._assignment.bundle, self._assignment.resume_from
        if bundle is not None:
            await self._retry(lambda agents: agents.open_bundle(attempt, bundle))
        if resume is not None:
            await self._retry(lambda agents: agents.open_checkpoint(attempt, rank, resume.sha256))

    async def _store_outputs(self) -> None:
        while not self._folder.is_uploaded:  # the last checkpoint and output first
            await self._folder.changed.wait()
        left_out = 0
        try:
            for path, data in self._folder.outputs.items():
                left_out += not await self._store(path, data)
        except NotWanted:
            return self.happen(ev.AttemptReleased())
        self.happen(ev.OutputsStored(complete=not left_out))

    async def _store(self, path: str, data: bytes) -> bool:
        """Store an output file, then announce it. Return False if it was refused. Raises NotWanted."""
        (attempt, rank), sha256 = self._key, hashlib.sha256(data).hexdigest()
        try:
            await self._retry(lambda agents: agents.put_artifact(attempt, rank, path, sha256, pieces(data)))
        except RequestRefused:
            return False
        self._say(MessageKind.ARTIFACT, {"path": path, "size": len(data), "sha256": sha256})
        return True

    # Threads in a real runner

    async def _upload_all(self) -> None:
        """Upload checkpoints and output in order, each before it is announced."""
        folder = self._folder
        while True:
            if folder.is_uploaded:
                await folder.changed.wait()
                await asyncio.sleep(1.0)
                continue
            try:
                if folder.uploaded < len(folder.saved):
                    await self._upload(folder.saved[folder.uploaded])
                    folder.uploaded += 1
                    folder.changed.notify()
                else:
                    await self._ship(folder.shipped)
                    folder.shipped += 1
                    folder.changed.notify()
            except NotWanted:
                return self.happen(ev.AttemptReleased())

    async def _ship(self, index: int) -> None:
        """Store a segment of the output, then announce it."""
        (attempt, rank), data = self._key, self._folder.segments[index]
        n, start, lines = index + 1, sum(map(len, self._folder.segments[:index])), data.count(b"\n")
        sha256 = hashlib.sha256(data).hexdigest()
        await self._retry(lambda agents: agents.put_log(attempt, rank, n, start, lines, sha256, data))
        fields = {"n": n, "start": start, "end": start + len(data), "lines": lines, "sha256": sha256}
        self._say(MessageKind.LOG, dict(fields))

    async def _upload(self, step: int) -> None:
        attempt, rank = self._key
        data = f"{self._assignment.job} at step {step}".encode()
        sha256 = hashlib.sha256(data).hexdigest()
        await self._retry(lambda agents: agents.put_checkpoint(attempt, rank, sha256, pieces(data)))
        fields = {"name": f"step-{step}.pt", "form": "file", "size": len(data), "sha256": sha256, "step": step}
        self._say(MessageKind.CHECKPOINT, dict(fields))

    async def _deliver(self) -> None:
        backoff, folder = Backoff(chance=self._machine.chance), self._folder
        attempt, rank = self._key
        while True:
            messages = folder.unsent()[:BATCH]
            if not messages:
                await folder.changed.wait()
                await asyncio.sleep(0.5)
                continue
            raw = encode_batch(Batch(attempt, rank, tuple(messages)), self._assignment.secret.encode())
            began = self._contacts.now()
            try:
                acked = await self._call(lambda agents, raw=raw: agents.ingest(attempt, rank, raw))  # type: ignore[misc]
            except Gap as gap:
                acked = gap.acked
            except NotWanted:
                return self.happen(ev.AttemptReleased())
            except (NoAnswer, RequestRefused) as error:
                self._contacts.failed(str(error), began)
                await asyncio.sleep(backoff.next())
                continue
            backoff.reset()
            self._contacts.succeeded()
            self._acknowledge(acked)

    def _acknowledge(self, acked: int) -> None:
        folder, truth = self._folder, self._machine.truth
        job, (attempt, rank) = self._assignment.job, self._key
        for message in folder.spool[folder.acked : acked]:
            data, sha256 = message.data, str(message.data.get("sha256"))
            if message.kind is MessageKind.CHECKPOINT:
                truth.checkpoint(SavedCheckpoint(job, attempt, int(str(data["step"])), sha256))
            elif message.kind is MessageKind.LOG:
                n, start, end = (int(str(data[name])) for name in ("n", "start", "end"))
                truth.written.append(OutputSegment(job, attempt, rank, n, start, end, sha256))
            elif message.kind is MessageKind.ARTIFACT:
                truth.output(OutputFile(job, attempt, str(data["path"]), sha256))
        folder.acked = max(folder.acked, acked)
        self._woken.set()

    async def _listen(self) -> None:
        backoff = Backoff(chance=self._machine.chance)
        attempt, rank = self._key
        stop, count = self._assignment.stop, self._assignment.checkpoint
        while True:
            began = self._contacts.now()
            try:
                wish = await self._call(
                    lambda agents, s=stop, c=count: agents.attempt_desired(attempt, rank, s, c, WAIT_SECONDS)  # type: ignore[misc]
                )
            except NotWanted:
                return self.happen(ev.AttemptReleased())
            except (NoAnswer, RequestRefused) as error:
                self._contacts.failed(str(error), began)
                await asyncio.sleep(backoff.next())
                continue
            backoff.reset()
            self._contacts.succeeded()
            if wish is None:
                continue
            if wish.settled:
                return self.happen(ev.AttemptReleased())
            stop, count = wish.stop, wish.checkpoint
            if stop:
                self.happen(ev.StopRequested())
            self.happen(ev.CheckpointRequested(count))

    async def _retry(self, request: Request[object]) -> None:
        """Send a request until it is answered. Raises NotWanted and RequestRefused."""
        backoff = Backoff(chance=self._machine.chance)
        while True:
            try:
                await self._call(request)
                return
            except NoAnswer:
                await asyncio.sleep(backoff.next())

    async def _call(self, request: Request[T]) -> T:
        return await self._machine.call(request, ANSWER_SECONDS)
