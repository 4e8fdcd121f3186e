"""A runner's channel through a store.

A batch counts as acknowledged once it is in the store: it survives this machine, and the control plane reads it when it
can. So a job runs, and even ends, while the control plane is away. Followers get output by segments only; there is no
live tail.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO, Callable

from crucible.agent.link.channel import DesiredAttempt, LogSegment, read_desired_attempt
from crucible.agent.link.connection import Refused, Unreachable
from crucible.agent.storelink.client import MailboxClient
from crucible.wire.documents.crypto import check_cryptography
from crucible.wire.documents.mailbox import SECRETS, ControlDocument, artifact_blob, checkpoint_blob, log_blob
from crucible.wire.documents.messages import Batch, Message, encode_batch

SECRETS_SECONDS = 60.0


class StoreChannel:
    """All channels of one runner share its mailbox client."""

    is_direct = False

    def __init__(
        self, party: MailboxClient, attempt: str, rank: int, secret: str, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._party = party
        self._mail = party.mail
        self._attempt = attempt
        self._rank = rank
        self._secret = secret.encode()
        self._sleep = sleep
        self._sent_at = 0.0

    def close(self) -> None:
        pass

    def desired(self, known: DesiredAttempt, wait: float) -> DesiredAttempt | None:
        until = time.monotonic() + wait
        while True:
            self._party.send_heartbeat()
            down = self._party.fetch_document()
            wish = known if down is None else read_desired_attempt(down.body)
            if wish != known:
                return wish
            if time.monotonic() + self._mail.pace > until:
                break
            self._sleep(self._mail.pace)
        if not self._party.in_touch:
            raise Unreachable("the control plane has not read the mailbox lately")
        return None

    def send(self, messages: Sequence[Message]) -> int:
        """Put a batch into the store, at most one per `pace`, because more would only fill the store."""
        self._sleep(max(0.0, self._sent_at + self._mail.pace - time.monotonic()))
        body = encode_batch(Batch(self._attempt, self._rank, tuple(messages)), self._secret)
        # Each name is used once, because after a failed put the object may exist or not.
        while not self._mail.put_new(self._party.next_segment(), body):
            continue
        self._sent_at = time.monotonic()
        self._party.sent(messages[-1].n)
        return messages[-1].n

    def put_log(self, segment: LogSegment) -> str:
        data = segment.path.read_bytes()
        sha256 = hashlib.sha256(data).hexdigest()
        self._mail.put(log_blob(self._party.name, segment.n, sha256), data, len(data))
        return sha256

    def put_tail(self, start: int, data: bytes) -> None:
        pass

    def put_artifact(self, name: str, content: BinaryIO, size: int, sha256: str) -> None:
        self._mail.put(artifact_blob(self._party.name, name, sha256), content, size)

    def put_checkpoint(self, sha256: str, content: BinaryIO, size: int) -> None:
        self._mail.put(checkpoint_blob(self._party.name, sha256), content, size)

    def bundle(self, sha256: str, start: int) -> Iterator[bytes]:
        return self._fetch(f"bundles/{sha256}", start)

    def get_checkpoint(self, sha256: str, start: int) -> Iterator[bytes]:
        return self._fetch(f"checkpoints/{sha256}", start)

    def secrets(self) -> dict[str, str]:
        """Request the secrets. They are in the store, encrypted, only while requested. Raises NoCryptography."""
        check_cryptography()
        self._party.want(SECRETS)
        try:
            until = time.monotonic() + SECRETS_SECONDS
            while time.monotonic() < until:
                self._party.send_heartbeat()
                down = self._party.fetch_document()
                found = None if down is None else down.body.get("secrets")
                if isinstance(found, dict):
                    return _values(found)
                self._sleep(self._mail.pace)
        finally:
            self._party.want()
        raise Unreachable("the control plane has not sent the secrets")

    def _fetch(self, name: str, start: int) -> Iterator[bytes]:
        return self._mail.fetch(name, _key(self._party.fetch_document(), name), start)


def _values(found: Mapping[str, object]) -> dict[str, str]:
    values = found.get("values")
    if not isinstance(values, dict):
        raise Refused(404, str(found.get("refused") or "the secrets are refused"))
    return {str(name): str(value) for name, value in values.items()}


def _key(down: ControlDocument | None, name: str) -> str | None:
    keys = down.body.get("keys") if down is not None else None
    key = keys.get(name) if isinstance(keys, dict) else None
    return key if isinstance(key, str) else None
