"""The routes of customers (catalogue, instances, bill) and of machines (metadata)."""

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
MAX_PAGE = 100
MAX_USER_DATA = 256 * 1024
_MARKETS = {market.value: market for market in Market}


# Catalogue


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
    instance = world.create(_instance_request(world, request), now)
    return Response(201, {"instance": _document(world, _current(instance))})


def show(world: World, request: Request, now: float) -> Response:
    """Return one instance, with the same lag as a list."""
    listed = next(
        (listed for listed in world.list_instances(now, {}) if listed.instance.id == request.params["id"]), None
    )
    if listed is None:
        raise Refused(404, "instance_not_found", f"there is no instance {request.params['id']!r}")
    return Response(200, {"instance": _document(world, listed)})


def index(world: World, request: Request, now: float) -> Response:
    """Return a page of matching instances in the order of creation. `next` is the cursor of the following page."""
    limit = min(_query_integer(request, "limit", PAGE), MAX_PAGE)
    after = _query_integer(request, "cursor", 0)
    _check_filters(request)
    tags = {name[4:]: wanted.split(",") for name, wanted in request.query.items() if name.startswith("tag:")}
    metered = request.query.get("segments") == "true"
    found = world.list_instances(now, tags, metered=metered)
    matching = [listed for listed in found if listed.instance.n > after and _matches(listed, request)]
    page = matching[:limit]
    following = str(page[-1].instance.n) if len(matching) > limit else None
    return Response(200, {"instances": [_document(world, listed, metered) for listed in page], "next": following})


def terminate(world: World, request: Request, now: float) -> Response:
    instance = world.terminate(request.params["id"], now)
    return Response(200, {"instance": _document(world, _current(instance))})


# Billing


def bill(world: World, request: Request, now: float) -> Response:
    """Return the cost of every instance there ever was, up to now."""
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
    """Return the notice of a reclaim, or 404. `time` is in the cloud's time, `seconds` in the machine's."""
    instance = _by_secret(world, request)
    if instance.notice_at is None or instance.die_at is None:
        raise Refused(404, "no_interruption", "no interruption is planned")
    when = datetime.fromtimestamp(instance.die_at, UTC).isoformat(timespec="milliseconds")
    left = world.clock.wall_seconds(max(instance.die_at - now, 0.0))
    return Response(200, {"action": "terminate", "time": when.replace("+00:00", "Z"), "seconds": left})


def _by_secret(world: World, request: Request) -> Instance:
    instance = world.store.by_secret(request.params["secret"])
    if instance is None or not instance.alive:
        raise Refused(404, "instance_not_found", "there is no such instance")
    return instance


# Parsing requests and building responses


def _instance_request(world: World, request: Request) -> InstanceRequest:
    body = request.body
    zone = one_of(text(body, "zone"), ZONES, "zone")
    kind = one_of(text(body, "type"), TYPES, "type")
    market = Market(one_of(text(body, "market", Market.ON_DEMAND.value), _MARKETS, "market"))
    user_data = text(body, "user_data")
    if len(user_data) > MAX_USER_DATA:
        raise Refused(400, "invalid_parameter", f"user_data is larger than {MAX_USER_DATA} characters")
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


def _query_integer(request: Request, name: str, default: int) -> int:
    value = request.query.get(name, str(default))
    if not value.isascii() or not value.isdigit() or len(value) > 15:
        raise Refused(400, "invalid_parameter", f"{name!r} has to be a whole number")
    return int(value)


def _matches(listed: ListedInstance, request: Request) -> bool:
    """Return whether an instance passes all filters. A filter lists its values separated by commas."""
    return all(value in wanted.split(",") for value, wanted in _filters(listed, request))


def _filters(listed: ListedInstance, request: Request) -> Iterator[tuple[str, str]]:
    for name, wanted in request.query.items():
        if name == "id":
            yield listed.instance.id, wanted
        elif name == "state":
            yield listed.state, wanted
        elif name == "client_token":
            yield listed.instance.token, wanted


def _check_filters(request: Request) -> None:
    for name in request.query:
        if name not in ("id", "state", "client_token", "segments", "limit", "cursor") and not name.startswith("tag:"):
            raise Refused(400, "invalid_parameter", f"there is no filter {name!r}")


def _current(instance: Instance) -> ListedInstance:
    return ListedInstance(instance, instance.state, instance.cause)


def _document(world: World, listed: ListedInstance, segments: bool = True) -> Json:
    instance = listed.instance
    return {
        "id": instance.id,
        "zone": instance.zone,
        "region": instance.region,
        "type": instance.type,
        "market": instance.market,
        "tags": dict(instance.tags),
        "client_token": instance.token,
        "state": listed.state,
        "cause": listed.cause,
        "created_at": instance.created_at,
        "running_at": None if listed.state is State.PENDING else instance.running_at,
        "ended_at": None if listed.state in ALIVE else instance.ended_at,
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
