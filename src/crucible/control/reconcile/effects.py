"""Perform effects at the providers, once the decision is durable.

Effects of one machine are performed in order, each under a claim that outlasts the call's deadline. A call without a
response is never assumed to have failed: the next attempt first looks for the machine by its token. A failed
termination is retried forever, with growing waits.

A launch derives the nonce with which the new machine's host claims it (`derive_secret` in wire/documents/messages.py).
The nonce is never stored; control/agents/agents.py derives it again to check a claim.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import structlog

from crucible.backends import base
from crucible.backends.bootstrap import find_agent_sha256
from crucible.control.machines.poller import MissingSince
from crucible.control.reconcile import repository
from crucible.control.reconcile.crashpoints import crashpoint
from crucible.control.reconcile.outbox import CALL_DEADLINE, ClaimedEffect, Outbox
from crucible.control.reconcile.unit_of_work import UnitOfWork, Writer
from crucible.control.runtime.ports import CallBroke, Ports
from crucible.control.scheduling.backends import ConnectedBackends
from crucible.control.upkeep import restore_hold
from crucible.core.errors import CrucibleError, TimedOut
from crucible.core.lifecycle import EffectKind, Machine, MachineState
from crucible.core.lifecycle import facts as f
from crucible.core.lifecycle.machines import SIGHTINGS
from crucible.wire.documents.bootstrap import Bootstrap
from crucible.wire.documents.messages import derive_secret

T = TypeVar("T")

log = structlog.get_logger(__name__)

FIRST_WAIT = 0.5
LONGEST_WAIT = 60.0
LOUD_AFTER = 5
"""Number of failed terminations of a machine after which further failures are logged as errors."""


@dataclass(frozen=True)
class LaunchContext:
    """The URLs at which agents find this server, and the key from which their secrets are derived.

    `invite` returns what a machine needs to communicate through the store, or None if its agent calls this server; its
    last argument is the hash of the agent file that the machine downloads, or None. `publish_agent` makes that file
    available.
    """

    key: bytes = field(repr=False)
    agents_url: str
    local_agents_url: str
    invite: Callable[[base.Backend, str, str | None], Awaitable[Mapping[str, object] | None]]
    publish_agent: Callable[[str], Awaitable[None]]

    def agents_url_for(self, backend: base.Backend) -> str:
        """Return the URL for the bootstrap. A backend that builds tunnels replaces it with the tunnel's other end."""
        reach = backend.capabilities.reach
        return self.local_agents_url if reach.is_here or reach is base.Reach.TUNNEL else self.agents_url


class Performer:
    def __init__(
        self,
        ports: Ports,
        backends: ConnectedBackends,
        writer: Writer,
        context: LaunchContext,
        missing_since: MissingSince,
        live: Collection[str],
    ) -> None:
        """`live`: the names of the connected backends, as they are at any time."""
        self._ports = ports
        self._backends = backends
        self._writer = writer
        self._context = context
        self._missing_since = missing_since
        self._outbox = Outbox(ports.worker, live)
        self._running: set[asyncio.Task[None]] = set()
        self.launches: Counter[tuple[str, str]] = Counter()
        """Number of launch calls, by backend and outcome."""

    async def perform_due(self) -> int:
        """Perform one due effect of every machine, and wait for all of them. Return their number."""
        claimed = await self._writer.write(self._claim)
        await asyncio.gather(*map(self._perform, claimed))
        return len(claimed)

    async def start_due(self) -> None:
        """Start the due effects without waiting for them, so that a backend that hangs delays no other."""
        for effect in await self._writer.write(self._claim):
            task = asyncio.create_task(self._perform(effect))
            self._running.add(task)
            task.add_done_callback(self._log_crash)

    def _log_crash(self, task: asyncio.Task[None]) -> None:
        """Log an unexpected error. The effect is retried when its claim expires."""
        self._running.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("an effect broke", exc_info=error)

    async def stop(self) -> None:
        """Cancel running effects. Their claims expire, and machines that they have made are later found by token."""
        for task in tuple(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def next_due(self) -> float | None:
        return await self._ports.db.read(self._outbox.next_due)

    def _claim(self, unit: UnitOfWork) -> list[ClaimedEffect]:
        restore_hold.hold_back(unit.conn, unit.now)
        return [self._record_send(unit, effect) for effect in self._outbox.claim(unit.conn, unit.now)]

    def _record_send(self, unit: UnitOfWork, effect: ClaimedEffect) -> ClaimedEffect:
        """Before a launch is sent, store until when it may still take effect."""
        machine = effect.machine
        sends = effect.kind is EffectKind.LAUNCH and machine.wanted
        if not sends or not self._backends.has(machine.backend):
            return effect
        abilities = self._backends.get(machine.backend).capabilities
        sent = f.LaunchSent(effect.until + abilities.settle_window)
        members = tuple(unit.advance_machine(each, sent) for each in repository.load_gang(unit.conn, machine))
        return replace(effect, machine=next(m for m in members if m.id == machine.id), members=members)

    async def _perform(self, effect: ClaimedEffect) -> None:
        crashpoint("effect.claimed")
        try:
            match effect.kind:
                case EffectKind.LAUNCH:
                    await self._launch(effect)
                case EffectKind.WITHDRAW:
                    await self._withdraw(effect)
                case EffectKind.TERMINATE:
                    await self._terminate(effect)
        except CrucibleError as error:
            self._log_failure(effect, str(error))
            await self._postpone(effect, str(error))

    def _log_failure(self, effect: ClaimedEffect, why: str) -> None:
        """Log a failure, as an error if a machine does not end after several attempts, because it may cost money."""
        loud = effect.kind is EffectKind.TERMINATE and effect.tries >= LOUD_AFTER
        write = log.error if loud else log.warning
        what = "a machine does not end" if loud else "effect failed"
        write(what, effect=effect.kind.value, machine=effect.machine.id, tries=effect.tries + 1, why=why)

    async def _launch(self, effect: ClaimedEffect) -> None:
        machine = effect.machine
        backend = self._backends.get(machine.backend)
        call = base.LaunchCall(**json.loads(machine.call))
        if not all(member.wanted for member in effect.members) or not machine.wanted:
            return await self._find_abandoned(effect, backend)
        if machine.state is MachineState.UP:
            return await self._record_answer(effect)
        if effect.tries:
            found = await self._find(effect, backend)
            if machine.up_at is None and all(member.id in found for member in effect.members):
                return await self._record_launched(effect, found)
        agent = find_agent_sha256(machine.call)
        if agent is not None:
            await self._context.publish_agent(agent)
        bootstraps = [await self._bootstrap(backend, member, agent) for member in effect.members]
        sent_at = self._ports.clock.now()
        crashpoint("launch.before_call")
        try:
            refs = await self._call(effect, backend, lambda: _launch(backend, call, bootstraps))
        # Only a refusal means that there is certainly no machine; after every other failure there may be one.
        except base.LaunchRefused as refused:
            self.launches[machine.backend, "refused"] += 1
            if machine.up_at is not None:
                # The restart of a halted host was refused. The machine exists, so this does not end it.
                return await self._postpone(effect, str(refused))
            # An earlier claim's call may still be on its way, even if a search just now found nothing.
            only_call = effect.tries == 0
            return await self._record_answer(effect, f.LaunchRefused(str(refused), only_call))
        except base.LaunchUnknown as unknown:
            self.launches[machine.backend, "unknown"] += 1
            until = self._ports.clock.now() + backend.capabilities.launch_deadline + backend.capabilities.settle_window
            return await self._record_lost(effect, f.LaunchLost(str(unknown), until))
        except (TimedOut, CallBroke) as unknown:
            self.launches[machine.backend, "unknown"] += 1
            return await self._record_lost(effect, f.LaunchLost(str(unknown)))
        self.launches[machine.backend, "made"] += 1
        crashpoint("launch.after_call")
        await self._record_launched(effect, {ref.machine: ref.native_id for ref in refs}, sent_at)
        crashpoint("launch.recorded")

    async def _bootstrap(self, backend: base.Backend, machine: Machine, agent: str | None) -> Bootstrap:
        nonce = derive_secret(self._context.key, "nonce", machine.id).decode()
        invitation = await self._context.invite(backend, machine.id, agent)
        agents_url = self._context.agents_url_for(backend)
        elsewhere = not backend.capabilities.reach.is_here
        return Bootstrap(machine.id, nonce=nonce, agents_url=agents_url, store=invitation, elsewhere=elsewhere)

    async def _record_launched(
        self, effect: ClaimedEffect, made: Mapping[str, str], sent_at: float | None = None
    ) -> None:
        """Record the provider's ids of the machines that a call made, and mark the effect done, in one commit.

        `sent_at`: when that call was sent; None if an earlier one made them.
        """

        def record(unit: UnitOfWork) -> None:
            self._outbox.mark_done(unit.conn, effect)
            for machine in repository.load_gang(unit.conn, effect.machine):
                if machine.id in made:
                    unit.advance_machine(machine, f.LaunchAnswered(made[machine.id], sent_at))
            unit.changes.effects = True

        await self._writer.write(record)

    async def _record_lost(self, effect: ClaimedEffect, fact: f.LaunchLost) -> None:
        await self._writer.write(lambda unit: self._apply_to_all(unit, effect, fact))
        await self._postpone(effect, fact.why)

    async def _find_abandoned(self, effect: ClaimedEffect, backend: base.Backend) -> None:
        """Handle a launch that is no longer wanted: send nothing, but find the machine of an earlier call, if any."""
        machine = effect.machine
        if machine.native_id is not None or not machine.alive:
            return await self._record_answer(effect)
        if not effect.tries:
            # This is the first claim, so the call was certainly never sent.
            return await self._record_answer(effect, f.LaunchRefused("cancelled before it was launched"))
        asked_at = self._ports.clock.now()
        found = await self._find(effect, backend)
        if machine.claimed_by is not None:
            found = {machine.id: machine.claimed_by, **found}
        if machine.id in found:
            return await self._record_launched(effect, found)
        machine = await self._record(effect, f.FoundNothing(asked_at))
        if machine.state is MachineState.GONE:
            return await self._record_answer(effect)
        await self._postpone(effect, "no machine found yet")

    async def _withdraw(self, effect: ClaimedEffect) -> None:
        """Cancel the machine in its provider's queue. One that has started meanwhile keeps its job."""
        machine = effect.machine
        if machine.state is not MachineState.QUEUED or machine.native_id is None:
            return await self._record_answer(effect)
        backend = self._backends.get(machine.backend)
        assert isinstance(backend, base.Withdraws), "the conformance suite demands it of backends with a queue"
        ref = base.MachineRef(machine.backend, machine.id, machine.native_id, machine.region)
        crashpoint("withdraw.before_call")
        try:
            await self._call(effect, backend, lambda: backend.withdraw(ref))
        except base.AlreadyStarted:
            return await self._record_answer(effect, f.AlreadyStarted())
        crashpoint("withdraw.after_call")
        await self._record_answer(effect, f.Withdrawn())

    async def _terminate(self, effect: ClaimedEffect) -> None:
        """End the machine. The effect stays open, and is retried, until the machine is gone."""
        machine = effect.machine
        if not machine.alive:
            return await self._record_answer(effect)
        backend = self._backends.get(machine.backend)
        asked_at = self._ports.clock.now()
        native_id = machine.claimed_by or machine.native_id
        if native_id is None:
            native_id = (await self._find(effect, backend)).get(machine.id)
        if native_id is None:
            await self._record(effect, f.FoundNothing(asked_at))
            return await self._finish(effect)
        ref = base.MachineRef(machine.backend, machine.id, native_id, machine.region)
        crashpoint("terminate.before_call")
        await self._call(effect, backend, lambda: backend.terminate(ref))
        crashpoint("terminate.after_call")
        # One answer may be stale, so a machine counts as gone only after several in a row.
        for _ in range(SIGHTINGS):
            asked = self._ports.clock.steady()
            seen = await self._call(effect, backend, lambda: backend.poll([ref]))
            if all(o.seen in (base.Seen.GONE, base.Seen.INTERRUPTED) for o in seen):
                await self._record_gone(effect, native_id, asked, self._ports.clock.steady())
        await self._finish(effect)

    async def _find(self, effect: ClaimedEffect, backend: base.Backend) -> dict[str, str]:
        """Return the provider's ids of the machines that this launch made, by our ids; of doubles, the first."""
        token = base.LaunchCall(**json.loads(effect.machine.call)).token
        refs = await self._call(effect, backend, lambda: backend.find(token))
        return {ref.machine: ref.native_id for ref in reversed(refs)}

    async def _finish(self, effect: ClaimedEffect) -> None:
        """Mark the effect done if the machine's row says that it is gone, else postpone it."""
        machine = await self._record(effect)
        if machine.alive:
            self._log_failure(effect, "still there")
            return await self._postpone(effect, "still there")
        await self._record_answer(effect)

    async def _call(self, effect: ClaimedEffect, backend: base.Backend, work: Callable[[], T]) -> T:
        """Run a call. Raises TimedOut if the claim could expire first, because another worker may then take it."""
        if self._ports.clock.now() + CALL_DEADLINE > effect.until:
            raise TimedOut("The claim would expire during the call.", fix="It will be claimed again.")
        return await self._ports.calls.run(backend.name, work, CALL_DEADLINE)

    async def _record_answer(self, effect: ClaimedEffect, *facts: f.MachineFact) -> None:
        """Record the answer, and mark the effect done, in one commit.

        A refusal is of all machines that the call was to make. It counts only while the claim is ours: a worker that
        took it over may have sent the call again.
        """

        def record(unit: UnitOfWork) -> None:
            ours = self._outbox.mark_done(unit.conn, effect)
            for fact in facts:
                if not isinstance(fact, f.LaunchRefused):
                    self._apply(unit, effect, (fact,))
                elif ours:
                    self._apply_to_all(unit, effect, fact)
            unit.changes.effects = True

        await self._writer.write(record)

    async def _record(self, effect: ClaimedEffect, *facts: f.MachineFact) -> Machine:
        return await self._writer.write(lambda unit: self._apply(unit, effect, facts))

    async def _record_gone(self, effect: ClaimedEffect, native_id: str, asked: float, answered: float) -> None:
        def note(unit: UnitOfWork) -> None:
            machine = self._load_machine(unit, effect)
            gone = f.SeenGone(absent_for=self._missing_since.seconds_missing(machine, asked, answered))
            self._missing_since.drop_if_gone(unit.advance_machine(machine, f.LaunchAnswered(native_id), gone))

        await self._writer.write(note)

    def _apply(self, unit: UnitOfWork, effect: ClaimedEffect, facts: tuple[f.MachineFact, ...]) -> Machine:
        return unit.advance_machine(self._load_machine(unit, effect), *facts)

    def _apply_to_all(self, unit: UnitOfWork, effect: ClaimedEffect, fact: f.MachineFact) -> None:
        """Apply a fact to every machine that the launch makes."""
        for machine in repository.load_gang(unit.conn, effect.machine):
            unit.advance_machine(machine, fact)

    def _load_machine(self, unit: UnitOfWork, effect: ClaimedEffect) -> Machine:
        machine = repository.load_machine(unit.conn, effect.machine.id)
        assert machine is not None, "machines are never deleted"
        return machine

    async def _postpone(self, effect: ClaimedEffect, why: str) -> None:
        wait = min(FIRST_WAIT * 2.0 ** min(effect.tries, 10), LONGEST_WAIT)
        at = self._ports.clock.now() + wait * self._ports.random.uniform(0.8, 1.2)
        await self._ports.db.write(lambda conn: self._outbox.postpone(conn, effect, why, at))
        self._ports.wakeups.wake("effects")


def _launch(backend: base.Backend, call: base.LaunchCall, bootstraps: Sequence[Bootstrap]) -> Sequence[base.MachineRef]:
    """Launch one machine for each bootstrap. Raises LaunchUnknown if the provider does not name each of them once."""
    refs = backend.launch(call, bootstraps)
    wanted = [bootstrap.machine for bootstrap in bootstraps]
    if sorted(ref.machine for ref in refs) != sorted(wanted):
        named = len({ref.machine for ref in refs}.intersection(wanted))
        raise base.LaunchUnknown(f"The provider named {len(refs)} machines, {named} of the {len(wanted)} ordered.")
    return refs
