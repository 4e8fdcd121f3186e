"""Checkpoints on their way through a line that is cut off, and who is killed there."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from tests.faults.cutting_proxy import Cutter, cutter
from tests.faults.saving_job import SECONDS, Saver
from tests.harness import Deployment, alive, until
from tests.storage.servers import Server

from crucible.storage import Store, open_store

MIB = 1024**2


@dataclass(frozen=True)
class Way:
    """How checkpoints travel in a deployment: a part of the way goes through `cutter`.

    They have `least` to `most` bytes; what `store` says is read past the cutter.
    """

    crucible: Deployment
    cutter: Cutter
    store: Store
    folder: Path
    least: int = MIB // 2
    most: int = 4 * MIB

    def job(self, seed: int, name: str) -> Saver:
        folder = self.folder / name
        folder.mkdir()
        return Saver(self.crucible, folder, self.store, seed, self.least, self.most)

    def cut(self, saver: Saver, step: int, chance: random.Random, deed: Callable[[], None] = lambda: None) -> None:
        """The program saves `step`; after a random byte of its upload the deed is done and the line is down.

        What counted before counts still.
        """
        at = chance.randint(0, len(saver.content(step)))
        cut = self.cutter.plan(at, deed, reset=chance.random() < 0.5)
        saver.want(step)
        assert cut.done.wait(SECONDS), f"checkpoint {step} was not sent"

    # Who is killed

    def kill_runner(self) -> None:
        os.kill(self._runner(), signal.SIGKILL)

    def kill_machine(self) -> None:
        """All at once: host, runner and program."""
        for process in self.crucible.processes():
            process.kill()

    def _runner(self) -> int:
        about = [json.loads(path.read_text()) for path in self.crucible.home.glob("machines/*/attempts/*/runner.json")]
        (pid,) = [int(each["pid"]) for each in about if alive(int(each["pid"]))]
        return pid

    # What is left

    def pieces(self) -> list[Path]:
        """What arrived in part, at the server or as an agent's copy."""
        return [*self.crucible.home.glob("uploads/*"), *self.crucible.home.glob("machines/*/attempts/*/snapshots/*")]

    def nothing_is_left(self, saver: Saver) -> None:
        """Once the job has ended and is pruned there is nothing of it anywhere."""
        saver.end()
        with self.crucible.client() as client:
            answer = client.post("/api/v1/prune", json={"older_than_seconds": 0})
            assert answer.raise_for_status().json()["failed"] == []
        until(lambda: not saver.stored(), SECONDS, "all that was stored to go")
        until(lambda: not self.pieces(), SECONDS, "pieces to go")


@contextmanager
def to_the_server(folder: Path) -> Iterator[Way]:
    """Agents call the server through the cutter; the store is a folder."""
    crucible = Deployment(folder)
    with cutter(partial(_agents_port, crucible.home)) as line:
        crucible.env["CRUCIBLE_AGENTS_URL"] = line.url
        with _started(crucible):
            yield Way(crucible, line, open_store(str(crucible.home / "store")), folder)


@contextmanager
def to_a_bucket(folder: Path, server: Server, **env: str) -> Iterator[Way]:
    """Server and agents reach the bucket through the cutter. Some checkpoints travel in parts."""
    options, url = server.options, server.url()
    assert options.endpoint is not None
    assert options.access_key is not None
    assert options.secret_key is not None
    place = urlsplit(options.endpoint)
    with cutter(lambda: (place.hostname or "", place.port or 80)) as line:
        settings = {
            "CRUCIBLE_STORE": url,
            "CRUCIBLE_STORE_ENDPOINT": line.url,
            "CRUCIBLE_STORE_REGION": "us-east-1",
            "CRUCIBLE_STORE_ACCESS_KEY": options.access_key.reveal(),
            "CRUCIBLE_STORE_SECRET_KEY": options.secret_key.reveal(),
        }
        with _started(Deployment(folder, {**settings, **env})) as crucible:
            yield Way(crucible, line, server.open(url), folder, most=12 * MIB)


@contextmanager
def _started(crucible: Deployment) -> Iterator[Deployment]:
    try:
        crucible.start(seconds=SECONDS)
        yield crucible
    finally:
        crucible.close()


def _agents_port(home: Path) -> tuple[str, int]:
    """Where the server listens for agents, as it wrote down itself."""
    return "127.0.0.1", int(json.loads((home / "ports.json").read_text())["agents"])
