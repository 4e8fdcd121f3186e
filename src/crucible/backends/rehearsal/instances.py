"""Parse instances of the simulated cloud, and derive the state of a machine from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crucible.backends.base import MachineRef, Observation, Seen
from crucible.core.compute.pricing import Segment

MACHINE_TAG = "crucible-machine"
RECLAIMED = "spot_reclaim"
_CAUSES = {
    "user_initiated": "it was ended on request",
    RECLAIMED: "the simulated cloud took it back",
    "max_duration": "its maximum duration was over",
    "instance_shutdown": "it shut itself down",
    "hardware_failure": "the simulated hardware failed",
    "zone_outage": "the simulated zone went out of service",
    "boot_failed": "it did not boot",
}
_ALIVE = {"pending": Seen.STARTING, "running": Seen.UP, "shutting-down": Seen.UP}


@dataclass(frozen=True)
class Instance:
    """An instance as the cloud lists it. `machine`: our id from its tag; empty without the tag."""

    id: str
    machine: str
    zone: str
    state: str
    cause: str
    segments: tuple[Segment, ...]

    @property
    def alive(self) -> bool:
        return self.state in _ALIVE


def parse_instance(document: object) -> Instance | None:
    """Parse an instance; None if the document is not one."""
    if not isinstance(document, dict) or not isinstance(document.get("id"), str):
        return None
    tags, segments = document.get("tags"), document.get("segments")
    return Instance(
        id=document["id"],
        machine=str(tags.get(MACHINE_TAG, "")) if isinstance(tags, dict) else "",
        zone=str(document.get("zone", "")),
        state=str(document.get("state", "")),
        cause=str(document.get("cause", "")),
        segments=tuple(map(_segment, segments)) if isinstance(segments, list) else (),
    )


def observe(ref: MachineRef, instances: Sequence[Instance]) -> Observation:
    """Return the observation of a machine from its instances. It is gone only if none of them lives."""
    living = sorted((i for i in instances if i.alive), key=lambda i: i.id != ref.native_id)
    if living:
        return Observation(ref, _ALIVE[living[0].state], _living_detail(ref, living[0]))
    if any(i.cause == RECLAIMED for i in instances):
        return Observation(ref, Seen.INTERRUPTED, _CAUSES[RECLAIMED])
    ended = sorted(instances, key=lambda i: i.id != ref.native_id)
    why = _CAUSES.get(ended[0].cause, ended[0].cause) if ended else "no list of the simulated cloud shows it"
    return Observation(ref, Seen.GONE, why)


def _living_detail(ref: MachineRef, instance: Instance) -> str:
    if instance.id != ref.native_id:
        return f"{instance.id} of the same machine lives"
    return "it is shutting down" if instance.state == "shutting-down" else ""


def _segment(document: dict[str, int | None]) -> Segment:
    until = document["until"]
    return Segment(int(str(document["since"])), until, int(str(document["rate"])))
