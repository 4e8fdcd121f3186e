"""A real deployment connected to a simulated cloud: what tests of machines that vanish share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.backends.rehearsal.place import AT_ONCE, Cloud, all_processes
from tests.harness import TERMINAL, Deployment, View, until

from crucible.backends.rehearsal.connection import CallFailed

BOOKS = 300.0
"""What failed often is tried again after a minute, and an absence is believed at the second try."""
LONG = 120.0
"""Seconds to wait for what usually takes a few: the computer may be busy."""

STEPS = """\
import os, signal, sys, time

journal, steps, every, pause = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
gates = {int(word): f"{journal}.{word}" for word in sys.argv[5:]}
folder, found = os.environ["CRUCIBLE_CHECKPOINT_DIR"], os.environ.get("CRUCIBLE_RESUME_FROM")
stopping = []
signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))

def note(text):
    with open(journal, "a") as file:
        file.write(f"{text}\\n")

def save(step):
    part = os.path.join(folder, f".step-{step}.part")
    with open(part, "w") as file:
        file.write(str(step))
    os.rename(part, os.path.join(folder, f"step-{step}.txt"))

first = 1
if found:
    with open(found) as file:
        first = int(file.read()) + 1
note(f"begin {first} {os.getpid()}")
for step in range(first, steps + 1):
    while step in gates and not os.path.exists(gates[step]) and not stopping:
        time.sleep(0.05)
    if step in gates and stopping:
        save(step - 1)
        sys.exit()
    time.sleep(pause)
    note(f"step {step}")
    if step % every == 0 or stopping:
        save(step)
    if stopping:
        sys.exit()
note("end")
"""
"""A program that counts: writes each step down, saves every so many and when it is told to stop.

Before a step that has a gate it waits until the gate is opened.
"""


class RehearsalDeployment:
    """`crucible` may be killed and started again, and so may `cloud`: machines live through both."""

    def __init__(self, crucible: Deployment, cloud: Cloud) -> None:
        self.crucible = crucible
        self.cloud = cloud

    # Jobs

    def submit(self, spec: View, **more: object) -> str:
        return self.crucible.submit({"backend": "rehearsal", "resources": SMALL, **spec, **more})

    def counting(
        self, journal: Path, *, steps: int, every: int, pause: float = 0.02, gates: Sequence[int] = (), **more: object
    ) -> str:
        """A job that counts, with checkpoints."""
        words = [str(journal), str(steps), str(every), str(pause), *map(str, gates)]
        return self.submit({"command": ["{python}", "-c", STEPS, *words], "grace_seconds": 5, **more})

    def types(self, job: str) -> list[str]:
        return [event["type"] for event in self.crucible.events(job)]

    # Machines

    def instance_of(self, job: str, attempt: int) -> str:
        """The instance on which this attempt of the job runs, once its program does."""
        view = until(lambda: self._running(job, attempt), LONG, f"attempt {attempt} of {job} to run")
        machines = {machine["id"]: machine for machine in self.machines()}
        return str(machines[view["machine"]]["native_id"])

    def _running(self, job: str, attempt: int) -> View | None:
        view = self.crucible.job(job)
        assert view["phase"] not in TERMINAL, view["reason"]
        ready = view["attempt"] == attempt and view["attempts"][-1]["state"] == "running"
        return view["attempts"][-1] if ready else None

    def machines(self) -> list[View]:
        return list(self.crucible.get("/api/v1/machines", all=True)["items"])

    def reclaim(self, instance: str, notice: float | None) -> None:
        self.cloud.call("POST", f"/admin/instances/{instance}/reclaim", {} if notice is None else {"notice": notice})

    def alive(self, *, others: frozenset[str] = frozenset()) -> list[View]:
        return [instance for instance in self.cloud.alive() if instance["id"] not in others]

    # What must be so at the end

    def nothing_lives(self, *, others: frozenset[str] = frozenset()) -> None:
        """No machine at the cloud, none that we believe in, no process of any."""
        until(lambda: not self.alive(others=others), LONG, "every machine to end")
        until(self._all_gone, BOOKS, "our books to say so")
        dead = self.cloud.census().keys() - others
        assert not dead & all_processes().keys()

    def _all_gone(self) -> bool:
        return all(m["state"] == "gone" for m in self.machines() if m["backend"] == "rehearsal")

    def bills_agree(self, *, others: frozenset[str] = frozenset()) -> dict[str, int]:
        """Our ledger is the provider's own bill, machine by machine, to the micro-dollar; returns it."""
        theirs: Counter[str] = Counter()
        for id, line in self.cloud.bill().items():
            if id not in others:
                theirs[line["tags"]["crucible-machine"]] += line["micro_dollars"]
        billed = {machine: micros for machine, micros in theirs.items() if micros}
        try:
            until(lambda: self._ledger() == billed, BOOKS, "the ledger")
        except AssertionError:
            ours = self._ledger()
            apart = dict(ours.items() ^ billed.items())
            raise AssertionError({id: (ours.get(id), billed.get(id)) for id in apart}) from None
        return billed

    def _ledger(self) -> dict[str, int]:
        return {m["id"]: m["cost_micros"] for m in self.machines() if m["cost_micros"]}


SMALL = {"cpus": 1, "memory_bytes": 2**30}


@contextmanager
def rehearsed(folder: Path, env: Mapping[str, str] | None = None, **options: Any) -> Iterator[RehearsalDeployment]:
    """`options` are those of the cloud. Its machines boot at once and it has no faults yet."""
    cloud = Cloud(folder / "cloud", **options)
    cloud.faults(**AT_ONCE)
    settings = {"CRUCIBLE_BACKENDS": "local,rehearsal", "CRUCIBLE_REHEARSAL_STATE": str(cloud.state)}
    crucible = Deployment(folder, {**settings, **(env or {})})
    try:
        yield RehearsalDeployment(crucible, cloud)
    finally:
        if crucible.server is not None and crucible.server.poll() is None:
            crucible.kill()  # first: it would start its cloud again
        _clean(cloud)
        crucible.close()


def _clean(cloud: Cloud) -> None:
    try:
        cloud.clean()
    except CallFailed:
        cloud.restart()
        cloud.clean()


def open_gate(journal: Path, step: int) -> None:
    Path(f"{journal}.{step}").touch()


def steps_of(journal: Path) -> list[int]:
    """The steps a counting program did, over all attempts, in order."""
    return [int(line.split()[1]) for line in _lines(journal) if line.startswith("step ")]


def begins_of(journal: Path) -> list[int]:
    """The first step of each attempt."""
    return [int(line.split()[1]) for line in _lines(journal) if line.startswith("begin ")]


def _lines(journal: Path) -> list[str]:
    return journal.read_text().splitlines() if journal.exists() else []
