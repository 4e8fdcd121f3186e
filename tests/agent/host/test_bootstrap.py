from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from crucible.agent.clock import Deadline
from crucible.agent.host.bootstrap import AssignmentFile, server_address
from crucible.agent.link.connection import Unreachable
from crucible.wire.documents.bootstrap import BadBootstrap, Bootstrap
from crucible.wire.documents.desired import Assignment

PLACE = Bootstrap("m", Path("/w"), Path("/e"), nonce="secret", interruption_url="http://127.0.0.1:1/interruption")
ASSIGNMENT = Assignment("a", "j", 0, "s", ("true",), checkpoint=2)


def test_an_order_is_read_as_it_was_written(tmp_path: Path) -> None:
    AssignmentFile(ASSIGNMENT, PLACE, 60.0, Deadline(5000.0, 600.0)).write(tmp_path)
    order = AssignmentFile.read(tmp_path)
    assert order.assignment == ASSIGNMENT
    assert (order.lease_seconds, order.deadline) == (60.0, Deadline(5000.0, 600.0))
    assert order.bootstrap.interruption_url == PLACE.interruption_url
    assert order.bootstrap.nonce == ""


def test_a_deadline_of_another_boot_is_not_one(tmp_path: Path) -> None:
    AssignmentFile(ASSIGNMENT, PLACE, None, Deadline(5000.0, 600.0)).write(tmp_path)
    path = tmp_path / "assignment.json"
    doc = json.loads(path.read_text())
    doc["ends"]["boot"] = "another"
    path.write_text(json.dumps(doc))
    assert AssignmentFile.read(tmp_path).deadline is None


def test_an_order_of_an_older_agent_has_no_deadline(tmp_path: Path) -> None:
    AssignmentFile(ASSIGNMENT, PLACE).write(tmp_path)
    path = tmp_path / "assignment.json"
    doc = json.loads(path.read_text())
    del doc["ends"], doc["place"]["interruption_url"]
    path.write_text(json.dumps(doc))
    order = AssignmentFile.read(tmp_path)
    assert (order.deadline, order.bootstrap.interruption_url) == (None, None)


def test_a_broken_order_says_so(tmp_path: Path) -> None:
    AssignmentFile(ASSIGNMENT, PLACE, None, Deadline(5000.0, 600.0)).write(tmp_path)
    path = tmp_path / "assignment.json"
    path.write_text(path.read_text().replace("5000.0", '"soon"'))
    with pytest.raises(BadBootstrap, match="broken assignment"):
        AssignmentFile.read(tmp_path)


@pytest.mark.parametrize("name", ["agents.address", "agents.url"])
def test_the_server_is_where_the_file_says_now(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    address = server_address(replace(PLACE, agents_url="unix:/first", agents_url_file=str(file)))
    assert address.read() == "unix:/first"
    file.write_text("unix:/second\n")
    assert address.read() == "unix:/second"


def test_with_a_bootstrap_of_0_1_0_the_server_is_not_called_at_its_port(tmp_path: Path) -> None:
    """Not even where the newer file cannot be read for a moment: another user may have the port by now."""
    (tmp_path / "agents.url").write_text("http://127.0.0.1:1")
    (tmp_path / "agents.address").write_text("unix:/socket")
    old = replace(PLACE, agents_url="http://127.0.0.1:1", agents_url_file=str(tmp_path / "agents.url"))
    address = server_address(old)
    assert address.read() == "unix:/socket"
    (tmp_path / "agents.address").unlink()
    with pytest.raises(Unreachable):
        address.read()
