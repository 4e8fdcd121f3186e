"""A host's channel through a store: its claim, its heartbeats, and the desired document."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping
from typing import Callable

from crucible.agent.link.channel import ClaimedByAnother
from crucible.agent.link.connection import Gone, Refused, Unreachable
from crucible.agent.storelink.client import MailboxClient, unreachable_without_cryptography
from crucible.wire.documents.crypto import BadDocument
from crucible.wire.documents.desired import BadDesired, Desired, decode_desired
from crucible.wire.documents.mailbox import CLAIM, MAX_DOCUMENT, Claim, decode_claim, encode_claim

GRANT_SECONDS = 10.0


class StoreMachineChannel:
    """`key` is the host's key of the mailbox. Both sides know it, so a claim does not have to return a secret."""

    def __init__(
        self,
        party: MailboxClient,
        key: bytes,
        on_urls: Callable[[Mapping[str, str]], None] = lambda urls: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._party = party
        self._mail = party.mail
        self._key = key
        self._on_urls = on_urls
        self._sleep = sleep
        self._version = 0
        self._devices: str | None = None

    @property
    def socket(self) -> socket.socket | None:
        """None, because the answer has to be polled."""
        return None

    def claim(self, nonce: str, native_id: str) -> str:
        """Return the key once the control plane has named this host. Raises like a claim over https."""
        with unreachable_without_cryptography():
            self._put_claim(native_id)
        until = time.monotonic() + GRANT_SECONDS
        while time.monotonic() < until:
            self._party.send_heartbeat()
            down = self._party.fetch_document()
            holder = None if down is None else down.body.get("host")
            if down is not None and down.body.get("desired") is None:
                raise Gone("the machine is not wanted any more")
            if holder == native_id:
                return self._key.decode()
            if holder is not None:
                raise ClaimedByAnother("another machine has claimed this mailbox")
            self._sleep(self._mail.pace)
        raise Unreachable("the control plane has not answered the claim")

    def _put_claim(self, native_id: str) -> None:
        raw = encode_claim(self._key, Claim(native_id), encrypted=not self._mail.is_private)
        if self._mail.put_new(CLAIM, raw):
            return
        found = self._mail.get(CLAIM, MAX_DOCUMENT)
        try:
            holder = decode_claim(self._key, found or b"").native_id
        except BadDocument:  # not a document for this host
            self._mail.put(CLAIM, raw, len(raw))
            return
        if holder != native_id:
            raise ClaimedByAnother("another machine has claimed this mailbox")

    def ask(self, version: int, wait: float, devices: str | None) -> float:
        """Send a heartbeat. Return the seconds after which to poll for the answer."""
        self._version = version
        self._devices = devices or self._devices
        self._party.send_heartbeat(self._devices)
        return self._mail.pace

    def answer(self) -> Desired | None:
        """Return the document if its version is new, else None. Raises Gone, Unreachable."""
        down = self._party.fetch_document()
        if not self._party.in_touch:
            raise Unreachable("the control plane has not read the mailbox lately")
        if down is None:
            return None
        document = down.body.get("desired")
        if document is None:
            raise Gone("the machine is not wanted any more")
        try:
            desired = decode_desired(json.dumps(document).encode())
        except (BadDesired, AttributeError) as error:
            raise Refused(200, str(error)) from error
        if desired.version == self._version:
            return None
        self._on_urls(down.urls)
        return desired
