"""Sessions in a running job: commands, shells and connections to its ports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, select

from crucible.control.agents.sessions import SessionStream, SessionTarget
from crucible.control.db import schema as t
from crucible.control.db.statement import Statement
from crucible.control.people import audit
from crucible.control.runtime.services import Services
from crucible.core.channels import Channel
from crucible.core.errors import Conflict
from crucible.core.ids import Prefix, short
from crucible.core.lifecycle import AttemptState, JobState
from crucible.core.people.identity import Identity, Permission
from crucible.wire.http import sessions as s

MAX_COMMAND_AUDITED = 4000
"""Maximum characters of a command in the audit log."""
PORT_AUDIT_SECONDS = 3600.0
"""Interval at which connections to the same port are written to the audit log: there may be many."""
MAX_PORTS_REMEMBERED = 10_000

_c = t.attempts.c
_NEWEST = Statement(
    select(_c.id, _c.state, _c.backend, t.slots.c.machine, t.jobs.c.state.label("job_state"))
    .select_from(t.jobs.outerjoin(t.attempts, _c.job == t.jobs.c.id).outerjoin(t.slots, t.slots.c.attempt == _c.id))
    .where(t.jobs.c.id == bindparam("job"))
    .order_by(_c.number.desc(), t.slots.c.rank)
    .limit(1)
)


class ExecAccess:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._access = services.access

    async def enter(self, who: Identity, ref: str) -> RunningJob:
        """Return the job, ready for sessions.

        Raises Conflict if its program neither runs nor is about to, or if its machine cannot be reached.
        """
        view = await self._access.find_job(who, ref)
        who.require(Permission.WRITE, view.project)
        job = RunningJob(self._services, who, view.project, view.id)
        await job.locate()
        return job


@dataclass(frozen=True)
class Location:
    """Where a job runs, and whether its program has begun."""

    visit: SessionTarget
    begun: bool


@dataclass(frozen=True)
class RunningJob:
    """A job in which a caller may open sessions."""

    services: Services
    who: Identity
    project: str
    job: str

    async def locate(self) -> Location:
        """Return where the program is. Raises Conflict if no session can be opened, now or soon."""
        row = await self.services.ports.db.read(lambda conn: _NEWEST.first(conn, job=self.job))
        assert row is not None, "found a moment ago, and jobs are never deleted"
        begun, state = row["state"] == AttemptState.RUNNING.value, JobState(row["job_state"])
        if not begun and state is not JobState.STARTING:
            raise _not_running(self.job, state)
        self.services.backend_access.require(row["backend"], self.who, self.project)
        self._require_connection(row["backend"])
        return Location(SessionTarget(self.who.user, self.job, row["id"], row["machine"]), begun)

    @asynccontextmanager
    async def session(self, opening: s.Opening) -> AsyncIterator[SessionStream]:
        """Open a session for the block and yield the agent's stream. Raises Conflict, TooManyAttempts, TimedOut."""
        id = self.services.ports.ids.new(Prefix.SESSION)
        visit = await self._program()
        with self.services.sessions.open(id, visit) as meeting:
            await self._audit_opening(opening)
            yield await meeting.wait_for_agent()

    async def _program(self) -> SessionTarget:
        """Return where the program runs; wait for it if its machine is still getting ready."""
        location = await self.locate()
        if location.begun:
            return location.visit
        with self.services.sessions.reserve(location.visit), self.services.feed.watch(self.job) as watch:
            try:
                async with asyncio.timeout(s.BEGIN_SECONDS):
                    while not (location := await self.locate()).begun:
                        await watch.changed(s.BEGIN_SECONDS)
            except TimeoutError:
                raise _not_begun(self.job) from None
        return location.visit

    def _require_connection(self, backend: str) -> None:
        if self.services.invitations.channel(self.services.backends.get(backend)).channel is Channel.STORE:
            raise Conflict(
                "The job's machine cannot be reached.",
                why="Its agent talks through the store, which carries messages but no sessions.",
                fix="Run the job where agents can open the server's address: leave out `channel = store`, or set "
                "agents_url to an address that its machine can reach.",
            )

    async def _audit_opening(self, opening: s.Opening) -> None:
        """Write the action and the caller to the audit log, before it happens."""
        now = self.services.ports.clock.now()
        if isinstance(opening, s.Command):
            await self._audit("job.exec", _command(opening), now)
        elif isinstance(opening, s.Connection) and self._should_audit_port(opening.port, now):
            await self._audit("job.port", {"port": opening.port}, now)

    async def _audit(self, action: str, data: Mapping[str, object], now: float) -> None:
        def note(conn: Connection) -> None:
            audit.record(conn, self.who, action, self.job, now, self.project, data)

        await self.services.ports.db.write(note)

    def _should_audit_port(self, port: int, now: float) -> bool:
        noted, key = self.services.noted_ports, (self.who.user, self.who.token, self.job, port)
        if now - noted.get(key, -PORT_AUDIT_SECONDS) < PORT_AUDIT_SECONDS:
            return False
        if len(noted) >= MAX_PORTS_REMEMBERED:
            noted.clear()
        noted[key] = now
        return True


def _command(command: s.Command) -> dict[str, object]:
    """Return the command for the audit log, cut to MAX_COMMAND_AUDITED, in text that every database accepts."""
    words, left = [], MAX_COMMAND_AUDITED
    for word in command.words:
        words.append(word[:left].encode("utf-8", "replace").decode())
        left -= len(word)
        if left <= 0:
            break
    return {"command": words, "terminal": command.terminal is not None}


def _not_begun(job: str) -> Conflict:
    return Conflict(
        f"The program of job {short(job)} has not begun: its machine is still getting ready for it.",
        why=f"A session needs the program's own environment, which was not ready within {s.BEGIN_SECONDS:.0f} seconds.",
        fix=f"See its progress with `crucible status {short(job)}`, then try again.",
    )


def _not_running(job: str, state: JobState) -> Conflict:
    if state.terminal:
        fix = f"Run it again: crucible rerun {short(job)}"
        why = "A session needs a running program."
        return Conflict(f"Job {short(job)} has ended: it is {state.value}.", why=why, fix=fix)
    return Conflict(
        f"The program of job {short(job)} is not running: the job is {state.value}.",
        why="A session needs the program's own environment.",
        fix=f"Wait until it runs: crucible status {short(job)}",
    )
