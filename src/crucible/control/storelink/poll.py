"""One poll of one machine's mailbox: store what its host and runners left, and answer them."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import structlog
from sqlalchemy import Connection, select

from crucible.control.agents.agents import Agents, MachineUnwanted
from crucible.control.db import schema as t
from crucible.control.reconcile import repository
from crucible.control.runtime.ports import Ports
from crucible.control.storelink.mailbox_state import MailboxParty, MailboxState, readable_keys
from crucible.control.storelink.mailboxes import Mailboxes
from crucible.control.storelink.receive import BatchReceiver, MailboxRunner, Received
from crucible.core.errors import BadInput, CrucibleError, NotAllowed, NotFound
from crucible.core.ids import short
from crucible.core.lifecycle import Machine, MachineState
from crucible.core.lifecycle.machines import MAKING
from crucible.wire.documents.crypto import BadDocument
from crucible.wire.documents.desired import Assignment, Desired, encode_desired
from crucible.wire.documents.mailbox import (
    CLAIM,
    HOST,
    MAX_DOCUMENT,
    SECRETS,
    Heartbeat,
    decode_claim,
    heartbeat_name,
    host_key,
    is_segment,
    parse_runner_party,
    runner_key,
    runner_party,
)
from crucible.wire.documents.messages import derive_secret

log = structlog.get_logger(__name__)

LEFT_SECONDS = 600.0
"""How long batches of a gone machine that cannot be stored are kept."""
OLD_AGENT = (
    "the agent of this attempt is of version 0.1.0, whose documents in the store this server cannot read: it counts as "
    "silent, though what it stores still arrives. To continue under a new agent from the newest checkpoint, resume "
    "the job after: crucible machines terminate {machine}"
)


@dataclass(frozen=True)
class _Slot:
    attempt: str
    rank: int
    acked: int
    ended: bool

    @property
    def party(self) -> str:
        return runner_party(self.attempt, self.rank)


@dataclass
class MailboxPoll:
    """One poll of one mailbox; `names` is what it held at the start. `more`: there is more to store."""

    ports: Ports
    agents: Agents
    mailboxes: Mailboxes
    receiver: BatchReceiver
    key: bytes
    state: MailboxState
    row: Machine
    names: dict[str, int]
    more: bool = False

    async def run(self) -> bool:
        """Poll the mailbox; return whether anything runs or waits there."""
        writers = {found[0] for name in self.names if (found := _writer_of(name)) is not None}
        slots = await self.ports.db.read(lambda conn: _load_slots(conn, self.row.id, writers))
        host, alive, heard = await self._read_host()
        document = await self._read_desired(alive if heard else None)
        assigned = {(a.attempt, a.rank): a for a in (document.assignments if document is not None else ())}
        news = False
        for slot in slots:
            if not slot.ended or self._names_of(slot.party):
                news |= await self._poll_runner(slot, assigned.get((slot.attempt, slot.rank)))
        await self._note_old_agents(slots)
        if news:
            document = await self._read_desired(None)
        await self._write_to_host(host, alive, document)
        if self.row.state is MachineState.GONE:
            await self._clear(alive)
        return self.row.state in MAKING or any(not slot.ended for slot in slots)

    # The host

    async def _read_host(self) -> tuple[MailboxParty, Heartbeat | None, bool]:
        """Read the host's claim and heartbeat. The first heartbeat of a new machine counts as new, however old."""
        nonce = derive_secret(self.key, "nonce", self.row.id)
        host = MailboxParty(HOST, host_key(nonce, self.row.id))
        await self._claim(host, nonce)
        alive, fresh = await self.state.read_alive(host, self.names, self.ports.clock.now())
        claimed = alive is not None and self.row.claimed_by is not None
        return host, alive, claimed and (fresh or self.row.state in MAKING)

    async def _claim(self, host: MailboxParty, nonce: bytes) -> None:
        if self.row.claimed_by is not None or CLAIM not in self.names:
            return
        raw = await self.mailboxes.get(self.row.id, CLAIM, MAX_DOCUMENT) or b""
        if raw == self.state.refused_claim:
            return
        try:
            await self.agents.claim(self.row.id, nonce.decode(), decode_claim(host.key, raw).native_id)
        except (BadDocument, NotAllowed) as error:
            self.state.refused_claim = raw
            self.state.claim_denied = isinstance(error, NotAllowed)
            log.warning("a claim is refused", machine=self.row.id, why=str(error))
        except MachineUnwanted:
            return
        row = await self.ports.db.read(lambda conn: repository.load_machine(conn, self.row.id))
        self.row = row or self.row

    async def _read_desired(self, heard: Heartbeat | None) -> Desired | None:
        """Return what is wanted of the machine; None if it is no longer wanted. `heard`: records a contact."""
        try:
            if heard is not None:
                return await self.agents.desired(self.row.id, -1, 0.0, _parse_devices(heard.devices))
            return await self.agents.read_desired(self.row.id)
        except MachineUnwanted:
            return None

    async def _write_to_host(self, host: MailboxParty, alive: Heartbeat | None, document: Desired | None) -> None:
        """Write to the host, once its claim is granted; if the claim is denied, only that it is to end."""
        if self.row.claimed_by is None and self.state.claim_denied:
            document = None
        if self.row.claimed_by is None and document is not None:
            return
        desired = None if document is None else json.loads(encode_desired(document))
        body = {"host": self.row.claimed_by, "desired": desired}
        parties = [runner_party(a.attempt, a.rank) for a in (document.assignments if document is not None else ())]
        urls = {**await self.state.urls(host, alive, {}), **await self.state.runner_urls(parties)}
        await self.state.write_down(host, alive, body, self.ports.clock.now(), urls)

    # Runners

    async def _note_old_agents(self, slots: Collection[_Slot]) -> None:
        """Add one note to each attempt whose agent, or host, is too old for this server."""
        for slot in slots:
            if (
                not slot.ended
                and self.state.outdated_parties & {HOST, slot.party}
                and slot.attempt not in self.state.noted_attempts
            ):
                await self.agents.add_note(slot.attempt, OLD_AGENT.format(machine=short(self.row.id)))
                self.state.noted_attempts.add(slot.attempt)

    async def _poll_runner(self, slot: _Slot, assignment: Assignment | None) -> bool:
        """Store what the runner left and answer it; return whether it left anything new."""
        secret = derive_secret(self.key, "attempt", slot.attempt)
        party = MailboxParty(slot.party, runner_key(secret, slot.party))
        alive, fresh = await self.state.read_alive(party, self.names, self.ports.clock.now())
        deaf = slot.party in self.state.outdated_parties
        runner = MailboxRunner(self.row.id, slot.attempt, slot.rank, secret, deaf=deaf, ended=slot.ended)
        taken = await self._receive(runner, slot.acked)
        self.more |= taken.more and not slot.ended
        wishes = {**await self._read_attempt_desired(slot, fresh), **await self._read_secrets(slot, alive)}
        await self._write_to_runner(party, alive, assignment, {**wishes, "acked": taken.acked})
        await self._tidy(slot, taken)
        return taken.acked > slot.acked

    async def _receive(self, runner: MailboxRunner, acked: int) -> Received:
        """Store the runner's batches. What cannot be stored now waits, without holding up other runners."""
        try:
            return await self.receiver.receive(runner, self.names, acked) or Received(acked, more=True)
        except CrucibleError as error:
            log.warning("mail cannot be taken in", machine=self.row.id, attempt=runner.attempt, why=str(error))
            return Received(acked, more=True)

    async def _read_attempt_desired(self, slot: _Slot, fresh: bool) -> Mapping[str, object]:
        if not fresh:
            return (await self.agents.read_attempt_desired(slot.attempt)).as_json()
        known_by_nobody = -1
        wishes = await self.agents.attempt_desired(slot.attempt, slot.rank, False, known_by_nobody, 0.0)
        return {} if wishes is None else wishes.as_json()

    async def _read_secrets(self, slot: _Slot, alive: Heartbeat | None) -> Mapping[str, object]:
        """Return the secrets (they are written encrypted), for as long as the runner asks for them."""
        if alive is None or SECRETS not in alive.wants or slot.ended:
            return {}
        try:
            return {"secrets": {"values": await self.agents.secrets(slot.attempt)}}
        except (BadInput, NotFound) as error:
            return {"secrets": {"refused": str(error)}}
        except CrucibleError as error:
            log.warning("secrets cannot be handed over", attempt=slot.attempt, why=str(error))
            return {}

    async def _write_to_runner(
        self, party: MailboxParty, alive: Heartbeat | None, assignment: Assignment | None, wishes: Mapping[str, object]
    ) -> None:
        keys = readable_keys(assignment)
        urls = await self.state.urls(party, alive, keys)
        await self.state.write_down(party, alive, {**wishes, "keys": keys}, self.ports.clock.now(), urls)

    async def _tidy(self, slot: _Slot, taken: Received) -> None:
        """Delete what was stored; of a runner that has ended and gone silent, everything."""
        await self.mailboxes.delete(self.row.id, taken.done)
        left = {name for name in self._names_of(slot.party) if name not in taken.done}
        quiet = self.state.is_quiet(self.ports.clock.now(), slot.party)
        if slot.ended and quiet and not any(is_segment(name) for name in left):
            await self.mailboxes.delete(self.row.id, left)
            await self.mailboxes.clear(self.row.id, f"parties/{slot.party}")
            self.state.forget(slot.party)

    def _names_of(self, party: str) -> list[str]:
        return [name for name in self.names if name.startswith(f"parties/{party}/")]

    # The end

    async def _clear(self, host: Heartbeat | None) -> None:
        """Delete the mailbox of a gone machine once all is stored or given up.

        A mailbox whose host's heartbeat has another key belongs to another deployment, and stays.
        """
        if host is None and heartbeat_name(HOST) in self.names:
            return
        now = self.ports.clock.now()
        self.state.gone_since = now if self.state.gone_since is None else self.state.gone_since
        if not self.state.is_quiet(now) or self.receiver.is_receiving(self.row.id):
            return
        left = await self.mailboxes.list_names(self.row.id)
        waiting = any(is_segment(name) and _writer_of(name) for name in left)
        if waiting and now - self.state.gone_since < LEFT_SECONDS:
            return
        await self.mailboxes.delete(self.row.id, left)
        await self.mailboxes.clear(self.row.id)


def _writer_of(name: str) -> tuple[str, int] | None:
    """Return the attempt and rank of the runner that wrote the object; None if no runner did."""
    parts = name.split("/")
    return parse_runner_party(parts[1]) if parts[0] == "parties" and len(parts) > 2 else None


def _load_slots(conn: Connection, machine: str, writers: Collection[str]) -> list[_Slot]:
    """Return the slots that are open, and those whose runner has left something."""
    query = (
        select(t.slots.c.attempt, t.slots.c.rank, t.slots.c.acked, t.slots.c.ended)
        .where(t.slots.c.machine == machine)
        .where(t.slots.c.ended.is_(False) | t.slots.c.attempt.in_(sorted(writers)))
        .order_by(t.slots.c.attempt, t.slots.c.rank)
    )
    return [_Slot(row.attempt, row.rank, row.acked, bool(row.ended)) for row in conn.execute(query)]


def _parse_devices(text: str | None) -> dict[str, object] | None:
    try:
        found = json.loads(text or "null")
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
