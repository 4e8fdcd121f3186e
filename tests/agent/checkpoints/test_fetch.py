"""Test that the checkpoint to resume from arrives complete, or the job does not start."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.agent.agents_server import ALWAYS, AgentsServer
from tests.control.harness import job_spec
from tests.faults.disks import small_disk

from crucible.agent.checkpoints import fetch
from crucible.agent.link.channel import HttpChannel
from crucible.agent.link.connection import Gone, ServerAddress
from crucible.agent.runner.staging_context import StagingAborted, StagingContext, StagingError
from crucible.wire.documents.desired import Resume
from crucible.wire.files.archive import Entry, pack

pytestmark = pytest.mark.enable_socket

DATA = bytes(range(256)) * 1000


@pytest.fixture
def control(control: AgentsServer) -> AgentsServer:
    control.run(job_spec(), "a")
    return control


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def work(said: list[str]) -> StagingContext:
    return StagingContext(said.append, lambda line: None, lambda text: None)


def stored(control: AgentsServer, data: bytes, **fields: Any) -> Resume:
    resume = control.add_checkpoint("a", data, **{"name": "step-5.pt", "step": 5, **fields})
    control.assign("a", resume=resume)
    return resume


def get(control: AgentsServer, resume: Resume, target: Path, work: StagingContext) -> None:
    channel = HttpChannel(ServerAddress(file=control.url_file), "a", 0, control.secret("a"))
    try:
        fetch(resume, "job-1", target, channel, work)
    finally:
        channel.close()


def test_a_file(control: AgentsServer, tmp_path: Path, work: StagingContext, said: list[str]) -> None:
    target = tmp_path / "resume" / "step-5.pt"
    get(control, stored(control, DATA), target, work)
    assert target.read_bytes() == DATA
    assert [path.name for path in target.parent.iterdir()] == ["step-5.pt"]
    assert said == ["fetching checkpoint step-5.pt (step 5)"]


def test_a_folder(control: AgentsServer, tmp_path: Path, work: StagingContext, said: list[str]) -> None:
    raw = io.BytesIO()
    pack([Entry.of_bytes("inner/a", b"1"), Entry.of_bytes("b", b"2")], raw, compressed=False)
    target = tmp_path / "resume" / "last"
    get(control, stored(control, raw.getvalue(), name="last", form="folder", step=None), target, work)
    assert (target / "inner" / "a").read_bytes() == b"1"
    assert [path.name for path in target.parent.iterdir()] == ["last"]
    assert said == ["fetching checkpoint last"]


def test_it_goes_on_where_it_broke_off(control: AgentsServer, tmp_path: Path, work: StagingContext) -> None:
    control.faults.cut("*/checkpoints/*", times=ALWAYS, after=100_000)
    target = tmp_path / "resume" / "step-5.pt"
    get(control, stored(control, DATA), target, work)
    assert target.read_bytes() == DATA
    assert sum("/checkpoints/" in path for _, path in control.requests) == 3


def test_it_waits_for_the_server(control: AgentsServer, tmp_path: Path, work: StagingContext) -> None:
    for status in (503, 502, 429):
        control.faults.refuse("*/checkpoints/*", status)
    get(control, stored(control, DATA), tmp_path / "resume" / "a", work)
    assert (tmp_path / "resume" / "a").read_bytes() == DATA


@pytest.mark.parametrize(
    "wrong",
    [
        {"sha256": "0" * 64},
        {"size": 17},
        {"size": len(DATA) + 1},
        {"name": "../out"},
        {"name": "a/b"},
        {"size": 2**60},
        {"form": "folder"},
    ],
)
def test_what_cannot_be_had_is_an_error_with_the_way_out(
    control: AgentsServer, tmp_path: Path, work: StagingContext, wrong: dict[str, object]
) -> None:
    resume = replace(stored(control, DATA), **wrong)  # type: ignore[arg-type]
    with pytest.raises(StagingError) as caught:
        get(control, resume, tmp_path / "resume" / "a", work)
    assert resume.name in str(caught.value)
    assert "crucible resume job-1 --checkpoint" in str(caught.value)
    assert not (tmp_path / "resume" / "a").exists()


def test_damaged_on_the_way(control: AgentsServer, tmp_path: Path, work: StagingContext) -> None:
    resume = stored(control, DATA)
    control.faults.damage("*/checkpoints/*", times=ALWAYS)
    with pytest.raises(StagingError, match="damaged"):
        get(control, resume, tmp_path / "resume" / "a", work)


def test_a_hostile_folder_is_not_unpacked(control: AgentsServer, tmp_path: Path, work: StagingContext) -> None:
    raw = io.BytesIO()
    pack([Entry.of_bytes("aa/out", b"1")], raw, compressed=False)
    hostile = raw.getvalue().replace(b"aa/out", b"../out")
    with pytest.raises(StagingError, match="unpacked"):
        get(control, stored(control, hostile, form="folder"), tmp_path / "resume" / "a", work)
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "resume" / "a").exists()


def test_nobody_waits_for_it(control: AgentsServer, tmp_path: Path, work: StagingContext) -> None:
    work.aborted.set()
    with pytest.raises(StagingAborted):
        get(control, stored(control, DATA), tmp_path / "resume" / "a", work)
    work.aborted.clear()
    resume = stored(control, DATA)
    control.forget("a")
    control.down()
    control.start()
    with pytest.raises(Gone):
        get(control, resume, tmp_path / "resume" / "a", work)


def test_one_that_the_disk_has_no_room_for_is_not_begun(
    control: AgentsServer, tmp_path: Path, work: StagingContext
) -> None:
    with small_disk(tmp_path / "small", 32 * 1024**2) as disk:
        resume = replace(stored(control, DATA), size=40 * 1024**2)
        with pytest.raises(StagingError, match=r"it needs 40\.0 MiB more, and the disk of .* has 3"):
            get(control, resume, disk.path / "resume" / "step-5.pt", work)
    assert not any("/checkpoints/" in path for _, path in control.requests)
