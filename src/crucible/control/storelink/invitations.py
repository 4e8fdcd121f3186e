"""Which machines talk through the store, what their bootstrap holds for it, and which backends cannot."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from crucible.backends.base import Backend, Reach, Tunnels
from crucible.control.storelink.mailboxes import Mailboxes
from crucible.core.channels import Channel, ChannelChoice, Rejection, check_channel, choose_channel
from crucible.storage.addresses import FolderAddress, parse_address
from crucible.wire.documents.mailbox import is_private

PROBE = "from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305; ChaCha20Poly1305(bytes(32))"
PROBE_SECONDS = 10.0


class Invitations:
    """`store_url` is the store's address, empty where agents have no way to it."""

    def __init__(
        self, mailboxes: Mailboxes, agents_url: str, store_url: str = "", wanted: Channel = Channel.HTTPS
    ) -> None:
        self._mailboxes = mailboxes
        self._agents_url = agents_url
        self._store_url = store_url
        self._wanted = wanted
        self._private = False
        self._encrypting: set[str] = set()
        """Interpreters known to have the package `cryptography`."""
        self._lacking: set[str] = set()

    def channel(self, backend: Backend) -> ChannelChoice:
        reach = backend.capabilities.reach
        tunnels = reach is Reach.TUNNEL and isinstance(backend, Tunnels)
        return choose_channel(reach, self._agents_url, self._store_url, self._wanted, tunnels=tunnels)

    async def make_invitation(
        self, backend: Backend, machine: str, agent: str | None = None
    ) -> Mapping[str, object] | None:
        """Return the bootstrap's section on the store; None where the agent calls the server.

        `agent` is the hash of the agent file that the machine downloads, if it does.
        """
        if self.channel(backend).channel is not Channel.STORE:
            return None
        return await self._mailboxes.invitation(machine, agent)

    def probe(self, backend: Backend) -> None:
        """Find out what `rejection` needs. Blocks for a moment while an interpreter is probed."""
        if self.channel(backend).channel is not Channel.STORE:
            return
        folder, python = store_folder(self._store_url), backend.capabilities.agent_python
        self._private = folder is not None and is_private(folder)
        if not python or python in self._encrypting:
            return
        if lacks_cryptography(python):
            self._lacking.add(python)
        else:
            self._lacking.discard(python)
            self._encrypting.add(python)

    def rejection(self, backend: Backend, *, secrets: bool) -> Rejection | None:
        """Return why jobs (with `secrets`: jobs with secrets) cannot run there; None if they can, as far as known."""
        python = backend.capabilities.agent_python
        lacking = python if python in self._lacking else ""
        return check_channel(self.channel(backend), private=self._private, secrets=secrets, lacking=lacking)


def lacks_cryptography(python: str) -> bool:
    """Return whether this interpreter, started as agents are, lacks `cryptography`; False if it does not answer."""
    try:
        found = subprocess.run([python, "-I", "-c", PROBE], capture_output=True, timeout=PROBE_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError):
        return False
    return found.returncode != 0


def store_folder(store_url: str) -> Path | None:
    """Return the store's path if it is a folder, else None."""
    address = parse_address(store_url) if store_url else None
    return address.path if isinstance(address, FolderAddress) else None
