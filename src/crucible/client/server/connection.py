"""Chooses the server a command talks to: the named one, or our own embedded one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from crucible.client.api import Api
from crucible.client.server import logins
from crucible.client.server.discovery import read_discovery, read_token
from crucible.client.server.embedded import Embedded
from crucible.client.transport.http import Endpoint
from crucible.settings import Settings, default_logins


def make_embedded(settings: Settings, version: str, environ: Mapping[str, str]) -> Embedded:
    return Embedded(
        home=settings.home.value,
        version=version,
        environ=environ,
        start_seconds=settings.start_seconds.value,
    )


def connect(settings: Settings, embedded: Embedded) -> Api:
    """Return the API of the named server, or of the embedded one, which is started if needed."""
    seconds = settings.request_seconds.value
    if settings.server.value is not None:
        return Api(_named_endpoint(settings, settings.server.value, embedded.environ), seconds=seconds)
    own = _OwnServer(settings, embedded)
    return Api(own.ensure(), seconds=seconds, relocate=own.ensure, find_running=own.find_running)


def connect_if_up(settings: Settings, embedded: Embedded) -> Api | None:
    """Return the API of the named server, or of the embedded one; None if neither is named or running."""
    if settings.server.value is not None:
        return connect(settings, embedded)
    endpoint = _OwnServer(settings, embedded).find_running()
    return Api(endpoint, seconds=settings.request_seconds.value) if endpoint else None


@dataclass(frozen=True)
class _OwnServer:
    """The embedded server, with the token of the settings if there is one: its user may have fewer permissions."""

    settings: Settings
    embedded: Embedded

    def ensure(self) -> Endpoint:
        return self._with_token(self.embedded.ensure())

    def find_running(self) -> Endpoint | None:
        endpoint = self.embedded.find_running()
        return None if endpoint is None else self._with_token(endpoint)

    def _with_token(self, endpoint: Endpoint) -> Endpoint:
        token = self.settings.token.value
        return endpoint if token is None else replace(endpoint, token=token)


def _named_endpoint(settings: Settings, url: str, environ: Mapping[str, str]) -> Endpoint:
    """Return the endpoint of a named server, with the token of the settings or of a login at this server.

    The embedded server's own token is only ever sent to the embedded server of this state folder.
    """
    token = settings.token.value or logins.load(default_logins(environ)).token(url)
    if token is None:
        ours = read_discovery(settings.home.value)
        if ours is not None and ours.url == url:
            token = read_token(settings.home.value)
    return Endpoint(url, token)
