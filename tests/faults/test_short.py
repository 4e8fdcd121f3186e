"""Jobs that end as soon as they begin: the end never overtakes the beginning, nor the last of the output."""

from __future__ import annotations

import pytest
from tests.harness import Deployment, shell

JOBS = 30
SMALL = {"cpus": 0.4, "memory_bytes": 64 * 1024**2}


@pytest.mark.parametrize("command", ["echo {}", "sleep 0.3; echo {}"])
def test_a_job_that_is_over_has_its_whole_log(crucible: Deployment, command: str) -> None:
    jobs = [crucible.submit(shell(command.format(number), resources=SMALL)) for number in range(JOBS)]
    for number, job in enumerate(jobs):
        view = crucible.wait(job)
        with crucible.client() as client:
            answer = client.get(f"/api/v1/jobs/{job}/logs")
        assert answer.content == f"{number}\n".encode()
        assert answer.headers["X-Crucible-Complete"] == "true"
        assert (view["status"], view["attempt"]) == ("completed", 1)
    crucible.nothing_left()
