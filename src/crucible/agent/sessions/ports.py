"""Find the ports on which a job listens. Only these are forwarded: the machine may be a personal computer."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import struct
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_LISTENS = "0A"
_TABLES = (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6))


class PortsUnknown(Exception):
    """Raised if the system does not show which process listens on which port."""


@dataclass(frozen=True)
class ListeningPort:
    """`address` is where to connect to; None if the process does not listen on loopback."""

    port: int
    address: str | None


def find_ports(pids: Iterable[int], proc: Path = Path("/proc")) -> dict[int, ListeningPort]:
    """Return the ports on which these processes listen. Raises PortsUnknown."""
    if not (proc / "self" / "net" / "tcp").exists():
        raise PortsUnknown("there is no /proc/self/net/tcp")
    owned = {inode for pid in pids for inode in _sockets(pid, proc)}
    found: dict[int, ListeningPort] = {}
    for port, address, inode in _listeners(proc):
        if inode in owned and (port not in found or found[port].address is None):
            found[port] = ListeningPort(port, _reached_at(address))
    return found


def _sockets(pid: int, proc: Path) -> Iterator[str]:
    """Yield the inodes of a process's sockets; none if it has ended, or is another user's."""
    folder = proc / str(pid) / "fd"
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = os.listdir(folder)
    for name in names:
        with contextlib.suppress(OSError):
            target = os.readlink(folder / name)
            if target.startswith("socket:["):
                yield target[8:-1]


def _listeners(proc: Path) -> Iterator[tuple[int, str, str]]:
    """Yield port, address and inode of every listening socket."""
    for name, family in _TABLES:
        lines: list[str] = []
        with contextlib.suppress(OSError):
            lines = (proc / "self" / "net" / name).read_text().splitlines()[1:]
        for line in lines:
            fields = line.split()
            if len(fields) > 9 and fields[3] == _LISTENS:
                address, _, port = fields[1].partition(":")
                yield int(port, 16), _address(address, family), fields[9]


def _address(text: str, family: int) -> str:
    """Decode an address, which the kernel writes as 32-bit numbers in host byte order."""
    form = "<I" if sys.byteorder == "little" else ">I"
    words = [int(text[at : at + 8], 16) for at in range(0, len(text), 8)]
    return socket.inet_ntop(family, b"".join(struct.pack(form, word) for word in words))


def _reached_at(address: str) -> str | None:
    found = ipaddress.ip_address(address)
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    if found.is_unspecified:
        return "127.0.0.1" if found.version == 4 else "::1"
    return str(found) if found.is_loopback else None
