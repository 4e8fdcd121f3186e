"""The mailbox of a machine: how agents and the control plane talk through a store when neither can call the other.

A store is a shared folder, or a bucket. Layout below `mailboxes/<machine>/`:

    claim                           the host that came first, create-only
    parties/host/…                  the documents of the host
    parties/<attempt>.<rank>/…      the documents of each runner:
        alive                       written by the agent every few seconds: its life, a count, the URLs it needs
        down                        written by the control plane: the desired state, and which `alive` it has read
        up/<life>-<n>               signed batches of messages, create-only, never written twice
        blobs/<what>-<sha256>       log segments, outputs and checkpoints, before the message that announces them

Nothing in the store has to be trusted. The nonce of the bootstrap, which both sides know and which never travels
through the store, gives the host's key; each attempt's secret gives its runner's key. `claim`, `alive` and `down` are
documents under these keys (`crypto.py`): they cannot be changed or moved to another name. They are encrypted, unless
the store is a folder that is private to the user who runs both sides and the document holds no secret of a project:
then they are signed. Batches carry the same signature as over https, in clear text; a blob counts only with the
hash in a signed message. An agent draws a new `life` each time it starts and accepts a `down` only if that names its
life and has a higher number than the last: an old one that was put back is ignored. Messages are numbered, so a batch
that arrives twice is stored once.

Bundles, log segments, outputs and checkpoints are not encrypted: anyone who can read the store can read them.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from crucible.wire.documents.crypto import BadDocument, decode_document, encode_document
from crucible.wire.documents.messages import derive_secret
from crucible.wire.files.private import why_not_private

ROOT = "mailboxes"
CLAIM = "claim"
SECRETS = "GET secrets"
"""The request for secrets by a runner that needs some: they come in `down`, and leave it with the request."""
HOST = "host"
MAX_DOCUMENT = 4 * 1024 * 1024
"""Maximum number of bytes that are read of a document."""
MAX_WANTS = 64
MAX_OUTSTANDING = 64
"""Batches of one life that may be in the mailbox before the runner waits until they are received."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SEGMENT = re.compile(r"[0-9a-f]{24}-[0-9]{8}")


@dataclass(frozen=True)
class Claim:
    native_id: str


@dataclass(frozen=True)
class Heartbeat:
    """An agent's heartbeat. `count` rises within one `life`, which is one run of the agent's process.

    `wants` are objects that it needs a URL for, as `PUT name` or `GET name`. `devices` is what a host detected.
    """

    life: str
    count: int
    wants: tuple[str, ...] = ()
    devices: Optional[str] = None


@dataclass(frozen=True)
class ControlDocument:
    """The control plane's document to one party; `number` rises. `life` and `count` are of the last heartbeat it read.

    `body` for a host: `host` (the native id that holds the claim), `desired` (the document; None: the machine is no
    longer wanted). For a runner: its desired state, `acked`, and `keys`: the store's own keys of the bundle and
    checkpoint that it may read. While it requests them also `secrets`: `values` by variable, or why they are `refused`.
    `urls` answers `wants`.
    """

    number: int
    life: str = ""
    count: int = 0
    body: Mapping[str, Any] = field(default_factory=dict)
    urls: Mapping[str, str] = field(default_factory=dict)


# Names, relative to the mailbox


def mailbox_folder(machine: str) -> str:
    """Return the folder of the machine's mailbox. Raises ValueError for a bad id."""
    return f"{ROOT}/{_checked(machine)}"


def runner_party(attempt: str, rank: int) -> str:
    return f"{_checked(attempt)}.{int(rank)}"


def parse_runner_party(party: str) -> Optional[tuple[str, int]]:
    """Return attempt and rank, or None if the party is not a runner."""
    attempt, _, rank = party.rpartition(".")
    if not _NAME.fullmatch(attempt) or not re.fullmatch(r"0|[1-9][0-9]{0,5}", rank):
        return None
    return attempt, int(rank)


def heartbeat_name(party: str) -> str:
    return f"parties/{party}/alive"


def control_document_name(party: str) -> str:
    return f"parties/{party}/down"


def segment_name(party: str, life: str, n: int) -> str:
    """Return the name of a batch. Later lives sort later."""
    return f"parties/{party}/up/{life}-{n:08d}"


def is_segment(name: str) -> bool:
    """Return whether the last part of the name is that of a batch."""
    return _SEGMENT.fullmatch(name.rpartition("/")[2]) is not None


def log_blob(party: str, n: int, sha256: str) -> str:
    return _blob(party, f"log-{n:08d}", sha256)


def artifact_blob(party: str, path: str, sha256: str) -> str:
    """Return the name of an output. Equal outputs have separate blobs, as each is removed after it was read."""
    which = hashlib.sha256(path.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return _blob(party, f"artifact-{which}", sha256)


def checkpoint_blob(party: str, sha256: str) -> str:
    return _blob(party, "checkpoint", sha256)


def _blob(party: str, what: str, sha256: str) -> str:
    return f"parties/{party}/blobs/{what}-{sha256}"


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"not an id: {name!r}")
    return name


def new_incarnation() -> str:
    return f"{int(time.time() * 1000) & 0xFFFFFFFFFFF:012x}{os.urandom(6).hex()}"


# Keys


def host_key(nonce: bytes, machine: str) -> bytes:
    return derive_secret(nonce, "mailbox", machine)


def runner_key(secret: bytes, party: str) -> bytes:
    return derive_secret(secret, "mailbox", party)


# Documents


def is_private(folder: Path) -> bool:
    """Return whether only this user can open the folder; False if unknown."""
    return not why_not_private(folder)


def encode_claim(key: bytes, claim: Claim, *, encrypted: bool) -> bytes:
    return encode_document(key, CLAIM, 0, {"native_id": claim.native_id}, encrypted=encrypted)


def decode_claim(key: bytes, raw: bytes) -> Claim:
    _, doc = decode_document(key, CLAIM, raw)
    return Claim(_text(doc, "native_id"))


def encode_heartbeat(key: bytes, party: str, alive: Heartbeat, *, encrypted: bool) -> bytes:
    doc = {"life": alive.life, "wants": list(alive.wants), "devices": alive.devices}
    return encode_document(key, heartbeat_name(party), alive.count, doc, encrypted=encrypted)


def decode_heartbeat(key: bytes, party: str, raw: bytes) -> Heartbeat:
    count, doc = decode_document(key, heartbeat_name(party), raw)
    wants, devices = doc.get("wants"), doc.get("devices")
    return Heartbeat(
        _text(doc, "life"),
        count,
        tuple(str(want) for want in wants[:MAX_WANTS]) if isinstance(wants, list) else (),
        devices if isinstance(devices, str) else None,
    )


def encode_control_document(key: bytes, party: str, down: ControlDocument, *, encrypted: bool) -> bytes:
    doc = {"life": down.life, "count": down.count, "body": dict(down.body), "urls": dict(down.urls)}
    return encode_document(key, control_document_name(party), down.number, doc, encrypted=encrypted)


def decode_control_document(key: bytes, party: str, raw: bytes) -> ControlDocument:
    number, doc = decode_document(key, control_document_name(party), raw)
    body, urls = doc.get("body"), doc.get("urls")
    if not isinstance(body, dict) or not isinstance(urls, dict):
        raise BadDocument("a document without its parts")
    links = {str(name): str(url) for name, url in urls.items()}
    return ControlDocument(number, _text(doc, "life"), _number(doc, "count"), body, links)


def _text(doc: Mapping[str, Any], name: str) -> str:
    value = doc.get(name)
    if not isinstance(value, str):
        raise BadDocument(f"{name} is missing")
    return value


def _number(doc: Mapping[str, Any], name: str) -> int:
    value = doc.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadDocument(f"{name} is missing")
    return value
