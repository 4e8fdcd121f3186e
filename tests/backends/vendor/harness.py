"""Moon Cloud under the conformance suite, and under tests of its backends."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from tests.backends.conformance import BackendHarness, launch_one
from tests.backends.user_data import noting, run_user_data
from tests.backends.vendor.moon import INTERRUPTION_URL, MoonBackend, MoonSettings
from tests.backends.vendor.moon_cloud import KEY, TYPES, Client, MoonCloud

from crucible.backends.base import LaunchCall, LaunchUnknown, MachineRef
from crucible.backends.bootstrap import AgentFile
from crucible.backends.context import BackendContext
from crucible.backends.registry import ROWS, BackendRow
from crucible.catalog import Catalog
from crucible.catalog.rows import Row
from crucible.core.compute.pricing import MICROS
from crucible.core.compute.resources import GiB
from crucible.core.secret import Secret
from crucible.wire.documents.bootstrap import Bootstrap

AGENT = AgentFile(Path("agent.pyz"), "5" * 64)
SETTINGS = "tests.backends.vendor.moon:MoonSettings"
MOON_ROWS = {
    **ROWS,
    "moon": BackendRow("tests.backends.vendor.moon:MoonBackend", "pip install mooncloud", SETTINGS),
    "moon-queue": BackendRow("tests.backends.vendor.moon_queue:MoonQueueBackend", "pip install mooncloud", SETTINGS),
}


def moon_catalog() -> Catalog:
    """Return the vendor's prices, as rows of the catalog."""
    return Catalog(_row(name, vcpus, price) for name, (vcpus, price) in TYPES.items())


def _row(name: str, vcpus: int, price: str) -> Row:
    rate = int(float(price) * MICROS)
    return Row(
        provider="moon",
        region="tranquility",
        instance_type=name,
        gpu="A10" if name.startswith("g") else "",
        gpus=vcpus // 8 if name.startswith("g") else 0,
        vcpus=vcpus,
        memory_bytes=vcpus * 4 * GiB,
        on_demand=rate,
        spot=rate // 2,
        reserved_1y=None,
        reserved_3y=None,
        interruption="",
        price_list="lambda-cloud",  # the terms of a vendor that exists
        dated=datetime.now(UTC).date().isoformat(),
    )


class MoonHarness(BackendHarness):
    halts = False
    rows = MOON_ROWS

    def __init__(self, folder: Path, make: Callable[..., MoonBackend] = MoonBackend) -> None:
        self.folder = folder
        self.cloud = MoonCloud()
        self._make = make

    def context(self, key: str = KEY, region: str = "tranquility") -> BackendContext[MoonSettings]:
        settings = MoonSettings(api_key=Secret(key), region=region)
        home = self.folder
        return BackendContext(settings, home, home / "agents.url", AGENT, "python3", catalog=moon_catalog)

    def backend(self, key: str = KEY, region: str = "tranquility") -> MoonBackend:
        return self._make(self.context(key, region), Client(key, self.cloud))

    def count(self, machine: str) -> int:
        return len(self.cloud.alive(**{"crucible-machine": machine}))

    def crash_launch(self, call: LaunchCall) -> None:
        self.cloud.faults["create_instances"] = ["lost"]
        try:
            launch_one(self.backend(), call)
        except LaunchUnknown:
            return
        raise AssertionError("the answer was not lost")

    def cut_off(self) -> bool:
        self.cloud.cut_off = True
        return True

    def kill_host(self, ref: MachineRef) -> None:
        """Turn the machine off, as its script does once the host has ended."""
        self.cloud.power_off(ref.native_id)
        self.hurry()

    def leave_work(self, ref: MachineRef) -> object:
        return None

    def booted(self, ref: MachineRef) -> Bootstrap:
        """Run the user data in a shell, as the machine would."""
        script = self.cloud.instances[ref.native_id].script
        folder = self.folder / ref.native_id
        off = folder / "off"
        commands = {"moon-metadata": f"[ $1 = instance-id ] && echo {ref.native_id}\n", "poweroff": noting(off)}
        booted = run_user_data(script, folder, commands)
        assert off.exists(), "nothing ends the machine once the agent has ended"
        assert booted.interruption_url == INTERRUPTION_URL
        return booted

    def start(self, ref: MachineRef) -> None:
        self.cloud.give_capacity()
        self.cloud.advance(self.cloud.boot_seconds)

    def hurry(self) -> None:
        self.cloud.advance(self.cloud.stop_seconds)
