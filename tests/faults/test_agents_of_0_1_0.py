"""Jobs that version 0.1.0 had begun end well under its own agents, and under the present ones that take over."""

from __future__ import annotations

from pathlib import Path

from tests.harness import alive, shell, until
from tests.state_0_1_0.state import FIRST_HALF, LONG, SECOND_HALF, SMALL, check_unfinished_jobs, state


def test_jobs_end_well_under_their_old_agents(tmp_path: Path) -> None:
    """The host and all runners are 0.1.0's to the end, and a job submitted to the present server runs there too."""
    with state(tmp_path, "https") as old:
        crucible, ordered = old.crucible, old.jobs["ordered"]
        host = old.start_host()
        old.until_half_way()
        crucible.start()
        crucible.phase(ordered, "running", seconds=LONG)
        until(lambda: crucible.log(ordered) == FIRST_HALF, LONG, "the output of the first half")
        assert old.runner().ppid() == host
        with crucible.client() as client:
            client.post(f"/api/v1/jobs/{ordered}/checkpoint").raise_for_status()
        until(lambda: list(old.machine.glob("attempts/*/checkpoint-now")), LONG, "the wish for a checkpoint")
        done = crucible.cli("exec", ordered, "--", "sh", "-c", "echo $CRUCIBLE_JOB_ID; exit 7")
        assert (done.returncode, done.stdout) == (7, f"{ordered}\n"), done.stderr
        old.open_gate()
        check_unfinished_jobs(old)

        cancelled = crucible.submit(shell("echo begun; sleep 600", **SMALL))
        until(lambda: crucible.log(cancelled), LONG, "the first line")
        crucible.cancel(cancelled)
        assert crucible.wait(cancelled, LONG)["status"] == "cancelled"
        old.until_removed()
        assert crucible.hosts() == [host], "one host did all of it"


def test_a_job_completes_under_an_old_agent_that_talks_through_a_store(tmp_path: Path) -> None:
    """Its documents can no longer be read, but what it stores is: messages, output and files."""
    with state(tmp_path, "store") as old:
        crucible, ordered = old.crucible, old.jobs["ordered"]
        old.start_host()
        old.until_half_way()
        crucible.start()
        until(lambda: crucible.log(ordered) == FIRST_HALF, LONG, "the output of the first half")
        old.open_gate()
        assert crucible.wait(ordered, LONG)["status"] == "completed"
        assert crucible.log(ordered) == FIRST_HALF + SECOND_HALF


def test_an_old_runner_goes_on_beside_a_new_host(tmp_path: Path) -> None:
    with state(tmp_path, "https") as old:
        crucible = old.crucible
        host = old.start_host()
        old.until_half_way()
        old.kill_host()
        crucible.start()
        until(crucible.hosts, LONG, "another host")
        runner = old.runner()
        crucible.phase(old.jobs["ordered"], "running", seconds=LONG)
        old.open_gate()
        check_unfinished_jobs(old)
        assert not alive(runner.pid)
        assert host not in crucible.hosts()


def test_new_agents_take_over_from_dead_ones_that_shared_a_store(tmp_path: Path) -> None:
    with state(tmp_path, "store") as old:
        old.open_gate()
        old.crucible.start()
        check_unfinished_jobs(old)
