"""Test the backend `rehearsal`: the conformance suite, and how it understands the cloud's responses."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.backends.agent_listener import agent_route
from tests.backends.conformance import (
    BOOTSTRAP,
    DEPLOYMENT,
    BackendConformance,
    end,
    eventually,
    find_one,
    launch_one,
    make_order,
    seen,
)
from tests.backends.rehearsal.place import Cloud, RehearsalHarness

from crucible.backends.base import (
    LaunchCall,
    LaunchRefused,
    LaunchUnknown,
    MachineRef,
    NotYetGone,
    Reach,
    Seen,
)
from crucible.backends.bootstrap import find_agent_sha256
from crucible.backends.context import BackendContext
from crucible.backends.rehearsal import RehearsalBackend
from crucible.backends.rehearsal.settings import RehearsalSettings
from crucible.core.compute.offers import Availability, Billing, Market, Need, Offer, OnDemand
from crucible.core.compute.pricing import machine_cost
from crucible.core.compute.resources import GiB, Resources
from crucible.core.errors import BadInput, Unreachable


class TestRehearsal(BackendConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path, fast_cloud: Cloud) -> Iterator[RehearsalHarness]:
        made = RehearsalHarness(tmp_path, fast_cloud)
        yield made
        made.clean()


@pytest.fixture
def backend(harness: RehearsalHarness) -> RehearsalBackend:
    return harness.backend()


def launch(backend: RehearsalBackend, number: int = 1) -> MachineRef:
    return launch_one(backend, backend.call(make_order(backend, number)))


def spot_offer(backend: RehearsalBackend, kind: str = "sim.c2") -> Offer:
    offers = backend.offers(Need())
    return next(o for o in offers if o.market is Market.SPOT and o.instance_type == kind)


class TestOffers:
    def test_capabilities(self, backend: RehearsalBackend) -> None:
        can = backend.capabilities
        assert (can.reach, can.capacity, can.bills) == (Reach.LOOPBACK, OnDemand(), True)
        assert not can.shares_machines
        assert can.markets == frozenset(Market)

    def test_the_settle_window_is_the_lag_of_lists(self, harness: RehearsalHarness) -> None:
        assert RehearsalBackend(harness.context(), list_lag=7.5).capabilities.settle_window == 7.5

    def test_one_for_each_zone_type_and_market_cheapest_first(self, backend: RehearsalBackend) -> None:
        offers = backend.offers(Need())
        assert len(offers) == 6 * 6 * 3
        assert len({(o.region, o.instance_type, o.market) for o in offers}) == len(offers)
        assert [o.rate for o in offers] == sorted(o.rate for o in offers)
        assert all(o.billing == Billing(1, 60) for o in offers)

    def test_all_of_it_says_that_it_is_simulated(self, backend: RehearsalBackend) -> None:
        for offer in backend.offers(Need()):
            assert offer.region.startswith("simulated-")
            assert offer.instance_type.startswith("sim.")

    def test_what_is_too_small_says_why(self, backend: RehearsalBackend) -> None:
        need = Resources(gpus=1, gpu_memory_bytes=40 * GiB)
        runnable = {o.instance_type for o in backend.offers(Need(need)) if o.runnable}
        assert runnable == {"sim.a100.1", "sim.h100.8"}
        small = next(o for o in backend.offers(Need(need)) if o.instance_type == "sim.c2")
        assert small.why_not == "asks for 1 GPU; sim.c2 (simulated) has none"

    def test_what_is_sold_out_says_so(self, harness: RehearsalHarness, backend: RehearsalBackend) -> None:
        harness.cloud.call("POST", "/admin/stock", {"market": "spot", "count": 0})
        harness.cloud.call("POST", "/admin/stock", {"market": "reserved", "count": 1})
        offers = backend.offers(Need())
        assert all("no spot" in o.why_not for o in offers if o.market is Market.SPOT)
        limited = {o.availability for o in offers if o.market is Market.RESERVED}
        assert limited == {Availability.LIMITED}
        assert all(o.runnable for o in offers if o.market is Market.RESERVED)

    def test_without_a_cloud_there_is_an_error_that_says_so(self, tmp_path: Path) -> None:
        backend = RehearsalBackend(BackendContext(RehearsalSettings(), tmp_path, tmp_path, tmp_path, sys.executable))
        with pytest.raises(Unreachable, match="no cloud has been started"):
            backend.offers(Need())


class TestLaunch:
    def test_the_host_is_told_what_it_needs(self, harness: RehearsalHarness, backend: RehearsalBackend) -> None:
        ref = launch(backend)
        path = harness.cloud.folder(ref.native_id) / "bootstrap.json"
        eventually(lambda: path.exists() and bool(path.read_text()))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        written = json.loads(path.read_text())
        assert written.pop("interruption_url").endswith("/interruption")
        assert written == {
            "machine": ref.machine,
            "nonce": BOOTSTRAP.nonce,
            "agents_url": BOOTSTRAP.agents_url,
            "agents_url_file": str(harness.home / "agents.url"),
            "work": str(path.parent),
            "envs": str(harness.home / "envs"),
            "uv": None,
            "idle_exit_seconds": 60,
            "native_id": ref.native_id,
            "shared": False,
            "elsewhere": False,
            "store": None,
        }

    def test_the_user_data_becomes_the_host(self, harness: RehearsalHarness, backend: RehearsalBackend) -> None:
        ref = launch(backend)
        pid = harness.cloud.census()[ref.native_id]["pid"]
        agent = harness.cloud.folder(ref.native_id) / "agents" / harness.agent.name
        wanted = [sys.executable, "-I", str(agent), "host", "--bootstrap"]
        command = Path(f"/proc/{pid}/cmdline")
        eventually(lambda: command.read_bytes().split(b"\0")[:5] == [word.encode() for word in wanted])
        assert os.readlink(f"/proc/{pid}/fd/0") == "/dev/null"

    def test_the_agent_file_is_downloaded_and_no_path_of_it_is_given(
        self, harness: RehearsalHarness, backend: RehearsalBackend
    ) -> None:
        call = backend.call(make_order(backend, 1))
        assert str(harness.agent.path) not in json.dumps(call.parameters)
        assert find_agent_sha256(json.dumps(call.parameters)) == harness.agent.sha256
        ref = launch_one(backend, call)
        eventually(lambda: harness.booted(ref) is not None)
        assert [path for path, _ in harness.listener.asked] == [agent_route(harness.agent)]

    def test_a_machine_that_cannot_get_the_agent_file_ends_and_the_console_says_why(
        self, harness: RehearsalHarness, backend: RehearsalBackend
    ) -> None:
        harness.listener.bodies = {agent_route(harness.agent): b"another file"}
        ref = launch(backend)
        eventually(lambda: seen(backend, ref) is Seen.GONE)
        assert backend.poll([ref])[0].detail == "it shut itself down"

    def test_the_nonce_is_on_no_command_line_and_secrets_stay_here(
        self, harness: RehearsalHarness, backend: RehearsalBackend
    ) -> None:
        ref = launch(backend)
        pid = harness.cloud.census()[ref.native_id]["pid"]
        assert BOOTSTRAP.nonce.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
        path = Path(f"/proc/{pid}/environ")
        eventually(lambda: b"CLOUD_METADATA_URL=" in path.read_bytes())
        environ = path.read_bytes()
        assert b"hunter2" not in environ
        script = harness.cloud.folder(ref.native_id) / "user-data"
        assert stat.S_IMODE(script.stat().st_mode) == 0o600
        assert "hunter2" not in script.read_text()

    def test_a_replay_after_the_server_moved_gives_the_same_machine(self, backend: RehearsalBackend) -> None:
        """The URL of the agents' listener is in the user data, so the provider sees other parameters."""
        call = backend.call(make_order(backend, 1))
        ref = launch_one(backend, call)
        assert launch_one(backend, call, replace(BOOTSTRAP, agents_url="http://127.0.0.1:10")) == ref

    def test_such_a_replay_that_no_list_shows_yet_is_unknown(
        self, harness: RehearsalHarness, backend: RehearsalBackend
    ) -> None:
        harness.cloud.faults(list_lag=3600)
        call = backend.call(make_order(backend, 1))
        launch_one(backend, call)
        with pytest.raises(LaunchUnknown, match="not shown yet"):
            launch_one(backend, call, replace(BOOTSTRAP, agents_url="http://127.0.0.1:10"))

    @pytest.mark.parametrize(
        ("path", "body", "code"),
        [
            ("/admin/stock", {"count": 0}, "insufficient_capacity"),
            ("/admin/quota", {"region": "simulated-north", "vcpus": 1}, "quota_exceeded"),
            ("/admin/zones/simulated-north-a/stop", None, "zone_unavailable"),
        ],
    )
    def test_a_definite_no_is_a_refusal(
        self, harness: RehearsalHarness, backend: RehearsalBackend, path: str, body: dict[str, object], code: str
    ) -> None:
        order = make_order(backend, 1)
        order = replace(order, offer=replace(order.offer, region="simulated-north-a"))
        harness.cloud.call("POST", path, body)
        with pytest.raises(LaunchRefused, match=code):
            launch_one(backend, backend.call(order))
        assert backend.owned(DEPLOYMENT) == []

    @pytest.mark.parametrize("fault", ["lost_answers", "lost_requests", "unavailable"])
    def test_no_answer_and_5xx_leave_it_open(
        self, harness: RehearsalHarness, backend: RehearsalBackend, fault: str
    ) -> None:
        call = backend.call(make_order(backend, 1))
        harness.cloud.faults(**{fault: 1})
        for _ in range(4):  # by turns a lost answer is a 504 or a cut connection
            with pytest.raises(LaunchUnknown):
                launch_one(backend, call)
        harness.cloud.faults(**{fault: 0})
        assert (find_one(backend, call.token) is not None) == (fault == "lost_answers")

    def test_throttling_is_no_refusal(self, harness: RehearsalHarness, backend: RehearsalBackend) -> None:
        call = backend.call(make_order(backend, 1))
        harness.cloud.faults(throttled=1, retry_after=7)
        with pytest.raises(Unreachable) as caught:
            launch_one(backend, call)
        assert not isinstance(caught.value, LaunchUnknown)
        assert caught.value.data["retry_after"] == "7"

    def test_a_cloud_that_is_down_made_nothing(self, harness: RehearsalHarness, backend: RehearsalBackend) -> None:
        call = backend.call(make_order(backend, 1))
        harness.cloud.kill9()
        with pytest.raises(Unreachable) as caught:
            launch_one(backend, call)
        assert not isinstance(caught.value, LaunchUnknown)

    def test_the_provider_ends_it_at_its_end(self, harness: RehearsalHarness, backend: RehearsalBackend) -> None:
        order = replace(make_order(backend, 1), ends_at=1.0)
        ref = launch_one(backend, backend.call(order))
        eventually(lambda: seen(backend, ref) is Seen.GONE)
        assert backend.poll([ref])[0].detail == "its maximum duration was over"

    def test_a_call_of_somebody_else_is_refused(self, backend: RehearsalBackend) -> None:
        for call in (LaunchCall("rehearsal", "mch-1", "start_host"), LaunchCall("rehearsal", "m", "x", {})):
            with pytest.raises(BadInput):
                launch_one(backend, call)


class TestPoll:
    def test_taken_back_is_interrupted(self, harness: RehearsalHarness, backend: RehearsalBackend) -> None:
        order = replace(make_order(backend, 1), offer=spot_offer(backend))
        ref = launch_one(backend, backend.call(order))
        harness.cloud.call("POST", f"/admin/instances/{ref.native_id}/reclaim", {})
        eventually(lambda: seen(backend, ref) is Seen.INTERRUPTED)
        assert find_one(backend, ref.machine) is None

    def test_ended_otherwise_is_gone_and_says_how(self, harness: RehearsalHarness, backend: RehearsalBackend) -> None:
        first, second = launch(backend, 1), launch(backend, 2)
        harness.cloud.call("POST", f"/admin/instances/{first.native_id}/kill")
        end(harness, backend, second)
        told = {found.ref: (found.seen, found.detail) for found in backend.poll([first, second])}
        assert told[first] == (Seen.GONE, "the simulated hardware failed")
        assert told[second] == (Seen.GONE, "it was ended on request")

    def test_a_new_machine_that_no_list_shows_yet_is_gone_only_as_an_observation(
        self, harness: RehearsalHarness, backend: RehearsalBackend
    ) -> None:
        harness.cloud.faults(list_lag=3600)
        ref = launch(backend)
        (found,) = backend.poll([ref])
        assert (found.seen, found.detail) == (Seen.GONE, "no list of the simulated cloud shows it")
        harness.cloud.faults(list_lag=0)
        assert seen(backend, ref) is Seen.UP

    def test_a_new_machine_is_starting(self, harness: RehearsalHarness, backend: RehearsalBackend) -> None:
        harness.cloud.faults(boot_seconds=3600)
        assert seen(backend, launch(backend)) is Seen.STARTING

    def test_trouble_of_the_cloud_is_unreachable_and_nothing_else(
        self, harness: RehearsalHarness, backend: RehearsalBackend
    ) -> None:
        ref = launch(backend)
        for fault in ("throttled", "unavailable"):
            harness.cloud.faults(**{fault: 1})
            assert seen(backend, ref) is Seen.UNREACHABLE
            harness.cloud.faults(**{fault: 0})
        harness.cloud.kill9()
        assert seen(backend, ref) is Seen.UNREACHABLE


class TestTwins:
    """A provider that ignores tokens makes two instances of one machine."""

    def twins(self, harness: RehearsalHarness, backend: RehearsalBackend) -> tuple[MachineRef, MachineRef]:
        harness.cloud.faults(tokens_honoured=False)
        first, second = launch(backend), launch(backend)
        assert first.native_id != second.native_id
        assert first.machine == second.machine
        return first, second

    def test_both_are_owned(self, harness: RehearsalHarness, backend: RehearsalBackend) -> None:
        twins = self.twins(harness, backend)
        assert set(backend.owned(DEPLOYMENT)) == set(twins)

    def test_the_machine_lives_while_either_does(self, harness: RehearsalHarness, backend: RehearsalBackend) -> None:
        first, second = self.twins(harness, backend)
        harness.cloud.call("POST", f"/admin/instances/{second.native_id}/kill")
        (found,) = backend.poll([second])
        assert found.seen is Seen.UP
        assert first.native_id in found.detail

    def test_ending_it_ends_both(self, harness: RehearsalHarness, backend: RehearsalBackend) -> None:
        _, second = self.twins(harness, backend)
        end(harness, backend, second)
        assert backend.owned(DEPLOYMENT) == []
        assert harness.count(second.machine) == 0

    def test_one_that_was_taken_back_makes_it_interrupted(
        self, harness: RehearsalHarness, backend: RehearsalBackend
    ) -> None:
        first, second = self.twins(harness, backend)
        harness.cloud.call("POST", f"/admin/instances/{first.native_id}/reclaim", {})
        harness.cloud.call("POST", f"/admin/instances/{second.native_id}/kill")
        eventually(lambda: seen(backend, second) is Seen.INTERRUPTED)


class TestTerminate:
    def test_it_is_not_gone_while_it_shuts_down(self, harness: RehearsalHarness, backend: RehearsalBackend) -> None:
        harness.cloud.faults(shutdown_seconds=3600)
        ref = launch(backend)
        harness.cloud.until(ref.native_id, "running")
        with pytest.raises(NotYetGone):
            backend.terminate(ref)
        assert seen(backend, ref) is Seen.UP
        assert backend.owned(DEPLOYMENT) == [ref]
        harness.cloud.advance(3600)
        backend.terminate(ref)
        assert seen(backend, ref) is Seen.GONE

    def test_a_machine_that_no_list_shows_is_ended_all_the_same(
        self, harness: RehearsalHarness, backend: RehearsalBackend
    ) -> None:
        harness.cloud.faults(list_lag=3600)
        ref = launch(backend)
        end(harness, backend, ref)
        assert harness.count(ref.machine) == 0

    def test_an_error_is_told_and_the_machine_lives(self, harness: RehearsalHarness, backend: RehearsalBackend) -> None:
        ref = launch(backend)
        harness.cloud.faults(terminate_errors=1)
        with pytest.raises(Unreachable, match="500 internal_error"):
            backend.terminate(ref)
        assert harness.count(ref.machine) == 1


class TestMetering:
    def test_our_arithmetic_over_its_segments_is_its_bill(
        self, harness: RehearsalHarness, backend: RehearsalBackend
    ) -> None:
        order = replace(make_order(backend, 1), offer=spot_offer(backend, "sim.a100.1"))
        ref = launch_one(backend, backend.call(order))
        for seconds in (100, 1000, 4000):
            harness.cloud.advance(seconds)
        end(harness, backend, ref)
        (metered,) = backend.metered([ref])
        line = harness.cloud.bill()[ref.native_id]
        assert metered.ref == ref
        assert len(metered.segments) > 2
        assert machine_cost(metered.segments, order.offer.billing, 0.0) == line["micro_dollars"]

    def test_pages_are_read_to_the_end(self, harness: RehearsalHarness, backend: RehearsalBackend) -> None:
        harness.cloud.faults(boot_seconds=3600)
        tags = {"crucible-deployment": DEPLOYMENT, "crucible-machine": "mch-x"}
        for n in range(103):
            harness.cloud.create(tags=tags, zone=("simulated-north-a", "simulated-east-a")[n % 2])
        assert len(backend.owned(DEPLOYMENT)) == 103
