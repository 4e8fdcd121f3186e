"""Jobs labelled, found, searched and ended by a person at a terminal, with the real server and agent."""

from __future__ import annotations

import json

from tests.e2e.terminal import Terminal
from tests.harness import until


def test_a_job_is_labelled_found_searched_and_ended(terminal: Terminal) -> None:
    code = "import time\nfor n in range(1000): print('step', n)\nprint('loss NaN', flush=True)\ntime.sleep(600)"
    job = terminal.json("run", "-c", code, "--tag", "lr=3e-4", "--tag", "old", "--name", "First", "--detach")["id"]
    queued = terminal.json("run", "--shell", "sleep 600", "--tag", "old", "--detach")["id"]

    assert terminal.ok("tag", "First", "best", "--remove", "lr") == "best\nold\n"
    terminal.ok("note", job, "watch the loss")
    terminal.ok("rename", job, "Second")
    shown = terminal.json("status", "Second")
    assert (shown["id"], shown["tags"], shown["notes"][0]["text"]) == (job, ["best", "old"], "watch the loss")
    assert [item["id"] for item in terminal.json("jobs", "--tag", "best", "--name", "second")["items"]] == [job]
    assert [item["id"] for item in terminal.json("jobs", "--tag", "old", "--since", "1h")["items"]] == [queued, job]

    until(lambda: b"loss NaN" in terminal.crucible.log(job) or None, what="the last line")
    [hit] = [json.loads(line) for line in terminal.ok("logs", job, "--grep", "nan", "-i", "--json").splitlines()]
    assert (hit["attempt"], hit["line"], hit["text"]) == (1, 1001, "loss NaN")
    assert terminal.ok("logs", job, "--grep", r"^step 99\d$", "--regex").count("\n") == 10

    asked = terminal.run("cancel", "--tag", "old")
    assert (asked.returncode, "Cancel 2 jobs" in asked.stderr) == (2, True)
    terminal.ok("cancel", "--tag", "old", "--yes")
    assert {item["status"] for item in terminal.json("jobs", "--tag", "old")["items"]} == {"cancelled"}
