"""`crucible resume` and `rerun`."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cli.conftest import Cli
from tests.client.fake_server import AGAIN, JOB, FakeServer, checkpoint_view, completed, failed, job_view

pytestmark = pytest.mark.enable_socket

KEPT = {"id": "ckp-1", "short": "ckp-aaa111", "step": 600, "name": "step_00000600.pt"}


def attempt(number: int, **changes: Any) -> dict[str, Any]:
    return {"number": number, "id": f"att-{number}", "state": "ended", "backend": "local", **changes}


def moved(**changes: Any) -> dict[str, Any]:
    """A job that was taken from one place and goes on at another."""
    first = attempt(1, backend="rehearsal", market="spot", reason="interrupted", simulated=True, progress={"step": 620})
    second = attempt(2, state="running", resume_from=KEPT)
    return job_view(**{"attempt": 2, "attempts": [first, second], "checkpoint": KEPT, **changes})


def test_a_job_goes_on_from_its_checkpoint_and_is_followed(cli: Cli, server: FakeServer) -> None:
    before = failed(checkpoint=KEPT, attempts=[attempt(1, reason="exit_code", exit_code=3)])
    server.jobs[JOB], server.log = before, b"old output\n"
    later = {"attempt": 2, "attempts": [*before["attempts"], attempt(2, state="running", resume_from=KEPT)]}
    text = {"stream": "log", "attempt": 2, "cursor": 4, "text": "new\n"}
    frames = [{"stream": "job", "job": job_view(**later)}, text, {"stream": "job", "job": completed(**later)}]
    server.acts = [(frames, 1000)]
    ran = cli("resume", "abc123")
    assert (ran.code, ran.out) == (0, "new\n")
    assert "Resumed job-abc123 from ckp-aaa111, step 600" in ran.err
    assert "Attempt 2: resumed from step 600 (ckp-aaa111, step_00000600.pt)" in ran.err
    assert "job-abc123 completed" in ran.err
    assert (server.streams[0]["attempt"], server.streams[0]["offset"]) == ("1", "11")
    assert server.bodies == [(f"/api/v1/jobs/{JOB}/resume", {})]


def test_the_checkpoint_and_the_place_may_be_named(cli: Cli, server: FakeServer) -> None:
    server.jobs[JOB], server.checkpoints = failed(), [checkpoint_view(best=True)]
    ran = cli("resume", JOB, "--checkpoint", "best", "--backend", "local", "--detach")
    assert (ran.code, ran.out) == (0, f"{JOB}\n")
    assert server.bodies[0][1] == {"checkpoint": "best", "backend": "local"}
    assert cli("resume", JOB, "-d", "--json").code == 5


def test_the_followed_job_gives_its_code_and_says_how_to_go_on(cli: Cli, server: FakeServer) -> None:
    server.jobs[JOB], server.ends_as = completed(), failed(code=7, checkpoint=KEPT)
    ran = cli("resume", JOB)
    assert ran.code == 7
    assert "it has no checkpoint, so it begins anew" in ran.err
    assert "Its last checkpoint of step 600 is kept; go on from there: crucible resume job-abc123" in ran.err


def test_a_job_that_runs_is_not_resumed(cli: Cli, server: FakeServer) -> None:
    server.jobs[JOB] = job_view()
    ran = cli("resume", JOB)
    assert ran.code == 5
    assert "crucible cancel job-abc123" in ran.err


def test_unknown_names_are_refused(cli: Cli, server: FakeServer) -> None:
    server.jobs[JOB] = failed()
    ran = cli("resume", JOB, "--checkpoint", "nosuch")
    assert (ran.code, "crucible checkpoints job-abc123" in ran.err) == (3, True)
    assert cli("resume", "nosuch").code == 3
    ran = cli("resume", JOB, "--backend", "locale")
    assert (ran.code, "Did you mean 'local'" in ran.err) == (2, True)
    assert server.jobs[JOB]["status"] == "failed"


def test_a_job_is_run_again_as_a_new_one(cli: Cli, server: FakeServer) -> None:
    server.jobs[JOB], server.log = failed(), b"again\n"
    server.ends_as = completed(id=AGAIN, short="job-def456")
    ran = cli("rerun", JOB)
    assert (ran.code, ran.out) == (0, "again\n")
    assert "Submitted job-def456: job-abc123 once more" in ran.err
    assert cli("rerun", JOB, "--detach").out == f"{AGAIN}\n"
    assert cli("rerun", JOB, "--detach", "--json").json["id"] == AGAIN
    assert len({*server.keys}) == 3
    assert cli("rerun", "nosuch").code == 3


def test_a_move_is_told_while_it_is_followed(cli: Cli, server: FakeServer) -> None:
    server.jobs[JOB] = job_view()
    gone = moved(conditions=["unreachable"])
    frames = [{"stream": "job", "job": gone}, {"stream": "job", "job": gone}, {"stream": "job", "job": completed()}]
    server.acts = [(frames, 1000)]
    err = cli("run", "-c", "print(1)").err
    again = "Attempt 2: resumed from step 600 (ckp-aaa111, step_00000600.pt); 20 steps are done again"
    assert err.count("Attempt 1 ended: interrupted\n") == 1
    assert err.count(again) == 1
    assert err.index("Attempt 1 ended") < err.index(again)
    assert err.count("Simulated: ") == 1
    assert err.count("its machine does not answer") == 1


def test_a_try_that_ended_is_told_while_the_next_one_waits(cli: Cli, server: FakeServer) -> None:
    waits = job_view(status="queued", phase="queued", waiting="2 s after the last", attempts=moved()["attempts"][:1])
    frames = [{"stream": "job", "job": waits}, {"stream": "job", "job": completed()}]
    server.acts = [(frames, 1000)]
    err = cli("run", "-c", "print(1)").err
    assert "Attempt 1 ended: interrupted\n" in err
    assert "Waiting: 2 s after the last" in err
    assert "Will run on" not in err
    server.jobs[JOB] = waits
    assert "Ran last on" in cli("status", JOB).out


def test_status_tells_the_tries(cli: Cli, server: FakeServer) -> None:
    cost = {"usd": "0.250000", "micros": 250_000, "rate_micros_per_hour": 0}
    server.jobs[JOB] = moved(
        previous_backend="rehearsal", generation=2, conditions=["still_billing"], cost=cost, simulated=True
    )
    out = cli("status", JOB).out
    assert "1: rehearsal spot (simulated); interrupted; 20 steps lost" in out
    assert "2: local; resumed from step 600 (ckp-aaa111, step_00000600.pt); running" in out
    assert "Moved" in out
    assert "from rehearsal to local" in out
    assert "ckp-aaa111 (step 600); crucible checkpoints job-abc123" in out
    assert "a machine of it bills until it is gone; `crucible machines` shows it" in out
    assert "$0.25 (simulated)" in out
    assert "running (still billing)" in cli("jobs").out


def test_one_plain_try_needs_no_list(cli: Cli, server: FakeServer) -> None:
    server.jobs[JOB] = job_view()
    assert "Attempts" not in cli("status", JOB).out
