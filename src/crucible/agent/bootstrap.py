"""What a host is started with, and what it hands to each runner: the machine and its folders."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from crucible.agent.clock import Deadline, boot_id
from crucible.agent.files import read_json, write_file
from crucible.agent.link import Address
from crucible.wire.desired import Assignment, Desired, decode_desired, encode_desired

IDLE_EXIT_SECONDS = 60.0


class BadBootstrap(ValueError):
    """The file is not what the control plane writes."""


@dataclass(frozen=True)
class Bootstrap:
    """`work` is the machine's folder, `envs` where built environments are kept and shared by attempts.

    `shared`: the machine stays for other attempts, so caching pays. `avoid_python_prefixes`: installations
    whose Python is ours and must not become a job's by accident. `interruption_url`: where the place
    announces on the machine itself that it takes the machine back. `store`: with it, the agent talks through a
    store: `folder` is its path here, or `urls` are signed URLs of the mailbox.
    """

    machine: str
    work: Path
    envs: Path
    nonce: str = ""
    native_id: str = ""
    agents_url: str | None = None
    agents_url_file: str | None = None
    uv: str | None = None
    idle_exit_seconds: float = IDLE_EXIT_SECONDS
    shared: bool = True
    avoid_python_prefixes: tuple[str, ...] = ()
    interruption_url: str | None = None
    store: Mapping[str, object] | None = None

    @property
    def address(self) -> Address:
        return Address(self.agents_url, None if self.agents_url_file is None else Path(self.agents_url_file))

    @property
    def cache(self) -> Path:
        return self.envs.parent / "cache"

    @property
    def attempts(self) -> Path:
        return self.work / "attempts"

    @classmethod
    def from_dict(cls, doc: dict[str, object]) -> Bootstrap:
        try:
            return cls(
                machine=str(doc["machine"]),
                work=Path(str(doc["work"])),
                envs=Path(str(doc["envs"])),
                nonce=str(doc.get("nonce") or ""),
                native_id=str(doc.get("native_id") or ""),
                agents_url=_text(doc.get("agents_url")),
                agents_url_file=_text(doc.get("agents_url_file")),
                uv=_text(doc.get("uv")),
                idle_exit_seconds=float(str(doc.get("idle_exit_seconds", IDLE_EXIT_SECONDS))),
                shared=bool(doc.get("shared", True)),
                avoid_python_prefixes=_texts(doc.get("avoid_python_prefixes")),
                interruption_url=_text(doc.get("interruption_url")),
                store=_mapping(doc.get("store")),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise BadBootstrap(f"not a bootstrap file: {error}") from error

    @classmethod
    def read(cls, path: Path) -> Bootstrap:
        doc = read_json(path)
        if doc is None:
            raise BadBootstrap(f"{path} is not there or is no JSON object")
        return cls.from_dict(doc)

    def to_dict(self) -> dict[str, object]:
        """For a runner: without the nonce, which only the host may use."""
        plain = dict(vars(replace(self, nonce="")))
        return {**plain, "work": str(self.work), "envs": str(self.envs)}


@dataclass(frozen=True)
class Order:
    """What a runner finds in its folder: the assignment, where it is, and how long the machine lives."""

    assignment: Assignment
    bootstrap: Bootstrap
    lease_seconds: float | None = None
    deadline: Deadline | None = None

    def write(self, folder: Path) -> None:
        """Durable: once a runner was forked, its successor finds what to do."""
        desired = Desired(self.bootstrap.machine, 0, (self.assignment,), self.lease_seconds)
        ends = None if self.deadline is None else self.deadline.to_dict(boot_id())
        doc = {"desired": json.loads(encode_desired(desired)), "place": self.bootstrap.to_dict(), "ends": ends}
        write_file(folder / "assignment.json", json.dumps(doc).encode(), durable=True)

    @classmethod
    def read(cls, folder: Path) -> Order:
        doc = read_json(folder / "assignment.json")
        if doc is None:
            raise BadBootstrap(f"{folder} has no assignment")
        try:
            desired = decode_desired(json.dumps(doc["desired"]).encode())
            place = doc["place"]
            if not isinstance(place, dict):
                raise BadBootstrap("the assignment does not say where it is")
            ends = Deadline.from_dict(doc.get("ends"), boot_id())
            return cls(desired.assignments[0], Bootstrap.from_dict(place), desired.lease_seconds, ends)
        except (KeyError, IndexError, ValueError) as error:
            raise BadBootstrap(f"{folder} has a broken assignment: {error}") from error


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _mapping(value: object) -> Mapping[str, object] | None:
    return {str(name): item for name, item in value.items()} if isinstance(value, dict) else None


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, (list, tuple)) else ()
