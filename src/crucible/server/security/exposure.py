"""Check how far the server is exposed: to this computer only, or to others, with encryption and users."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from crucible.core.errors import BadInput, RefusedByPolicy
from crucible.server.http.listen import TlsFiles, port_of, url_of


@dataclass(frozen=True)
class Exposure:
    """Where the server can be reached. `public_url`: its URL for others; `proxied`: a proxy in front of it encrypts."""

    host: str = "127.0.0.1"
    public_url: str | None = None
    tls: TlsFiles | None = None
    proxied: bool = False

    @property
    def is_public(self) -> bool:
        """Whether other computers can reach it, directly or through a proxy."""
        return not is_loopback(self.host) or self.proxied

    @property
    def hosts(self) -> frozenset[str]:
        """Host names it answers to, besides those of this computer."""
        name = urlsplit(self.public_url or "").hostname
        return frozenset({name} if name else ())

    def url_of(self, bound: socket.socket) -> str:
        """Return a listener's URL; with TLS of its own, by the host name of the certificate."""
        if self.tls is None:
            return url_of(bound)
        return f"https://{next(iter(self.hosts), self.host)}:{port_of(bound)}"

    @property
    def is_encrypted(self) -> bool:
        return self.tls is not None or (self.proxied and (self.public_url or "").startswith("https://"))


def agents_hosts(exposure: Exposure, agents_url: str) -> frozenset[str]:
    """Return the names that the agents' port answers to, besides those of this computer."""
    names = (exposure.host, urlsplit(agents_url).hostname or "")
    return exposure.hosts | {name for name in names if name}


def is_loopback(host: str) -> bool:
    """Return whether only this computer can reach the address."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address("127.0.0.1" if host == "localhost" else host).is_loopback
    return False


def check_exposure(exposure: Exposure) -> None:
    """Raise RefusedByPolicy for a public server without encryption, BadInput for incomplete settings."""
    if exposure.tls is not None:
        _check_tls(exposure.tls)
    if not exposure.is_public:
        return
    if not exposure.is_encrypted:
        raise RefusedByPolicy(
            f"The server does not listen on {exposure.host!r} without encryption.",
            why="Anyone on the network path could read tokens, and run programs as their owners.",
            fix="Use --host 127.0.0.1 and an ssh tunnel; or set tls_certificate and tls_key; or, behind a proxy that "
            "encrypts, behind_proxy = true and public_url = https://...",
        )
    if not exposure.hosts:
        raise BadInput(
            "The server does not know the host name by which others exposure it.",
            why="It refuses requests with any other host name, because pages of other sites could send them.",
            fix="Set public_url to its URL, such as https://crucible.example.org",
        )


def check_agents_url(url: str | None) -> None:
    """Raise RefusedByPolicy if agents on other computers would send their secrets unencrypted."""
    parts = urlsplit(url or "")
    if parts.scheme != "http" or is_loopback(parts.hostname or ""):
        return
    raise RefusedByPolicy(
        f"Agents do not call {url} without encryption.",
        why="Their secrets could be read on the network path, or received by another program at that address.",
        fix="Set agents_url to an address that begins with https://",
    )


def check_people(exposure: Exposure, can_log_in: bool) -> None:
    """Raise RefusedByPolicy for a public server that no user can log in to."""
    if exposure.is_public and not can_log_in:
        raise RefusedByPolicy(
            "The server does not listen on the network before it has users.",
            why="There is only the owner's token, which should not leave this computer.",
            fix="Start it on 127.0.0.1 and add one: crucible users add NAME --admin --password-stdin (or, with "
            "oidc_issuer set, --email ADDRESS); or let the OpenID provider's users in with oidc_create_users",
        )


def _check_tls(tls: TlsFiles) -> None:
    import ssl

    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(tls.certificate, tls.key)
    except (OSError, ssl.SSLError) as error:
        raise BadInput(
            "The certificate and its key cannot be used.",
            why=str(error),
            fix="Set tls_certificate and tls_key to a PEM certificate and its private key.",
        ) from error
