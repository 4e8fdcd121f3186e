"""Retention, which removes what no rule keeps: the row first, the object after it.

A row that says `pruned` is the intent; the object is removed after its commit. A crash in between leaves an unused
object, which a later round removes: rounds check everything pruned since the last one that removed all it found. What
is stored again meanwhile stays (see gc_marks.py); what is being uploaded is checked until a row needs it (see
pending_objects.py). Active jobs, and what an attempt starts from, are never touched. While a restore is unconfirmed
nothing is removed. Rows of tokens that ended long ago are deleted too; the audit log keeps their uses.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog
from sqlalchemy import Connection, bindparam, delete, select, update

from crucible.control.db import meta
from crucible.control.db import schema as t
from crucible.control.db.statement import Statement
from crucible.control.objects import gc_marks, pending_objects, unannounced
from crucible.control.objects.pending_objects import PendingObject
from crucible.control.objects.quota import StoreQuota
from crucible.control.people import tokens
from crucible.control.reconcile.duties import Duties, Duty
from crucible.control.reconcile.unit_of_work import UnitOfWork, Writer
from crucible.control.runtime.ports import Ports
from crucible.control.upkeep import prune_candidates, restore_hold
from crucible.control.upkeep.prune_candidates import PrunePlan
from crucible.core.errors import Conflict, CrucibleError, TimedOut, Unreachable
from crucible.core.job.retention import DEFAULT_AGE
from crucible.core.views.server import PruneView, UnprunedView
from crucible.storage.layout import AGENTS, bundle_key, job_prefix

log = structlog.get_logger(__name__)

LANE = "retention"
LIST_DEADLINE = 300.0
DELETE_DEADLINE = 60.0
OBJECTS_AT_ONCE = 20
JOBS_AT_ONCE = 100
TOKENS_AT_ONCE = 200
OVERLAP = 120.0
"""Seconds that a round looks back before the last one: no transaction takes longer."""
UNUSED_BUNDLE_SECONDS = 3600.0
"""How long a full store keeps an unused bundle: its job may not be submitted yet."""
LAST_ROUND = "retention_tidied_at"
PENDING_BUNDLES = "retention_bundles"
_JUDGE = Statement(
    update(t.checkpoints)
    .where(t.checkpoints.c.id == bindparam("checkpoint"), t.checkpoints.c.pruned_at.is_(None))
    .values(why=bindparam("why"), pruned_at=bindparam("pruned_at"))
)
_NOTHING: Mapping[str, CrucibleError] = {}


@dataclass(frozen=True)
class PendingRemovals:
    """What may still be stored though its rows are pruned: objects, and all objects of some jobs."""

    objects: tuple[PendingObject, ...]
    jobs: tuple[str, ...]


@dataclass
class RemovalResult:
    """Keys that are removed, and why others are not. What is being uploaded is in neither."""

    removed: set[str] = field(default_factory=set)
    failed: dict[str, CrucibleError] = field(default_factory=dict)
    uploading: set[PendingObject] = field(default_factory=set)


class Retention:
    """`prune_after`: seconds after its end when what a job stored is removed automatically; None: never.

    `current_agent`: the hash of the agent file of the running version, which is kept.
    """

    def __init__(
        self,
        ports: Ports,
        writer: Writer,
        room: StoreQuota,
        duties: Duties,
        *,
        prune_after: float | None = None,
        current_agent: str | None = None,
    ) -> None:
        self._current_agent = current_agent
        self._ports = ports
        self._duties = duties
        self._writer = writer
        self._room = room
        self._prune_after = prune_after
        self._cursor = 0
        self._claims_released = False

    async def round(self) -> None:
        """Apply every rule to what has changed, then remove that and what earlier rounds left."""
        if await self._ports.db.read(restore_hold.is_held):
            return
        await self._delete_tokens()
        await self._apply_keep_rules()
        if self._prune_after is not None:
            await self._prune_jobs(self._prune_after)
        if await self._room.why_full() is not None:
            await self._drop_bundles(UNUSED_BUNDLE_SECONDS)
        for key, error in (await self.remove_objects()).failed.items():
            log.warning("what was pruned cannot be removed yet", key=key, error=str(error))

    async def prune(self, *, older_than: float | None, dry_run: bool) -> PruneView:
        """Remove what jobs stored that ended `older_than` seconds ago, and what no rule keeps; return what that is.

        A job's row, events and metrics stay. With `dry_run` nothing changes. `failed` names objects that could not
        be removed: nothing refers to them, and later rounds try again.
        """
        await self._ports.db.read(_refuse_while_held)
        age = DEFAULT_AGE if older_than is None else older_than
        now = self._ports.clock.now()
        plan = await self._ports.db.read(lambda conn: prune_candidates.plan_prune(conn, age, now))
        if dry_run:
            return plan_view(plan, dry_run)
        self._cursor = 0
        await self._apply_keep_rules()
        await self._prune_jobs(age)
        await self._drop_bundles(age)
        return plan_view(plan, dry_run, (await self.remove_objects()).failed)

    async def remove_objects(self) -> RemovalResult:
        """Remove the objects of everything that was pruned. The next round retries what fails."""
        now, done = self._ports.clock.now(), RemovalResult()
        await self._release_old_claims()
        left = await self._ports.db.read(_pending_removals)
        await self._remove(left.objects, done)
        for job in left.jobs:
            await self._remove_job(job, done)
        await self._remove_old_agents(done)
        await self._remove(await self._ports.db.write(lambda conn: unannounced.collect_garbage(conn, now)), done)
        await self._ports.db.write(lambda conn: _note_round(conn, done, now))
        if done.removed:
            self._room.forget()
        return done

    async def _release_old_claims(self) -> None:
        """Once per process, release the claims of an earlier process with our name: it is dead."""
        if not self._claims_released:
            self._claims_released = True
            await self._ports.db.write(lambda conn: gc_marks.release_removals(conn, self._ports.worker))

    async def _remove_job(self, job: str, done: RemovalResult) -> None:
        folder = job_prefix(job)
        try:
            keys = await self._list(folder)
        except CrucibleError as error:
            done.failed[folder] = error
            return
        await self._remove([_object_of_job(job, key) for key in keys], done)

    async def _remove_old_agents(self, done: RemovalResult) -> None:
        """Remove the agent files of other versions, except those that a live machine was launched with."""
        with contextlib.suppress(CrucibleError):  # the next round looks again
            current = self._current_agent
            keys = [key for key in await self._list(AGENTS) if current is None or current not in key]
            await self._remove([PendingObject(key) for key in keys], done)

    async def _list(self, folder: str) -> list[str]:
        store = self._ports.store
        return await self._ports.calls.run(LANE, lambda: [key for key, _ in store.list(folder)], LIST_DEADLINE)

    async def _remove(self, objects: Sequence[PendingObject], done: RemovalResult) -> None:
        """Remove objects in small batches, so that each is checked again right before it goes."""
        for start in range(0, len(objects), OBJECTS_AT_ONCE):
            await self._remove_some(objects[start : start + OBJECTS_AT_ONCE], done)

    async def _remove_some(self, objects: Sequence[PendingObject], done: RemovalResult) -> None:
        db, now, worker = self._ports.db, self._ports.clock.now(), self._ports.worker
        claimed = await db.write(lambda conn: _claim(conn, objects, worker, now))
        done.failed |= {key: gc_marks.BeingRemoved("Another process is removing it.") for key in claimed.busy}
        done.uploading |= {stray for stray in objects if stray.key in claimed.arriving}
        if not claimed.free:
            return
        failed = await self._delete(claimed.free, now + DELETE_DEADLINE)
        done.failed |= failed
        done.removed |= set(claimed.free) - failed.keys()
        # Without a response the removal may still happen: its claim stays until it expires.
        certain = [key for key in claimed.free if not isinstance(failed.get(key), TimedOut | Unreachable)]
        await db.write(lambda conn: _note_removed(conn, certain, failed))

    async def _delete(self, keys: Sequence[str], until: float) -> dict[str, CrucibleError]:
        """Delete the keys; return the errors of those that failed. Nothing is begun after `until`."""
        store, clock = self._ports.store, self._ports.clock
        failed: dict[str, CrucibleError] = {}

        def delete() -> None:
            for key in keys:
                try:
                    if clock.now() >= until:
                        raise TimedOut("There was no time left.")
                    store.delete(key)
                except CrucibleError as error:
                    failed[key] = error

        try:
            await self._ports.calls.run(LANE, delete, DELETE_DEADLINE)
        except CrucibleError as error:
            return dict.fromkeys(keys, error)
        return failed

    async def _apply_keep_rules(self) -> None:
        """Apply the keep rules to jobs with checkpoints that are new since the last round."""
        while True:
            changed = await self._ports.db.read(
                lambda conn: prune_candidates.changed_jobs(conn, self._cursor, JOBS_AT_ONCE)
            )
            for job in changed.jobs:
                await self._writer.write(lambda unit, job=job: _prune_checkpoints(unit, job))  # type: ignore[misc]
            self._cursor = changed.cursor
            if not changed.more:
                return

    async def _delete_tokens(self) -> None:
        """Delete tokens that ended long ago, in small batches, so that logins do not wait, while the duty is ours."""
        before = self._ports.clock.now() - tokens.RETENTION_SECONDS
        while ids := await self._ports.db.read(lambda conn: tokens.list_ended(conn, before, TOKENS_AT_ONCE)):
            if not await self._ports.db.write(lambda conn, ids=ids: self._delete_if_on_duty(conn, ids, before)):  # type: ignore[misc]
                return

    def _delete_if_on_duty(self, conn: Connection, ids: Sequence[str], before: float) -> int:
        return tokens.delete_ended(conn, ids, before) if self._duties.holds(conn, Duty.RETENTION) else 0

    async def _prune_jobs(self, age: float) -> None:
        now = self._ports.clock.now()
        for job in await self._ports.db.read(lambda conn: prune_candidates.old_jobs(conn, age, now)):
            await self._writer.write(lambda unit, job=job: _prune_job(unit, job.id, job.why))  # type: ignore[misc]

    async def _drop_bundles(self, age: float) -> None:
        before = self._ports.clock.now() - age
        unused = await self._ports.db.read(lambda conn: prune_candidates.unused_bundles(conn, before, ()))
        for sha256, _ in unused:
            await self._ports.db.write(lambda conn, sha256=sha256: _drop_bundle(conn, sha256))  # type: ignore[misc]


def plan_view(plan: PrunePlan, dry_run: bool, failed: Mapping[str, CrucibleError] = _NOTHING) -> PruneView:
    return PruneView(
        jobs=len(plan.jobs),
        checkpoints=plan.count("checkpoints"),
        artifacts=plan.count("artifacts"),
        logs=plan.count("logs"),
        bundles=plan.count("bundles"),
        bytes=plan.bytes,
        dry_run=dry_run,
        items=plan.items,
        failed=tuple(UnprunedView(key=key, why=str(error)) for key, error in failed.items()),
    )


def _refuse_while_held(conn: Connection) -> None:
    if restore_hold.is_held(conn):
        raise Conflict("Nothing can be removed yet.", why=restore_hold.WHY, fix=restore_hold.FIX)


def _prune_checkpoints(unit: UnitOfWork, job: str) -> None:
    _rewind_to(unit.conn, unit.now)
    for verdict in prune_candidates.judge_checkpoints(unit.conn, job):
        pruned_at = None if verdict.kept else unit.now
        _JUDGE.run(unit.conn, checkpoint=verdict.id, why=verdict.why, pruned_at=pruned_at)


def _prune_job(unit: UnitOfWork, job: str, why: str) -> None:
    """Store the intent: mark the job as pruned and drop the rows of its objects, unless it was reopened meanwhile."""
    conn = unit.conn
    if not prune_candidates.is_prunable(conn, job):
        return
    _rewind_to(conn, unit.now)
    conn.execute(update(t.jobs).where(t.jobs.c.id == job).values(pruned_at=unit.now))
    c = t.checkpoints.c
    left = update(t.checkpoints).where(c.job == job, c.pruned_at.is_(None))
    conn.execute(left.values(pruned_at=unit.now, why=f"the job was pruned: {why}"))
    conn.execute(delete(t.artifacts).where(t.artifacts.c.job == job))
    attempts = select(t.attempts.c.id).where(t.attempts.c.job == job)
    conn.execute(delete(t.log_segments).where(t.log_segments.c.attempt.in_(attempts)))


def _drop_bundle(conn: Connection, sha256: str) -> None:
    if prune_candidates.bundle_is_used(conn, sha256):
        return
    if conn.execute(delete(t.bundles).where(t.bundles.c.sha256 == sha256)).rowcount:
        meta.put(conn, PENDING_BUNDLES, json.dumps([*_pending_bundles(conn), sha256]))


def _rewind_to(conn: Connection, now: float) -> None:
    """Move the time of the last round back to now if the clock was set back: else the next round would miss this."""
    if float(meta.get(conn, LAST_ROUND) or 0.0) > now:
        meta.put(conn, LAST_ROUND, repr(now))


def _pending_removals(conn: Connection) -> PendingRemovals:
    since = float(meta.get(conn, LAST_ROUND) or 0.0) - OVERLAP
    objects = [PendingObject(bundle_key(sha256), None, sha256) for sha256 in _pending_bundles(conn)]
    objects += prune_candidates.dead_checkpoints(conn, since)
    objects += [stray for stray in pending_objects.list_pending(conn) if stray not in objects]
    return PendingRemovals(tuple(objects), tuple(prune_candidates.pruned_jobs(conn, since)))


def _object_of_job(job: str, key: str) -> PendingObject:
    """Return an object of a pruned job's folder. A late message may still make it a checkpoint that counts."""
    name = key.rpartition("/")[2]
    return PendingObject(key, job, name if key == f"{job_prefix(job)}/checkpoints/{name}" else None)


def _claim(conn: Connection, objects: Iterable[PendingObject], worker: str, now: float) -> gc_marks.RemovalClaim:
    """Claim those that no row needs and that nobody is storing again."""
    return gc_marks.claim_removal(
        conn, [stray.key for stray in objects if not prune_candidates.is_needed(conn, stray)], worker, now
    )


def _note_removed(conn: Connection, keys: Iterable[str], failed: Collection[str]) -> None:
    """Release the claims, and forget removed objects in the same commit: whatever is noted later is new."""
    gone, pending = {key for key in keys if key not in failed}, _pending_bundles(conn)
    left = [sha256 for sha256 in pending if bundle_key(sha256) not in gone]
    if len(left) < len(pending):
        meta.put(conn, PENDING_BUNDLES, json.dumps(left))
    pending_objects.drop_pending(conn, gone)
    unannounced.forget(conn, gone)
    gc_marks.end_removal(conn, keys)


def _note_round(conn: Connection, done: RemovalResult, now: float) -> None:
    """Store the end of a round that began at `now`; what was pruned since is left to the next one."""
    if not done.failed:
        meta.put(conn, LAST_ROUND, repr(now))
    pending = _pending_bundles(conn)
    rest = [
        sha256
        for sha256 in pending
        if not prune_candidates.is_needed(conn, PendingObject(bundle_key(sha256), None, sha256))
    ]
    if len(rest) < len(pending):
        meta.put(conn, PENDING_BUNDLES, json.dumps(rest))
    known = pending_objects.list_pending(conn)
    later = [*known, *sorted(done.uploading - set(known), key=lambda stray: stray.key)]
    later = [stray for stray in later if not prune_candidates.is_needed(conn, stray)]
    if later != known:
        pending_objects.write_pending(conn, later)
    gc_marks.drop_expired(conn, now)


def _pending_bundles(conn: Connection) -> list[str]:
    return [str(sha256) for sha256 in json.loads(meta.get(conn, PENDING_BUNDLES) or "[]")]
