"""Which server a command talks to: the named one, or our own embedded one."""

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
    """The API to talk to. A named server is taken at its word, and never replaced by an embedded one."""
    seconds = settings.request_seconds.value
    if settings.server.value is not None:
        return Api(_named(settings, settings.server.value, embedded.environ), seconds=seconds)
    own = _Own(settings, embedded)
    return Api(own.ensure(), seconds=seconds, relocate=own.ensure, find_running=own.find_running)


def connect_if_up(settings: Settings, embedded: Embedded) -> Api | None:
    """The same, but nothing is started: None if no server is named and none of ours is up."""
    if settings.server.value is not None:
        return connect(settings, embedded)
    endpoint = _Own(settings, embedded).find_running()
    return Api(endpoint, seconds=settings.request_seconds.value) if endpoint else None


@dataclass(frozen=True)
class _Own:
    """The embedded server, asked as whoever the setting `token` names: that may be somebody who may do less."""

    settings: Settings
    embedded: Embedded

    def ensure(self) -> Endpoint:
        return self._as_said(self.embedded.ensure())

    def find_running(self) -> Endpoint | None:
        endpoint = self.embedded.find_running()
        return None if endpoint is None else self._as_said(endpoint)

    def _as_said(self, endpoint: Endpoint) -> Endpoint:
        said = self.settings.token.value
        return endpoint if said is None else replace(endpoint, token=said)


def _named(settings: Settings, url: str, environ: Mapping[str, str]) -> Endpoint:
    """Our own token goes to a named server only if that is the embedded one of this state folder.

    One that a login gave goes to the server that gave it.
    """
    token = settings.token.value or logins.load(default_logins(environ)).token(url)
    if token is None:
        ours = read_discovery(settings.home.value)
        if ours is not None and ours.url == url:
            token = read_token(settings.home.value)
    return Endpoint(url, token)
