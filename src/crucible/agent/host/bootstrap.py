"""What a runner finds in its folder, and how the host's bootstrap is read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from crucible.agent.clock import Deadline, boot_id
from crucible.agent.files import read_json, write_file
from crucible.agent.link.connection import ServerAddress
from crucible.wire.documents.bootstrap import BadBootstrap, Bootstrap
from crucible.wire.documents.desired import Assignment, Desired, decode_desired, encode_desired


def read_bootstrap(path: Path) -> Bootstrap:
    doc = read_json(path)
    if doc is None:
        raise BadBootstrap(f"{path} is not there or is no JSON object")
    return Bootstrap.from_dict(doc)


def server_address(bootstrap: Bootstrap) -> ServerAddress:
    file = bootstrap.agents_url_file
    return ServerAddress(bootstrap.agents_url, None if file is None else Path(file))


@dataclass(frozen=True)
class AssignmentFile:
    """What a runner finds in its folder: the assignment, where it is, and how long the machine lives."""

    assignment: Assignment
    bootstrap: Bootstrap
    lease_seconds: float | None = None
    deadline: Deadline | None = None

    def write(self, folder: Path) -> None:
        """Durable: once a runner was forked, its successor finds what to do."""
        desired = Desired(self.bootstrap.machine, 0, (self.assignment,), self.lease_seconds)
        ends = None if self.deadline is None else self.deadline.to_dict(boot_id())
        doc = {
            "desired": json.loads(encode_desired(desired)),
            "place": self.bootstrap.for_runner().to_dict(),
            "ends": ends,
        }
        write_file(folder / "assignment.json", json.dumps(doc).encode(), durable=True)

    @classmethod
    def read(cls, folder: Path) -> AssignmentFile:
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
