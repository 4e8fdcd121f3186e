"""Read the host's bootstrap; write and read the assignment file of a runner."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from crucible.agent.clock import Deadline, boot_id
from crucible.agent.files import read_json, write_file
from crucible.agent.link.connection import ServerAddress
from crucible.wire.documents.bootstrap import AGENTS_ADDRESS_FILE, BadBootstrap, Bootstrap
from crucible.wire.documents.desired import Assignment, Desired, decode_desired, encode_desired


def read_bootstrap(path: Path) -> Bootstrap:
    """Return the bootstrap in the file. Raises BadBootstrap."""
    doc = read_json(path)
    if doc is None:
        raise BadBootstrap(f"{path} does not exist or is not a JSON object")
    return Bootstrap.from_dict(doc)


def server_address(bootstrap: Bootstrap) -> ServerAddress:
    """Return where the server is.

    A bootstrap of version 0.1.0 names a TCP port of this computer, which any user could take over from a dead server.
    The file beside it then says where the present server proves itself.
    """
    if bootstrap.agents_url_file is None:
        return ServerAddress(bootstrap.agents_url)
    file = Path(bootstrap.agents_url_file)
    present = file.with_name(AGENTS_ADDRESS_FILE)
    if file != present and os.path.exists(present):
        return ServerAddress(file=present)
    return ServerAddress(bootstrap.agents_url, file)


@dataclass(frozen=True)
class AssignmentFile:
    """The file `assignment.json` in an attempt's folder: all that a runner is started with.

    It holds the assignment, the machine's bootstrap without the nonce, the lease, and the machine's deadline. The
    stored key of the bootstrap is `place`, as in version 0.1.0.
    """

    assignment: Assignment
    bootstrap: Bootstrap
    lease_seconds: float | None = None
    deadline: Deadline | None = None

    def write(self, folder: Path) -> None:
        """Write the file durably, so that a successor of the runner finds it after any crash."""
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
        """Return the content of the file. Raises BadBootstrap."""
        doc = read_json(folder / "assignment.json")
        if doc is None:
            raise BadBootstrap(f"{folder} has no assignment")
        try:
            desired = decode_desired(json.dumps(doc["desired"]).encode())
            bootstrap = doc["place"]
            if not isinstance(bootstrap, dict):
                raise BadBootstrap("the assignment has no bootstrap")
            ends = Deadline.from_dict(doc.get("ends"), boot_id())
            return cls(desired.assignments[0], Bootstrap.from_dict(bootstrap), desired.lease_seconds, ends)
        except (KeyError, IndexError, ValueError) as error:
            raise BadBootstrap(f"{folder} has a broken assignment: {error}") from error
