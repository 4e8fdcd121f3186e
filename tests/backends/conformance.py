"""The conformance suite: tests that every backend must pass.

A backend's own test module subclasses `BackendConformance` and provides a `BackendHarness`, which makes the backend and
breaks the world beneath it.
"""

from __future__ import annotations

import abc
import dataclasses
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import pytest

from crucible.backends.base import Backend, LaunchCall, MachineOrder, MachineRef, NotYetGone, Seen
from crucible.backends.registry import names
from crucible.core.compute.resources import MAX_CPUS, MAX_MEMORY, Resources
from crucible.core.ids import Prefix, make_id
from crucible.wire.documents.bootstrap import Bootstrap

DEPLOYMENT = make_id(Prefix.DEPLOYMENT, 1, 1)
STRANGER = make_id(Prefix.DEPLOYMENT, 1, 2)
BOOTSTRAP = Bootstrap("", nonce="nonce-that-must-not-be-stored", agents_url="http://127.0.0.1:9")
PATIENCE = 30.0


def eventually(check: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Wait until the check is true; fail if it is not in time."""
    until = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < until, "this did not become true in time"
        time.sleep(0.01)


class BackendHarness(abc.ABC):
    """A backend under test, and the faults that its world can have."""

    halts = True
    """Whether a machine and its work outlive its host."""

    @abc.abstractmethod
    def backend(self) -> Backend:
        """Return the backend of a server that has just started. Each call is another server."""

    @abc.abstractmethod
    def count(self, machine: str) -> int:
        """Return how many native machines live under this id, by the provider's own count."""

    @abc.abstractmethod
    def crash_launch(self, call: LaunchCall) -> None:
        """Make this launch in a server that dies after something was created, before it has a response."""

    @abc.abstractmethod
    def kill_host(self, ref: MachineRef) -> None:
        """Kill the agent's host on the machine."""

    @abc.abstractmethod
    def leave_work(self, ref: MachineRef) -> object:
        """Leave an unfinished attempt on the machine."""

    def hurry(self) -> None:  # noqa: B027 - most backends need no force
        """Let the grace period of a termination pass."""


class BackendConformance(abc.ABC):
    @pytest.fixture
    @abc.abstractmethod
    def harness(self) -> BackendHarness:
        """Yield a new, empty harness; its cleanup ends everything that a test left."""

    @pytest.fixture
    def backend(self, harness: BackendHarness) -> Backend:
        return harness.backend()

    @pytest.fixture
    def order(self, backend: Backend) -> MachineOrder:
        return make_order(backend, 1)

    # Offers and calls

    def test_it_is_in_the_table(self, backend: Backend) -> None:
        assert backend.name in names()

    def test_offers_are_priced_and_dated(self, backend: Backend) -> None:
        offers = backend.offers(Resources())
        assert offers
        for offer in offers:
            assert offer.backend == backend.name
            assert offer.instance_type
            assert isinstance(offer.rate, int)
            assert (offer.rate > 0) == backend.capabilities.bills
            assert datetime.fromisoformat(offer.dated).tzinfo is not None
            assert offer.market in backend.capabilities.markets

    def test_an_offer_that_is_too_small_says_why(self, backend: Backend) -> None:
        absurd = Resources(cpus=MAX_CPUS, memory_bytes=MAX_MEMORY)
        assert all(not offer.runnable and offer.why_not for offer in backend.offers(absurd))

    def test_a_call_is_pure(self, harness: BackendHarness, backend: Backend, order: MachineOrder) -> None:
        call = backend.call(order)
        assert call == backend.call(order) == harness.backend().call(order)
        assert backend.find(call.token) is None
        assert backend.owned(DEPLOYMENT) == []

    def test_a_call_can_be_stored_and_holds_no_secret(self, backend: Backend, order: MachineOrder) -> None:
        call = backend.call(order)
        stored = json.dumps(dataclasses.asdict(call))
        assert LaunchCall(**json.loads(stored)) == call
        assert call.backend == backend.name
        assert BOOTSTRAP.nonce not in stored

    def test_every_machine_has_its_own_token(self, backend: Backend) -> None:
        assert backend.call(make_order(backend, 1)).token != backend.call(make_order(backend, 2)).token

    # Launching

    def test_a_launch_makes_a_machine(self, harness: BackendHarness, backend: Backend, order: MachineOrder) -> None:
        call = backend.call(order)
        ref = backend.launch(call, BOOTSTRAP)
        assert (ref.backend, ref.machine) == (backend.name, order.machine)
        assert backend.find(call.token) == ref
        assert backend.owned(DEPLOYMENT) == [ref]
        eventually(lambda: seen(backend, ref) is Seen.UP)
        assert harness.count(order.machine) == 1

    def test_launching_twice_gives_one_machine(
        self, harness: BackendHarness, backend: Backend, order: MachineOrder
    ) -> None:
        call = backend.call(order)
        assert backend.launch(call, BOOTSTRAP) == backend.launch(call, BOOTSTRAP)
        assert harness.count(order.machine) == 1

    def test_a_stored_call_replayed_by_the_next_server_gives_the_same_machine(
        self, harness: BackendHarness, backend: Backend, order: MachineOrder
    ) -> None:
        call = backend.call(order)
        ref = backend.launch(call, BOOTSTRAP)
        replayed = LaunchCall(**json.loads(json.dumps(dataclasses.asdict(call))))
        assert harness.backend().launch(replayed, BOOTSTRAP) == ref
        assert harness.count(order.machine) == 1

    def test_two_servers_launching_at_once_give_one_machine(self, harness: BackendHarness, order: MachineOrder) -> None:
        servers = [harness.backend() for _ in range(3)]
        call = servers[0].call(order)
        with ThreadPoolExecutor(len(servers)) as pool:
            refs = set(pool.map(lambda server: server.launch(call, BOOTSTRAP), servers))
        assert len(refs) == 1
        eventually(lambda: harness.count(order.machine) == 1)

    def test_a_lost_answer_leaks_nothing(self, harness: BackendHarness, backend: Backend, order: MachineOrder) -> None:
        call = backend.call(order)
        backend.launch(call, BOOTSTRAP)  # the answer is lost: the next server knows the token alone
        after = harness.backend()
        ref = after.find(call.token)
        assert ref is not None
        assert after.launch(call, BOOTSTRAP) == ref
        end(harness, after, ref)
        assert harness.count(order.machine) == 0

    def test_what_a_crashed_launch_left_is_found_and_ended(self, harness: BackendHarness, backend: Backend) -> None:
        order = make_order(backend, 7)
        call = backend.call(order)
        harness.crash_launch(call)
        after = harness.backend()
        assert [ref.machine for ref in after.owned(DEPLOYMENT)] == [order.machine]
        ref = after.find(call.token)
        assert ref in after.owned(DEPLOYMENT)
        assert ref is not None
        end(harness, after, ref)
        assert after.owned(DEPLOYMENT) == []
        assert harness.count(order.machine) == 0

    # Looking

    def test_unknown_machines_are_gone(self, backend: Backend) -> None:
        unknown = MachineRef(backend.name, make_id(Prefix.MACHINE, 5, 5), "unknown")
        hostile = MachineRef(backend.name, "../../etc", "unknown")
        assert [found.seen for found in backend.poll([unknown, hostile])] == [Seen.GONE, Seen.GONE]
        assert backend.find(unknown.machine) is None
        assert backend.find(hostile.machine) is None

    def test_one_observation_for_each_ref_in_order(self, backend: Backend, order: MachineOrder) -> None:
        up = backend.launch(backend.call(order), BOOTSTRAP)
        unknown = MachineRef(backend.name, make_id(Prefix.MACHINE, 5, 5), "unknown")
        assert [found.ref for found in backend.poll([unknown, up, unknown])] == [unknown, up, unknown]
        assert backend.poll([]) == []

    def test_a_dead_host_with_work_is_halted_and_comes_back_as_the_same_machine(
        self, harness: BackendHarness, backend: Backend, order: MachineOrder
    ) -> None:
        if not harness.halts:
            pytest.skip("a machine of this backend does not outlive its host")
        ref = backend.launch(backend.call(order), BOOTSTRAP)
        harness.leave_work(ref)
        harness.kill_host(ref)
        eventually(lambda: seen(backend, ref) is Seen.HALTED)
        assert backend.owned(DEPLOYMENT) == [ref]
        assert harness.backend().launch(backend.call(order), BOOTSTRAP) == ref
        eventually(lambda: seen(backend, ref) is Seen.UP)
        assert harness.count(order.machine) == 1

    def test_a_dead_host_without_work_is_gone(
        self, harness: BackendHarness, backend: Backend, order: MachineOrder
    ) -> None:
        ref = backend.launch(backend.call(order), BOOTSTRAP)
        harness.kill_host(ref)
        eventually(lambda: seen(backend, ref) is Seen.GONE)
        end(harness, backend, ref)

    def test_another_deployments_machines_are_not_ours(self, backend: Backend, order: MachineOrder) -> None:
        ours = backend.launch(backend.call(order), BOOTSTRAP)
        theirs = backend.launch(backend.call(make_order(backend, 2, STRANGER)), BOOTSTRAP)
        assert backend.owned(DEPLOYMENT) == [ours]
        assert backend.owned(STRANGER) == [theirs]

    # Ending

    def test_a_terminated_machine_is_gone(self, harness: BackendHarness, backend: Backend, order: MachineOrder) -> None:
        call = backend.call(order)
        ref = backend.launch(call, BOOTSTRAP)
        end(harness, backend, ref)
        assert seen(backend, ref) is Seen.GONE
        assert backend.find(call.token) is None
        assert backend.owned(DEPLOYMENT) == []
        assert harness.count(order.machine) == 0

    def test_terminating_again_is_fine(self, harness: BackendHarness, backend: Backend, order: MachineOrder) -> None:
        ref = backend.launch(backend.call(order), BOOTSTRAP)
        end(harness, backend, ref)
        backend.terminate(ref)
        harness.backend().terminate(ref)

    def test_terminating_an_unknown_machine_is_fine(self, backend: Backend) -> None:
        backend.terminate(MachineRef(backend.name, make_id(Prefix.MACHINE, 5, 5), "unknown"))

    def test_terminating_one_machine_leaves_the_others(self, harness: BackendHarness, backend: Backend) -> None:
        first, second = (backend.launch(backend.call(make_order(backend, n)), BOOTSTRAP) for n in (1, 2))
        end(harness, backend, first)
        assert seen(backend, second) is Seen.UP
        assert backend.owned(DEPLOYMENT) == [second]


def make_order(backend: Backend, number: int, deployment: str = DEPLOYMENT) -> MachineOrder:
    offer = next(offer for offer in backend.offers(Resources()) if offer.runnable)
    return MachineOrder(make_id(Prefix.MACHINE, 1, number), deployment, offer)


def seen(backend: Backend, ref: MachineRef) -> Seen:
    return backend.poll([ref])[0].seen


def is_gone(backend: Backend, ref: MachineRef) -> bool:
    """One step of ending a machine."""
    try:
        backend.terminate(ref)
    except NotYetGone:
        return False
    return True


def end(harness: BackendHarness, backend: Backend, ref: MachineRef) -> None:
    """End the machine as the control plane does: ask until it is gone."""
    if not is_gone(backend, ref):
        harness.hurry()
        eventually(lambda: is_gone(backend, ref))
