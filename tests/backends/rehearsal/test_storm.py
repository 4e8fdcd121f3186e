"""Make 100 launches with all faults on: nothing may stay alive, and the costs must equal the bill."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

import pytest
from tests.backends.conformance import DEPLOYMENT, find_one, launch_one, make_order
from tests.backends.rehearsal.place import WAIT, RehearsalHarness, all_processes

from crucible.backends.base import LaunchCall, LaunchUnknown, MachineOrder, MachineRef, NotYetGone
from crucible.backends.rehearsal import RehearsalBackend
from crucible.core.compute.offers import Market, Need, Offer
from crucible.core.compute.pricing import machine_cost
from crucible.core.errors import Unreachable

T = TypeVar("T")

LAUNCHES = 100
LAG = 4.0
"""In the cloud's time, which runs 20 times as fast as the test's."""
CHAOS = {
    "lost_answers": 0.2,
    "terminate_errors": 0.15,
    "throttled": 0.05,
    "unavailable": 0.05,
    "list_lag": LAG,
    "boot_seconds": 1,
    "shutdown_seconds": 1,
}
SETTLE = LAG / 20
PATIENCE = 60.0


def insist(work: Callable[[], T]) -> T:
    """Retry a call until it succeeds, as the control plane does."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return work()
        except (Unreachable, NotYetGone):
            assert time.monotonic() < until, "the cloud never answered"
            time.sleep(0.02)


def simple(call: LaunchCall) -> LaunchCall:
    """Replace the agent by a machine that only sleeps."""
    return replace(call, parameters={**call.parameters, "user_data": WAIT})


def launch(backend: RehearsalBackend, order: MachineOrder) -> MachineRef:
    """Launch; after a lost response search for the token, and launch again only if no list shows it."""
    call = simple(backend.call(order))
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            return launch_one(backend, call)
        except LaunchUnknown:
            found = insist(lambda: find_one(backend, call.token))
            if found is not None:
                return found
        except Unreachable:
            continue
    raise AssertionError("it was never launched")


def end(backend: RehearsalBackend, ref: MachineRef) -> None:
    insist(lambda: backend.terminate(ref))


def sweep(backend: RehearsalBackend) -> None:
    """Play the janitor: terminate what is owned until two lists, a settle window apart, are empty."""
    until = time.monotonic() + PATIENCE
    empty_since: float | None = None
    while empty_since is None or time.monotonic() < empty_since + 2 * SETTLE:
        assert time.monotonic() < until, "something never goes away"
        owned = insist(lambda: backend.owned(DEPLOYMENT))
        for ref in owned:
            end(backend, ref)
        empty_since = None if owned else empty_since or time.monotonic()


def orders(backend: RehearsalBackend) -> list[MachineOrder]:
    offers = [o for o in backend.offers(Need()) if o.instance_type == "sim.c2"]
    plenty: list[Offer] = [o for o in offers if o.market is not Market.RESERVED]
    made = [make_order(backend, n) for n in range(1, LAUNCHES + 1)]
    return [replace(order, offer=plenty[n % len(plenty)]) for n, order in enumerate(made)]


@pytest.mark.parametrize("honoured", [True, False], ids=["tokens honoured", "tokens ignored"])
def test_a_hundred_launches_leave_nothing_alive(harness: RehearsalHarness, honoured: bool) -> None:
    backend, cloud = harness.backend(), harness.cloud
    wanted = orders(backend)
    cloud.faults(**CHAOS, tokens_honoured=honoured)
    with ThreadPoolExecutor(4) as pool:
        refs = list(pool.map(lambda order: launch(backend, order), wanted))
        assert len({ref.machine for ref in refs}) == LAUNCHES
        list(pool.map(lambda ref: end(backend, ref), refs))
    sweep(backend)

    census = cloud.census()
    assert [i for i in census.values() if i["state"] != "terminated"] == []
    assert not census.keys() & all_processes().keys()
    made = Counter(instance["tags"]["crucible-machine"] for instance in census.values())
    assert made.keys() == {order.machine for order in wanted}
    if honoured:
        assert set(made.values()) == {1}
    else:
        assert max(made.values()) > 1, "no answer was lost: the test shows nothing"
    compare_with_the_bill(harness, backend, refs)


def compare_with_the_bill(harness: RehearsalHarness, backend: RehearsalBackend, refs: list[MachineRef]) -> None:
    """Check that our costs, from the cloud's segments, equal the cloud's own bill."""
    harness.cloud.call("DELETE", "/admin/faults")
    billing = make_order(backend, 1).offer.billing
    bill = {id: line["micro_dollars"] for id, line in harness.cloud.bill().items()}
    ours = {m.ref.native_id: machine_cost(m.segments, billing, 0.0) for m in backend.metered(refs)}
    assert ours == bill
