"""Serve machines that cannot call the server by polling their mailboxes in the store.

Each round polls the mailbox of every machine that is not gone or not drained, stores what runners left, and writes what
is wanted. A slow mailbox holds up no other. All of it goes through the same functions as the agents' routes, so one
deployment may use both channels at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Any

import structlog
from sqlalchemy import select

from crucible.control.agents.agents import Agents
from crucible.control.db import schema as t
from crucible.control.reconcile import repository
from crucible.control.runtime.ports import Ports
from crucible.control.storelink.drain import MailboxDrain
from crucible.control.storelink.mailbox_state import MailboxState
from crucible.control.storelink.mailboxes import Mailboxes
from crucible.control.storelink.poll import MailboxPoll
from crucible.control.storelink.receive import BatchReceiver
from crucible.core.errors import CrucibleError
from crucible.core.lifecycle import MachineState
from crucible.core.lifecycle.machines import MAKING

log = structlog.get_logger(__name__)

BUSY_SECONDS = 1.0
IDLE_SECONDS = 2.0
LOOKS = 3
LOOK_SECONDS = 1.0
"""A round waits this many times this long for mailboxes; what is not done then continues beside the next round."""
SEARCH_SECONDS = 300.0
"""How often mailboxes of gone machines are searched for."""


class StoreLink:
    """`key` is the deployment's, `backends` are this process's. `invites`: whether new machines use the store now.

    If not, only mailboxes found in the store are served, of machines launched before the setting changed.
    """

    def __init__(
        self,
        ports: Ports,
        agents: Agents,
        mailboxes: Mailboxes,
        key: bytes,
        backends: Collection[str],
        *,
        invites: Callable[[], bool] = lambda: True,
    ) -> None:
        self._ports = ports
        self._agents = agents
        self._mailboxes = mailboxes
        self._key = key
        self._backends = backends
        self._invites = invites
        self._receiver = BatchReceiver(ports, agents, mailboxes)
        self._drain = MailboxDrain(ports, agents, self._backends)
        self._states: dict[str, MailboxState] = {}
        self._searched_at: float | None = None
        self._search: asyncio.Task[list[str]] | None = None
        self._serving: dict[str, asyncio.Task[bool]] = {}
        self._unreadable: set[str] = set()
        """Mailboxes that could not be read at the last poll."""
        self.all_read = False
        """Whether every mailbox was polled since the start."""

    async def round(self) -> float:
        """Poll every mailbox once; return the seconds until the next round."""
        for machine in await self._list_machines():
            if machine not in self._serving:
                self._serving[machine] = asyncio.create_task(self._serve(machine))
        await self._wait_briefly(self._serving.values())
        ended = [machine for machine, task in self._serving.items() if task.done()]
        busy = [self._serving.pop(machine).result() for machine in ended]
        self.all_read |= self._searched_at is not None and not self._serving and not self._unreadable
        return BUSY_SECONDS if self._serving or any(busy) else IDLE_SECONDS

    async def stop(self) -> None:
        going = [*self._serving.values(), *([] if self._search is None else [self._search])]
        for task in going:
            task.cancel()
        await asyncio.gather(*going, return_exceptions=True)
        self._serving.clear()
        self._search = None
        await self._receiver.stop()

    async def _wait_briefly(self, tasks: Iterable[asyncio.Task[Any]]) -> None:
        """Wait a little for the tasks, recording contacts for undrained attempts meanwhile."""
        pending = set(tasks)
        for _ in range(LOOKS if pending else 0):
            _, pending = await asyncio.wait(pending, timeout=LOOK_SECONDS)
            if not pending:
                return
            await self._hold_unread()

    async def _hold_unread(self) -> list[str]:
        """Record contacts for undrained attempts; if none is invited only of mailboxes that were found."""
        only_found = not self._invites() and self._searched_at is not None
        return await self._drain.hold_unread(set(self._states) if only_found else None)

    async def _list_machines(self) -> list[str]:
        gone = await self._hold_unread()
        alive = select(t.machines.c.id).where(
            t.machines.c.state != MachineState.GONE.value, t.machines.c.backend.in_(sorted(self._backends))
        )
        found = await self._ports.db.read(lambda conn: conn.execute(alive).scalars().all()) if self._invites() else ()
        return sorted({*found, *gone, *self._states, *await self._find_leftovers()})

    async def _find_leftovers(self) -> list[str]:
        """Return machines that have a mailbox and may be gone; searched for now and then."""
        now = self._ports.clock.now()
        if self._search is None:
            if self._searched_at is not None and now - self._searched_at < SEARCH_SECONDS:
                return []
            self._search = asyncio.create_task(self._mailboxes.list_machines())
        await self._wait_briefly([self._search])
        if not self._search.done():
            return []
        search, self._search = self._search, None
        try:
            found = search.result()
        except CrucibleError as error:
            log.warning("mailboxes cannot be looked for", error=str(error))
            return []
        self._searched_at = now
        return found

    async def _serve(self, machine: str) -> bool:
        """Poll one mailbox; return whether to poll again soon. Errors are logged and never stop the others."""
        try:
            row = await self._ports.db.read(lambda conn: repository.load_machine(conn, machine))
            names = await self._mailboxes.list_names(machine)
        except (CrucibleError, ValueError) as error:  # ValueError: a folder that is no mailbox
            log.warning("a mailbox cannot be read", machine=machine, error=str(error))
            if isinstance(error, CrucibleError):
                self._unreadable.add(machine)
            return False
        self._unreadable.discard(machine)
        if row is None or row.backend not in self._backends or not names:
            self._states.pop(machine, None)
            if row is not None and row.state is MachineState.GONE:
                self._drain.record_poll(machine, left=False)
            return row is not None and row.state in MAKING
        box = self._states.setdefault(machine, MailboxState(self._mailboxes, machine))
        try:
            visit = MailboxPoll(self._ports, self._agents, self._mailboxes, self._receiver, self._key, box, row, names)
            busy = await visit.run()
            if row.state is MachineState.GONE:
                self._drain.record_poll(machine, left=visit.more)
            return busy
        except CrucibleError as error:
            log.warning("a mailbox cannot be served", machine=machine, error=str(error))
        return True
