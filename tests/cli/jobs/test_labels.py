"""`tag`, `note` and `rename`."""

from __future__ import annotations

import pytest
from tests.cli.conftest import Cli
from tests.client.real_server import RealServer, RunningJob

pytestmark = pytest.mark.enable_socket


@pytest.fixture
def job(real: RealServer) -> RunningJob:
    return real.start(name="mine", tags=("draft",))


def test_tags_are_added_removed_and_listed(cli: Cli, job: RunningJob) -> None:
    assert cli("tag", job.id).out == "draft\n"
    assert cli("tag", "mine", "lr=3", "best", "--remove", "draft").out == "best\nlr=3\n"
    assert cli("tag", job.id, "--json").json == {"job": job.id, "tags": ["best", "lr=3"]}
    cli("tag", job.id, "-r", "best", "-r", "lr=3")
    assert "has no tags" in cli("tag", job.id).err


@pytest.mark.parametrize("options", [("=x",), ("--remove", "="), ("a\tb",), ("t" * 302,)])
def test_what_is_no_tag_is_refused_before_the_server_is_asked(
    cli: Cli, real: RealServer, job: RunningJob, options: tuple[str, ...]
) -> None:
    assert cli("tag", job.id, *options).code == 2
    assert real.requests == []


def test_notes_are_left_listed_and_deleted(cli: Cli, job: RunningJob) -> None:
    assert "has no notes" in cli("note", job.id).err
    told = cli("note", job.id, "diverges after 3k").err
    shown = cli("note", job.id).out
    assert "owner" in shown
    assert "diverges after 3k" in shown
    (note,) = cli("note", job.id, "--json").json["items"]
    assert note["author"] == "owner"
    assert f"Added note {note['short']} to {job.short}." in told
    assert cli("note", job.id, "-q").out == f"{note['id']}\n"
    assert f"Deleted {note['short']}: diverges" in cli("note", job.id, "--delete", note["short"]).err
    assert cli("note", job.id, "--json").json["items"] == []
    assert cli("note", job.id, "x", "--delete", note["id"]).code == 2


def test_a_job_is_renamed(cli: Cli, real: RealServer, job: RunningJob) -> None:
    assert "is now named 'other'" in cli("rename", job.id, "other").err
    assert real.view(job).name == "other"
    assert cli("rename", "other", "--json").json["name"] is None
