"""Scenarios that a dying server is led through; after each, everything is as if it had lived."""

from __future__ import annotations

import hashlib
import json
import signal
from collections.abc import Callable
from pathlib import Path

from tests.faults.dying_server import SECONDS, DyingServer
from tests.harness import View, alive, shell
from tests.webhook_receiver import Receiver

from crucible.wire.files.bundle import Bundle, collect, make_bundle

TRIES = 3
PATIENCE = 20.0
"""Seconds after a story within which its machine is given back."""
LINES = 300
HOOKS = "/api/v1/projects/default/hooks"
RESULT = bytes(range(256)) * 1000
WEIGHTS = bytes(range(255, -1, -1)) * 1000

PROGRAM = f"""\
import os, sys
import crucible

with open(sys.argv[1], "a") as runs:
    runs.write(f"{{os.getpid()}}\\n")
for number in range({LINES}):
    print("line", number, flush=True)
crucible.report(step=1, loss=0.5)
crucible.checkpoint.save(bytes(range(255, -1, -1)) * 1000, step=1)
with open(os.path.join(os.environ["CRUCIBLE_OUTPUT_DIR"], "result.bin"), "wb") as file:
    file.write(bytes(range(256)) * 1000)
"""


class CrashScenarios:
    """`folder` keeps what the jobs write; `where` goes into the spec of each.

    `ends` is each job once it was over. Points that begin with one of `new_machine` need a machine that is new.
    """

    def __init__(self, server: DyingServer, folder: Path, **where: object) -> None:
        self.server = server
        self.crucible = server.crucible
        self.new_machine: tuple[str, ...] = ()
        self.ends: list[View] = []
        self._folder = folder
        self._where = where
        self._bundle = _bundle(folder)
        self._special: dict[str, Callable[[], View]] = {
            "cancel.": self.cancelled,
            "resume.": self.resumed,
            "schedule.": self.retried,
            "secrets.": self.rotated,
            "hook.": self.notified,
        }

    def lead_to(self, point: str) -> None:
        """Tells the story in which the server comes to the point that is armed; a whole job unless it needs another.

        On a busy computer a call may take so long that what follows it is done elsewhere: then once more.
        """
        story = next((story for start, story in self._special.items() if point.startswith(start)), self.whole)
        try:
            times = len(self.server.reached) + 1
            for _ in range(TRIES):
                if point.startswith(self.new_machine):
                    self.forget_machines()
                self.ends.append(story())
                if self.server.has_died(times, PATIENCE):
                    return
            raise AssertionError("it was not reached")
        except AssertionError as error:
            raise AssertionError(f"{point}, after {', '.join(self.server.reached)}: {error}") from error

    def whole(self) -> View:
        """A job is run once, and nothing of it is missing."""
        self.server.persist(self._upload, "the bundle")
        runs = self._runs
        job = self._submit({"command": ["{python}", "job.py", str(runs)], "bundle": self._bundle.sha256})
        view = self.server.end_of(job)
        assert (view["status"], view["exit_code"], len(begun(view))) == ("completed", 0, 1), view["attempts"]
        assert len(runs.read_text().split()) == 1
        self.server.persist(lambda: self._is_whole(job), "a look at all it left")
        return view

    def cancelled(self) -> View:
        """A wish to cancel is kept."""
        runs = self._runs
        job = self._submit(shell(f"echo $$ >> {runs}; exec sleep 1000"))
        self.server.persist(lambda: runs.exists() and runs.read_text().strip(), "the process")
        self.server.persist(lambda: self.crucible.cancel(job), "the cancellation")
        view = self.server.end_of(job)
        assert view["status"] == "cancelled"
        (pid,) = map(int, runs.read_text().split())
        assert not alive(pid)
        self.server.persist(lambda: self._is_told(job), "a look at its events")
        return view

    def resumed(self) -> View:
        """A wish to resume is kept."""
        runs = self._runs
        job = self._submit(shell(f"echo $$ >> {runs}; test $(wc -l < {runs}) = 2"))
        assert self.server.end_of(job)["status"] == "failed"
        self.server.persist(lambda: self._resume(job), "the resumption")
        view = self.server.end_of(job)
        assert (view["status"], view["generation"], len(begun(view))) == ("completed", 2, 2), view["attempts"]
        assert len(runs.read_text().split()) == 2
        self.server.persist(lambda: self._is_told(job), "a look at its events")
        return view

    def retried(self) -> View:
        """A job that failed is tried again, once: the scheduler's round starts what no submission could start."""
        runs = self._runs
        again = {"user": 1, "wait_seconds": 0}
        job = self._submit(shell(f"echo $$ >> {runs}; test $(wc -l < {runs}) = 2", retries=again))
        view = self.server.end_of(job)
        assert (view["status"], len(begun(view))) == ("completed", 2), view["attempts"]
        assert len(runs.read_text().split()) == 2
        return view

    def rotated(self) -> View:
        """Secrets outlive the change of their keys."""
        self.server.persist(self._set_secret, "the secret")
        self.server.persist(self._rotate, "the rotation")
        view = self.server.end_of(self._submit(shell('test "$KEPT" = "a value to keep"', secrets={"KEPT": "kept"})))
        assert view["status"] == "completed", view["attempts"]
        return view

    def notified(self) -> View:
        """The end of a job is told, under one id however often."""
        with Receiver() as receiver:
            self.server.persist(lambda: self._add_hook(receiver.url()), "the hook")
            view = self.server.end_of(self._submit(shell("true")))
            self.server.persist(lambda: receiver.received, "the message")
            self.server.persist(self._remove_hooks, "the end of the hooks")
        told = {json.loads(one.body)["data"]["job"]["id"] for one in receiver.received}
        assert told == {view["id"]}
        return view

    def stopped(self) -> View:
        """A server that is asked to stop gives back the machines on which nothing runs."""
        view = self.server.end_of(self._submit(shell("true")))
        server = self.crucible.server
        assert server is not None
        server.terminate()
        assert server.wait(SECONDS) == -signal.SIGKILL, "it ended in order"
        self.server.revive()
        self.server.persist(lambda: not self.crucible.hosts() and not self.living(), "the machine to be gone")
        assert self.crucible.left() == []
        return view

    def instead(self, start: str, story: Callable[[], View]) -> None:
        """Points that begin so are reached by this story."""
        self._special[start] = story

    def living(self) -> list[str]:
        """Machines that are not gone by our books."""
        items = self.crucible.get("/api/v1/machines", all="true")["items"]
        return [item["id"] for item in items if item["state"] != "gone"]

    def forget_machines(self) -> None:
        """Gives all machines back and waits until they are gone: the next job is the first of a new one."""
        for machine in self.server.persist(lambda: [*self.living(), None], "the machines")[:-1]:
            self.server.persist(lambda machine=machine: self._terminate(machine), "the release")  # type: ignore[misc]
        self.server.persist(lambda: not self.living(), "the machines to be gone")

    def none_is_missing(self) -> None:
        """Every job there ever was is listed once."""
        listed = self.server.persist(lambda: self.crucible.get("/api/v1/jobs", limit=200)["items"], "the list")
        assert sorted(view["id"] for view in listed) == sorted(view["id"] for view in self.ends)

    @property
    def _runs(self) -> Path:
        """Where the next job writes down that it runs, each time a line."""
        return self._folder / f"runs-{len(self.ends)}"

    def _submit(self, spec: View) -> str:
        return self.server.submit({**spec, **self._where})

    def _upload(self) -> bool:
        with self.crucible.client() as client:
            answer = client.put(f"/api/v1/bundles/{self._bundle.sha256}", content=self._bundle.path.read_bytes())
            assert answer.status_code in (200, 201), answer.text
        return True

    def _resume(self, job: str) -> bool:
        """Asked for, now or by a request whose answer was lost: then it goes on already, or has completed."""
        with self.crucible.client() as client:
            return client.post(f"/api/v1/jobs/{job}/resume", json={}).status_code in (200, 202, 409)

    def _set_secret(self) -> bool:
        with self.crucible.client() as client:
            path = "/api/v1/projects/default/secrets/kept"
            return client.put(path, json={"value": "a value to keep"}).is_success

    def _rotate(self) -> bool:
        with self.crucible.client() as client:
            return client.post("/api/v1/secrets/rotate").is_success

    def _add_hook(self, url: str) -> bool:
        with self.crucible.client() as client:
            return client.post(HOOKS, json={"url": url}).is_success

    def _remove_hooks(self) -> bool:
        """Also one that was added by a request whose answer was lost."""
        with self.crucible.client() as client:
            for hook in client.get(HOOKS).raise_for_status().json()["items"]:
                client.delete(f"{HOOKS}/{hook['id']}").raise_for_status()
        return True

    def _terminate(self, machine: str) -> bool:
        with self.crucible.client() as client:
            return client.post(f"/api/v1/machines/{machine}/terminate").is_success

    def _is_whole(self, job: str) -> bool:
        assert self.crucible.log(job).decode() == "".join(f"line {number}\n" for number in range(LINES))
        artifacts = self.crucible.get(f"/api/v1/jobs/{job}/artifacts")["items"]
        assert [(item["path"], item["size"]) for item in artifacts] == [("result.bin", len(RESULT))]
        saved = self.crucible.get(f"/api/v1/jobs/{job}/checkpoints")["items"]
        assert [(item["step"], item["sha256"]) for item in saved] == [(1, hashlib.sha256(WEIGHTS).hexdigest())]
        with self.crucible.client() as client:
            assert client.get(f"/api/v1/jobs/{job}/artifacts/result.bin").raise_for_status().content == RESULT
            content = client.get(f"/api/v1/jobs/{job}/checkpoints/latest/content")
            assert content.raise_for_status().content == WEIGHTS
        series = self.crucible.get(f"/api/v1/jobs/{job}/metrics", series="loss")["series"]["loss"]
        assert [point[:2] for point in series["points"]] == [[1, 0.5]]
        return self._is_told(job)

    def _is_told(self, job: str) -> bool:
        """No event is missing, and none comes after the end."""
        numbers = [event["n"] for event in self.crucible.events(job)]
        assert numbers == list(range(1, len(numbers) + 1))
        return True


def begun(view: View) -> list[View]:
    """The attempts of which anything ran. A host that was idle for long while no server was there has ended."""
    return [attempt for attempt in view["attempts"] if attempt["reason"] != "not_begun"]


def _bundle(folder: Path) -> Bundle:
    code = folder / "code"
    code.mkdir()
    (code / "job.py").write_text(PROGRAM)
    return make_bundle(collect(code), folder)
