"""The notifier, which sends every hook its events in the order of the feed.

Each hook has a position in the feed, which advances when the receiver has accepted a message or the message is given
up. After a crash in between, the message is sent again under the same id. Hooks are served concurrently, so that
a receiver that hangs delays only itself.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import structlog
from sqlalchemy import Connection

from crucible.control.db.clock import database_now
from crucible.control.hooks import deliveries, messages, rows
from crucible.control.hooks.messages import Message
from crucible.control.hooks.rows import Hook
from crucible.control.hooks.sender import Sender, SendResult
from crucible.control.reconcile.duties import Duties, Duty
from crucible.control.reconcile.unit_of_work import HOOKS
from crucible.control.runtime.ports import Ports
from crucible.control.upkeep import restore_hold
from crucible.core.errors import CrucibleError
from crucible.core.hooks import DeliveryOutcome, DeliveryVerdict, judge_delivery

log = structlog.get_logger(__name__)

CHECK_SECONDS, MIN_SECONDS = 5.0, 0.05
UNABLE_SECONDS = 3600.0
MAX_AT_ONCE = 64
"""Maximum number of hooks served concurrently."""
SKIP = 5000
"""Number of skipped events after which a hook's position is stored even without a message."""


@dataclass(frozen=True)
class _Next:
    """The next message for a hook, or None if nothing up to `cursor` is for it."""

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
        """Feed position of each hook up to which nothing is for it. Not stored: scanned again after a restart."""

    async def round(self) -> float:
        """Start serving every hook that has events waiting. Return the seconds until the next may be due."""
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
                self._start_serving(hook.id)
        waits = [hook.not_before - now for hook in behind if hook.not_before > now]
        return max(min([CHECK_SECONDS, *waits]), MIN_SECONDS)

    async def wait_idle(self) -> None:
        """Wait until no message is being sent."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks.values()))

    async def stop(self) -> None:
        """Cancel the messages being sent. They are sent again later, under the same ids."""
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _position(self, hook: Hook) -> int:
        return max(hook.cursor, self._scanned.get(hook.id, 0))

    def _start_serving(self, hook: str) -> None:
        task = asyncio.create_task(self._serve(hook), name=f"hook:{hook}")
        self._tasks[hook] = task
        task.add_done_callback(lambda done: self._ended(hook, done))

    def _ended(self, hook: str, task: asyncio.Task[bool]) -> None:
        """Wake the next round: there may be new events, and another hook can be served. Log an error of the task."""
        self._tasks.pop(hook, None)
        broken = None if task.cancelled() else task.exception()
        if isinstance(broken, CrucibleError):
            log.warning("a hook could not be served", hook=hook, error=str(broken), code=broken.code)
        elif broken is not None:
            log.error("serving a hook broke", hook=hook, exc_info=broken)
        elif not task.cancelled() and task.result():
            self._ports.wakeups.wake(HOOKS)

    async def _serve(self, name: str) -> bool:
        """Send one hook its messages, one after another, until its receiver does not accept one.

        Return whether anything was sent or scanned.
        """
        progressed = False
        while upcoming := await self._ports.db.read(lambda conn: self._next(conn, name)):
            progressed = True
            if upcoming.message is None:
                await self._skip(upcoming)
                continue
            sent = await self._sender.send(upcoming.hook, upcoming.message)
            verdict = await self._settle(upcoming, upcoming.message, sent)
            if verdict is None or verdict.outcome is not DeliveryOutcome.DELIVERED:
                return verdict is not None
        return progressed

    def _next(self, conn: Connection, name: str) -> _Next | None:
        """Return what to do next for a hook. None if there is nothing now, or if another process has the duty."""
        now = database_now(conn, self._ports.clock.now)
        hook, newest = rows.get_hook(conn, name), rows.newest_cursor(conn)
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

    async def _skip(self, upcoming: _Next) -> None:
        hook = upcoming.hook
        self._scanned[hook.id] = upcoming.cursor
        if upcoming.cursor - hook.cursor >= SKIP:
            await self._ports.db.write(lambda conn: rows.advance_cursor(conn, hook, upcoming.cursor))

    async def _settle(self, upcoming: _Next, message: Message, sent: SendResult) -> DeliveryVerdict | None:
        """Store the outcome. Return None if the hook has changed meanwhile or another process has the duty."""
        hook, jitter = upcoming.hook, self._ports.random.uniform(-1.0, 1.0)

        def settle(conn: Connection) -> DeliveryVerdict | None:
            now = database_now(conn, self._ports.clock.now)
            verdict = judge_delivery(hook.standing, sent.reply, message.at, now, jitter)
            if not self._holds(conn) or not rows.record_outcome(conn, hook, upcoming.cursor, verdict):
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
    """Return the hooks to serve: none while a restored database may be older than the messages already sent."""
    return [] if restore_hold.is_held(conn) else rows.list_enabled(conn)


def _log_verdict(hook: Hook, message: Message, sent: SendResult, verdict: DeliveryVerdict) -> None:
    fields = {"hook": hook.id, "project": hook.project, "message": message.id, "status": sent.reply.status}
    if verdict.disabled:
        log.warning("a hook was disabled", **fields, why=verdict.disabled)
    elif verdict.outcome is DeliveryOutcome.GIVEN_UP:
        log.warning("a message to a hook was given up", **fields, failures=verdict.streak.failures)
