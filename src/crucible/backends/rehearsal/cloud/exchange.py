"""Requests, responses and routes, and how values are read: an invalid request raises `Refused`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .world import Refused, World

Json = dict[str, object]


@dataclass(frozen=True)
class Request:
    """`query` has the last value of each name; `found` the parts of the path that the route names."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, object] = field(default_factory=dict)
    found: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Response:
    status: int
    body: Json
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Route:
    """`path` is a pattern; `work` runs alone with the world, at the time it is given."""

    method: str
    path: re.Pattern[str]
    work: Callable[[World, Request, float], Response]


def route(method: str, path: str, work: Callable[[World, Request, float], Response]) -> Route:
    """`{name}` in the path stands for one part of it."""
    return Route(method, re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path)), work)


def text(body: Mapping[str, object], name: str, default: str | None = None) -> str:
    value = body.get(name, default)
    if not isinstance(value, str):
        raise Refused(400, "invalid_parameter", f"{name!r} has to be text")
    return value


def number(body: Mapping[str, object], name: str, most: float = 1e12) -> float | None:
    """None when it is not said."""
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
