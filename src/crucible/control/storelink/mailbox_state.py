"""What the control plane knows of one machine's mailbox: newest heartbeats, and what it last wrote to whom."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from crucible.control.storelink.mailboxes import LASTING_URL_SECONDS, Mailboxes, own_wants
from crucible.storage.layout import bundle_key, checkpoint_key
from crucible.wire.documents.crypto import BadDocument, OldDocument
from crucible.wire.documents.desired import Assignment
from crucible.wire.documents.mailbox import (
    MAX_DOCUMENT,
    ControlDocument,
    Heartbeat,
    control_document_name,
    decode_heartbeat,
    encode_control_document,
    heartbeat_name,
    is_segment,
    mailbox_folder,
)

QUIET_SECONDS = 60.0
"""A living agent writes several times within this."""
_BLOB = re.compile(r"[a-z]+-[0-9a-f-]{1,100}")


@dataclass(frozen=True)
class MailboxParty:
    """One agent (the host or a runner) and the key of its documents."""

    name: str
    key: bytes = field(repr=False)


@dataclass(frozen=True)
class _SeenAlive:
    """A heartbeat and when it was first seen."""

    alive: Heartbeat
    at: float


class MailboxState:
    """In memory only: after a restart the control plane writes everything again."""

    def __init__(self, mailboxes: Mailboxes, machine: str) -> None:
        self._mailboxes = mailboxes
        self.machine = machine
        self.gone_since: float | None = None
        self.refused_claim: bytes | None = None
        self.claim_denied = False
        self.outdated_parties: set[str] = set()
        """Parties that write documents of version 0.1.0."""
        self.noted_attempts: set[str] = set()
        """Attempts whose events already have a note about that."""
        self._last_alive: dict[str, _SeenAlive] = {}
        self._written: dict[str, tuple[int, str]] = {}

    async def read_alive(
        self, party: MailboxParty, names: Mapping[str, int], now: float
    ) -> tuple[Heartbeat | None, bool]:
        """Return the party's newest heartbeat, and whether it is new since the last poll.

        The first one seen may be old, so it does not count as new.
        """
        if heartbeat_name(party.name) not in names:
            return None, False
        raw = await self._mailboxes.get(self.machine, heartbeat_name(party.name), MAX_DOCUMENT)
        before = self._last_alive.get(party.name)
        try:
            alive = decode_heartbeat(party.key, party.name, raw or b"")
        except BadDocument as error:
            if isinstance(error, OldDocument):
                self.outdated_parties.add(party.name)
            return (None if before is None else before.alive), False
        self.outdated_parties.discard(party.name)
        if before is not None and (alive == before.alive or _is_older(alive, before.alive)):
            return before.alive, False
        self._last_alive[party.name] = _SeenAlive(alive, now)
        return alive, before is not None

    def is_quiet(self, now: float, party: str | None = None) -> bool:
        """Return whether the party (None: every party) has been silent for so long that its agent has ended."""
        heard = (
            self._last_alive if party is None else {party: self._last_alive[party]} if party in self._last_alive else {}
        )
        return all(now - item.at >= QUIET_SECONDS for item in heard.values())

    async def write_down(
        self,
        party: MailboxParty,
        alive: Heartbeat | None,
        body: Mapping[str, object],
        now: float,
        urls: Mapping[str, str],
    ) -> None:
        """Write the party's document, unless it would be the same. Secrets of a project are always encrypted."""
        if alive is None:
            return
        steady = _fingerprint(alive, body, urls)
        number, before = self._written.get(party.name, (0, ""))
        if steady == before:
            return
        number = max(number + 1, int(now * 1000))
        down = ControlDocument(number, alive.life, alive.count, body, urls)
        encrypted = "secrets" in body or not await self._mailboxes.is_private()
        raw = encode_control_document(party.key, party.name, down, encrypted=encrypted)
        await self._mailboxes.put(self.machine, control_document_name(party.name), raw)
        self._written[party.name] = (number, steady)

    async def urls(self, party: MailboxParty, alive: Heartbeat | None, keys: Mapping[str, str]) -> dict[str, str]:
        """Return signed URLs for what the party always needs, and for what it asks for and may have."""
        wants = (*own_wants(party.name), *(alive.wants if alive is not None else ()))
        granted = {want: key for want in wants if (key := self._key(party, want, keys)) is not None}
        lasting = {want: key for want, key in granted.items() if want in own_wants(party.name) or is_segment(want)}
        brief = {want: key for want, key in granted.items() if want not in lasting}
        return {
            **await self._mailboxes.sign_urls(lasting, LASTING_URL_SECONDS),
            **await self._mailboxes.sign_urls(brief),
        }

    async def runner_urls(self, parties: list[str]) -> dict[str, str]:
        """Return the signed URLs that runners start with; their host passes them on."""
        root = mailbox_folder(self.machine)
        wants = [want for party in parties for want in own_wants(party)]
        return await self._mailboxes.sign_urls({want: f"{root}/{want[4:]}" for want in wants}, LASTING_URL_SECONDS)

    def _key(self, party: MailboxParty, want: str, keys: Mapping[str, str]) -> str | None:
        method, _, name = want.partition(" ")
        if method == "GET" and name in keys:
            return keys[name]
        top = f"parties/{party.name}/"
        last = name.rpartition("/")[2]
        writable = name == f"{top}up/{last}" and is_segment(name)
        writable = writable or (name == f"{top}blobs/{last}" and _BLOB.fullmatch(last) is not None)
        if want in own_wants(party.name) or (method == "PUT" and writable):
            return f"{mailbox_folder(self.machine)}/{name}"
        return None

    def forget(self, party: str) -> None:
        self._last_alive.pop(party, None)
        self._written.pop(party, None)


def readable_keys(assignment: Assignment | None) -> dict[str, str]:
    """Return the store keys of an assignment's bundle and checkpoint, by the names that agents ask for."""
    keys = {}
    if assignment is not None and assignment.bundle is not None:
        keys[f"bundles/{assignment.bundle}"] = bundle_key(assignment.bundle)
    if assignment is not None and assignment.resume_from is not None:
        sha256 = assignment.resume_from.sha256
        keys[f"checkpoints/{sha256}"] = checkpoint_key(assignment.job, sha256)
    return keys


def _is_older(alive: Heartbeat, before: Heartbeat) -> bool:
    """Return whether an earlier heartbeat of the same agent process was put back: a replay."""
    return alive.life == before.life and alive.count < before.count


def _fingerprint(alive: Heartbeat, body: Mapping[str, object], urls: Mapping[str, str]) -> str:
    """Return what makes one document differ from another, without the seconds left, which always change."""
    plain = {name: value for name, value in body.items() if name != "ends_in"}
    desired = plain.get("desired")
    if isinstance(desired, dict):
        plain["desired"] = {name: value for name, value in desired.items() if name != "ends_in"}
    return json.dumps([alive.life, alive.count, plain, dict(urls)], sort_keys=True)
