"""Moon Cloud, a vendor that exists in tests only, and the client that its package would bring.

It has what makes real vendors hard: client tokens, lists that are behind and have pages, quota, capacity, throttling,
answers that get lost, spot machines that it takes back, and limits on requests. Its time passes when a test says so.
"""

from __future__ import annotations

import base64
import copy
import gzip
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

KEY = "moon-key-of-the-account"
USER_DATA_BYTES = 16 * 1024
TYPES: Mapping[str, tuple[int, str]] = {"m1": (4, "0.20"), "g1": (8, "1.29"), "g1x8": (64, "10.32")}
"""Instance types, with their vCPUs and their price on demand in dollars an hour. Spot costs half."""
ACTIONS = frozenset({
    "create_instances", "list_instances", "terminate_instance", "cancel_instance", "get_quota",
})  # fmt: skip
_FIELDS = {
    "token", "region", "instance_type", "market", "name", "image", "disk_gb", "open_ports", "max_seconds", "limits",
    "on_poweroff", "tags", "instances",
}  # fmt: skip
_NAME = re.compile(r"[a-z0-9-]{1,63}")


class CallFailed(Exception):
    """A call without the answer that it should have."""


class NotSent(CallFailed):
    """There was no connection, so the vendor knows nothing of the call."""


class NoAnswer(CallFailed):
    """The call was sent, and may have been carried out."""


class ApiError(CallFailed):
    """The vendor answered with an error."""

    def __init__(self, code: str, text: str = "") -> None:
        super().__init__(f"{code}: {text}" if text else code)
        self.code = code


@dataclass
class Instance:
    """`started_at`: None while it waits for capacity. `ending_at`: when it began to end."""

    id: str
    request: dict[str, Any]
    own: dict[str, Any]
    created_at: float
    started_at: float | None
    ending_at: float | None = None
    gone_at: float | None = None
    reason: str = ""

    @property
    def tags(self) -> dict[str, str]:
        return {**self.request["tags"], **self.own["tags"]}

    @property
    def script(self) -> str:
        """What the machine runs at its start: its user data, unpacked as cloud-init does."""
        data = base64.b64decode(self.own["user_data"])
        return (gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data).decode()


@dataclass
class MoonCloud:
    """What exists at the vendor, whoever asks.

    `list_lag`: seconds until a new instance is in lists. `quota`: vCPUs at once. `sold_out`: instance types without
    capacity. `cut_off`: nobody can connect. `faults`: what the next calls of an action meet instead of an answer:
    "lost" (done, but the answer is lost), "cut" (not sent), or the code of an error. `keys`: what each key may do.
    """

    boot_seconds: float = 0.0
    stop_seconds: float = 5.0
    list_lag: float = 0.0
    page_size: int = 2
    quota: int = 64
    cut_off: bool = False
    sold_out: set[str] = field(default_factory=set)
    faults: dict[str, list[str]] = field(default_factory=dict)
    keys: dict[str, frozenset[str]] = field(default_factory=lambda: {KEY: ACTIONS})
    now: float = 1_700_000_000.0
    instances: dict[str, Instance] = field(default_factory=dict)
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    _tokens: dict[str, tuple[dict[str, Any], list[str]]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    # What tests do to it

    def advance(self, seconds: float) -> None:
        self.now += seconds

    def give_capacity(self) -> None:
        """Start every instance that waits for capacity."""
        for instance in self.instances.values():
            if instance.started_at is None and instance.ending_at is None:
                instance.started_at = self.now

    def power_off(self, id: str) -> None:
        """Let the machine turn itself off."""
        self._end(self.instances[id], "power_off")

    def interrupt(self, id: str) -> None:
        """Take a spot machine back."""
        self._end(self.instances[id], "spot_interruption")

    def alive(self, **tags: str) -> list[Instance]:
        return [i for i in self.instances.values() if tags.items() <= i.tags.items() and self._state(i) != "terminated"]

    # Its API

    def call(self, key: str, action: str, parameters: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            faults = self.faults.get(action, [])
            fault = faults.pop(0) if faults else ""
            if fault == "cut" or self.cut_off:
                raise NotSent("connection refused")
            self.requests.append((action, copy.deepcopy(parameters)))
            if key not in self.keys:
                raise ApiError("InvalidKey")
            if action != "describe_key" and action not in self.keys[key]:
                raise ApiError("PermissionDenied", f"the key may not {action}")
            if fault not in ("", "lost"):
                raise ApiError(fault)
            answer: dict[str, Any] = getattr(self, f"_{action}")(key=key, **copy.deepcopy(parameters))
            if fault == "lost":
                raise NoAnswer("connection reset")
            return answer

    def _describe_key(self, key: str) -> dict[str, Any]:
        return {"account": "apollo", "actions": sorted(self.keys[key])}

    def _get_quota(self, key: str, region: str) -> dict[str, Any]:
        if region not in ("tranquility", "serenity"):
            raise ApiError("UnknownRegion", region)
        return {"vcpus": self.quota, "used": sum(TYPES[i.request["instance_type"]][0] for i in self.alive())}

    def _create_instances(self, key: str, token: str, wait: bool = False, **request: Any) -> dict[str, Any]:
        asked = {**request, "token": token}
        before = self._tokens.get(token)
        if before is not None and before[0] != asked:
            raise ApiError("TokenReused", "the token was used with other parameters")
        if before is None:
            self._refuse(asked)
            self._refuse_without_room(asked)
            made = [self._create(asked, own, wait) for own in request["instances"]]
            self._tokens[token] = asked, made
        return {"instances": [self._view(self.instances[id]) for id in self._tokens[token][1]]}

    def _refuse(self, asked: dict[str, Any]) -> None:
        if asked.keys() != _FIELDS:
            raise ApiError("InvalidParameter", f"fields {sorted(asked.keys() ^ _FIELDS)}")
        if not _NAME.fullmatch(asked["name"]):
            raise ApiError("InvalidParameter", "name")
        if asked["instance_type"] not in TYPES:
            raise ApiError("InvalidParameter", "instance_type")
        if any(len(base64.b64decode(own["user_data"])) > USER_DATA_BYTES for own in asked["instances"]):
            raise ApiError("InvalidParameter", "user_data is longer than 16 KB")

    def _refuse_without_room(self, asked: dict[str, Any]) -> None:
        vcpus = TYPES[asked["instance_type"]][0] * len(asked["instances"])
        if self._get_quota("", asked["region"])["used"] + vcpus > self.quota:
            raise ApiError("QuotaExceeded", f"{self.quota} vCPUs in {asked['region']}")
        if asked["instance_type"] in self.sold_out:
            raise ApiError("NoCapacity", asked["instance_type"])

    def _create(self, asked: dict[str, Any], own: dict[str, Any], wait: bool) -> str:
        id = f"i-{len(self.instances) + 1:08x}"
        self.instances[id] = Instance(id, asked, own, self.now, None if wait else self.now)
        return id

    def _list_instances(self, key: str, tag: str, values: list[str], page: int = 0) -> dict[str, Any]:
        shown = [i for i in self.instances.values() if i.created_at + self.list_lag <= self.now]
        found = [self._view(i) for i in shown if i.tags.get(tag) in values]
        end = page + self.page_size
        return {"instances": found[page:end], "next": end if end < len(found) else None}

    def _terminate_instance(self, key: str, id: str) -> dict[str, Any]:
        if id not in self.instances:
            raise ApiError("NotFound", id)
        self._end(self.instances[id], "request")
        return {"instance": self._view(self.instances[id])}

    def _cancel_instance(self, key: str, id: str) -> dict[str, Any]:
        """End an instance only if it still waits for capacity."""
        if id not in self.instances:
            raise ApiError("NotFound", id)
        if self.instances[id].started_at is not None:
            raise ApiError("AlreadyStarted", id)
        return self._terminate_instance(key, id)

    def _end(self, instance: Instance, reason: str) -> None:
        if instance.ending_at is None:
            stopping = 0.0 if instance.started_at is None else self.stop_seconds
            instance.ending_at, instance.gone_at, instance.reason = self.now, self.now + stopping, reason

    def _state(self, instance: Instance) -> str:
        started, most = instance.started_at, instance.request["max_seconds"]
        if started is not None and most is not None and self.now >= started + most:
            self._end(instance, "max_seconds")
        if instance.gone_at is not None:
            return "terminated" if self.now >= instance.gone_at else "stopping"
        if started is None:
            return "queued"
        return "pending" if self.now < started + self.boot_seconds else "running"

    def _view(self, instance: Instance) -> dict[str, Any]:
        price = float(TYPES[instance.request["instance_type"]][1])
        return {
            "id": instance.id,
            "state": self._state(instance),
            "reason": instance.reason,
            "region": instance.request["region"],
            "tags": instance.tags,
            "started_at": instance.started_at,
            "ended_at": instance.gone_at if self._state(instance) == "terminated" else None,
            "dollars_per_hour": str(price / 2 if instance.request["market"] == "spot" else price),
        }


class Client:
    """The vendor's client. Raises CallFailed. Without a `cloud`, nobody answers."""

    def __init__(self, key: str, cloud: MoonCloud | None = None) -> None:
        self._key = key
        self._cloud = cloud

    def call(self, action: str, **parameters: Any) -> dict[str, Any]:
        if self._cloud is None:
            raise NotSent("api.moon.example: name not known")
        return self._cloud.call(self._key, action, parameters)
