"""Sessions where several servers share a database: whichever is asked, the job's agent comes to it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.faults.fleet import fleet
from tests.harness import shell, until

from crucible.client import SyncMLPlatform

pytestmark = pytest.mark.timeout(180)


def test_a_session_may_be_asked_for_at_any_server(tmp_path: Path) -> None:
    with fleet(tmp_path, 2) as servers:
        first = servers.servers[0]
        job = first.submit(shell("echo on; sleep 1000"))
        until(lambda: first.log(job) == b"on\n", 60, "the program")
        for server in servers.servers:
            with SyncMLPlatform(server.discovery["url"], token=server.token) as platform:
                assert platform.job(job).exec(["sh", "-c", "echo $CRUCIBLE_JOB_ID"]).text == f"{job}\n"
        first.cancel(job)
        first.wait(job)
