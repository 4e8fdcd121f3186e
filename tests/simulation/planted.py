"""Bugs to plant: each removes one rule of ours that peers live without."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pytest
from sqlalchemy import Connection, text

from crucible.agent.runner import runner_state
from crucible.backends import base
from crucible.control.agents import agents
from crucible.control.agents.ingest import Ingest
from crucible.control.db import meta
from crucible.control.hooks import Notifier, Sender
from crucible.control.hooks.sender import SendResult
from crucible.control.jobs import submit
from crucible.control.jobs.submit import StoredJob, Submitter
from crucible.control.machines import janitor, ledger, machine_factory, poller
from crucible.control.objects import pending_objects
from crucible.control.objects.uploads import Uploads
from crucible.control.reconcile import effects, repository
from crucible.control.reconcile.crashpoints import crashpoint
from crucible.control.reconcile.outbox import ClaimedEffect
from crucible.control.reconcile.reconciler import Reconciler
from crucible.control.reconcile.unit_of_work import UnitOfWork
from crucible.control.scheduling import offers, scheduler, state_reader
from crucible.control.secrets import Vault
from crucible.control.secrets import rows as secret_rows
from crucible.control.secrets.keyring import new_key
from crucible.control.secrets.vault import Cipher
from crucible.control.upkeep import retention
from crucible.core.compute.offers import Market, Offer
from crucible.core.compute.pricing import Segment
from crucible.core.errors import CrucibleError, NotFound, Unreachable
from crucible.core.hooks import Reply
from crucible.core.job.spec import JobSpec
from crucible.core.job.states import AttemptState
from crucible.core.lifecycle import (
    EffectKind,
    Event,
    Machine,
    MachineState,
    Step,
    World,
    machines,
    outcome,
    reasons,
    reports,
    silence,
)
from crucible.core.lifecycle import facts as f
from crucible.core.lifecycle.outcome import end_attempt
from crucible.core.lifecycle.reasons import Reason, Retry
from crucible.core.lifecycle.values import Attempt
from crucible.core.people.identity import Identity
from crucible.core.scheduling.candidates import Candidate
from crucible.core.views.people import RotationView
from crucible.simulation.faults.world.elastic_backend import ElasticBackend
from crucible.simulation.faults.world.node_backend import SimulatedNodeBackend
from crucible.simulation.faults.world.servers import KEY
from crucible.wire.documents.bootstrap import Bootstrap
from crucible.wire.documents.messages import Batch, Cause, Message, derive_secret


@dataclass(frozen=True)
class Planted:
    """A bug. `seen`: issues of peers, or the promise of ours that it breaks. `first`: a seed that found it lately."""

    name: str
    seen: str
    plant: Callable[[pytest.MonkeyPatch], None]
    first: int = 1


# Machines


def lost_is_refused(patch: pytest.MonkeyPatch) -> None:
    """Treat a create without a response as one that made nothing."""
    both = (base.LaunchRefused, base.LaunchUnknown)
    patch.setattr(base, "LaunchUnknown", type("Never", (Exception,), {}))
    patch.setattr(base, "LaunchRefused", both)


def one_refusal_is_enough(patch: pytest.MonkeyPatch) -> None:
    """A machine whose launch is refused was not made, whatever became of earlier calls."""
    real = machines._refused
    patch.setattr(machines, "_refused", lambda machine, why, only_call, now: real(machine, why, True, now))


def made_before_intended(patch: pytest.MonkeyPatch) -> None:
    """Create a machine as soon as it is chosen, before that is committed."""
    real = scheduler.Scheduler._machines

    def made(self: Any, unit: UnitOfWork, world: World, attempt: str, grants: Any) -> list[tuple[Machine, bool]]:
        found = real(self, unit, world, attempt, grants)
        for machine in (machine for machine, is_new in found if is_new):
            nonce, call = derive_secret(KEY, "nonce", machine.id).decode(), base.LaunchCall(**json.loads(machine.call))
            with suppress(CrucibleError):
                self._backends.get(machine.backend).launch(call, [Bootstrap(machine.id, nonce=nonce)])
        return found

    patch.setattr(scheduler.Scheduler, "_machines", made)


def one_list_is_enough(patch: pytest.MonkeyPatch) -> None:
    """Treat a machine as gone as soon as one list does not show it."""

    def gone(machine: Machine, now: float, asked_at: float, interrupted: bool, detail: str) -> Machine:
        return machines._gone(machine, now, detail)

    patch.setattr(machines, "_seen_gone", gone)


def told_to_end_is_gone(patch: pytest.MonkeyPatch) -> None:
    """Treat a machine as gone as soon as its termination was accepted."""
    _ends_with(patch, base.NotYetGone)


def failed_to_end_is_gone(patch: pytest.MonkeyPatch) -> None:
    """Do not retry a failed termination: treat the machine as gone, and continue the job elsewhere."""
    _ends_with(patch, Unreachable)


def _ends_with(patch: pytest.MonkeyPatch, expected: type[CrucibleError]) -> None:
    """Treat this error of a termination as the end of the machine."""
    real = effects.Performer._call

    async def call(self: Any, effect: ClaimedEffect, backend: Any, work: Any) -> Any:
        try:
            return await real(self, effect, backend, work)
        except expected:
            if effect.kind is not EffectKind.TERMINATE:
                raise
            await self._record(effect, f.LaunchAnswered("told"))
            await self._writer.write(lambda unit: _gone(unit, effect.machine.id))
            return []

    patch.setattr(effects.Performer, "_call", call)


def _gone(unit: UnitOfWork, name: str) -> None:
    machine = repository.load_machine(unit.conn, name)
    assert machine is not None
    repository.save_machine(unit.conn, machine, machines._gone(machine, unit.now, "told to end"), (), unit.now)


def deleting_the_deleted_fails(patch: pytest.MonkeyPatch) -> None:
    """Let only a successful termination end a machine, and let it fail for machines that are already gone."""
    real, news = ElasticBackend.terminate, poller._is_news

    def terminate(self: Any, ref: base.MachineRef) -> None:
        found = self._cloud.instances.get(ref.native_id)
        if found is None or not found.alive:
            raise NotFound(f"There is no instance {ref.native_id}.")
        real(self, ref)

    def only_of_wanted(machine: Machine, observation: base.Observation) -> bool:
        return machine.state is not MachineState.RELEASING and news(machine, observation)

    patch.setattr(ElasticBackend, "terminate", terminate)
    patch.setattr(poller, "_is_news", only_of_wanted)


def old_launches_are_sent(patch: pytest.MonkeyPatch) -> None:
    """Send a launch even if its machine was given up meanwhile."""
    look_for = effects.Performer._find_abandoned

    async def launch(self: Any, effect: ClaimedEffect, backend: Any) -> None:
        if effect.machine.state is MachineState.GONE or effect.machine.native_id is not None:
            return await look_for(self, effect, backend)
        wanted = replace(effect.machine, state=MachineState.CREATING)
        await self._launch(replace(effect, machine=wanted, members=(wanted,)))

    patch.setattr(effects.Performer, "_find_abandoned", launch)


def anybody_claims(patch: pytest.MonkeyPatch) -> None:
    """Let any instance with the nonce claim the machine."""

    def claim(unit: UnitOfWork, machine: str, native_id: str) -> None:
        row = agents._load_wanted(unit, machine)
        repository.save_machine(unit.conn, row, replace(row, claimed_by=native_id), (), unit.now)

    patch.setattr(agents, "_claim", claim)


def machines_have_no_end(patch: pytest.MonkeyPatch) -> None:
    """Create machines without a maximum lifetime."""
    real = machine_factory.MachineOrder
    patch.setattr(machine_factory, "MachineOrder", lambda *given, **named: replace(real(*given, **named), ends_at=None))


def doubles_take_the_healthy_along(patch: pytest.MonkeyPatch) -> None:
    """Terminate every instance of a machine to end its duplicate, including the healthy one."""
    patch.setattr(janitor, "end_only", lambda backend, ref: backend.terminate(ref))


def room_is_not_counted(patch: pytest.MonkeyPatch) -> None:
    """Place attempts on a shared machine without counting its used slots."""
    patch.setattr(state_reader.StateReader, "used_slots", lambda self, conn: {})


def every_backend_counts_for_itself(patch: pytest.MonkeyPatch) -> None:
    """Count the slots of a computer once for each backend that reaches it."""
    real, call = offers.OfferBook._read, SimulatedNodeBackend.call

    def read(self: Any, backend: Any, need: Any) -> tuple[Offer, ...]:
        found = real(self, backend, need)
        return tuple(replace(o, node=replace(o.node, id=f"{o.backend} {o.node.id}") if o.node else None) for o in found)

    def translated(self: Any, order: base.MachineOrder) -> base.LaunchCall:
        made = call(self, order)
        return replace(made, parameters={**made.parameters, "node": str(made.parameters["node"]).partition(" ")[2]})

    patch.setattr(offers.OfferBook, "_read", read)
    patch.setattr(SimulatedNodeBackend, "call", translated)


def who_does_not_answer_is_gone(patch: pytest.MonkeyPatch) -> None:
    """Treat the machines of a host that does not answer as gone, and start on it anew once it is back."""
    real = SimulatedNodeBackend._seen

    def seen(self: Any, token: str) -> base.Seen:
        found = real(self, token)
        return base.Seen.GONE if found is base.Seen.UNREACHABLE else found

    patch.setattr(SimulatedNodeBackend, "_seen", seen)


def clocks_run_in_the_queue(patch: pytest.MonkeyPatch) -> None:
    """Let the clocks of every machine run from its placement, wherever it waits."""
    real = machine_factory.MachineFactory._machine

    def machine(self: Any, order: Any, owner: str, now: float) -> Machine:
        made = real(self, order, owner, now)
        return replace(made, started_at=now, ends_at=None if made.life_seconds is None else now + made.life_seconds)

    patch.setattr(machine_factory.MachineFactory, "_machine", machine)


def nonces_age_in_the_queue(patch: pytest.MonkeyPatch) -> None:
    """Let a nonce expire half an hour after the launch, even if its machine has only just started."""
    real = agents._nonce_expired

    def expired(machine: Machine, now: float) -> bool:
        return real(replace(machine, started_at=machine.launched_at or machine.created_at), now)

    patch.setattr(agents, "_nonce_expired", expired)


def asked_to_withdraw_is_gone(patch: pytest.MonkeyPatch) -> None:
    """Treat a machine as gone as soon as its withdrawal was asked for."""
    real = machines._withdraw

    def withdraw(machine: Machine, why: str) -> Any:
        step = real(machine, why)
        asked = bool(step.effects)
        return replace(step, machine=machines._gone(step.machine, machine.queued_at or 0.0, why)) if asked else step

    patch.setattr(machines, "_withdraw", withdraw)


# Gangs


def the_rest_of_a_gang_goes_on(patch: pytest.MonkeyPatch) -> None:
    """Let the other ranks of a gang continue when one is lost."""
    real = silence.stop_attempt

    def stop(world: World, attempt: Attempt, *more: Any) -> Step:
        return Step(world) if attempt.is_gang else real(world, attempt, *more)

    for module in (silence, reports):
        patch.setattr(module, "stop_attempt", stop)


def a_gang_waits_for_its_last_host(patch: pytest.MonkeyPatch) -> None:
    """Keep the machines of a gang, however late one of its hosts is."""
    real = silence.overdue_reason

    def overdue(world: World, attempt: Attempt, *more: Any) -> str:
        why = real(world, attempt, *more)
        return "" if attempt.is_gang and why == silence.HOST_IS_LATE else why

    patch.setattr(silence, "overdue_reason", overdue)


def every_rank_is_counted(patch: pytest.MonkeyPatch) -> None:
    """Count the failure of a gang once for each of its machines."""
    real = outcome._next

    def count(world: World, attempt: Attempt, reason: Reason, now: float) -> Step:
        retry, more = reason.policy.retry, len(attempt.slots) - 1
        used = {**world.job.used, retry: world.job.used.get(retry, 0) + more}
        return real(world.with_job(used=used) if more else world, attempt, reason, now)

    patch.setattr(outcome, "_next", count)


# Jobs


def spot_falls_back_unasked(patch: pytest.MonkeyPatch) -> None:
    """Let every job that asks for spot run on demand too."""
    real = submit.list_candidates

    def both(spec: JobSpec, backend: str | None = None) -> tuple[Candidate, ...]:
        return real(spec.model_copy(update={"spot_fallback": spec.market is Market.SPOT}), backend)

    patch.setattr(submit, "list_candidates", both)


def who_is_stopped_has_failed(patch: pytest.MonkeyPatch) -> None:
    """End a job with its attempt that was stopped."""
    _after_a_stop(patch, Retry.NEVER)


def who_is_stopped_pays(patch: pytest.MonkeyPatch) -> None:
    """Count a stopped attempt as an interruption of the job."""
    _after_a_stop(patch, Retry.INTERRUPTION)


def _after_a_stop(patch: pytest.MonkeyPatch, retry: Retry) -> None:
    policy = Reason.STOPPED.policy
    patch.setitem(reasons._VERDICTS, Reason.STOPPED, replace(policy, retry=retry))


def limits_are_not_kept(patch: pytest.MonkeyPatch) -> None:
    """Ignore time limits."""
    patch.setattr(runner_state, "_time_limit", lambda state: (math.inf, Cause.TIME_LIMIT))


def silence_is_death(patch: pytest.MonkeyPatch) -> None:
    """Replace a silent attempt before its lease has expired."""
    patch.setattr(silence, "REPLACE_MARGIN", -340.0)


def nobody_sweeps(patch: pytest.MonkeyPatch) -> None:
    """Never take over the unfinished work of a dead process."""

    async def none(self: Reconciler) -> list[str]:
        return []

    patch.setattr(Reconciler, "_claim_due", none)


def cancel_comes_too_early(patch: pytest.MonkeyPatch) -> None:
    """Drop a cancel that arrives while the machine is being created."""
    advance = importlib.import_module("crucible.core.lifecycle.advance")
    real = advance._cancel

    def cancel(world: World, by: str, now: float) -> Any:
        if world.live is not None and world.live.state in (AttemptState.PLACED, AttemptState.LAUNCHING):
            return Step(world)
        return real(world, by, now)

    patch.setattr(advance, "_cancel", cancel)


def the_latest_on_the_machine(patch: pytest.MonkeyPatch) -> None:
    """Apply every report of a machine to its newest attempt."""
    real = Ingest._apply_message

    def message(self: Any, unit: UnitOfWork, batch: Batch, world: World, told: Message) -> World:
        job, attempt = _newest_beside(unit.conn, batch.attempt)
        if attempt == batch.attempt:
            return real(self, unit, batch, world, told)
        other = repository.load_world(unit.conn, job)
        assert other is not None
        after = real(self, unit, replace(batch, attempt=attempt), other, told)
        return after if job == world.job.id else world

    patch.setattr(Ingest, "_apply_message", message)


def _newest_beside(conn: Connection, attempt: str) -> tuple[str, str]:
    query = """SELECT a.job, a.id FROM attempts a JOIN slots s ON s.attempt = a.id
    WHERE s.machine = (SELECT machine FROM slots WHERE attempt = :attempt) ORDER BY a.id DESC LIMIT 1"""
    job, newest = conn.execute(text(query), {"attempt": attempt}).one()
    return str(job), str(newest)


def no_place_is_avoided(patch: pytest.MonkeyPatch) -> None:
    """Place a job in the cheapest zone again, even if it was just reclaimed there."""
    patch.setattr(state_reader, "_RANKED", frozenset())


def keys_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """Treat a repeated submission as a new one."""
    real = Submitter.store

    def store(self: Submitter, unit: UnitOfWork, spec: Any, key: str | None, *more: Any, **options: Any) -> StoredJob:
        return real(self, unit, spec, None, *more, **options)

    patch.setattr(Submitter, "store", store)


# What is kept


def output_is_acknowledged_first(patch: pytest.MonkeyPatch) -> None:
    """Acknowledge output even if the store refused it."""
    real = agents.Agents.put_log

    async def put_log(self: Any, *what: Any) -> None:
        with suppress(CrucibleError):
            await real(self, *what)

    patch.setattr(agents.Agents, "put_log", put_log)


def checkpoints_are_acknowledged_first(patch: pytest.MonkeyPatch) -> None:
    """Acknowledge a checkpoint even if the store refused it."""
    real = agents.Agents.put_checkpoint

    async def put_checkpoint(self: Any, *what: Any) -> None:
        with suppress(CrucibleError):
            await real(self, *what)

    patch.setattr(agents.Agents, "put_checkpoint", put_checkpoint)


def outputs_are_acknowledged_first(patch: pytest.MonkeyPatch) -> None:
    """Acknowledge an output file even if the store refused it."""
    real = agents.Agents.put_artifact

    async def put_artifact(self: Any, *what: Any) -> None:
        with suppress(CrucibleError):
            await real(self, *what)

    patch.setattr(agents.Agents, "put_artifact", put_artifact)


def code_is_acknowledged_first(patch: pytest.MonkeyPatch) -> None:
    """Write the row of a bundle even if the store refused it."""
    real = Uploads.put_bundle

    async def bundle(self: Any, sha256: str, *what: Any) -> tuple[int, bool]:
        with suppress(CrucibleError):
            return await real(self, sha256, *what)
        return 1, True

    patch.setattr(Uploads, "put_bundle", bundle)


def who_exits_has_completed(patch: pytest.MonkeyPatch) -> None:
    """End a job with its program, while its outputs are still on the machine."""
    real = reports._exited

    def exited(world: World, attempt: Attempt, fact: f.RunnerExited, now: float) -> Step:
        step = real(world, attempt, fact, now)
        ended = next(a for a in step.world.attempts if a.id == attempt.id)
        return step.then(end_attempt(step.world, ended, fact.reason, now)) if ended.live and ended.reason else step

    patch.setattr(reports, "_exited", exited)


def the_old_key_goes_first(patch: pytest.MonkeyPatch) -> None:
    """Rotate keys by writing only the new one, with the old one in memory while values are encrypted again."""

    async def rotate(self: Any, who: Identity) -> RotationView:
        old, new = self._keyring.read(), new_key()
        await self._write_keys((new,))
        crashpoint("secrets.key_added")

        def encrypt_again(conn: Connection) -> None:
            for row in secret_rows.list_rows(conn):
                named = row["project"], row["name"]
                value = Cipher(old).unseal(*named, row["ciphertext"])
                secret_rows.replace_ciphertext(conn, *named, Cipher([new]).seal(*named, value))
            meta.put(conn, secret_rows.KEY, new.fingerprint)

        if old:
            await self._ports.db.write(encrypt_again)
        return RotationView(secrets=0)

    patch.setattr(Vault, "rotate", rotate)


def notices_are_sent_once(patch: pytest.MonkeyPatch) -> None:
    """Treat every sent notification as accepted, whatever the response was."""
    real = Sender.send

    async def send(self: Any, *what: Any) -> SendResult:
        return replace(await real(self, *what), reply=Reply(200))

    patch.setattr(Sender, "send", send)


def notices_are_passed_first(patch: pytest.MonkeyPatch) -> None:
    """Advance a hook's cursor before the message is sent."""
    real = Notifier._next

    def passed(self: Any, conn: Connection, name: str) -> Any:
        found = real(self, conn, name)
        if found is not None and found.message is not None:
            self._scanned[name] = found.cursor
        return found

    patch.setattr(Notifier, "_next", passed)


def removals_are_tried_once(patch: pytest.MonkeyPatch) -> None:
    """Do not retry a failed removal."""
    real = retention._note_round

    def note_round(conn: Connection, done: retention.RemovalResult, now: float) -> None:
        real(conn, replace(done, failed={}), now)

    patch.setattr(retention, "_note_round", note_round)


def nobody_waits_for_what_is_coming(patch: pytest.MonkeyPatch) -> None:
    """Never remove objects that were being uploaded when they were pruned, even if their sender has died."""
    patch.setattr(pending_objects, "list_pending", lambda conn: [])


def nobody_expects_code(patch: pytest.MonkeyPatch) -> None:
    """Do not record a bundle before its upload, so that nothing removes it if its row is never written."""
    patch.setattr(pending_objects, "add_pending", lambda conn, pending: None)


def only_the_last_event(patch: pytest.MonkeyPatch) -> None:
    """Keep only the last event of each step."""
    real = repository._add_events

    def add(conn: Connection, job: Any, already: int, events: Iterable[Event], now: float) -> None:
        listed = list(events)
        real(conn, job, already + max(len(listed) - 1, 0), listed[-1:], now)

    patch.setattr(repository, "_add_events", add)


def our_own_count_is_the_bill(patch: pytest.MonkeyPatch) -> None:
    """Read the provider's meter, but do not store it."""
    patch.setattr(ledger, "_merge", lambda known, entries, asked_at: known)


def prices_never_change(patch: pytest.MonkeyPatch) -> None:
    """Bill the whole lifetime of a machine at its first price."""
    real = ledger._merge

    def keep(known: Sequence[Segment], entries: Sequence[base.Metered], asked_at: float) -> list[Segment]:
        first = [tuple(replace(s, rate=entry.segments[0].rate) for s in entry.segments) for entry in entries]
        return real(known, [replace(e, segments=s) for e, s in zip(entries, first, strict=True)], asked_at)

    patch.setattr(ledger, "_merge", keep)


def who_stood_still_writes_on(patch: pytest.MonkeyPatch) -> None:
    """Store a reading of the meter however old it is, even if another server has closed the bill."""

    def record(self: Any, unit: UnitOfWork, ids: list[str], metered: list[base.Metered], asked_at: float) -> None:
        known = repository.load_machines(unit.conn, set(ids))
        ledger._write_segments(unit, list(known.values()), metered, asked_at)

    patch.setattr(ledger.Ledger, "_record", record)


ALL = (
    Planted("a lost answer is a refusal", "dstack#707, #3453; skypilot#4431", lost_is_refused),
    Planted("one refusal is enough", "promise 3", one_refusal_is_enough, first=2),
    Planted("made before intended", "dstack#707, #3453; skypilot#4431", made_before_intended),
    Planted("one list is enough", "skypilot#4431", one_list_is_enough, first=3),
    Planted("told to end is gone", "dstack#1551, #3031, #3324", told_to_end_is_gone, first=3),
    Planted("deleting the deleted fails", "dstack#1551, #3031, #3324", deleting_the_deleted_fails),
    Planted("failed to end is gone", "skypilot#2990, #4392", failed_to_end_is_gone, first=4),
    Planted("silence is death", "skypilot#10155, #10157, #10123", silence_is_death),
    Planted("nobody sweeps", "skypilot#5031, #7707", nobody_sweeps, first=2),
    Planted("the latest on the machine", "skypilot#10682", the_latest_on_the_machine),
    Planted("cancel comes too early", "dstack#2068, #3449", cancel_comes_too_early, first=15),
    Planted("old launches are sent", "skypilot#4410", old_launches_are_sent, first=21),
    Planted("anybody claims", "dstack#2637", anybody_claims, first=2),
    Planted("no place is avoided", "skypilot#10021", no_place_is_avoided),
    Planted("output is acknowledged first", "dstack#2783, ray#44561", output_is_acknowledged_first, first=5),
    Planted("checkpoints are acknowledged first", "promise 6", checkpoints_are_acknowledged_first, first=2),
    Planted("outputs are acknowledged first", "promise 1", outputs_are_acknowledged_first, first=26),
    Planted("code is acknowledged first", "promise 1", code_is_acknowledged_first, first=3),
    Planted("who exits has completed", "promise 6", who_exits_has_completed),
    Planted("the old key goes first", "promise 6", the_old_key_goes_first, first=6),
    Planted("notices are sent once", "promise 6", notices_are_sent_once, first=2),
    Planted("notices are passed first", "promise 6", notices_are_passed_first, first=35),
    Planted("removals are tried once", "promise 6", removals_are_tried_once, first=12),
    Planted("nobody waits for what is coming", "promise 6", nobody_waits_for_what_is_coming),
    Planted("nobody expects code", "promise 6", nobody_expects_code, first=6),
    Planted("keys are ignored", "promise 1", keys_are_ignored),
    Planted("only the last event", "promise 6", only_the_last_event),
    Planted("our own count is the bill", "promise 3", our_own_count_is_the_bill),
    Planted("prices never change", "promise 3", prices_never_change),
    Planted("who stood still writes on", "promise 3", who_stood_still_writes_on, first=173),
    Planted("spot falls back unasked", "promise 3", spot_falls_back_unasked, first=3),
    Planted("machines have no end", "promise 3", machines_have_no_end),
    Planted("doubles take the healthy along", "promise 4", doubles_take_the_healthy_along, first=8),
    Planted("room is not counted", "promise 2", room_is_not_counted, first=10),
    Planted("every backend counts for itself", "promise 2", every_backend_counts_for_itself, first=4),
    Planted("who does not answer is gone", "promise 3", who_does_not_answer_is_gone),
    Planted("clocks run in the queue", "promise 3", clocks_run_in_the_queue, first=2),
    Planted("nonces age in the queue", "promise 5", nonces_age_in_the_queue, first=96),
    Planted("asked to withdraw is gone", "promise 2", asked_to_withdraw_is_gone, first=2),
    Planted("the rest of a gang goes on", "promise 2", the_rest_of_a_gang_goes_on, first=2),
    Planted("a gang waits for its last host", "promise 5", a_gang_waits_for_its_last_host, first=2),
    Planted("every rank is counted", "promise 5", every_rank_is_counted, first=2),
    Planted("who is stopped has failed", "promise 5", who_is_stopped_has_failed, first=2),
    Planted("who is stopped pays", "promise 5", who_is_stopped_pays, first=4),
    Planted("limits are not kept", "promise 3", limits_are_not_kept, first=2),
)
