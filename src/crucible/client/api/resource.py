"""Calls routes: fills in the path, sends the request, and validates the response with the route's model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import quote

from pydantic import ValidationError

from crucible.client.api.routes import RawRoute, Route, WebSocketRoute
from crucible.client.transport.http import Content, Query, Transport
from crucible.core.errors import Trouble
from crucible.core.views.base import View
from crucible.wire.http.client import Response

V = TypeVar("V", bound=View)


class Resource:
    """Calls routes over a transport."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def _call(
        self,
        route: Route[V],
        *,
        query: Query | None = None,
        body: Mapping[str, object] | None = None,
        content: Content | None = None,
        headers: Mapping[str, str] | None = None,
        **names: str,
    ) -> V:
        """Send the request, its path filled in with `names`, and return the response. Raises the server's error."""
        response = self._transport.request(
            route.method,
            path_of(route, **names),
            query=query,
            body=body,
            content=content,
            headers=headers,
            repeat=route.repeat,
            seconds=route.seconds,
        )
        return _validate(route.answer, response)

    def _send(
        self,
        route: RawRoute,
        *,
        query: Query | None = None,
        content: Content | None = None,
        headers: Mapping[str, str] | None = None,
        **names: str,
    ) -> Response:
        path = path_of(route, **names)
        return self._transport.request(
            route.method,
            path,
            query=query,
            content=content,
            headers=headers,
            repeat=route.repeat,
            seconds=route.seconds,
        )


def path_of(route: Route[V] | RawRoute | WebSocketRoute, **names: str) -> str:
    """Return the path with each name quoted; only `path`, of an artifact, may contain slashes."""
    quoted = {key: quote(name, safe="/" if key == "path" else "") for key, name in names.items()}
    return route.path.format(**quoted)


def _validate(kind: type[V], response: Response) -> V:
    try:
        return kind.model_validate_json(response.content)
    except ValidationError as error:
        raise Trouble(
            "The server's response is invalid.",
            why=f"{error.error_count()} fields of {kind.__name__} differ; first: {error.errors()[0]['loc']}.",
            fix="Check that it is a Crucible server, and its version, with `crucible doctor`.",
        ) from error
