"""The admin routes: faults, prices, stock, time, and ending machines."""

from __future__ import annotations

from dataclasses import asdict

from .catalogue import REGIONS, TYPES, ZONES, Item, Market, all_items
from .exchange import Json, Request, Response, Route, number, one_of, route, text, whole
from .faults import BadFault, Faults
from .records import Instance
from .world import Refused, World

MAX_JUMP = 24 * 3600
MAX_MOVES = 1000
MAX_NOTICE = 120


def faults(world: World, request: Request, now: float) -> Response:
    return Response(200, asdict(world.faults))


def change_faults(world: World, request: Request, now: float) -> Response:
    try:
        world.set_faults(world.faults.changed(request.body))
    except BadFault as error:
        raise Refused(400, "invalid_parameter", str(error)) from error
    return faults(world, request, now)


def reset_faults(world: World, request: Request, now: float) -> Response:
    world.set_faults(Faults())
    return faults(world, request, now)


def reclaim(world: World, request: Request, now: float) -> Response:
    """Reclaim a spot instance after `notice` seconds; without a notice it dies unannounced."""
    notice = number(request.body, "notice", MAX_NOTICE)
    return _brief(world.reclaim(request.params["id"], notice, now))


def kill(world: World, request: Request, now: float) -> Response:
    return _brief(world.kill(request.params["id"], now))


def stop_zone(world: World, request: Request, now: float) -> Response:
    world.stop_zone(one_of(request.params["zone"], ZONES, "zone"), now)
    return Response(200, {"zone": request.params["zone"], "out": True})


def start_zone(world: World, request: Request, now: float) -> Response:
    world.start_zone(one_of(request.params["zone"], ZONES, "zone"))
    return Response(200, {"zone": request.params["zone"], "out": False})


def stock(world: World, request: Request, now: float) -> Response:
    """Set the stock of all items with this `zone`, `type` and `market` to `count`. Missing fields match everything."""
    items = [item for item in all_items() if _matches(item, request)]
    if not items:
        raise Refused(400, "invalid_parameter", "no item matches")
    world.store.write_stock(items, whole(request.body, "count"))
    return Response(200, {"items": len(items)})


def quota(world: World, request: Request, now: float) -> Response:
    region = one_of(text(request.body, "region"), dict.fromkeys(REGIONS), "region")
    world.store.write_quota(region, whole(request.body, "vcpus"))
    return Response(200, {"region": region})


def price(world: World, request: Request, now: float) -> Response:
    """Fix a spot price at `rate`, or with null let it move again."""
    zone = one_of(text(request.body, "zone"), ZONES, "zone")
    kind = one_of(text(request.body, "type"), TYPES, "type")
    rate = None if request.body.get("rate") is None else whole(request.body, "rate")
    world.hold_price(zone, kind, rate, now)
    return Response(200, {"rate": world.market.rate(Item(zone, kind, Market.SPOT))})


def move_prices(world: World, request: Request, now: float) -> Response:
    steps = whole({"steps": 1, **request.body}, "steps", MAX_MOVES)
    world.move_prices(steps, now)
    return Response(200, {"steps": steps})


def advance(world: World, request: Request, now: float) -> Response:
    seconds = number(request.body, "seconds", MAX_JUMP)
    world.jump(seconds or 0.0)
    return Response(200, {"now": world.clock.now()})


def reset(world: World, request: Request, now: float) -> Response:
    world.reset(now)
    return Response(200, {})


def census(world: World, request: Request, now: float) -> Response:
    """List every instance in its current state, without the lag of customers' lists."""
    return Response(200, {"now": now, "instances": [_brief_document(i) for i in world.store.all()]})


def _brief(instance: Instance) -> Response:
    return Response(200, {"instance": _brief_document(instance)})


def _brief_document(instance: Instance) -> Json:
    return {
        "id": instance.id,
        "zone": instance.zone,
        "state": instance.state,
        "cause": instance.cause,
        "tags": dict(instance.tags),
        "pid": instance.pid,
        "dies_at": instance.die_at,
    }


def _matches(item: Item, request: Request) -> bool:
    fields = {"zone": item.zone, "type": item.type, "market": item.market}
    return all(request.body.get(name) in (None, value) for name, value in fields.items())


ADMIN: tuple[Route, ...] = (
    route("GET", "/admin/faults", faults),
    route("PATCH", "/admin/faults", change_faults),
    route("DELETE", "/admin/faults", reset_faults),
    route("GET", "/admin/instances", census),
    route("POST", "/admin/instances/{id}/reclaim", reclaim),
    route("POST", "/admin/instances/{id}/kill", kill),
    route("POST", "/admin/zones/{zone}/stop", stop_zone),
    route("POST", "/admin/zones/{zone}/start", start_zone),
    route("POST", "/admin/stock", stock),
    route("POST", "/admin/quota", quota),
    route("POST", "/admin/price", price),
    route("POST", "/admin/price/move", move_prices),
    route("POST", "/admin/advance", advance),
    route("POST", "/admin/reset", reset),
)
