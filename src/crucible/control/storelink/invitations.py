"""Invitations: which machines are told to talk through the store, and what they are given for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from crucible.backends.base import Backend
from crucible.control.storelink.postroom import Postroom
from crucible.core.channels import Channel, ChannelChoice, choose_channel
from crucible.storage.addresses import FolderAddress, parse_address


@dataclass(frozen=True)
class Invitations:
    """`store_url` is the store's address, empty where agents have no way to it."""

    postroom: Postroom
    agents_url: str
    store_url: str = ""
    wanted: Channel = Channel.HTTPS

    def channel(self, backend: Backend) -> ChannelChoice:
        return choose_channel(backend.capabilities.reach, self.agents_url, self.store_url, self.wanted)

    async def of(self, backend: Backend, machine: str) -> Mapping[str, object] | None:
        """What the machine's bootstrap says of the store; None where its agent calls us."""
        if self.channel(backend).channel is not Channel.STORE:
            return None
        return await self.postroom.invitation(machine)


def folder_of(store_url: str) -> Path | None:
    """The store's path, when it is a folder."""
    address = parse_address(store_url) if store_url else None
    return address.path if isinstance(address, FolderAddress) else None
