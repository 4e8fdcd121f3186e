from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from crucible.agent.link import spool as spool_module
from crucible.agent.link.spool import Spool
from crucible.wire.documents.messages import MessageKind


def numbers(spool: Spool) -> list[int]:
    return [message.n for message in spool.unsent()]


def newest(folder: Path) -> Path:
    return sorted(folder.glob("*.seg"))[-1]


def test_messages_are_numbered_from_one_and_wait_until_acknowledged(tmp_path: Path) -> None:
    spool = Spool(tmp_path, wall_clock=lambda: 5.0)
    assert spool.append(MessageKind.STAGING, {"what": "x"}) == 1
    assert spool.append(MessageKind.NOTE, {"text": "ä"}) == 2
    first, second = spool.unsent()
    assert (first.n, first.kind, first.at, first.data) == (1, MessageKind.STAGING, 5.0, {"what": "x"})
    assert second.data == {"text": "ä"}
    assert numbers(spool) == [1, 2]
    spool.acknowledge(1)
    assert numbers(spool) == [2]
    assert not spool.is_delivered
    spool.acknowledge(2)
    assert numbers(spool) == []
    assert spool.is_delivered


def test_numbers_go_on_after_a_restart(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    for _ in range(3):
        spool.append(MessageKind.NOTE, {})
    spool.acknowledge(2)
    spool.close()
    again = Spool(tmp_path)
    assert numbers(again) == [3]
    assert again.append(MessageKind.NOTE, {}) == 4
    again.acknowledge(4)
    assert Spool(tmp_path).append(MessageKind.NOTE, {}) == 5


@pytest.mark.parametrize("lost", range(1, 30))
def test_a_torn_end_is_recognised_and_cut(tmp_path: Path, lost: int) -> None:
    spool = Spool(tmp_path)
    spool.append(MessageKind.NOTE, {"text": "whole"})
    whole = newest(tmp_path).stat().st_size
    spool.append(MessageKind.NOTE, {"text": "torn"})
    spool.close()
    path = newest(tmp_path)
    path.write_bytes(path.read_bytes()[:-lost])
    again = Spool(tmp_path)
    assert path.stat().st_size == whole
    assert again.append(MessageKind.NOTE, {"text": "next"}) == 2
    assert [message.data["text"] for message in again.unsent()] == ["whole", "next"]


def test_damage_is_not_taken_for_a_message(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.append(MessageKind.NOTE, {"text": "whole"})
    spool.append(MessageKind.NOTE, {"text": "damaged"})
    spool.close()
    path = newest(tmp_path)
    raw = bytearray(path.read_bytes())
    raw[-3] ^= 1
    path.write_bytes(raw)
    assert numbers(Spool(tmp_path)) == [1]


@pytest.mark.parametrize("body", [b"[1]", b'[2, "nope", 1, {}]', b"[" * 50_000, b'[2, "note", "x", []]', b'{"n": 2}'])
def test_what_no_spool_has_written_ends_it_there(tmp_path: Path, body: bytes) -> None:
    spool = Spool(tmp_path)
    spool.append(MessageKind.NOTE, {"text": "whole"})
    spool.close()
    with newest(tmp_path).open("ab") as file:
        file.write(struct.pack(">II", len(body), zlib.crc32(body)) + body)
    assert numbers(Spool(tmp_path)) == [1]


def test_an_acknowledgement_may_go_back(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    for _ in range(5):
        spool.append(MessageKind.NOTE, {})
    spool.unsent()
    spool.acknowledge(5)
    spool.acknowledge(1)
    assert numbers(spool) == [2, 3, 4, 5]


def test_segments_are_dropped_once_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "SEGMENT_BYTES", 1000)
    spool = Spool(tmp_path)
    for _ in range(100):
        spool.append(MessageKind.NOTE, {"text": "x" * 50})
    assert len(list(tmp_path.glob("*.seg"))) > 5
    assert numbers(spool) == list(range(1, 101))
    spool.acknowledge(60)
    assert 1 < spool.first <= 61
    assert numbers(spool) == list(range(61, 101))
    spool.acknowledge(100)
    assert len(list(tmp_path.glob("*.seg"))) == 1
    assert spool.append(MessageKind.NOTE, {}) == 101
    assert [message.n for message in spool.all_messages()][-1] == 101


def test_a_batch_is_bounded(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    for _ in range(30):
        spool.append(MessageKind.NOTE, {"text": "x" * 100_000})
    assert len(spool.unsent()) < 15
    received: list[int] = []
    while not spool.is_delivered:
        received += numbers(spool)
        spool.acknowledge(received[-1])
    assert received == list(range(1, 31))


def test_points_are_thinned_and_progress_dropped_when_much_is_unsent(tmp_path: Path) -> None:
    spool = Spool(tmp_path, thin_above=1000)
    spool.append(MessageKind.NOTE, {"text": "x" * 1100})
    assert spool.append(MessageKind.PROGRESS, {"step": 1}) is None
    spool.append(MessageKind.POINTS, {"series": {"loss": [[1, 0.5, 0.0], [2, 0.4, 0.0]]}})
    assert spool.unsent()[-1].data == {"series": {"loss": [[2, 0.4, 0.0]]}}
    spool.append(MessageKind.NOTE, {"text": "x" * 1100})
    assert spool.append(MessageKind.POINTS, {"series": {"loss": [[3, 0.3, 0.0]]}}) is None
    assert spool.append(MessageKind.EXITED, {"code": 0}) == 4
    assert spool.dropped == 3


def test_what_no_receiver_could_read_is_refused_at_once(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    with pytest.raises(ValueError, match="JSON"):
        spool.append(MessageKind.POINTS, {"series": {"loss": [[1, float("nan"), 0.0]]}})
    with pytest.raises(ValueError, match="too long"):
        spool.append(MessageKind.NOTE, {"text": "x" * 3_000_000})
    assert spool.append(MessageKind.NOTE, {}) == 1
