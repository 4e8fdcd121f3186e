"""The identity of a physical computer, the same whatever backends reach it.

It is the computer's /etc/machine-id; where that is missing or empty, its ssh host key with the boot id. Two computers
that run at once with the same machine id and different boot ids are copies of one disk image, told apart by their ssh
host keys.
"""

from __future__ import annotations

import contextlib
import hashlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HOST_KEYS = (
    "etc/ssh/ssh_host_ed25519_key.pub",
    "etc/ssh/ssh_host_ecdsa_key.pub",
    "etc/ssh/ssh_host_rsa_key.pub",
)
"""Public ssh host keys, below the root of the file system, the preferred one first."""
_ID_CHARS = 32


@dataclass(frozen=True)
class NodeFacts:
    """What identifies a computer. `host_key` is its public ssh host key, without options and comment."""

    machine_id: str = ""
    boot_id: str = ""
    host_key: str = ""


def node_id(facts: NodeFacts, *, is_clone: bool = False) -> str:
    """Return the computer's identity. `is_clone`: another computer that runs has the same machine id.

    Hashed, because a machine id is not to be shown to others.
    """
    if facts.machine_id and not is_clone:
        return _hashed("machine-id", facts.machine_id)
    if facts.host_key:
        return _hashed("host-key", facts.host_key, "" if facts.machine_id else facts.boot_id)
    return _hashed("boot-id", facts.boot_id)


def find_clones(computers: Sequence[NodeFacts]) -> frozenset[int]:
    """Return the positions of computers whose machine id another one has too, with another boot id.

    The first computer of each machine id is no clone, so that its identity does not change when a copy of it appears.
    """
    first: dict[str, NodeFacts] = {}
    clones = set()
    for position, facts in enumerate(computers):
        if facts.machine_id and first.setdefault(facts.machine_id, facts).boot_id != facts.boot_id:
            clones.add(position)
    return frozenset(clones)


def read_own_facts(root: Path = Path("/")) -> NodeFacts:
    """Return the facts of this computer. On macOS its network address stands for a boot id."""
    boot_id = _read(root / "proc/sys/kernel/random/boot_id")
    keys = (_read(root / path) for path in HOST_KEYS)
    return NodeFacts(
        machine_id=_read(root / "etc/machine-id"),
        boot_id=boot_id or f"{uuid.getnode():x}",
        host_key=next((" ".join(key.split()[:2]) for key in keys if key), ""),
    )


def own_node_id(root: Path = Path("/")) -> str:
    """Return the identity of this computer."""
    return node_id(read_own_facts(root))


def _read(path: Path) -> str:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="utf-8").strip()
    return ""


def _hashed(*parts: str) -> str:
    return f"node-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:_ID_CHARS]}"
