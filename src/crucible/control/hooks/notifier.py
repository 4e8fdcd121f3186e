"""The notifier: tells every hook, in the order of the feed, what it asked to be told.

Each hook has its own place in the feed, which moves on once its receiver took the message, or the message was given
up. Whoever dies in between leaves the place where it was: the message is sent again, under the same id. Hooks are
served side by side, so one receiver that hangs holds up itself alone.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import structlog
from sqlalchemy import Connection

from crucible.control.db.clock import database_now as time_of
from crucible.control.hooks import deliveries, messages, rows
from crucible.control.hooks.messages import Message
from crucible.control.hooks.rows import Hook
from crucible.control.hooks.sender import Sender, SendResult
from crucible.control.reconcile.roles import Duties, Duty
from crucible.control.reconcile.unit_of_work import HOOKS
from crucible.control.runtime.ports import Ports
from crucible.control.upkeep import restore_hold
from crucible.core.errors import CrucibleError
from crucible.core.hooks import DeliveryOutcome, DeliveryVerdict, judge_delivery

log = structlog.get_logger(__name__)

CHECK_SECONDS, MIN_SECONDS = 5.0, 0.05
UNABLE_SECONDS = 3600.0
MAX_AT_ONCE = 64
"""Hooks that are served side by side."""
SKIP = 5000
"""Events after which a hook's place is written down, though nothing among them was for it."""


@dataclass(frozen=True)
class _Next:
    """What a hook is to be told next, if anything; up to `looked` there is nothing before it."""

    hook: Hook
    cursor: int
    message: Message | None = None


class Notifier:
    def __init__(self, ports: Ports, duties: Duties, sender: Sender) -> None:
        self._ports = ports
        self._duties = duties
        self._sender = sender
        self._tasks: dict[str, asyncio.Task[bool]] = {}
        self._scanned: dict[str, int] = {}
        """By hook: up to where in the feed nothing was for it. Forgotten with this process; it looks again then."""

    async def round(self) -> float:
        """Begins to serve every hook that has something to be told. Seconds until the next may be due."""
        if not self._sender.can_send:
            return UNABLE_SECONDS
        if not self._duties.has(Duty.NOTIFIER):
            return CHECK_SECONDS
        hooks, newest = await self._ports.db.read(lambda conn: (_list_served(conn), rows.newest_cursor(conn)))
        self._scanned = {hook.id: self._scanned[hook.id] for hook in hooks if hook.id in self._scanned}
        now = self._ports.clock.now()
        behind = [hook for hook in hooks if self._position(hook) < newest]
        for hook in behind:
            if hook.not_before <= now and hook.id not in self._tasks and len(self._tasks) < MAX_AT_ONCE:
                self._begin(hook.id)
        waits = [hook.not_before - now for hook in behind if hook.not_before > now]
        return max(min([CHECK_SECONDS, *waits]), MIN_SECONDS)

    async def wait_idle(self) -> None:
        """Until nothing is under way."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks.values()))

    async def stop(self) -> None:
        """Leaves what is under way; it is sent again, under the same id."""
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _position(self, hook: Hook) -> int:
        return max(hook.cursor, self._scanned.get(hook.id, 0))

    def _begin(self, hook: str) -> None:
        task = asyncio.create_task(self._serve(hook), name=f"hook:{hook}")
        self._tasks[hook] = task
        task.add_done_callback(lambda done: self._ended(hook, done))

    def _ended(self, hook: str, task: asyncio.Task[bool]) -> None:
        """Something may have happened while it was busy, and there is room for another."""
        self._tasks.pop(hook, None)
        broken = None if task.cancelled() else task.exception()
        if isinstance(broken, CrucibleError):
            log.warning("a hook could not be served", hook=hook, error=str(broken), code=broken.code)
        elif broken is not None:
            log.error("serving a hook broke", hook=hook, exc_info=broken)
        elif not task.cancelled() and task.result():
            self._ports.wakeups.wake(HOOKS)

    async def _serve(self, name: str) -> bool:
        """Tells one hook what there is, one after another, until its receiver does not take something.

        Whether it told anything, or looked through the feed.
        """
        looked = False
        while found := await self._ports.db.read(lambda conn: self._next(conn, name)):
            looked = True
            if found.message is None:
                await self._skip(found)
                continue
            sent = await self._sender.send(found.hook, found.message)
            verdict = await self._settle(found, found.message, sent)
            if verdict is None or verdict.outcome is not DeliveryOutcome.DELIVERED:
                return verdict is not None
        return looked

    def _next(self, conn: Connection, name: str) -> _Next | None:
        """None when there is nothing to tell it now, or nothing for us to tell."""
        hook, newest, now = rows.get_hook(conn, name), rows.newest_cursor(conn), time_of(conn, self._ports.clock.now)
        if hook is None or not hook.enabled or hook.not_before > now or self._position(hook) >= newest:
            return None
        if not self._holds(conn):
            return None
        after = self._position(hook)
        upto = min(after + messages.WINDOW, newest)
        event = messages.next_event(conn, hook, after, upto)
        if event is None:
            return _Next(hook, upto)
        return _Next(hook, int(event["cursor"]), messages.event_message(conn, hook, event, now))

    async def _skip(self, found: _Next) -> None:
        hook = found.hook
        self._scanned[hook.id] = found.cursor
        if found.cursor - hook.cursor >= SKIP:
            await self._ports.db.write(lambda conn: rows.advance_cursor(conn, hook, found.cursor))

    async def _settle(self, found: _Next, message: Message, sent: SendResult) -> DeliveryVerdict | None:
        """Writes down what came of it. None when the hook is no longer as it was, or another process's duty."""
        hook, jitter = found.hook, self._ports.random.uniform(-1.0, 1.0)

        def settle(conn: Connection) -> DeliveryVerdict | None:
            now = time_of(conn, self._ports.clock.now)
            verdict = judge_delivery(hook.standing, sent.reply, message.at, now, jitter)
            if not self._holds(conn) or not rows.record_outcome(conn, hook, found.cursor, verdict):
                return None
            deliveries.add(conn, hook.id, message, sent, verdict.outcome)
            return verdict

        verdict = await self._ports.db.write(settle)
        if verdict is not None:
            _log_verdict(hook, message, sent, verdict)
        return verdict

    def _holds(self, conn: Connection) -> bool:
        return self._duties.holds(conn, Duty.NOTIFIER)


def _list_served(conn: Connection) -> list[Hook]:
    """None while a restored copy may be older than what others were told already."""
    return [] if restore_hold.is_held(conn) else rows.list_enabled(conn)


def _log_verdict(hook: Hook, message: Message, sent: SendResult, verdict: DeliveryVerdict) -> None:
    known = {"hook": hook.id, "project": hook.project, "message": message.id, "status": sent.reply.status}
    if verdict.disabled:
        log.warning("a hook was disabled", **known, why=verdict.disabled)
    elif verdict.outcome is DeliveryOutcome.GIVEN_UP:
        log.warning("a message to a hook was given up", **known, failures=verdict.streak.failures)
