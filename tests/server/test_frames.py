"""Frames carry whole characters and only what is new."""

from __future__ import annotations

import itertools
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from crucible.server import frames


def texts(log: frames.LogText, *pieces: bytes) -> list[dict[str, Any]]:
    last = len(pieces) - 1
    return [json.loads(f) for i, piece in enumerate(pieces) for f in log.frames(piece, last=i == last)]


def test_a_character_is_never_cut_in_two() -> None:
    log = frames.LogText(1, 100)
    first, second = texts(log, b"caf\xc3", b"\xa9!")
    assert (first["text"], first["cursor"]) == ("caf", 103)
    assert (second["text"], second["cursor"]) == ("é!", 106)


def test_the_beginning_of_a_character_alone_is_held_back() -> None:
    log = frames.LogText(1, 0)
    assert list(log.frames(b"\xf0\x9f")) == []
    assert log.cursor == 0
    assert log.offset == 2


def test_what_is_no_text_is_replaced() -> None:
    [frame] = texts(frames.LogText(3, 0), b"a\xffb\xc3")
    assert frame == {"stream": "log", "attempt": 3, "cursor": 4, "text": "a\ufffdb\ufffd"}


@given(st.text(), st.lists(st.integers(0, 200)))
def test_resuming_at_any_cursor_gives_the_rest(text: str, cuts: list[int]) -> None:
    data = text.encode()
    bounds = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    pieces = [data[a:b] for a, b in itertools.pairwise(bounds)]
    sent = texts(frames.LogText(1, 0), *pieces)
    assert "".join(frame["text"] for frame in sent) == text
    for done, frame in enumerate(sent, 1):
        assert data[frame["cursor"] :].decode() == "".join(f["text"] for f in sent[done:])


def series(count: int, *points: tuple[float, float, float]) -> dict[str, Any]:
    return {"count": count, "last": points[-1][1], "min": 0, "max": 9, "points": [list(p) for p in points]}


def new(seen: frames.Points, found: dict[str, Any]) -> dict[str, Any]:
    sent = [json.loads(frame) for frame in seen.frames(found)]
    return {name: one["points"] for frame in sent for name, one in frame["series"].items()}


def test_only_new_points_are_sent() -> None:
    seen = frames.Points()
    a, b, c = (1.0, 0.5, 10.0), (2.0, 0.4, 11.0), (3.0, 0.3, 12.0)
    assert new(seen, {"loss": series(2, a, b)}) == {"loss": [list(a), list(b)]}
    assert new(seen, {"loss": series(2, a, b)}) == {}
    assert new(seen, {"loss": series(3, a, b, c), "acc": series(1, a)}) == {
        "loss": [list(c)],
        "acc": [list(a)],
    }


def test_a_new_attempt_begins_its_series_anew() -> None:
    seen = frames.Points()
    new(seen, {"loss": series(5, (5.0, 0.1, 10.0))})
    assert new(seen, {"loss": series(1, (1.0, 0.9, 20.0))}) == {"loss": [[1.0, 0.9, 20.0]]}


def test_the_frame_of_a_job_leaves_out_what_has_its_own_stream() -> None:
    view = {"id": "job-1", "recent_logs": ["x"], "metrics": {"loss": 1}}
    assert json.loads(frames.job(view)) == {"stream": "job", "job": {"id": "job-1"}}
