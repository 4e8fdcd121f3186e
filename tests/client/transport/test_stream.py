from __future__ import annotations

import time
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from tests.client.real_server import RealServer, RunningJob, serving
from tests.control.harness import new_id
from tests.server.app import TOKEN

from crucible.client.api import Api
from crucible.client.transport import stream
from crucible.client.transport.http import Endpoint
from crucible.core.errors import NotFound, Unreachable
from crucible.core.ids import Prefix
from crucible.core.secret import Secret
from crucible.core.views.frames import Cursors, EventFrame, Frame, JobFrame, LogFrame

pytestmark = pytest.mark.enable_socket


def text_of(frames: list[Frame]) -> str:
    return "".join(frame.text for frame in frames if isinstance(frame, LogFrame))


def events_of(frames: list[Frame]) -> list[int]:
    return [frame.cursor for frame in frames if isinstance(frame, EventFrame)]


def end_of(frames: list[Frame]) -> str:
    last = frames[-1]
    assert isinstance(last, JobFrame)
    return last.job.status


@pytest.fixture
def job(real: RealServer) -> RunningJob:
    """A job that says `one`, and `two` and its end once it is followed."""
    job = real.start()
    real.run(job.write, b"one\n")

    async def play(_: RunningJob) -> None:
        await job.heard()
        await job.write(b"two\n")
        await job.end()

    real.play_now(job, play)
    return job


def test_frames_come_until_the_job_has_ended(real_api: Api, job: RunningJob) -> None:
    frames = list(real_api.stream(job.id))
    assert text_of(frames) == "one\ntwo\n"
    assert end_of(frames) == "completed"
    events = [frame.event.type for frame in frames if isinstance(frame, EventFrame)]
    assert (events[0], events[-1]) == ("submitted", "completed")


def test_after_a_broken_connection_it_goes_on_from_the_cursors(
    real_api: Api, real: RealServer, job: RunningJob
) -> None:
    real.faults.cut_socket(after="one\\n")
    said: list[str] = []
    frames = list(real_api.stream(job.id, notice=said.append))
    assert text_of(frames) == "one\ntwo\n"
    numbers = events_of(frames)
    assert numbers == list(range(1, len(numbers) + 1))
    again = parse_qs(real.streams[1])
    assert (again["offset"], again["attempt"]) == (["4"], ["1"])
    assert 0 < int(again["after"][0]) < numbers[-1]
    assert "goes on" in said[0]
    assert "back" in said[1]


def test_what_is_sent_twice_is_said_once(real_api: Api, real: RealServer, job: RunningJob) -> None:
    async def play(_: RunningJob) -> None:
        await real.until(lambda: len(real.streams) == 2)
        await job.heard()
        await job.write(b"two\n")
        await job.end()

    real.play_now(job, play)
    real.faults.cut_socket(after="one\\n")
    real.faults.forget_query("*/stream")
    frames = list(real_api.stream(job.id))
    assert text_of(frames) == "one\ntwo\n"
    assert events_of(frames) == sorted({*events_of(frames)})


def test_a_new_attempt_begins_its_log_anew(real_api: Api, real: RealServer) -> None:
    job = real.submit(retries={"user": 1, "wait_seconds": 0})

    async def play(_: RunningJob) -> None:
        await job.start()
        await job.write(b"first, longer\n")
        await job.end(1)
        await real.perform(job, output=b"second\n")

    real.play_now(job, play)
    assert text_of(list(real_api.stream(job.id))) == "first, longer\nsecond\n"


def test_cursors_are_sent_and_what_was_seen_is_left_out(real_api: Api, real: RealServer) -> None:
    job = real.complete(output=b"one\ntwo\n")
    frames = list(real_api.stream(job.id, cursors=Cursors(after=2, attempt=1, offset=4)))
    assert text_of(frames) == "two\n"
    assert events_of(frames)[0] == 3
    assert parse_qs(real.streams[0])["after"] == ["2"]


def test_a_server_without_sockets_is_polled(real_api: Api, real: RealServer) -> None:
    job = real.complete(output="polled ä\n".encode())
    real.faults.refuse("*/stream", 404)
    frames = list(real_api.stream(job.id))
    assert text_of(frames) == "polled ä\n"
    assert end_of(frames) == "completed"


def test_a_stream_closed_without_a_last_state_is_looked_up(real_api: Api, real: RealServer) -> None:
    job = real.complete(output=b"a\n")
    real.faults.cut_socket(after="a\\n", code=1000)
    frames = list(real_api.stream(job.id))
    assert end_of(frames) == "completed"
    assert len(real.streams) == 1


def test_a_job_nobody_knows_is_not_found(real_api: Api) -> None:
    with pytest.raises(NotFound):
        list(real_api.stream("nosuch"))


def test_an_embedded_server_that_went_away_is_found_on_its_new_port(
    real: RealServer, job: RunningJob, tmp_path: Path
) -> None:
    real.faults.cut_socket(after="one\\n")
    with serving(tmp_path / "second") as second:
        twin = second.start()
        assert twin.id == job.id
        second.run(twin.write, b"one\n")
        second.run(twin.write, b"two\n")
        second.run(twin.end)
        new = Endpoint(second.url, Secret(TOKEN), embedded=True)
        api = Api(Endpoint(real.url, Secret(TOKEN), embedded=True), relocate=lambda: new, find_running=lambda: new)
        assert text_of(list(api.stream(job.id))) == "one\ntwo\n"
        assert parse_qs(second.streams[0])["offset"] == ["4"]


def test_a_server_that_was_taken_down_is_not_started_again(real: RealServer, job: RunningJob) -> None:
    real.faults.cut_socket(after="one\\n", code=1012)
    started: list[int] = []

    def start() -> Endpoint:
        started.append(1)
        return Endpoint(real.url, Secret(TOKEN))

    api = Api(Endpoint(real.url, Secret(TOKEN), embedded=True), relocate=start, find_running=lambda: None)
    timing = stream.Timing(time, replacement_wait=0.05, first_wait=0.01)
    with pytest.raises(Unreachable, match="was stopped") as caught:
        list(stream.follow(api, job.id, Cursors(), lambda _text: None, timing))
    assert f"crucible logs -f {job.short}" in caught.value.fix
    assert started == []


def test_patience_ends() -> None:
    api = Api(Endpoint("http://127.0.0.1:9", Secret(TOKEN)))
    timing = stream.Timing(time, patience=0.05, first_wait=0.01)
    with pytest.raises(Unreachable):
        list(stream.follow(api, new_id(Prefix.JOB, 1), Cursors(), lambda _text: None, timing))


@pytest.mark.parametrize("has_socket", [True, False])
def test_whoever_wants_no_more_ends_it(real_api: Api, real: RealServer, has_socket: bool) -> None:
    job = real.start()
    if not has_socket:
        real.faults.refuse("*/stream", 404)
    seen: list[Frame] = []
    for frame in real_api.stream(job.id, stop=lambda: bool(seen)):
        seen.append(frame)
    assert seen
    assert not any(frame.job.ended for frame in seen if isinstance(frame, JobFrame))


def test_who_has_stopped_does_not_wait_for_a_server_that_went_away(real_api: Api, real: RealServer) -> None:
    job = real.start()
    real.faults.cut_socket()
    seen: list[Frame] = []
    for frame in real_api.stream(job.id, stop=lambda: bool(seen)):
        seen.append(frame)
    assert len(seen) == 1
    assert len(real.streams) == 1
