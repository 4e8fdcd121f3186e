"""A job that saves a checkpoint of some MB whenever it is told to, and what of it counts."""

from __future__ import annotations

import hashlib
import os
import random
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from tests.harness import TERMINAL, Deployment, View, until

from crucible.storage import NotFound, Store
from crucible.storage.layout import checkpoint_key, job_prefix

SECONDS = 120.0

PROGRAM = """\
import hashlib, os, random, sys, time
import crucible

seed, least, most, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]

def wanted():
    with open(os.path.join(folder, "wanted")) as file:
        return int(file.read())

step, data = 0, b""
if os.environ.get("CRUCIBLE_RESUME_FROM"):
    with open(os.environ["CRUCIBLE_RESUME_FROM"], "rb") as file:
        data = file.read()
    step = int(data[5:13])
with open(os.path.join(folder, "begins"), "a") as file:
    file.write(f"{step} {hashlib.sha256(data).hexdigest()}\\n")
before = None
while True:
    while wanted() <= step:
        time.sleep(0.02)
    step += 1
    chance = random.Random(f"{seed}/{step}")
    saved = crucible.checkpoint.save(b"step %08d\\n" % step + chance.randbytes(chance.randint(least, most)), step=step)
    if before is not None:
        before.unlink()
    before = saved
"""


class Saver:
    """`least` and `most` bytes has a checkpoint. `store` is the deployment's."""

    def __init__(self, crucible: Deployment, folder: Path, store: Store, seed: int, least: int, most: int) -> None:
        self.crucible = crucible
        self.folder = folder
        self._store = store
        self._seed = seed
        self._sizes = (least, most)
        self.want(0)
        command = ["{python}", "-c", PROGRAM, str(seed), str(least), str(most), str(folder)]
        retries = {"infrastructure": 1000, "wait_seconds": 0}
        self.job = crucible.submit({"command": command, "retries": retries, "grace_seconds": 1})

    def want(self, step: int) -> None:
        """The program goes on until it has saved this many."""
        fresh = self.folder / ".wanted"
        fresh.write_text(str(step))
        os.replace(fresh, self.folder / "wanted")

    def content(self, step: int) -> bytes:
        """What the program saves whenever it comes to this step."""
        return _content(self._seed, step, *self._sizes)

    def digest(self, step: int) -> str:
        return hashlib.sha256(self.content(step)).hexdigest()

    def latest(self) -> int:
        """The step of the newest checkpoint that counts, 0 without one. What is stored of it is what was saved."""
        found = [view for view in self._checkpoints() if view["latest"]]
        if not found:
            return 0
        step = int(found[0]["step"])
        assert (found[0]["sha256"], found[0]["size"]) == (self.digest(step), len(self.content(step)))
        assert self._store.get(checkpoint_key(self.job, found[0]["sha256"])) == self.content(step)
        return step

    def until_latest(self, step: int) -> None:
        until(lambda: self._is_latest(step), SECONDS, f"checkpoint {step} to count")
        assert self.latest() == step

    def downloaded(self) -> bytes:
        """The newest that counts, as a person gets it."""
        with self.crucible.client() as client:
            answer = client.get(f"/api/v1/jobs/{self.job}/checkpoints/latest/content")
            return answer.raise_for_status().content

    def begins(self) -> list[tuple[int, str]]:
        """Step and hash of what each attempt began with."""
        path = self.folder / "begins"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(line.split()[0]), line.split()[1]) for line in lines]

    def until_begun(self, times: int) -> tuple[int, str]:
        return until(lambda: self.begins()[times - 1 :], SECONDS, f"attempt {times} to begin")[0]

    def stored(self) -> dict[str, int]:
        """Everything in the store that is the job's."""
        return dict(self._store.list(job_prefix(self.job)))

    def all_are_whole(self) -> None:
        """Whatever lies among the checkpoints, counted or not, is what its name says."""
        for key in self.stored():
            if "/checkpoints/" in key:
                with suppress(NotFound):  # retention was here meanwhile
                    assert hashlib.sha256(self._store.get(key)).hexdigest() == key.rpartition("/")[2]

    def end(self) -> None:
        self.crucible.cancel(self.job)
        until(lambda: self.crucible.job(self.job)["phase"] in TERMINAL, SECONDS, "the job to end")

    def resume(self) -> None:
        with self.crucible.client() as client:
            client.post(f"/api/v1/jobs/{self.job}/resume", json={}).raise_for_status()

    def _is_latest(self, step: int) -> bool:
        return any(view["latest"] and view["step"] == step for view in self._checkpoints())

    def _checkpoints(self) -> list[View]:
        return list(self.crucible.get(f"/api/v1/jobs/{self.job}/checkpoints")["items"])


@lru_cache(maxsize=4)
def _content(seed: int, step: int, least: int, most: int) -> bytes:
    """As the program makes it; before the first step it has nothing."""
    chance = random.Random(f"{seed}/{step}")
    return b"step %08d\n" % step + chance.randbytes(chance.randint(least, most)) if step else b""
