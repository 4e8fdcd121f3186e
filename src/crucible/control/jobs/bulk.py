"""Submits or cancels many jobs with one request; each job succeeds or fails by itself, unless the queue is full.

Jobs are stored in batches of one transaction each, in order: larger batches would make other writers wait, smaller
ones wait for the disk more often. A refused job changes nothing and does not stop the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from crucible.control.jobs.submit import StoredJob, Submitter
from crucible.control.people import audit
from crucible.control.reconcile import repository
from crucible.control.reconcile.repository import Stale
from crucible.control.reconcile.unit_of_work import UnitOfWork, Writer
from crucible.core.errors import CrucibleError
from crucible.core.job.spec import JobSpec
from crucible.core.lifecycle.facts import CancelRequested
from crucible.core.people.identity import OWNER, Identity

BATCH_SIZE = 20
"""Jobs in one transaction."""

T = TypeVar("T")
R = TypeVar("R")


KeyedSpec = tuple[JobSpec, str | None]
"""A job to submit, with its idempotency key."""


class BulkJobs:
    def __init__(self, writer: Writer, submit: Submitter) -> None:
        self._writer = writer
        self._submit = submit

    async def submit(self, jobs: Sequence[KeyedSpec], who: Identity = OWNER) -> list[StoredJob | CrucibleError]:
        """Submit the jobs; return the result of each, in order.

        Raises QueueFull, before anything is stored, if the user may not have so many more queued jobs.
        """
        await self._writer.write(lambda unit: self._submit.check_room(unit, jobs, who))
        results: list[StoredJob | CrucibleError] = []
        for part in _batches(jobs):
            results += await self._writer.write(partial(_apply_to_each, partial(self._store, who=who), part))
        return results

    async def cancel(self, jobs: Sequence[str], who: Identity = OWNER) -> list[bool]:
        """Cancel the jobs; return for each, in order, whether that changed anything."""
        changed: list[bool] = []
        for part in _batches(jobs):
            changed += await self._writer.write(partial(_apply_to_each, partial(self.request_cancel, who=who), part))
        return changed

    def request_cancel(self, unit: UnitOfWork, job: str, who: Identity = OWNER) -> bool:
        """Cancel a job; return whether that changed anything."""
        world = repository.load_world(unit.conn, job)
        assert world is not None, "found a moment ago, and jobs are never deleted"
        after = unit.advance(world, CancelRequested())
        audit.record_job(unit.conn, who, "job.cancel", world.job, unit.now)
        return after.job != world.job

    def _store(self, unit: UnitOfWork, job: KeyedSpec, *, who: Identity) -> StoredJob | CrucibleError:
        """Return an error instead of raising it: nothing of a refused job is stored. Stale retries the batch."""
        try:
            return self._submit.store(unit, *job, who)
        except Stale:
            raise
        except CrucibleError as error:
            return error


def _apply_to_each(act: Callable[[UnitOfWork, T], R], items: Sequence[T], unit: UnitOfWork) -> list[R]:
    return [act(unit, item) for item in items]


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[at : at + BATCH_SIZE] for at in range(0, len(items), BATCH_SIZE))
