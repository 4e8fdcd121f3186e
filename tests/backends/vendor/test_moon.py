"""Test a cloud's backend: the conformance suite, its native request, and how it understands its vendor."""

from __future__ import annotations

import base64
import inspect
import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.backends.conformance import (
    BOOTSTRAP,
    DEPLOYMENT,
    BackendConformance,
    BackendHarness,
    end,
    launch_one,
    make_order,
    seen,
)
from tests.backends.vendor import moon
from tests.backends.vendor.harness import AGENT, MOON_ROWS, MoonHarness
from tests.backends.vendor.moon import MoonBackend
from tests.backends.vendor.moon_cloud import ACTIONS, KEY, USER_DATA_BYTES
from tests.backends.vendor.moon_queue import MoonQueueBackend

from crucible.backends import get_backend
from crucible.backends.base import (
    LaunchCall,
    LaunchRefused,
    LaunchUnknown,
    MachineOrder,
    MachineRef,
    Meters,
    NotYetGone,
    Seen,
)
from crucible.backends.bootstrap import find_agent_sha256, script_template
from crucible.backends.settings import describe
from crucible.core.compute.offers import Market, Need
from crucible.core.compute.resources import Allocation, GiB, Resources
from crucible.core.errors import Unreachable

ROOT = Path(__file__).parents[3]


class TestMoon(BackendConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> MoonHarness:
        return MoonHarness(tmp_path)


class TestMoonQueue(BackendConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> MoonHarness:
        return MoonHarness(tmp_path, MoonQueueBackend)


@pytest.fixture
def harness(tmp_path: Path) -> MoonHarness:
    return MoonHarness(tmp_path)


@pytest.fixture
def backend(harness: MoonHarness) -> MoonBackend:
    return harness.backend()


@pytest.fixture
def order(backend: MoonBackend) -> MachineOrder:
    return make_order(backend, 1)


@pytest.fixture
def ref(backend: MoonBackend, order: MachineOrder) -> MachineRef:
    return launch_one(backend, backend.call(order))


# What is sent


def test_the_native_request_of_a_full_order(backend: MoonBackend) -> None:
    (offer,) = (o for o in backend.offers(Need()) if (o.instance_type, o.market) == ("g1x8", Market.SPOT))
    order = MachineOrder(
        machine="mch-1",
        deployment="dep-1",
        offer=offer,
        ends_at=1_700_003_600.0,
        ends_after=3600.0,
        label="Train: Ada's net",
        image="ada/cuda-13",
        disk_bytes=100 * GiB + 1,
        ports=(8080, 22),
        allocation=Allocation(cpus=16, memory_bytes=64 * GiB, gpus=(0, 1)),
        rank=1,
        ranks=4,
    )
    script = script_template(
        AGENT,
        "/var/lib/crucible/machines/mch-1",
        facts={"native_id": "$(moon-metadata instance-id)"},
        then="poweroff",
    )
    assert backend.call(order) == LaunchCall(
        backend="moon",
        token="mch-1",
        action="create_instances",
        parameters={
            "region": "tranquility",
            "instance_type": "g1x8",
            "market": "spot",
            "name": "train-ada-s-net",
            "image": "ada/cuda-13",
            "disk_gb": 101,
            "open_ports": [8080, 22],
            "max_seconds": 3600.0,
            "on_poweroff": "terminate",
            "limits": {"vcpus": 16, "gpus": [0, 1], "memory_bytes": 64 * GiB},
            "tags": {"crucible-deployment": "dep-1", "crucible-launch": "mch-1"},
            "instances": [
                {
                    "tags": {"crucible-machine": "mch-1", "crucible-rank": "1 of 4"},
                    "user_data": script,
                }
            ],
        },
    )


def test_an_order_that_says_little_gets_the_defaults(backend: MoonBackend, order: MachineOrder) -> None:
    sent = backend.call(order).parameters
    assert (sent["name"], sent["image"], sent["disk_gb"]) == (order.machine, "moon-linux-python3", 30)
    assert (sent["open_ports"], sent["max_seconds"], sent["limits"]) == ([], None, None)


def test_the_stored_call_names_the_agent_file_that_it_boots_from(backend: MoonBackend, order: MachineOrder) -> None:
    assert find_agent_sha256(str(backend.call(order).parameters)) == AGENT.sha256


def test_user_data_is_within_the_vendors_limit(harness: MoonHarness, backend: MoonBackend, order: MachineOrder) -> None:
    store = {f"url-{n}": f"https://store.example/agents?signature={n}" for n in range(200)}
    ref = launch_one(backend, backend.call(order), replace(BOOTSTRAP, store=store))
    assert len(harness.cloud.instances[ref.native_id].script) > USER_DATA_BYTES
    booted = harness.booted(ref)
    assert (booted.store, booted.shared) == (store, False)


def test_user_data_holds_no_time_so_that_a_token_has_the_same_parameters(harness: MoonHarness, ref: MachineRef) -> None:
    data = base64.b64decode(harness.cloud.instances[ref.native_id].own["user_data"])
    assert data[4:8] == bytes(4)  # the time in the header of gzip


# Offers


def test_prices_are_the_catalogs_of_its_own_region(backend: MoonBackend, harness: MoonHarness) -> None:
    offers = backend.offers(Need(Resources(gpus=1)))
    assert [(o.instance_type, o.market.value, o.rate) for o in offers] == [
        ("g1", "spot", 645_000),
        ("g1", "on_demand", 1_290_000),
        ("g1x8", "spot", 5_160_000),
        ("g1x8", "on_demand", 10_320_000),
    ]
    assert backend.offers(Need(regions=("serenity",))) == []
    assert harness.backend(region="serenity").offers(Need()) == []


# Launches


@pytest.mark.parametrize("code", ["InvalidKey", "InvalidParameter", "NoCapacity", "PermissionDenied", "QuotaExceeded"])
def test_a_refusal_made_nothing(harness: MoonHarness, backend: MoonBackend, order: MachineOrder, code: str) -> None:
    harness.cloud.faults["create_instances"] = [code]
    with pytest.raises(LaunchRefused, match=code):
        launch_one(backend, backend.call(order))
    assert harness.count(order.machine) == 0


def test_quota_and_capacity_are_refusals(harness: MoonHarness, backend: MoonBackend, order: MachineOrder) -> None:
    harness.cloud.quota = 3
    with pytest.raises(LaunchRefused, match="3 vCPUs in tranquility"):
        launch_one(backend, backend.call(order))
    harness.cloud.quota, harness.cloud.sold_out = 64, {order.offer.instance_type}
    with pytest.raises(LaunchRefused, match="NoCapacity"):
        launch_one(backend, backend.call(order))


@pytest.mark.parametrize("fault", ["InternalError", "an error of next year"])
def test_an_error_that_is_not_known_may_have_made_a_machine(
    harness: MoonHarness, backend: MoonBackend, order: MachineOrder, fault: str
) -> None:
    harness.cloud.faults["create_instances"] = [fault]
    with pytest.raises(LaunchUnknown):
        launch_one(backend, backend.call(order))


@pytest.mark.parametrize("fault", ["Throttled", "cut"])
def test_a_call_that_did_not_get_through_is_made_again(
    harness: MoonHarness, backend: MoonBackend, order: MachineOrder, fault: str
) -> None:
    harness.cloud.faults["create_instances"] = [fault]
    with pytest.raises(Unreachable) as caught:
        launch_one(backend, backend.call(order))
    assert not isinstance(caught.value, LaunchUnknown)
    assert launch_one(backend, backend.call(order)).machine == order.machine


def test_what_no_list_shows_yet_is_unknown_and_then_found(
    harness: MoonHarness, backend: MoonBackend, order: MachineOrder
) -> None:
    harness.cloud.list_lag = backend.capabilities.settle_window
    call = backend.call(order)
    harness.crash_launch(call)
    assert backend.find(call.token) == []
    with pytest.raises(LaunchUnknown):
        launch_one(backend, call, replace(BOOTSTRAP, agents_url="https://another.example"))
    harness.cloud.advance(backend.capabilities.settle_window)
    assert [found.machine for found in backend.find(call.token)] == [order.machine]


# Looking and ending


def test_the_states_of_a_machine(harness: MoonHarness, backend: MoonBackend, order: MachineOrder) -> None:
    harness.cloud.boot_seconds = 30.0
    started = harness.cloud.now
    ref = launch_one(backend, backend.call(order))
    (observation,) = backend.poll([ref])
    assert (observation.seen, observation.started_at) == (Seen.STARTING, started)
    harness.start(ref)
    assert seen(backend, ref) is Seen.UP
    with pytest.raises(NotYetGone):
        backend.terminate(ref)
    assert seen(backend, ref) is Seen.UP
    harness.hurry()
    backend.terminate(ref)
    (observation,) = backend.poll([ref])
    assert (observation.seen, observation.detail) == (Seen.GONE, "it was ended on request")


def test_a_machine_that_the_vendor_takes_back_is_interrupted(
    harness: MoonHarness, backend: MoonBackend, ref: MachineRef
) -> None:
    harness.cloud.interrupt(ref.native_id)
    assert seen(backend, ref) is Seen.UP
    harness.hurry()
    assert seen(backend, ref) is Seen.INTERRUPTED


def test_the_vendor_ends_a_machine_whose_server_is_gone(
    harness: MoonHarness, backend: MoonBackend, order: MachineOrder
) -> None:
    ref = launch_one(backend, backend.call(replace(order, ends_after=3600.0)))
    harness.cloud.advance(3600.0)
    seen(backend, ref)
    harness.hurry()
    assert seen(backend, ref) is Seen.GONE
    assert harness.count(order.machine) == 0


def test_a_vendor_that_fails_is_unreachable_and_nothing_is_gone(
    harness: MoonHarness, backend: MoonBackend, ref: MachineRef
) -> None:
    harness.cloud.faults = {"list_instances": ["InternalError", "Throttled", "cut"], "terminate_instance": ["lost"]}
    assert seen(backend, ref) is Seen.UNREACHABLE
    with pytest.raises(Unreachable, match="Throttled"):
        backend.owned(DEPLOYMENT)
    with pytest.raises(Unreachable):
        backend.find(ref.machine)
    with pytest.raises(Unreachable):
        backend.terminate(ref)
    end(harness, backend, ref)
    assert seen(backend, ref) is Seen.GONE


def test_every_page_of_a_list_counts(harness: MoonHarness, backend: MoonBackend) -> None:
    refs = [launch_one(backend, backend.call(make_order(backend, number))) for number in range(1, 6)]
    assert len(refs) > 2 * harness.cloud.page_size
    assert backend.owned(DEPLOYMENT) == refs
    assert {found.seen for found in backend.poll(refs)} == {Seen.UP}


def test_the_meter_counts_from_the_start_to_the_end(
    harness: MoonHarness, backend: MoonBackend, order: MachineOrder, ref: MachineRef
) -> None:
    assert isinstance(backend, Meters)
    started = harness.cloud.now
    (metered,) = backend.metered([replace(ref, native_id="")])
    assert metered.ref == ref
    assert [(s.starts_at, s.ends_at, s.rate) for s in metered.segments] == [(started, None, order.offer.rate)]
    harness.cloud.advance(600.0)
    end(harness, backend, ref)
    (metered,) = backend.metered([ref])
    assert metered.segments[0].ends_at == started + 600.0 + harness.cloud.stop_seconds


# Check and settings


def test_a_bad_key_is_all_that_is_said(harness: MoonHarness) -> None:
    (found,) = harness.backend(key="stolen").check()
    assert (found.what, found.ok, found.why) == ("the key is valid", False, "InvalidKey.")
    assert found.fix == "Make a key at https://moon.example/keys."


def test_a_permission_that_is_missing_is_named(harness: MoonHarness, backend: MoonBackend) -> None:
    harness.cloud.keys[KEY] = ACTIONS - {"terminate_instance"}
    (found,) = (each for each in backend.check() if not each.ok)
    assert (found.what, found.why) == ("the key may do what is needed", "It may not terminate_instance.")


def test_no_quota_is_told_from_a_missing_permission(harness: MoonHarness, backend: MoonBackend) -> None:
    harness.cloud.quota = 0
    (found,) = (each for each in backend.check() if not each.ok)
    assert (found.what, found.why) == ("quota in tranquility: 0 vCPUs left", "0 of 0 vCPUs are in use.")


def test_a_region_that_does_not_exist_is_found(harness: MoonHarness) -> None:
    wrong = [each for each in harness.backend(region="atlantis").check() if not each.ok]
    assert [each.what for each in wrong] == ["0 prices in atlantis", "quota in atlantis"]


def test_a_check_of_a_vendor_that_does_not_answer_says_nothing_of_the_key(harness: MoonHarness) -> None:
    unconnected = get_backend("moon", harness.context(), MOON_ROWS)
    with pytest.raises(Unreachable, match="name not known"):
        unconnected.check()


@pytest.mark.parametrize("action", ["describe_key", "get_quota"])
def test_a_check_that_is_throttled_blames_neither_key_nor_region(
    harness: MoonHarness, backend: MoonBackend, action: str
) -> None:
    harness.cloud.faults[action] = ["Throttled"]
    with pytest.raises(Unreachable, match="Throttled"):
        backend.check()


def test_its_settings_are_described(harness: MoonHarness) -> None:
    fields = {each.name: each for each in describe("moon", type(harness.context().settings))}
    assert fields["api_key"].variables == ("CRUCIBLE_MOON_API_KEY", "MOON_KEY")
    assert (fields["api_key"].secret, fields["api_key"].required, fields["region"].default) == (
        True,
        True,
        "tranquility",
    )
    assert KEY not in repr(harness.context())


# The page that shows it


def test_the_page_shows_lines_of_the_example() -> None:
    page = (ROOT / "docs/backends.md").read_text("utf-8")
    shown = {
        line.strip() for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) for line in block.splitlines()
    }
    files = (inspect.getsource(moon), Path(__file__).read_text("utf-8"))
    rows = {line for line in shown if "BackendRow(" in line}
    assert len(rows) == 1
    assert shown - rows - {"", "..."} <= {line.strip() for text in files for line in text.splitlines()}


def test_the_page_lists_what_a_harness_has() -> None:
    page = (ROOT / "docs/backends.md").read_text("utf-8")
    table = page[page.index("### 10.") : page.index("## The contract")]
    assert [name for name in vars(BackendHarness) if not name.startswith("_") and f"`{name}" not in table] == []
