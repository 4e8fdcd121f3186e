"""`tag`, `note` and `rename`."""

from __future__ import annotations

import pytest
from tests.cli.conftest import Cli
from tests.client.fake_server import JOB, FakeServer, job_view

pytestmark = pytest.mark.enable_socket


@pytest.fixture(autouse=True)
def job(server: FakeServer) -> None:
    server.jobs[JOB] = job_view(name="mine", tags=["draft"])


def test_tags_are_added_removed_and_listed(cli: Cli, server: FakeServer) -> None:
    assert cli("tag", JOB).out == "draft\n"
    assert cli("tag", "mine", "lr=3", "best", "--remove", "draft").out == "best\nlr=3\n"
    assert cli("tag", JOB, "--json").json == {"job": JOB, "tags": ["best", "lr=3"]}
    cli("tag", JOB, "-r", "best", "-r", "lr=3")
    assert "has no tags" in cli("tag", JOB).err


@pytest.mark.parametrize("options", [("=x",), ("--remove", "="), ("a\tb",), ("t" * 302,)])
def test_what_is_no_tag_is_refused_before_the_server_is_asked(
    cli: Cli, server: FakeServer, options: tuple[str, ...]
) -> None:
    assert cli("tag", JOB, *options).code == 2
    assert server.requests == []


def test_notes_are_left_listed_and_deleted(cli: Cli, server: FakeServer) -> None:
    assert "has no notes" in cli("note", JOB).err
    assert "Noted on job-abc123 as nte-0." in cli("note", JOB, "diverges after 3k").err
    shown = cli("note", JOB).out
    assert "owner" in shown
    assert "diverges after 3k" in shown
    assert cli("note", JOB, "--json").json["items"][0]["author"] == "owner"
    assert cli("note", JOB, "-q").out == "nte-0\n"
    assert "Deleted nte-0: diverges" in cli("note", JOB, "--delete", "nte-0").err
    assert server.notes == []
    assert cli("note", JOB, "x", "--delete", "nte-0").code == 2


def test_a_job_is_renamed(cli: Cli, server: FakeServer) -> None:
    assert "is called 'other'" in cli("rename", JOB, "other").err
    assert server.jobs[JOB]["name"] == "other"
    assert cli("rename", "other", "--json").json["name"] is None
