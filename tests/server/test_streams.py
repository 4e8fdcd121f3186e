"""Sockets: what was missed first, then what happens, each thing once and in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from structlog.testing import capture_logs
from tests.server.asgi import SocketClient
from tests.server.conftest import TOKEN
from tests.server.fake_control import JOB, FakeControl, FakeJob, Point

from crucible.core.errors import Unreachable
from crucible.server import crowd, follow
from crucible.server.api import build_api

HEADERS = {"Authorization": f"Bearer {TOKEN}"}
STREAM = f"/api/v1/jobs/{JOB}/stream"


def events(*numbers: int, job: str = JOB) -> list[dict[str, Any]]:
    return [{"n": n, "cursor": n, "job": job, "type": "x", "at": "", "data": {}} for n in numbers]


def of(frames: list[dict[str, Any]], stream: str) -> list[dict[str, Any]]:
    return [frame for frame in frames if frame["stream"] == stream]


def text(frames: list[dict[str, Any]]) -> str:
    return "".join(frame["text"] for frame in of(frames, "log"))


async def whole(api: FastAPI, query: str = "") -> tuple[list[dict[str, Any]], int]:
    async with SocketClient(api, STREAM + query, HEADERS) as socket:
        await socket.accepted()
        return await socket.frames_until_close()


async def test_an_ended_job_is_replayed_to_its_end(api: FastAPI, control: FakeControl) -> None:
    control.add(
        FakeJob(
            status="completed",
            phase="completed",
            outputs=[b"hello\n"],
            ended=1,
            events=events(1, 2),
            progress={"fraction": 1.0},
            reported={"loss": [(1, 0.5, 1.0)]},
        )
    )
    frames, code = await whole(api)
    assert code == 1000
    assert [frame["stream"] for frame in frames] == ["event", "event", "log", "points", "progress", "job"]
    assert frames[2] == {"stream": "log", "attempt": 1, "cursor": 6, "text": "hello\n"}
    assert frames[-1]["job"]["status"] == "completed"
    assert "recent_logs" not in frames[-1]["job"]


async def test_a_reader_resumes_from_its_cursors(api: FastAPI, control: FakeControl) -> None:
    control.add(FakeJob(status="failed", outputs=[b"one\ntwo\n"], ended=1, events=events(1, 2, 3)))
    frames, _ = await whole(api, "?after=2&offset=4&attempt=1")
    assert [frame["cursor"] for frame in of(frames, "event")] == [3]
    assert text(frames) == "two\n"


async def test_a_long_past_comes_in_pages(api: FastAPI, control: FakeControl) -> None:
    output = "".join(f"zeile {n} ä\n" for n in range(30_000)).encode()
    numbers = range(1, 2 * crowd.EVENT_PAGE + 2)
    control.add(FakeJob(status="completed", outputs=[output], ended=1, events=events(*numbers)))
    frames, code = await whole(api)
    assert code == 1000
    assert text(frames) == output.decode()
    assert len(of(frames, "log")) > 1
    assert of(frames, "log")[-1]["cursor"] == len(output)
    assert [frame["cursor"] for frame in of(frames, "event")] == list(numbers)


async def test_a_job_that_never_ran_ends_at_once(api: FastAPI, control: FakeControl) -> None:
    control.add(FakeJob(status="cancelled", phase="cancelled"))
    frames, code = await whole(api)
    assert (code, [frame["stream"] for frame in frames]) == (1000, ["job"])


async def test_a_live_job_is_followed_to_its_end(api: FastAPI, control: FakeControl) -> None:
    job = control.add(FakeJob(outputs=[b"one\n"], events=events(1)))
    async with SocketClient(api, STREAM, HEADERS) as socket:
        await socket.accepted()
        assert [(await socket.frame())["stream"] for _ in range(3)] == ["event", "log", "job"]
        job.outputs[0] += b"two\n"
        control.tell(JOB, "log")
        assert (await socket.frame())["text"] == "two\n"
        job.progress = {"fraction": 0.5}
        control.tell(JOB, "progress")
        assert await socket.frame() == {"stream": "progress", "progress": {"fraction": 0.5}}
        job.report((1, 1, 1.0))
        control.tell(JOB, "points")
        assert (await socket.frame())["series"]["loss"]["points"] == [[1, 1, 1.0]]
        job.outputs[0] += b"three"
        job.status, job.phase, job.ended = "completed", "completed", 1
        job.events += events(2)
        control.tell(JOB, "event")
        frames, code = await socket.frames_until_close()
    assert code == 1000
    assert [frame["stream"] for frame in frames] == ["event", "log", "job"]
    assert frames[1]["text"] == "three"


async def test_output_in_the_middle_of_a_character_waits_for_the_rest(api: FastAPI, control: FakeControl) -> None:
    job = control.add(FakeJob(outputs=[b"a\xc3"]))
    async with SocketClient(api, STREAM, HEADERS) as socket:
        await socket.accepted()
        frame = await socket.frame()
        assert (frame["text"], frame["cursor"]) == ("a", 1)
        assert (await socket.frame())["stream"] == "job"
        job.outputs[0] += b"\xa9"
        control.tell(JOB, "log")
        frame = await socket.frame()
        assert (frame["text"], frame["cursor"]) == ("é", 3)


async def test_the_next_attempt_follows_the_last(api: FastAPI, control: FakeControl) -> None:
    job = control.add(FakeJob(outputs=[b"first"]))
    async with SocketClient(api, STREAM, HEADERS) as socket:
        await socket.accepted()
        assert (await socket.frame())["text"] == "first"
        await socket.frame()
        job.ended = 1
        job.outputs.append(b"second")
        control.tell(JOB, "log")
        assert await socket.frame() == {"stream": "log", "attempt": 2, "cursor": 6, "text": "second"}


async def test_a_reader_sees_the_newest_attempt_unless_it_names_one(api: FastAPI, control: FakeControl) -> None:
    control.add(FakeJob(status="completed", outputs=[b"first ", b"second"], ended=2))
    assert text((await whole(api))[0]) == "second"
    assert text((await whole(api, "?attempt=1"))[0]) == "first second"


async def test_a_reader_from_before_the_first_attempt_misses_none(api: FastAPI, control: FakeControl) -> None:
    job = control.add(FakeJob(status="queued", phase="queued"))
    async with SocketClient(api, STREAM, HEADERS) as socket:
        await socket.accepted()
        assert (await socket.frame())["job"]["phase"] == "queued"
        job.outputs += [b"first ", b"second"]
        job.status, job.ended = "failed", 2
        control.tell(JOB, "event")
        frames, _ = await socket.frames_until_close()
    assert text(frames) == "first second"


async def test_an_ended_job_whose_log_stays_open_is_let_go(api: FastAPI, control: FakeControl) -> None:
    control.add(FakeJob(status="failed", outputs=[b"cut"], ended=0))
    frames, code = await whole(api)
    assert (code, text(frames), frames[-1]["stream"]) == (1000, "cut", "job")


async def test_a_program_that_never_pauses_does_not_keep_its_events_back(api: FastAPI, control: FakeControl) -> None:
    job = control.add(FakeJob(outputs=[b""]))
    async with SocketClient(api, STREAM, HEADERS, room=1) as socket:
        await socket.accepted()
        await socket.frame()
        job.outputs[0] = b"x" * (follow.LOG_PAGE * follow.LOG_PAGES * 3)
        control.tell(JOB, "log")
        await socket.frame()
        job.events += events(1)
        control.tell(JOB, "event")
        before = 0
        while (await socket.frame())["stream"] == "log":
            before += 1
    assert before <= 2 * follow.LOG_PAGES


async def test_a_slow_reader_is_closed_and_can_resume(control: FakeControl) -> None:
    pace = follow.Pace(send=0.02)
    api = build_api(control, token=TOKEN, nonce="", version="", home="", on_stop=lambda: None, pace=pace)
    output = b"x" * (follow.LOG_PAGE * 4)
    control.add(FakeJob(status="completed", outputs=[output], ended=1))
    async with SocketClient(api, STREAM, HEADERS, room=2) as socket:
        await socket.accepted()
        await given_up(control)
        frames, code = await socket.frames_until_close()
    assert code == 1013
    assert [frame["cursor"] for frame in frames] == [follow.LOG_PAGE, follow.LOG_PAGE * 2]
    frames, code = await whole(api, f"?offset={frames[-1]['cursor']}")
    assert code == 1000
    assert len(text(frames)) == follow.LOG_PAGE * 2


async def test_a_stuck_reader_is_left(control: FakeControl) -> None:
    pace = follow.Pace(send=0.02, close=0.02)
    api = build_api(control, token=TOKEN, nonce="", version="", home="", on_stop=lambda: None, pace=pace)
    control.add(FakeJob(status="completed", outputs=[b"x" * (follow.LOG_PAGE * 4)], ended=1))
    async with SocketClient(api, STREAM, HEADERS, room=2) as socket:
        await socket.accepted()
        await asyncio.wait_for(socket.ended(), 5)


async def given_up(control: FakeControl) -> None:
    """Returns once the job is watched no more."""
    async with asyncio.timeout(5):
        while control.watches.get(JOB) != []:
            await asyncio.sleep(0.001)


async def test_a_reader_that_leaves_ends_the_work(api: FastAPI, control: FakeControl) -> None:
    control.add(FakeJob(outputs=[b"x"]))
    async with SocketClient(api, STREAM, HEADERS) as socket:
        await socket.accepted()
        await socket.frame()
        assert len(control.watches[JOB]) == 1
    assert control.watches[JOB] == []


async def test_what_a_reader_says_is_dropped(api: FastAPI, control: FakeControl) -> None:
    job = control.add(FakeJob(outputs=[b"x"]))
    async with SocketClient(api, STREAM, HEADERS) as socket:
        await socket.accepted()
        socket.say("anything")
        await socket.frame()
        await socket.frame()
        job.outputs[0] += b"y"
        control.tell(JOB, "log")
        assert (await socket.frame())["text"] == "y"


async def test_trouble_on_the_way_closes_with_the_reason(api: FastAPI, control: FakeControl) -> None:
    control.add(FakeJob(outputs=[b"x"]))
    async with SocketClient(api, STREAM, HEADERS) as socket:
        await socket.accepted()
        await socket.frame()
        await socket.frame()
        control.breaks = Unreachable("The store is away.")
        control.tell(JOB, "log")
        message = await socket.message()
    assert (message["type"], message["code"]) == ("websocket.close", 1011)
    assert message["reason"] == "The store is away."


async def test_an_unexpected_error_ends_the_socket_and_is_logged(api: FastAPI, control: FakeControl) -> None:
    control.add(FakeJob(outputs=[b"x"]))
    with capture_logs() as lines:
        async with SocketClient(api, STREAM, HEADERS) as socket:
            await socket.accepted()
            await socket.frame()
            await socket.frame()
            control.breaks = ZeroDivisionError()
            control.tell(JOB, "log")
            message = await socket.message()
    assert (message["type"], message["code"]) == ("websocket.close", 1011)
    assert [line["event"] for line in lines] == ["unexpected error"]


async def test_all_jobs_in_one_order(api: FastAPI, control: FakeControl) -> None:
    other = "job-00000000000000000000000002"
    control.add(FakeJob(events=events(1, 4)))
    second = control.add(FakeJob(other, events=events(2, 3, job=other)))
    async with SocketClient(api, "/api/v1/stream?after=1", HEADERS) as socket:
        await socket.accepted()
        assert [(await socket.frame())["cursor"] for _ in range(3)] == [2, 3, 4]
        second.events += events(5, job=other)
        control.tell(other, "event")
        frame = await socket.frame()
    assert frame == {"stream": "event", "cursor": 5, "event": events(5, job=other)[0]}


async def test_a_lost_hint_is_made_up_for(control: FakeControl) -> None:
    pace = follow.Pace(look=0.01)
    api = build_api(control, token=TOKEN, nonce="", version="", home="", on_stop=lambda: None, pace=pace)
    job = control.add(FakeJob(outputs=[b""]))
    async with SocketClient(api, STREAM, HEADERS) as socket:
        await socket.accepted()
        await socket.frame()
        job.outputs[0] += b"unannounced"
        assert (await socket.frame())["text"] == "unannounced"


async def test_points_are_read_at_a_bounded_pace(control: FakeControl) -> None:
    pace = follow.Pace(points=60.0)
    api = build_api(control, token=TOKEN, nonce="", version="", home="", on_stop=lambda: None, pace=pace)
    job = control.add(FakeJob(outputs=[b""]))
    async with SocketClient(api, STREAM, HEADERS) as socket:
        await socket.accepted()
        await socket.frame()
        for n in range(20):
            job.outputs[0] += b"x"
            control.tell(JOB, "points", "log")
            assert (await socket.frame())["cursor"] == n + 1
    assert len([asked for asked in control.asked if "points" in asked]) == 1


async def points_of(socket: SocketClient, control: FakeControl, job: FakeJob, *points: Point) -> Any:
    """What a reader is sent of `loss` when these points come."""
    job.report(*points)
    control.tell(JOB, "points")
    return (await socket.frame())["series"]["loss"]


@asynccontextmanager
async def drawn(control: FakeControl, job: FakeJob) -> AsyncIterator[SocketClient]:
    """A reader that has seen all there is of a job with points."""
    pace = follow.Pace(points=0.0)
    api = build_api(control, token=TOKEN, nonce="", version="", home="", on_stop=lambda: None, pace=pace)
    control.add(job)
    async with SocketClient(api, STREAM, HEADERS) as socket:
        await socket.accepted()
        assert [(await socket.frame())["stream"] for _ in range(2)] == ["points", "job"]
        yield socket


def line(count: int) -> list[Point]:
    return [(float(i), float(i), 1000.0 + i) for i in range(count)]


async def test_points_of_a_clock_that_steps_back_are_sent_once_each(control: FakeControl) -> None:
    job = FakeJob(reported={"loss": line(3)})
    async with drawn(control, job) as socket:
        for n, at in enumerate((5.0, 2000.0, 5.0, 4.0)):
            sent = await points_of(socket, control, job, (1.0, 0.5, at))
            assert (sent["from"], sent["points"], sent["count"]) == (3 + n, [[1.0, 0.5, at]], 4 + n)


async def test_a_long_series_is_drawn_and_then_goes_on_point_by_point(control: FakeControl) -> None:
    job = FakeJob(reported={"loss": line(100_000)})
    async with drawn(control, job) as socket:
        for n in range(3):
            sent = await points_of(socket, control, job, (float(n), 0.5, 0.0))
            assert (sent["from"], sent["points"]) == (100_000 + n, [[float(n), 0.5, 0.0]])
    asked = [one["points"] for one in control.asked if "points" in one]
    assert asked[0] == follow.POINTS
    assert asked[-1] == -follow.FEW, "no more is read than about what comes"


async def test_many_points_at_once_are_all_sent(control: FakeControl) -> None:
    job = FakeJob(reported={"loss": line(100_000)})
    async with drawn(control, job) as socket:
        for _ in range(2):
            await points_of(socket, control, job, (0.0, 0.5, 0.0))
        sent = await points_of(socket, control, job, *line(follow.MANY))
    assert (sent["from"], sent["points"]) == (100_002, [list(p) for p in line(follow.MANY)])


async def test_a_series_that_outruns_its_reader_is_drawn_anew(control: FakeControl) -> None:
    job = FakeJob(reported={"loss": line(100_000), "acc": line(2)})
    async with drawn(control, job) as socket:
        sent = await points_of(socket, control, job, *line(follow.MANY + 1))
        assert (sent["from"], sent["count"]) == (0, 100_001 + follow.MANY)
        assert len(sent["points"]) <= follow.POINTS
        assert control.asked[-1] == {"series": ["loss"], "points": follow.POINTS}
        sent = await points_of(socket, control, job, (0.0, 0.5, 0.0))
        assert (sent["from"], sent["points"]) == (100_001 + follow.MANY, [[0.0, 0.5, 0.0]])


async def test_the_points_of_the_next_attempt_begin_anew(control: FakeControl) -> None:
    job = FakeJob(reported={"loss": line(3)})
    async with drawn(control, job) as socket:
        job.reported, job.reporter = {}, 2
        sent = await points_of(socket, control, job, *line(3))
    assert (sent["from"], sent["points"]) == (0, [list(p) for p in line(3)])


async def test_a_follower_never_asks_for_output_and_metrics_with_the_job(control: FakeControl) -> None:
    job = FakeJob(reported={"loss": line(3)})
    async with drawn(control, job) as socket:
        job.progress = {"fraction": 0.5}
        control.tell(JOB, "progress")
        assert (await socket.frame())["stream"] == "progress"
    assert control.whole_jobs == 0
