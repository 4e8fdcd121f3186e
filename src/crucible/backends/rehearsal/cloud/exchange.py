"""HTTP requests, responses and routes, and functions that read fields of a request or raise `Refused`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .world import Refused, World

Json = dict[str, object]


@dataclass(frozen=True)
class Request:
    """A request. `query`: the last value of each name; `params`: the parts of the path that the route names."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, object] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Response:
    status: int
    body: Json
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Route:
    """A route. `handler` is called with the world, which is locked meanwhile, the request and the time."""

    method: str
    path: re.Pattern[str]
    handler: Callable[[World, Request, float], Response]


def route(method: str, path: str, handler: Callable[[World, Request, float], Response]) -> Route:
    """Make a route. `{name}` in the path matches one part of it."""
    return Route(method, re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path)), handler)


def text(body: Mapping[str, object], name: str, default: str | None = None) -> str:
    value = body.get(name, default)
    if not isinstance(value, str):
        raise Refused(400, "invalid_parameter", f"{name!r} has to be text")
    return value


def number(body: Mapping[str, object], name: str, most: float = 1e12) -> float | None:
    """Return the number in a field, or None without one."""
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise Refused(400, "invalid_parameter", f"{name!r} has to be a number from 0 to {most:g}")
    return value


def whole(body: Mapping[str, object], name: str, most: int = 10**12) -> int:
    value = number(body, name, most)
    if value is None or value != int(value):
        raise Refused(400, "invalid_parameter", f"{name!r} has to be a whole number")
    return int(value)


def texts(body: Mapping[str, object], name: str) -> dict[str, str]:
    value = body.get(name, {})
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise Refused(400, "invalid_parameter", f"{name!r} has to be an object of texts")
    return {str(key): str(item) for key, item in value.items()}


def one_of(value: str, known: Mapping[str, object], what: str) -> str:
    if value not in known:
        raise Refused(400, f"unknown_{what}", f"there is no {what} {value!r}")
    return value
