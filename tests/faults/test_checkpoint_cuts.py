"""The upload of a checkpoint is cut off after any of its bytes, on every way it may go: what counts is always whole.

`CUTS_SEED=N pytest tests/faults/test_checkpoint_cuts.py` repeats the cuts of an earlier run.
"""

from __future__ import annotations

import hashlib
import io
import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

import pytest
from tests.faults.interrupted_uploads import MIB, Way, to_a_bucket, to_the_server
from tests.faults.saving_job import SECONDS, Saver
from tests.harness import until
from tests.scale import Record, Scale
from tests.storage.servers import Server, seaweedfs

from crucible.agent.storelink.mailbox import FolderMailbox
from crucible.storage import open_store
from crucible.wire.documents.mailbox import checkpoint_blob, mailbox_folder

ROW = "checkpoint: kill at random byte offsets of the upload"
CUTS_A_JOB = 100
"""A longer list of checkpoints takes its time to read."""

pytestmark = pytest.mark.timeout(600)


@dataclass(frozen=True)
class Shares:
    """How many of all cuts each way gets: few where one takes long."""

    kills: int
    bucket: int
    mailbox: int
    folder: int
    line: int


@pytest.fixture
def shares(scale: Scale) -> Shares:
    kills, tenth, few = max(4, scale.cuts // 40), max(2, scale.cuts // 10), max(1, scale.cuts // 100)
    return Shares(kills, tenth, few, tenth, max(1, scale.cuts - kills - 2 * tenth - few))


@pytest.fixture(scope="module")
def s3() -> Iterator[Server]:
    with seaweedfs() as server:
        yield server


@dataclass
class Tally:
    """The cuts of one way. `chance` decides where they are."""

    seed: int
    chance: random.Random
    cuts: int = 0


Tallied = Callable[[str], AbstractContextManager[Tally]]


@pytest.fixture
def tallied(record: Record) -> Tallied:
    """`with tallied("a way") as tally`: its cuts are recorded, however it ends."""
    seed = int(os.environ.get("CUTS_SEED") or int.from_bytes(os.urandom(4), "big"))
    print(f"CUTS_SEED={seed}")

    @contextmanager
    def of(way: str) -> Iterator[Tally]:
        tally, broken = Tally(seed, random.Random(f"{seed}/{way}")), 1
        try:
            yield tally
            broken = 0
        finally:
            record(ROW, way=way, cuts=tally.cuts, broken=broken, seed=seed)

    return of


def test_the_line_to_the_server_is_cut(tmp_path: Path, shares: Shares, tallied: Tallied) -> None:
    with to_the_server(tmp_path) as way, tallied("to the server") as tally:
        while tally.cuts < shares.line:
            cut_and_resume(way, tally, min(CUTS_A_JOB, shares.line - tally.cuts))


def test_the_line_to_a_bucket_is_cut(tmp_path: Path, s3: Server, shares: Shares, tallied: Tallied) -> None:
    """The server stores what agents brought it; large ones in parts."""
    with to_a_bucket(tmp_path, s3) as way, tallied("to a bucket") as tally:
        while tally.cuts < shares.bucket:
            cut_and_resume(way, tally, min(CUTS_A_JOB, shares.bucket - tally.cuts))


def test_the_line_to_a_mailbox_is_cut(tmp_path: Path, s3: Server, shares: Shares, tallied: Tallied) -> None:
    """An agent without credentials puts its checkpoints into a bucket."""
    with (
        to_a_bucket(tmp_path, s3, CRUCIBLE_CHANNEL="store") as way,
        tallied("to a mailbox in a bucket") as tally,
    ):
        way.nothing_is_left(cut_often(way, tally, shares.mailbox))


def test_somebody_is_killed(tmp_path: Path, shares: Shares, tallied: Tallied) -> None:
    """The server, the runner or the whole machine; where an attempt follows, it starts from what counted last."""
    with to_the_server(tmp_path) as way, tallied("kill -9") as tally:
        saver = way.job(tally.seed, "job")
        for step, kill in enumerate(islice(cycle((kill_server, kill_runner, kill_machine)), shares.kills), 1):
            kill(way, saver, step, tally.chance)
            way.cutter.mend()
            saver.until_latest(step)
            assert saver.downloaded() == saver.content(step)
            saver.all_are_whole()
            tally.cuts += 1
        way.nothing_is_left(saver)


def cut_often(way: Way, tally: Tally, times: int) -> Saver:
    """One job, whose checkpoints are cut off one after another."""
    saver = way.job(tally.seed, f"job-{tally.cuts}")
    for step in range(1, times + 1):
        way.cut(saver, step, tally.chance)
        assert saver.latest() == step - 1
        way.cutter.mend()
        saver.until_latest(step)
        tally.cuts += 1
    assert saver.downloaded() == saver.content(times)
    saver.all_are_whole()
    return saver


def cut_and_resume(way: Way, tally: Tally, times: int) -> None:
    saver = cut_often(way, tally, times)
    saver.end()
    saver.resume()
    assert saver.until_begun(2) == (times, saver.digest(times))
    way.nothing_is_left(saver)


def kill_server(way: Way, saver: Saver, step: int, chance: random.Random) -> None:
    way.cut(saver, step, chance, way.crucible.kill)
    way.crucible.start(seconds=SECONDS)
    assert saver.latest() == step - 1
    until(lambda: not list(way.crucible.home.glob("uploads/*")), SECONDS, "what the dead server had received to go")


def kill_runner(way: Way, saver: Saver, step: int, chance: random.Random) -> None:
    _kill(way, saver, step, chance, way.kill_runner)


def kill_machine(way: Way, saver: Saver, step: int, chance: random.Random) -> None:
    _kill(way, saver, step, chance, way.kill_machine)


def _kill(way: Way, saver: Saver, step: int, chance: random.Random, deed: Callable[[], None]) -> None:
    attempts = len(saver.begins())
    way.cut(saver, step, chance, deed)
    assert saver.latest() == step - 1
    way.cutter.mend()
    begun, digest = saver.until_begun(attempts + 1)
    # What the dead had not brought may be brought by who comes after them.
    assert begun in (step - 1, step)
    assert digest == saver.digest(begun)


# A mailbox in a folder has no line: its writer is killed


class KillingReader(io.BytesIO):
    """Who reads beyond `at` bytes is killed."""

    def __init__(self, content: bytes, at: int) -> None:
        super().__init__(content)
        self._at = at

    def read(self, size: int | None = -1) -> bytes:
        left = self._at - self.tell()
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().read(left if size is None or size < 0 else min(size, left))


def test_the_writer_to_a_shared_folder_is_killed(tmp_path: Path, shares: Shares, tallied: Tallied) -> None:
    store, mail = open_store(str(tmp_path)), FolderMailbox(tmp_path, "mch-1")
    with tallied("to a mailbox in a folder") as tally:
        for _ in range(shares.folder):
            content = tally.chance.randbytes(tally.chance.randint(1, 4 * MIB))
            name = checkpoint_blob("att-1.0", hashlib.sha256(content).hexdigest())
            _put_and_die(mail, name, KillingReader(content, tally.chance.randint(0, len(content))), len(content))
            assert dict(store.list("mailboxes")) == {}
            mail.put(name, io.BytesIO(content), len(content))
            key = f"{mailbox_folder('mch-1')}/{name}"
            assert store.get(key) == content
            store.delete(key)
            tally.cuts += 1


def _put_and_die(mail: FolderMailbox, name: str, content: KillingReader, size: int) -> None:
    child = os.fork()
    if child == 0:
        try:
            mail.put(name, content, size)
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
