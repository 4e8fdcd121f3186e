"""Frames carry whole characters and only what is new."""

from __future__ import annotations

import itertools
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from tests.server.openapi_contract import document

from crucible.core.views.frames import AnyFrame, LogFrame, NewPointsView, PointsFrame
from crucible.core.views.records import MetricsView, SeriesView
from crucible.server.streams import frames


def texts(log: frames.LogDecoder, *pieces: bytes) -> list[LogFrame]:
    last = len(pieces) - 1
    return [frame for i, piece in enumerate(pieces) for frame in log.frames(piece, last=i == last)]


def test_a_character_is_never_cut_in_two() -> None:
    log = frames.LogDecoder(1, 100)
    first, second = texts(log, b"caf\xc3", b"\xa9!")
    assert (first.text, first.cursor) == ("caf", 103)
    assert (second.text, second.cursor) == ("é!", 106)


def test_the_beginning_of_a_character_alone_is_held_back() -> None:
    log = frames.LogDecoder(1, 0)
    assert list(log.frames(b"\xf0\x9f")) == []
    assert log.cursor == 0
    assert log.offset == 2


def test_what_is_no_text_is_replaced() -> None:
    [frame] = texts(frames.LogDecoder(3, 0), b"a\xffb\xc3")
    assert frame.as_json() == {"stream": "log", "attempt": 3, "cursor": 4, "text": "a\ufffdb\ufffd"}


@given(st.text(), st.lists(st.integers(0, 200)))
def test_resuming_at_any_cursor_gives_the_rest(text: str, cuts: list[int]) -> None:
    data = text.encode()
    bounds = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    pieces = [data[a:b] for a, b in itertools.pairwise(bounds)]
    sent = texts(frames.LogDecoder(1, 0), *pieces)
    assert "".join(frame.text for frame in sent) == text
    for done, frame in enumerate(sent, 1):
        assert data[frame.cursor :].decode() == "".join(f.text for f in sent[done:])


Found = dict[str, Any]
"""By the name of a series."""
A, B, C, D = [1.0, 0.5, 10.0], [2.0, 0.4, 11.0], [3.0, 0.3, 12.0], [4.0, 0.2, 13.0]


def series(count: int, *points: list[float]) -> SeriesView:
    return SeriesView.model_validate({"count": count, "last": points[-1][1], "min": 0, "max": 9, "points": points})


def new(seen: frames.PointCursor, found: dict[str, SeriesView], *, drawn: bool = False, attempt: int = 1) -> Found:
    """What is given out of each series: the place it goes on from, and its points."""
    view = MetricsView(attempt=attempt, series=found)
    sent = [json.loads(frame.model_dump_json()) for frame in seen.frames(view, drawn=drawn)]
    return {name: (one["from"], one["points"]) for frame in sent for name, one in frame["series"].items()}


def test_only_new_points_are_sent() -> None:
    seen = frames.PointCursor()
    assert new(seen, {"loss": series(2, A, B)}, drawn=True) == {"loss": (0, [A, B])}
    assert new(seen, {"loss": series(2, A, B)}) == {}
    assert new(seen, {"loss": series(3, B, C), "acc": series(1, A)}) == {"loss": (2, [C]), "acc": (0, [A])}
    assert (seen.lagging, seen.grown) == ([], 1)


def test_a_beginning_is_made_with_the_first_points() -> None:
    seen = frames.PointCursor()
    begun = [seen.begun]
    for found in ({}, {"loss": series(1, A)}):
        new(seen, found, drawn=True)
        begun.append(seen.begun)
    assert begun == [False, False, True]


def test_no_clock_and_no_step_is_compared() -> None:
    seen = frames.PointCursor()
    back = [[1.0, 0.4, 5.0], [1.0, 0.4, 5.0], [0.0, 0.3, 1.0]]
    new(seen, {"loss": series(1, A)}, drawn=True)
    assert new(seen, {"loss": series(4, A, *back)}) == {"loss": (1, back)}


def test_points_between_two_readings_are_not_left_out() -> None:
    seen = frames.PointCursor()
    new(seen, {"loss": series(1, A), "acc": series(1, A)}, drawn=True)
    assert new(seen, {"loss": series(4, C, D), "acc": series(2, A, B)}) == {"acc": (1, [B])}
    assert (seen.lagging, seen.grown) == (["loss"], 3)
    assert new(seen, {"loss": series(4, B, C, D)}) == {"loss": (1, [B, C, D])}
    assert seen.lagging == []


def test_a_series_that_was_thinned_is_drawn_anew() -> None:
    seen = frames.PointCursor()
    assert new(seen, {"loss": series(900, A, B)}, drawn=True) == {"loss": (0, [A, B])}
    assert new(seen, {"loss": series(5000, A, C)}, drawn=True) == {"loss": (0, [A, C])}
    assert seen.lagging == []
    assert new(seen, {"loss": series(5001, C, D)}) == {"loss": (5000, [D])}


def test_a_drawing_that_has_all_points_goes_on() -> None:
    seen = frames.PointCursor()
    new(seen, {"loss": series(1, A)}, drawn=True)
    assert new(seen, {"loss": series(3, A, B, C)}, drawn=True) == {"loss": (1, [B, C])}


def test_a_new_attempt_begins_its_series_anew() -> None:
    seen = frames.PointCursor()
    new(seen, {"loss": series(1, A)}, drawn=True)
    assert new(seen, {"loss": series(1, A)}, attempt=2) == {"loss": (0, [A])}
    assert new(seen, {"loss": series(3, B, C, D)}, attempt=3) == {"loss": (0, [B, C, D])}


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9))))
def test_every_point_is_given_out_once_and_in_order(rounds: list[tuple[int, int]]) -> None:
    """Each round some points come and some of the last are read, or all of them where these are too few."""
    seen, came, got = frames.PointCursor(), [A], []
    got += new(seen, {"loss": series(1, A)}, drawn=True)["loss"][1]
    for more, asked in rounds:
        came += [[float(len(came) + i), 0.5, float(-i)] for i in range(more)]
        sent = new(seen, {"loss": series(len(came), *came[-asked:])})
        if seen.lagging:
            sent = new(seen, {"loss": series(len(came), *came)})
        got += sent["loss"][1] if sent else []
        assert got == came


def test_a_client_reads_a_frame_as_it_was_sent() -> None:
    sent = PointsFrame(series={"loss": NewPointsView(first=7, count=8, points=((1.0, None, 2.0),))})
    assert '"from":7' in sent.model_dump_json()
    assert TypeAdapter(AnyFrame).validate_json(sent.model_dump_json()) == sent


def test_the_openapi_document_has_the_frames_and_what_a_client_asks_with() -> None:
    schemas = document()["components"]["schemas"]
    kinds = schemas["Frame"]["discriminator"]["mapping"]
    assert set(kinds) == {"event", "log", "job", "health", "progress", "points"}
    for kind, reference in kinds.items():
        model = schemas[reference.rpartition("/")[2]]
        assert model["properties"]["stream"]["const"] == kind
        assert "stream" in model["required"]
    assert {"from", "points"} <= set(schemas["NewPointsView"]["required"])
    assert set(schemas["Cursors"]["properties"]) == {"after", "offset", "attempt"}
    assert schemas["JobFrame"]["properties"]["job"] == {"$ref": "#/components/schemas/JobView"}
