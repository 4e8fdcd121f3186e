"""The conformance suite: tests that every backend must pass.

A backend's own test module subclasses `BackendConformance` and provides a `BackendHarness`, which makes the backend and
breaks the world beneath it.
"""

from __future__ import annotations

import abc
import dataclasses
import json
import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import pytest

from crucible.backends.base import (
    AlreadyStarted,
    Backend,
    LaunchCall,
    MachineOrder,
    MachineRef,
    NotYetGone,
    Reach,
    Seen,
    Withdraws,
)
from crucible.backends.registry import ROWS, BackendRow, names
from crucible.core.compute.offers import Need, Nodes, ProviderQueue
from crucible.core.compute.resources import MAX_CPUS, MAX_MEMORY, Resources
from crucible.core.errors import Unreachable
from crucible.core.ids import Prefix, make_id
from crucible.wire.documents.bootstrap import Bootstrap

DEPLOYMENT = make_id(Prefix.DEPLOYMENT, 1, 1)
STRANGER = make_id(Prefix.DEPLOYMENT, 1, 2)
BOOTSTRAP = Bootstrap("", nonce="nonce-that-must-not-be-stored", agents_url="http://127.0.0.1:9")
MOVED = dataclasses.replace(BOOTSTRAP, agents_url="http://127.0.0.1:10")
PATIENCE = 30.0


def eventually(check: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Wait until the check is true; fail if it is not in time."""
    until = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < until, "this did not become true in time"
        time.sleep(0.01)


def launch_one(backend: Backend, call: LaunchCall, bootstrap: Bootstrap = BOOTSTRAP) -> MachineRef:
    """Launch one machine, and return it. Its id is the token."""
    (ref,) = backend.launch(call, [dataclasses.replace(bootstrap, machine=call.token)])
    return ref


def find_one(backend: Backend, token: str) -> MachineRef | None:
    """Return the only machine of this token, or None."""
    found = backend.find(token)
    assert len(found) <= 1
    return found[0] if found else None


class BackendHarness(abc.ABC):
    """A backend under test, and the faults that its world can have."""

    halts = True
    """Whether a machine and its work outlive its host."""
    rows: Mapping[str, BackendRow] = ROWS
    """The table that has the backend."""

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
        """Kill the agent's host on the machine, or do to the machine what that does."""

    @abc.abstractmethod
    def leave_work(self, ref: MachineRef) -> object:
        """Leave an unfinished attempt on the machine."""

    @abc.abstractmethod
    def booted(self, ref: MachineRef) -> Bootstrap | None:
        """Return the bootstrap with which the agent's host was started on the machine; None if it was not yet.

        A fake vendor that runs no agent returns what the machine's script would start it with (`run_user_data`).
        """

    def start(self, ref: MachineRef) -> None:  # noqa: B027 - most providers have no queue
        """Let a machine that waits in its provider's queue start."""

    def cut_off(self) -> bool:
        """Let the provider answer nobody from now on. False if that cannot be."""
        return False

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

    def test_it_is_in_the_table(self, harness: BackendHarness, backend: Backend) -> None:
        assert backend.name in names(harness.rows)

    def test_offers_are_priced_and_dated(self, backend: Backend) -> None:
        offers = backend.offers(Need())
        assert offers
        for offer in offers:
            assert offer.backend == backend.name
            assert offer.instance_type
            assert isinstance(offer.rate, int)
            assert (offer.rate > 0) == backend.capabilities.bills
            # A price list has a day, a market a time with its zone.
            assert re.fullmatch(r"\d{4}-\d\d-\d\d", offer.dated) or datetime.fromisoformat(offer.dated).tzinfo
            assert offer.market in backend.capabilities.markets

    def test_an_offer_that_is_too_small_says_why(self, backend: Backend) -> None:
        absurd = Resources(cpus=MAX_CPUS, memory_bytes=MAX_MEMORY)
        assert all(not offer.runnable and offer.why_not for offer in backend.offers(Need(absurd)))

    def test_an_offer_names_its_node_if_slots_are_counted(self, backend: Backend) -> None:
        counted = isinstance(backend.capabilities.capacity, Nodes)
        assert all((offer.node is not None) == counted for offer in backend.offers(Need()))

    def test_a_check_finds_nothing_wrong(self, backend: Backend) -> None:
        found = backend.check()
        assert found
        assert [each.why for each in found if not each.ok] == []

    def test_a_call_is_pure(self, harness: BackendHarness, backend: Backend, order: MachineOrder) -> None:
        call = backend.call(order)
        assert call == backend.call(order) == harness.backend().call(order)
        assert find_one(backend, call.token) is None
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
        ref = launch_one(backend, call)
        assert (ref.backend, ref.machine) == (backend.name, order.machine)
        assert find_one(backend, call.token) == ref
        assert backend.owned(DEPLOYMENT) == [ref]
        wait_up(harness, backend, ref)
        assert harness.count(order.machine) == 1

    def test_the_machine_starts_the_agent_with_its_bootstrap(
        self, harness: BackendHarness, backend: Backend, order: MachineOrder
    ) -> None:
        ref = launch_one(backend, backend.call(order))
        harness.start(ref)
        eventually(lambda: harness.booted(ref) is not None)
        booted = harness.booted(ref)
        assert booted is not None
        assert (booted.machine, booted.native_id) == (ref.machine, ref.native_id)
        assert booted.nonce == BOOTSTRAP.nonce
        tunnelled = backend.capabilities.reach is Reach.TUNNEL  # its agents call the tunnel's other end
        assert tunnelled or booted.agents_url == BOOTSTRAP.agents_url

    def test_launching_twice_gives_one_machine(
        self, harness: BackendHarness, backend: Backend, order: MachineOrder
    ) -> None:
        call = backend.call(order)
        assert launch_one(backend, call) == launch_one(backend, call)
        assert harness.count(order.machine) == 1

    def test_a_stored_call_replayed_by_the_next_server_gives_the_same_machine(
        self, harness: BackendHarness, backend: Backend, order: MachineOrder
    ) -> None:
        call = backend.call(order)
        ref = launch_one(backend, call)
        replayed = LaunchCall(**json.loads(json.dumps(dataclasses.asdict(call))))
        assert launch_one(harness.backend(), replayed) == ref
        assert harness.count(order.machine) == 1

    def test_a_server_with_another_address_gets_the_same_machine(
        self, harness: BackendHarness, backend: Backend, order: MachineOrder
    ) -> None:
        call = backend.call(order)
        assert launch_one(backend, call) == launch_one(harness.backend(), call, MOVED)
        assert harness.count(order.machine) == 1

    def test_two_servers_launching_at_once_give_one_machine(self, harness: BackendHarness, order: MachineOrder) -> None:
        servers = [harness.backend() for _ in range(3)]
        call = servers[0].call(order)
        with ThreadPoolExecutor(len(servers)) as pool:
            refs = set(pool.map(lambda server: launch_one(server, call), servers))
        assert len(refs) == 1
        eventually(lambda: harness.count(order.machine) == 1)

    def test_a_lost_answer_leaks_nothing(self, harness: BackendHarness, backend: Backend, order: MachineOrder) -> None:
        call = backend.call(order)
        launch_one(backend, call)  # the answer is lost: the next server knows the token alone
        after = harness.backend()
        ref = find_one(after, call.token)
        assert ref is not None
        assert launch_one(after, call) == ref
        end(harness, after, ref)
        assert harness.count(order.machine) == 0

    def test_what_a_crashed_launch_left_is_found_and_ended(self, harness: BackendHarness, backend: Backend) -> None:
        order = make_order(backend, 7)
        call = backend.call(order)
        harness.crash_launch(call)
        after = harness.backend()
        assert [ref.machine for ref in after.owned(DEPLOYMENT)] == [order.machine]
        ref = find_one(after, call.token)
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
        assert find_one(backend, unknown.machine) is None
        assert find_one(backend, hostile.machine) is None

    def test_one_observation_for_each_ref_in_order(self, backend: Backend, order: MachineOrder) -> None:
        up = launch_one(backend, backend.call(order))
        unknown = MachineRef(backend.name, make_id(Prefix.MACHINE, 5, 5), "unknown")
        assert [found.ref for found in backend.poll([unknown, up, unknown])] == [unknown, up, unknown]
        assert backend.poll([]) == []

    def test_a_dead_host_with_work_is_halted_and_comes_back_as_the_same_machine(
        self, harness: BackendHarness, backend: Backend, order: MachineOrder
    ) -> None:
        if not harness.halts:
            pytest.skip("a machine of this backend does not outlive its host")
        ref = launch_one(backend, backend.call(order))
        harness.leave_work(ref)
        harness.kill_host(ref)
        eventually(lambda: seen(backend, ref) is Seen.HALTED)
        assert backend.owned(DEPLOYMENT) == [ref]
        assert launch_one(harness.backend(), backend.call(order)) == ref
        eventually(lambda: seen(backend, ref) is Seen.UP)
        assert harness.count(order.machine) == 1

    def test_a_dead_host_without_work_is_gone(
        self, harness: BackendHarness, backend: Backend, order: MachineOrder
    ) -> None:
        ref = launch_one(backend, backend.call(order))
        harness.start(ref)
        harness.kill_host(ref)
        eventually(lambda: seen(backend, ref) is Seen.GONE)
        end(harness, backend, ref)

    def test_another_deployments_machines_are_not_ours(self, backend: Backend, order: MachineOrder) -> None:
        ours = launch_one(backend, backend.call(order))
        theirs = launch_one(backend, backend.call(make_order(backend, 2, STRANGER)))
        assert backend.owned(DEPLOYMENT) == [ours]
        assert backend.owned(STRANGER) == [theirs]

    def test_a_provider_that_does_not_answer_makes_no_machine_gone(
        self, harness: BackendHarness, backend: Backend, order: MachineOrder
    ) -> None:
        call = backend.call(order)
        ref = launch_one(backend, call)
        if not harness.cut_off():
            pytest.skip("the suite cannot cut off this provider")
        assert [found.seen for found in backend.poll([ref, ref])] == [Seen.UNREACHABLE, Seen.UNREACHABLE]
        requests: list[Callable[[], object]] = [
            lambda: backend.find(call.token),
            lambda: backend.owned(DEPLOYMENT),
            lambda: backend.terminate(ref),
            lambda: launch_one(backend, call),
            backend.check,
        ]
        for request in requests:
            with pytest.raises(Unreachable):
                request()

    # Ending

    def test_a_terminated_machine_is_gone(self, harness: BackendHarness, backend: Backend, order: MachineOrder) -> None:
        call = backend.call(order)
        ref = launch_one(backend, call)
        end(harness, backend, ref)
        assert seen(backend, ref) is Seen.GONE
        assert find_one(backend, call.token) is None
        assert backend.owned(DEPLOYMENT) == []
        assert harness.count(order.machine) == 0

    def test_terminating_again_is_fine(self, harness: BackendHarness, backend: Backend, order: MachineOrder) -> None:
        ref = launch_one(backend, backend.call(order))
        end(harness, backend, ref)
        backend.terminate(ref)
        harness.backend().terminate(ref)

    def test_terminating_an_unknown_machine_is_fine(self, backend: Backend) -> None:
        backend.terminate(MachineRef(backend.name, make_id(Prefix.MACHINE, 5, 5), "unknown"))

    def test_terminating_one_machine_leaves_the_others(self, harness: BackendHarness, backend: Backend) -> None:
        first, second = (launch_one(backend, backend.call(make_order(backend, n))) for n in (1, 2))
        wait_up(harness, backend, second)
        end(harness, backend, first)
        assert seen(backend, second) is Seen.UP
        assert backend.owned(DEPLOYMENT) == [second]

    # A provider's queue

    @pytest.fixture
    def queued(self, backend: Backend, order: MachineOrder) -> MachineRef:
        """A machine that waits in the provider's queue."""
        if not isinstance(backend.capabilities.capacity, ProviderQueue):
            pytest.skip("the provider has no queue")
        return launch_one(backend, backend.call(order))

    def test_a_machine_in_a_queue_says_so_until_it_starts(
        self, harness: BackendHarness, backend: Backend, queued: MachineRef
    ) -> None:
        (observation,) = backend.poll([queued])
        assert observation.seen is Seen.QUEUED
        assert observation.detail
        assert observation.started_at is None
        wait_up(harness, backend, queued)

    def test_a_machine_in_a_queue_can_be_withdrawn(
        self, harness: BackendHarness, backend: Backend, queued: MachineRef
    ) -> None:
        assert isinstance(backend, Withdraws)
        backend.withdraw(queued)
        assert seen(backend, queued) is Seen.GONE
        assert backend.owned(DEPLOYMENT) == []
        assert harness.count(queued.machine) == 0
        backend.withdraw(queued)
        backend.withdraw(MachineRef(backend.name, make_id(Prefix.MACHINE, 5, 5), "unknown"))

    def test_a_machine_that_has_started_is_not_withdrawn(
        self, harness: BackendHarness, backend: Backend, queued: MachineRef
    ) -> None:
        assert isinstance(backend, Withdraws)
        wait_up(harness, backend, queued)
        with pytest.raises(AlreadyStarted):
            backend.withdraw(queued)
        assert seen(backend, queued) is Seen.UP

    def test_a_machine_in_a_queue_is_terminated_as_any_other(
        self, harness: BackendHarness, backend: Backend, queued: MachineRef
    ) -> None:
        end(harness, backend, queued)
        assert seen(backend, queued) is Seen.GONE

    # Gangs in one call

    @pytest.fixture
    def gang(self, backend: Backend) -> MachineOrder:
        if not backend.capabilities.gang_in_one_call:
            pytest.skip("each machine of a gang has its own call")
        others = tuple(make_order(backend, number).machine for number in (2, 3))
        return dataclasses.replace(make_order(backend, 1), ranks=3, others=others)

    def test_one_call_makes_the_machines_of_a_gang_each_with_its_own_bootstrap(
        self, harness: BackendHarness, backend: Backend, gang: MachineOrder
    ) -> None:
        refs = launch_gang(backend, gang)
        assert sorted(ref.machine for ref in refs) == sorted([gang.machine, *gang.others])
        assert len({ref.native_id for ref in refs}) == 3
        assert set(backend.find(backend.call(gang).token)) == set(backend.owned(DEPLOYMENT)) == set(refs)
        for ref in refs:
            harness.start(ref)
            booted = harness.booted(ref)
            assert booted is not None
            assert (booted.machine, booted.native_id) == (ref.machine, ref.native_id)

    def test_a_gang_is_made_once(self, harness: BackendHarness, backend: Backend, gang: MachineOrder) -> None:
        refs = launch_gang(backend, gang)
        again, moved = launch_gang(harness.backend(), gang), launch_gang(harness.backend(), gang, MOVED)
        assert set(again) == set(moved) == set(refs)
        assert [harness.count(machine) for machine in (gang.machine, *gang.others)] == [1, 1, 1]

    def test_each_machine_of_a_gang_ends_by_itself(
        self, harness: BackendHarness, backend: Backend, gang: MachineOrder
    ) -> None:
        first, *others = launch_gang(backend, gang)
        end(harness, backend, first)
        assert set(backend.owned(DEPLOYMENT)) == set(backend.find(backend.call(gang).token)) == set(others)


def launch_gang(backend: Backend, order: MachineOrder, bootstrap: Bootstrap = BOOTSTRAP) -> list[MachineRef]:
    """Launch the machines of a gang, each with its own bootstrap."""
    bootstraps = [dataclasses.replace(bootstrap, machine=machine) for machine in (order.machine, *order.others)]
    return list(backend.launch(backend.call(order), bootstraps))


def make_order(backend: Backend, number: int, deployment: str = DEPLOYMENT) -> MachineOrder:
    offer = next(offer for offer in backend.offers(Need()) if offer.runnable)
    return MachineOrder(make_id(Prefix.MACHINE, 1, number), deployment, offer)


def seen(backend: Backend, ref: MachineRef) -> Seen:
    return backend.poll([ref])[0].seen


def wait_up(harness: BackendHarness, backend: Backend, ref: MachineRef) -> None:
    """Let the machine start, and wait until the provider says that it runs."""
    harness.start(ref)
    eventually(lambda: seen(backend, ref) is Seen.UP)


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
