"""Channels between agents and the control plane: choose the one that a backend's machines can use."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cache
from ipaddress import ip_address
from urllib.parse import urlsplit


class Reach(enum.StrEnum):
    """How agents on a backend's machines can reach the control plane."""

    SAME_COMPUTER = "same_computer"
    """It runs on the server's computer as the server's user, and sees the same files."""
    LOOPBACK = "loopback"
    """It runs on the server's computer and can call the server there, but shares no folder with it."""
    MOUNT = "mount"
    """It is a container or sandbox that has the server's folders mounted."""
    SHARED_DIR = "shared_dir"
    """It is a computer that shares folders with the server, such as a node of a cluster."""
    TUNNEL = "tunnel"
    """It can call the server through a tunnel, if the backend builds one."""
    INTERNET = "internet"
    """It can call an address that is open to the internet, and buckets."""

    @property
    def is_here(self) -> bool:
        """Whether its machines are on the server's computer."""
        return self in (Reach.SAME_COMPUTER, Reach.LOOPBACK)

    @property
    def may_see_paths(self) -> bool:
        """Whether a path of the submitting computer may exist on its machines."""
        return self not in (Reach.LOOPBACK, Reach.INTERNET)


class Channel(enum.StrEnum):
    HTTPS = "https"
    """The agent calls the agents' listener."""
    STORE = "store"
    """Both sides read and write a shared folder or a bucket."""
    TUNNEL = "tunnel"
    """HTTP through an encrypted tunnel that the backend builds."""


@dataclass(frozen=True)
class ChannelChoice:
    """The chosen channel, or None with the reason `why` and the setting that fixes it."""

    channel: Channel | None
    why: str
    fix: str = ""


@dataclass(frozen=True)
class Rejection:
    """Why a backend's machines cannot be used, and the fix."""

    why: str
    fix: str

    def __str__(self) -> str:
        return f"{self.why}. {self.fix}"


BUCKETS = ("s3", "gs", "az", "azure", "abfs")


@cache
def choose_channel(
    reach: Reach, server_url: str, store_url: str, wanted: Channel = Channel.HTTPS, *, tunnels: bool = False
) -> ChannelChoice:
    """Return the channel for agents on machines of this reach.

    `server_url` is the agents' listener, `store_url` a path or the URL of a bucket. `wanted` decides if both work.
    `tunnels`: the backend builds tunnels to this server.
    """
    https, store = _calls(reach, server_url), _stores(reach, store_url)
    if wanted is Channel.STORE and store:
        return ChannelChoice(Channel.STORE, store)
    if reach is Reach.TUNNEL and tunnels and server_url:
        return ChannelChoice(Channel.TUNNEL, "the backend builds a tunnel to this server")
    if https:
        return ChannelChoice(Channel.HTTPS, https)
    if store:
        return ChannelChoice(Channel.STORE, f"{store}; the server's address is for this computer alone")
    return ChannelChoice(None, _why_none(reach), _fix(reach))


def check_channel(choice: ChannelChoice, *, private: bool, secrets: bool, lacking: str) -> Rejection | None:
    """Return why a job, with or without `secrets`, cannot run over the channel; None if it can.

    `private`: the store is a folder to which only the user of both sides has access; without secrets its content is
    then not encrypted. `lacking`: the agents' Python, if it is known to lack the package `cryptography`.
    """
    if choice.channel is None:
        return Rejection(f"no agent can talk with this server: {choice.why}", choice.fix)
    if choice.channel is not Channel.STORE or not lacking or (private and not secrets):
        return None
    what = "the job's secrets" if private else "everything in the store"
    return Rejection(
        f"{what} would have to be encrypted, and the Python of its agents, {lacking}, has no cryptography",
        f"Install it there: {lacking} -m pip install cryptography.",
    )


def _calls(reach: Reach, server_url: str) -> str:
    """Return why agents there can call the server; empty if they cannot."""
    if not server_url:
        return ""
    if reach.is_here:
        return "the machine is this computer"
    return "" if is_loopback(server_url) else "the server's address is open to it"


def _stores(reach: Reach, store_url: str) -> str:
    """Return why agents there can use the store; empty if they cannot."""
    scheme = urlsplit(store_url).scheme if "://" in store_url else ""
    if scheme in BUCKETS:
        return "the store is a bucket"
    if store_url and scheme in ("", "file") and reach in (Reach.SAME_COMPUTER, Reach.MOUNT, Reach.SHARED_DIR):
        return "the store is a folder that it sees"
    return ""


def _why_none(reach: Reach) -> str:
    if reach is Reach.TUNNEL:
        return "its machines can neither call this server nor see the store, and nothing builds a tunnel"
    if reach is Reach.INTERNET:
        return "its machines can neither call this server, which listens on this computer alone, nor see its folder"
    return "its machines can neither call this server nor see the store"


def _fix(reach: Reach) -> str:
    if reach in (Reach.INTERNET, Reach.TUNNEL):
        return "Set store to a bucket (s3://…, gs://…, az://…), or serve on an address that its machines can reach."
    return "Set store to a folder that its machines share with this computer, or to a bucket."


def is_loopback(url: str) -> bool:
    """Return whether the URL's host is a loopback or wildcard address, which other computers cannot use."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback or ip_address(host).is_unspecified
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
