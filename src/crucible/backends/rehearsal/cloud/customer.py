"""The routes of customers: what there is, instances, the bill; and of machines: their metadata."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from datetime import UTC, datetime

from . import billing
from .catalogue import REGIONS, TYPES, ZONES, Item, Market
from .exchange import Json, Request, Response, Route, number, one_of, route, text, texts
from .records import ALIVE, Instance, ListedInstance, OnExit, Segment, State
from .world import InstanceRequest, Refused, World

PAGE = 50
LARGEST_PAGE = 100
LARGEST_USER_DATA = 256 * 1024
_MARKETS = {market.value: market for market in Market}


# What there is


def regions(world: World, request: Request, now: float) -> Response:
    alive = world.store.alive()
    found: list[object] = [
        {
            "name": region,
            "zones": [zone.name for zone in ZONES.values() if zone.region == region],
            "vcpus_used": sum(instance.kind.vcpus for instance in alive if instance.region == region),
            "vcpu_quota": world.market.quota(region),
        }
        for region in REGIONS
    ]
    return Response(200, {"regions": found})


def types(world: World, request: Request, now: float) -> Response:
    found: list[object] = [
        {
            "name": kind.name,
            "vcpus": kind.vcpus,
            "memory_bytes": kind.memory_bytes,
            "gpus": kind.gpus,
            "gpu_name": kind.gpu_name,
            "gpu_memory_bytes": kind.gpu_memory_bytes,
            "granularity_seconds": kind.granularity_seconds,
            "minimum_seconds": kind.minimum_seconds,
            "boot_seconds": world.clock.wall_seconds(kind.boot_seconds),
        }
        for kind in TYPES.values()
    ]
    return Response(200, {"types": found})


def offers(world: World, request: Request, now: float) -> Response:
    alive = world.store.alive()
    found: list[object] = [
        {
            "region": ZONES[item.zone].region,
            "zone": item.zone,
            "type": item.type,
            "market": item.market,
            "rate": rate,
            "available": world.market.left(item, alive),
        }
        for item, rate in world.market.rates().items()
    ]
    return Response(200, {"offers": found, "at": now})


# Instances


def create(world: World, request: Request, now: float) -> Response:
    instance = world.create(_wish(world, request), now)
    return Response(201, {"instance": _document(world, _as_it_is(instance))})


def show(world: World, request: Request, now: float) -> Response:
    """As late as a list."""
    shown = next((shown for shown in world.shown(now, {}) if shown.instance.id == request.found["id"]), None)
    if shown is None:
        raise Refused(404, "instance_not_found", f"there is no instance {request.found['id']!r}")
    return Response(200, {"instance": _document(world, shown)})


def index(world: World, request: Request, now: float) -> Response:
    """A page of what matches, in the order of creation; `next` is where the following page starts."""
    limit = min(_whole(request, "limit", PAGE), LARGEST_PAGE)
    after = _whole(request, "cursor", 0)
    _check_filters(request)
    tags = {name[4:]: wanted.split(",") for name, wanted in request.query.items() if name.startswith("tag:")}
    metered = request.query.get("segments") == "true"
    found = world.shown(now, tags, metered=metered)
    matching = [shown for shown in found if shown.instance.n > after and _matches(shown, request)]
    page = matching[:limit]
    following = str(page[-1].instance.n) if len(matching) > limit else None
    return Response(200, {"instances": [_document(world, shown, metered) for shown in page], "next": following})


def terminate(world: World, request: Request, now: float) -> Response:
    instance = world.terminate(request.found["id"], now)
    return Response(200, {"instance": _document(world, _as_it_is(instance))})


# Money


def bill(world: World, request: Request, now: float) -> Response:
    """Every instance there ever was, as metered up to now."""
    second = math.ceil(now)
    lines = [_line(world, instance, second) for instance in world.store.all()]
    total = sum(micros for _, micros in lines)
    return Response(200, {"at": second, "total_micro_dollars": total, "lines": [line for line, _ in lines]})


def _line(world: World, instance: Instance, now: int) -> tuple[Json, int]:
    segments = world.store.segments(instance.id)
    micros = billing.micro_dollars(segments, instance.kind, now)
    line: Json = {
        "instance": instance.id,
        "type": instance.type,
        "zone": instance.zone,
        "market": instance.market,
        "tags": dict(instance.tags),
        "state": instance.state,
        "segments": _segments(segments),
        "seconds_billed": billing.seconds_billed(segments, instance.kind, now),
        "micro_dollars": micros,
    }
    return line, micros


# Metadata


def metadata(world: World, request: Request, now: float) -> Response:
    instance = _by_secret(world, request)
    return Response(200, {
        "instance": instance.id,
        "type": instance.type,
        "region": instance.region,
        "zone": instance.zone,
        "market": instance.market,
        "tags": dict(instance.tags),
    })  # fmt: skip


def interruption(world: World, request: Request, now: float) -> Response:
    """404 until there is a notice. `seconds` are the machine's own, until `time`, the cloud's."""
    instance = _by_secret(world, request)
    if instance.notice_at is None or instance.die_at is None:
        raise Refused(404, "no_interruption", "no interruption is planned")
    when = datetime.fromtimestamp(instance.die_at, UTC).isoformat(timespec="milliseconds")
    left = world.clock.wall_seconds(max(instance.die_at - now, 0.0))
    return Response(200, {"action": "terminate", "time": when.replace("+00:00", "Z"), "seconds": left})


def _by_secret(world: World, request: Request) -> Instance:
    instance = world.store.by_secret(request.found["secret"])
    if instance is None or not instance.alive:
        raise Refused(404, "instance_not_found", "there is no such instance")
    return instance


# Reading and writing


def _wish(world: World, request: Request) -> InstanceRequest:
    body = request.body
    zone = one_of(text(body, "zone"), ZONES, "zone")
    kind = one_of(text(body, "type"), TYPES, "type")
    market = Market(one_of(text(body, "market", Market.ON_DEMAND.value), _MARKETS, "market"))
    user_data = text(body, "user_data")
    if len(user_data) > LARGEST_USER_DATA:
        raise Refused(400, "invalid_parameter", f"user_data is larger than {LARGEST_USER_DATA} characters")
    on_exit = one_of(text(body, "on_exit", OnExit.TERMINATE.value), {o.value: o for o in OnExit}, "on_exit")
    wall_end = number(body, "ends_at")
    return InstanceRequest(
        item=Item(zone, kind, market),
        user_data=user_data,
        tags=texts(body, "tags"),
        token=text(body, "client_token", ""),
        on_exit=OnExit(on_exit),
        ends_at=None if wall_end is None else world.clock.at(wall_end),
        max_seconds=number(body, "max_seconds"),
        hash=_hash({name: value for name, value in body.items() if name != "client_token"}),
    )


def _hash(parameters: Json) -> str:
    return hashlib.sha256(json.dumps(parameters, sort_keys=True).encode()).hexdigest()


def _whole(request: Request, name: str, default: int) -> int:
    said = request.query.get(name, str(default))
    if not said.isascii() or not said.isdigit() or len(said) > 15:
        raise Refused(400, "invalid_parameter", f"{name!r} has to be a whole number")
    return int(said)


def _matches(shown: ListedInstance, request: Request) -> bool:
    """Several values of one filter are separated by commas; one of them has to fit."""
    return all(value in wanted.split(",") for value, wanted in _filters(shown, request))


def _filters(shown: ListedInstance, request: Request) -> Iterator[tuple[str, str]]:
    for name, wanted in request.query.items():
        if name == "id":
            yield shown.instance.id, wanted
        elif name == "state":
            yield shown.state, wanted
        elif name == "client_token":
            yield shown.instance.token, wanted


def _check_filters(request: Request) -> None:
    for name in request.query:
        if name not in ("id", "state", "client_token", "segments", "limit", "cursor") and not name.startswith("tag:"):
            raise Refused(400, "invalid_parameter", f"there is no filter {name!r}")


def _as_it_is(instance: Instance) -> ListedInstance:
    return ListedInstance(instance, instance.state, instance.cause)


def _document(world: World, shown: ListedInstance, segments: bool = True) -> Json:
    instance = shown.instance
    return {
        "id": instance.id,
        "zone": instance.zone,
        "region": instance.region,
        "type": instance.type,
        "market": instance.market,
        "tags": dict(instance.tags),
        "client_token": instance.token,
        "state": shown.state,
        "cause": shown.cause,
        "created_at": instance.created_at,
        "running_at": None if shown.state is State.PENDING else instance.running_at,
        "ended_at": None if shown.state in ALIVE else instance.ended_at,
        **({"segments": _segments(world.store.segments(instance.id))} if segments else {}),
    }


def _segments(segments: list[Segment]) -> list[object]:
    return [{"since": s.since, "until": s.until, "rate": s.rate} for s in segments]


CUSTOMER: tuple[Route, ...] = (
    route("GET", "/v1/regions", regions),
    route("GET", "/v1/types", types),
    route("GET", "/v1/offers", offers),
    route("GET", "/v1/instances", index),
    route("GET", "/v1/instances/{id}", show),
    route("GET", "/v1/bill", bill),
)
CREATE = route("POST", "/v1/instances", create)
TERMINATE = route("DELETE", "/v1/instances/{id}", terminate)
MACHINE: tuple[Route, ...] = (
    route("GET", "/metadata/{secret}", metadata),
    route("GET", "/metadata/{secret}/interruption", interruption),
)
