from __future__ import annotations

import time
from typing import Any

import pytest
from tests.client.fake_server import JOB, TOKEN, FakeServer, completed, job_view, serving

from crucible.client import stream
from crucible.client.api import Api
from crucible.client.transport import Endpoint
from crucible.core.errors import NotFound, Unreachable
from crucible.core.secret import Secret
from crucible.core.views.frames import Cursors, EventFrame, Frame, JobFrame, LogFrame

pytestmark = pytest.mark.enable_socket


def log(cursor: int, text: str, attempt: int = 1) -> dict[str, Any]:
    return {"stream": "log", "attempt": attempt, "cursor": cursor, "text": text}


def event(n: int) -> dict[str, Any]:
    return {"stream": "event", "cursor": n, "event": {"n": n, "type": "x", "at": None, "data": {}}}


def state(view: dict[str, Any]) -> dict[str, Any]:
    return {"stream": "job", "job": view}


def text_of(frames: list[Frame]) -> str:
    return "".join(frame.text for frame in frames if isinstance(frame, LogFrame))


@pytest.fixture(autouse=True)
def a_job(server: FakeServer) -> None:
    server.jobs[JOB] = job_view()


def test_frames_come_until_the_job_has_ended(api: Api, server: FakeServer) -> None:
    server.log, server.events = b"hello\n", [{"n": 1, "type": "submitted", "at": None, "data": {}}]
    frames = list(api.stream(JOB))
    assert text_of(frames) == "hello\n"
    assert frames[-1].job is not None
    assert frames[-1].job.status == "completed"
    assert [frame.event.type for frame in frames if isinstance(frame, EventFrame)] == ["submitted"]


def test_after_a_broken_connection_it_goes_on_from_the_cursors(api: Api, server: FakeServer) -> None:
    server.acts = [
        ([event(1), event(2), log(4, "one\n")], None),
        ([event(2), log(4, "one\n"), event(3), log(8, "two\n"), state(completed())], 1000),
    ]
    said: list[str] = []
    frames = list(api.stream(JOB, notice=said.append))
    assert text_of(frames) == "one\ntwo\n"
    assert [frame.cursor for frame in frames if isinstance(frame, EventFrame)] == [1, 2, 3]
    assert server.streams[1] == {"after": "2", "offset": "4", "attempt": "1"}
    assert "goes on" in said[0]
    assert "back" in said[1]


def test_a_new_attempt_begins_its_log_anew(api: Api, server: FakeServer) -> None:
    server.acts = [([log(9, "first"), log(6, "second", attempt=2), state(completed())], 1000)]
    assert text_of(list(api.stream(JOB))) == "firstsecond"


def test_cursors_are_sent_and_what_was_seen_is_left_out(api: Api, server: FakeServer) -> None:
    server.log = b"one\ntwo\n"
    frames = list(api.stream(JOB, cursors=Cursors(after=5, attempt=1, offset=4)))
    assert text_of(frames) == "two\n"
    assert server.streams[0]["after"] == "5"


def test_a_server_without_sockets_is_polled(api: Api, server: FakeServer) -> None:
    server.has_socket, server.log, server.ends_as = False, b"polled \xc3\xa4\n", completed()
    server.events = [{"n": 1, "type": "submitted", "at": None, "data": {}}]
    frames = list(api.stream(JOB))
    assert text_of(frames) == "polled ä\n"
    assert frames[-1].job is not None
    assert frames[-1].job.ended


def test_a_stream_closed_without_a_last_state_is_looked_up(api: Api, server: FakeServer) -> None:
    server.jobs[JOB] = completed()
    server.acts = [([log(2, "a\n")], 1000)]
    frames = list(api.stream(JOB))
    assert frames[-1].job is not None
    assert frames[-1].job.status == "completed"


def test_a_job_nobody_knows_is_not_found(api: Api, server: FakeServer) -> None:
    server.has_socket = False
    with pytest.raises(NotFound):
        list(api.stream("nosuch"))


def test_a_restarted_embedded_server_is_found_on_its_new_port(server: FakeServer) -> None:
    server.acts = [([log(4, "one\n")], None)]
    second = FakeServer(jobs={JOB: job_view()}, log=b"one\ntwo\n")
    with serving(second):
        new = Endpoint(second.url, Secret(TOKEN), embedded=True)
        api = Api(Endpoint(server.url, Secret(TOKEN), embedded=True), relocate=lambda: new, found=lambda: new)
        assert text_of(list(api.stream(JOB))) == "one\ntwo\n"
    assert second.streams == [{"after": "0", "offset": "4", "attempt": "1"}]


def test_a_server_that_was_taken_down_is_not_started_again(server: FakeServer) -> None:
    server.acts = [([log(4, "one\n")], 1012)]
    started: list[int] = []

    def start() -> Endpoint:
        started.append(1)
        return Endpoint(server.url, Secret(TOKEN))

    api = Api(Endpoint(server.url, Secret(TOKEN), embedded=True), relocate=start, found=lambda: None)
    link = stream.Link(api, api.transport, lambda: None)
    timing = stream.Timing(time, handover=0.05, first_wait=0.01)
    with pytest.raises(Unreachable, match="was stopped") as caught:
        list(stream.follow(link, JOB, Cursors(), lambda _text: None, timing))
    assert "crucible logs -f job-abc123" in caught.value.fix
    assert started == []


def test_patience_ends(server: FakeServer) -> None:
    api = Api(Endpoint("http://127.0.0.1:9", Secret(TOKEN)))
    link = stream.Link(api, api.transport)
    timing = stream.Timing(time, patience=0.05, first_wait=0.01)
    with pytest.raises(Unreachable):
        list(stream.follow(link, JOB, Cursors(), lambda _text: None, timing))


@pytest.mark.parametrize("has_socket", [True, False])
def test_whoever_wants_no_more_ends_it(api: Api, server: FakeServer, has_socket: bool) -> None:
    server.has_socket = has_socket
    server.acts = [([state(job_view())], 0)]
    seen: list[Frame] = []
    for frame in api.stream(JOB, stop=lambda: bool(seen)):
        seen.append(frame)
    assert seen
    assert not any(frame.job.ended for frame in seen if isinstance(frame, JobFrame))


def test_who_has_stopped_does_not_wait_for_a_server_that_went_away(api: Api, server: FakeServer) -> None:
    server.acts = [([event(1)], None)]
    seen: list[Frame] = []
    for frame in api.stream(JOB, stop=lambda: bool(seen)):
        seen.append(frame)
    assert len(seen) == 1
    assert len(server.streams) == 1
