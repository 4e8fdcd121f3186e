"""Sockets: what was missed first, then what happens, each thing once and in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.control.harness import FakeRunner
from tests.server.app import App
from tests.server.asgi import SocketClient
from tests.server.conftest import TIMING, TOKEN

from crucible.control.db import schema as t
from crucible.control.reconcile.unit_of_work import UnitOfWork
from crucible.control.telemetry import points
from crucible.core.errors import Unreachable
from crucible.core.lifecycle import Event, Step
from crucible.core.people.identity import OWNER, Identity
from crucible.core.views.records import LogPage, MetricsView
from crucible.server.streams import follow, shared_reads
from crucible.wire.documents.messages import MessageKind

HEADERS = {"Authorization": f"Bearer {TOKEN}"}
NO_EVENTS = "?after=1000"
Point = Sequence[float]


def of(frames: list[dict[str, Any]], stream: str) -> list[dict[str, Any]]:
    return [frame for frame in frames if frame["stream"] == stream]


def text(frames: list[dict[str, Any]]) -> str:
    return "".join(frame["text"] for frame in of(frames, "log"))


def follower(app: App, job: str, query: str = NO_EVENTS, room: int = 0) -> SocketClient:
    return SocketClient(app.api, f"/api/v1/jobs/{job}/stream{query}", HEADERS, room=room)


async def whole(app: App, job: str, query: str = "") -> tuple[list[dict[str, Any]], int]:
    async with follower(app, job, query) as socket:
        await socket.accepted()
        return await socket.frames_until_close()


async def writing(app: App, output: bytes = b"") -> tuple[str, FakeRunner]:
    """A job that runs and has written this."""
    job, runner = await app.harness.running()
    if output:
        await runner.log(0, 0, output)
    return job, runner


def watchers(app: App, job: str | None) -> int:
    return len(app.harness.feed._watches.get(job, ()))


async def note(app: App, job: str, count: int = 1) -> None:
    """Events of a job, all in one commit."""
    world = await app.harness.world(job)

    def save(unit: UnitOfWork) -> None:
        unit.save(world, Step(world, (Event("note", {"text": "x"}),) * count))

    await app.harness.writer.write(save)


async def test_an_ended_job_is_replayed_to_its_end(app: App) -> None:
    job, runner = await writing(app, b"hello\n")
    await runner.say(MessageKind.PROGRESS, fraction=0.9)
    await runner.say(MessageKind.POINTS, series={"loss": [[1, 0.5, 1.0]]})
    await runner.end()
    frames, code = await whole(app, job, "?after=3")
    assert code == 1000
    count = len(await app.harness.rows(t.events)) - 3
    assert [frame["stream"] for frame in frames] == [*["event"] * count, "log", "points", "progress", "job"]
    assert frames[count] == {"stream": "log", "attempt": 1, "cursor": 6, "text": "hello\n"}
    assert frames[-1]["job"]["status"] == "completed"
    assert "recent_logs" not in frames[-1]["job"]


async def test_a_reader_resumes_from_its_cursors(app: App) -> None:
    job = await app.ended(b"one\ntwo\n", code=1)
    count = len(await app.harness.rows(t.events))
    frames, _ = await whole(app, job, f"?after={count - 1}&offset=4&attempt=1")
    assert [frame["cursor"] for frame in of(frames, "event")] == [count]
    assert text(frames) == "two\n"


@pytest.mark.parametrize("query", ["?after=-1", "?offset=-1", "?attempt=0", "?attempt=x", "?after=9007199254740993"])
async def test_cursors_out_of_bounds_are_refused(app: App, query: str) -> None:
    job = await app.harness.submit()
    for prefix in ("jobs", "training"):
        async with SocketClient(app.api, f"/api/v1/{prefix}/{job}/stream{query}", HEADERS) as socket:
            status, problem = await socket.refusal()
            assert (status, problem["status"]) == (422, 422)


async def test_a_long_past_comes_in_pages(app: App) -> None:
    output = "".join(f"zeile {n} ä\n" for n in range(30_000)).encode()
    job, runner = await writing(app, output)
    await note(app, job, 2 * shared_reads.EVENT_PAGE)
    await runner.end()
    frames, code = await whole(app, job)
    assert code == 1000
    assert text(frames) == output.decode()
    assert len(of(frames, "log")) > 1
    assert of(frames, "log")[-1]["cursor"] == len(output)
    numbers = [frame["cursor"] for frame in of(frames, "event")]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) > 2 * shared_reads.EVENT_PAGE


async def test_a_job_that_never_ran_ends_at_once(app: App) -> None:
    await app.harness.submit(cpus=4)
    job = await app.harness.submit(cpus=4)
    await app.control.jobs.cancel(OWNER, job)
    frames, code = await whole(app, job, NO_EVENTS)
    assert (code, [frame["stream"] for frame in frames]) == (1000, ["job"])


async def test_a_live_job_is_followed_to_its_end(app: App) -> None:
    job, runner = await writing(app, b"one\n")
    count = len(await app.harness.rows(t.events))
    async with follower(app, job, f"?after={count - 1}") as socket:
        await socket.accepted()
        assert [(await socket.frame())["stream"] for _ in range(3)] == ["event", "log", "job"]
        await runner.log(1, 4, b"two\n")
        assert (await socket.frame())["text"] == "two\n"
        await runner.say(MessageKind.PROGRESS, fraction=0.5)
        frame = await socket.frame()
        assert (frame["stream"], frame["progress"]["fraction"], frame["progress"]["percent"]) == ("progress", 0.5, 50)
        await runner.say(MessageKind.POINTS, series={"loss": [[1, 1, 1.0]]})
        assert (await socket.frame())["series"]["loss"]["points"] == [[1, 1, 1.0]]
        await runner.log(2, 8, b"three")
        await runner.end()
        frames, code = await socket.frames_until_close()
    assert code == 1000
    assert text(frames) == "three"
    assert [frame["event"]["type"] for frame in of(frames, "event")][-1] == "completed"
    assert frames[-1]["job"]["status"] == "completed"


async def test_output_in_the_middle_of_a_character_waits_for_the_rest(app: App) -> None:
    job, runner = await writing(app, b"a\xc3")
    async with follower(app, job) as socket:
        await socket.accepted()
        frame = await socket.frame()
        assert (frame["text"], frame["cursor"]) == ("a", 1)
        assert (await socket.frame())["stream"] == "job"
        await runner.log(1, 2, b"\xa9")
        frame = await socket.frame()
        assert (frame["text"], frame["cursor"]) == ("é", 3)


async def test_the_next_attempt_follows_the_last(app: App) -> None:
    job, runner = await app.harness.running(retries={"user": 1, "wait_seconds": 0})
    await runner.log(0, 0, b"first")
    async with follower(app, job) as socket:
        await socket.accepted()
        assert (await socket.frame())["text"] == "first"
        await socket.frame()
        await runner.end(code=1)
        await app.harness.place()
        await (await app.harness.runner(job)).log(0, 0, b"second")
        while (frame := await socket.frame())["stream"] == "job":
            pass
        assert frame == {"stream": "log", "attempt": 2, "cursor": 6, "text": "second"}


async def test_a_reader_sees_the_newest_attempt_unless_it_names_one(app: App) -> None:
    job = await app.ended(b"first ", b"second")
    assert text((await whole(app, job))[0]) == "second"
    assert text((await whole(app, job, "?attempt=1"))[0]) == "first second"


async def test_a_reader_from_before_the_first_attempt_misses_none(app: App) -> None:
    _, before = await app.harness.running(cpus=4)
    job = await app.harness.submit(cpus=4, retries={"user": 1, "wait_seconds": 0})
    async with follower(app, job) as socket:
        await socket.accepted()
        assert (await socket.frame())["job"]["phase"] == "queued"
        await before.end()
        await app.harness.place()
        runner = await app.harness.runner(job)
        await runner.say(MessageKind.STARTED, pid=1)
        runner = await app.next_attempt(job, runner, b"first ")
        await runner.log(0, 0, b"second")
        await runner.end(code=1)
        frames, _ = await socket.frames_until_close()
    assert text(frames) == "first second"


async def test_an_ended_job_whose_log_stays_open_is_let_go(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    job = await app.ended(b"cut", code=1)
    whole_page = app.control.outputs.logs

    async def open_ended(who: Identity, ref: str, **more: Any) -> LogPage:
        return (await whole_page(who, ref, **more)).model_copy(update={"complete": False})

    monkeypatch.setattr(app.control.outputs, "logs", open_ended)
    frames, code = await whole(app, job)
    assert (code, text(frames), frames[-1]["stream"]) == (1000, "cut", "job")


async def test_a_program_that_never_pauses_does_not_keep_its_events_back(app: App) -> None:
    job, runner = await writing(app)
    async with follower(app, job, f"?after={len(await app.harness.rows(t.events))}", room=1) as socket:
        await socket.accepted()
        await socket.frame()
        await runner.log(0, 0, b"x" * (follow.LOG_PAGE * follow.LOG_PAGES * 3))
        await socket.frame()
        await note(app, job)
        before = 0
        while (await socket.frame())["stream"] == "log":
            before += 1
    assert before <= 2 * follow.LOG_PAGES


async def test_a_slow_reader_is_closed_and_can_resume(app: App) -> None:
    app.api.state.timing = follow.StreamTiming(send=0.02)
    job = await app.ended(b"x" * (follow.LOG_PAGE * 4))
    async with follower(app, job, room=2) as socket:
        await socket.accepted()
        await given_up(app, job)
        frames, code = await socket.frames_until_close()
    assert code == 1013
    assert [frame["cursor"] for frame in frames] == [follow.LOG_PAGE, follow.LOG_PAGE * 2]
    app.api.state.timing = TIMING
    frames, code = await whole(app, job, f"{NO_EVENTS}&offset={frames[-1]['cursor']}")
    assert code == 1000
    assert len(text(frames)) == follow.LOG_PAGE * 2


async def test_a_stuck_reader_is_left(app: App) -> None:
    app.api.state.timing = follow.StreamTiming(send=0.02, close=0.02)
    job = await app.ended(b"x" * (follow.LOG_PAGE * 4))
    async with follower(app, job, room=2) as socket:
        await socket.accepted()
        await asyncio.wait_for(socket.ended(), 5)


async def given_up(app: App, job: str) -> None:
    """Return once the job, which was watched, is watched no more."""
    async with asyncio.timeout(5):
        while not watchers(app, job):
            await asyncio.sleep(0.001)
        while watchers(app, job):
            await asyncio.sleep(0.001)


async def test_a_reader_that_leaves_ends_the_work(app: App) -> None:
    job, _ = await writing(app, b"x")
    async with follower(app, job) as socket:
        await socket.accepted()
        await socket.frame()
        assert watchers(app, job) == 1
    assert watchers(app, job) == 0


async def test_what_a_reader_says_is_dropped(app: App) -> None:
    job, runner = await writing(app, b"x")
    async with follower(app, job) as socket:
        await socket.accepted()
        socket.say("anything")
        await socket.frame()
        await socket.frame()
        await runner.log(1, 1, b"y")
        assert (await socket.frame())["text"] == "y"


async def failing(app: App, error: Exception) -> tuple[int, str]:
    """How the socket of a follower closes when what it reads next raises this."""
    job, runner = await writing(app, b"x")

    async def fail(*_: object, **__: object) -> None:
        raise error

    async with follower(app, job) as socket:
        await socket.accepted()
        await socket.frame()
        await socket.frame()
        app.control.outputs.logs = fail  # type: ignore[assignment,method-assign]
        await runner.log(1, 1, b"y")
        message = await socket.message()
    assert message["type"] == "websocket.close"
    return message["code"], message["reason"]


async def test_trouble_on_the_way_closes_with_the_reason(app: App) -> None:
    assert await failing(app, Unreachable("The store is away.")) == (1011, "The store is away.")


async def test_an_unexpected_error_ends_the_socket_and_is_logged(app: App) -> None:
    with capture_logs() as lines:
        code, _ = await failing(app, ZeroDivisionError())
    assert code == 1011
    assert [line["event"] for line in lines if line["log_level"] == "error"] == ["unexpected error"]


async def test_all_jobs_in_one_order(app: App) -> None:
    first, second = await app.harness.submit(), await app.harness.submit()
    count = len(await app.harness.rows(t.events))
    async with SocketClient(app.api, "/api/v1/stream?after=1", HEADERS) as socket:
        await socket.accepted()
        seen = [await socket.frame() for _ in range(count - 1)]
        assert [frame["cursor"] for frame in seen] == list(range(2, count + 1))
        assert {frame["event"]["job"] for frame in seen} == {first, second}
        await note(app, first)
        frame = await socket.frame()
    assert (frame["stream"], frame["cursor"]) == ("event", count + 1)
    assert set(frame["event"]) == {"n", "type", "at", "data", "cursor", "job"}
    assert (frame["event"]["job"], frame["event"]["type"], frame["event"]["data"]) == (first, "note", {"text": "x"})


async def test_a_lost_hint_is_made_up_for(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    app.api.state.timing = follow.StreamTiming(look=0.01)
    job, runner = await writing(app)
    async with follower(app, job) as socket:
        await socket.accepted()
        await socket.frame()
        monkeypatch.setattr(app.harness.feed, "publish", lambda job, hints: None)
        await runner.log(0, 0, b"unannounced")
        assert (await socket.frame())["text"] == "unannounced"


Asked = list[tuple[tuple[str, ...], int]]
"""Of which series points were read, and how many of each."""


def counted(app: App) -> Asked:
    """What followers read of metrics from now on."""
    asked: Asked = []
    read = app.control.outputs.metrics

    async def metrics(who: Identity, ref: str, *, series: list[str], points: int) -> MetricsView:
        asked.append((tuple(series), points))
        return await read(who, ref, series=series, points=points)

    app.control.outputs.metrics = metrics  # type: ignore[method-assign]
    return asked


async def test_points_are_read_at_a_bounded_pace(app: App) -> None:
    app.api.state.timing = follow.StreamTiming(points=60.0)
    asked = counted(app)
    job, runner = await writing(app)
    async with follower(app, job) as socket:
        await socket.accepted()
        await socket.frame()
        for n in range(20):
            await runner.say(MessageKind.POINTS, series={"loss": [[n, 1.0, 1.0]]})
            await runner.log(n, n, b"x")
            assert (await socket.frame())["cursor"] == n + 1
    assert len(asked) == 1


async def report(runner: FakeRunner, points: Sequence[Point], name: str = "loss") -> None:
    await runner.send(
        [runner.message(MessageKind.POINTS, series={name: points[i : i + 900]}) for i in range(0, len(points), 900)]
    )


async def points_of(socket: SocketClient, runner: FakeRunner, *points: Point) -> Any:
    """What a reader is sent of `loss` when these points come."""
    await report(runner, points)
    return (await socket.frame())["series"]["loss"]


@asynccontextmanager
async def drawn(app: App, job: str) -> AsyncIterator[SocketClient]:
    """A reader that has seen all there is of a job with points."""
    app.api.state.timing = follow.StreamTiming(points=0.0)
    async with follower(app, job) as socket:
        await socket.accepted()
        assert [(await socket.frame())["stream"] for _ in range(2)] == ["points", "job"]
        yield socket


def line(count: int) -> list[Point]:
    return [[float(i), float(i), 1000.0 + i] for i in range(count)]


async def reporting(app: App, count: int, **more: Any) -> tuple[str, FakeRunner]:
    """A job that has reported that many points."""
    job, runner = await app.harness.running(**more)
    found = [points.Point(*one) for one in line(count)]
    await app.harness.sql(lambda conn: points.append_points(conn, runner.attempt, 0, "loss", found))
    return job, runner


async def test_points_of_a_clock_that_steps_back_are_sent_once_each(app: App) -> None:
    job, runner = await reporting(app, 3)
    async with drawn(app, job) as socket:
        for n, at in enumerate((5.0, 2000.0, 5.0, 4.0)):
            sent = await points_of(socket, runner, [1.0, 0.5, at])
            assert (sent["from"], sent["points"], sent["count"]) == (3 + n, [[1.0, 0.5, at]], 4 + n)


async def test_a_long_series_is_drawn_and_then_goes_on_point_by_point(app: App) -> None:
    job, runner = await reporting(app, 100_000)
    asked = counted(app)
    async with drawn(app, job) as socket:
        for n in range(3):
            sent = await points_of(socket, runner, [float(n), 0.5, 0.0])
            assert (sent["from"], sent["points"]) == (100_000 + n, [[float(n), 0.5, 0.0]])
    assert asked[0] == ((), follow.POINTS)
    assert asked[-1] == ((), -follow.FEW), "no more is read than about what comes"


async def test_many_points_at_once_are_all_sent(app: App) -> None:
    job, runner = await reporting(app, 100_000)
    async with drawn(app, job) as socket:
        for _ in range(2):
            await points_of(socket, runner, [0.0, 0.5, 0.0])
        sent = await points_of(socket, runner, *line(follow.MANY))
    assert (sent["from"], sent["points"]) == (100_002, line(follow.MANY))


async def test_a_series_that_outruns_its_reader_is_drawn_anew(app: App) -> None:
    job, runner = await reporting(app, 100_000)
    await report(runner, line(2), "acc")
    asked = counted(app)
    async with drawn(app, job) as socket:
        sent = await points_of(socket, runner, *line(follow.MANY + 1))
        assert (sent["from"], sent["count"]) == (0, 100_001 + follow.MANY)
        assert len(sent["points"]) <= follow.POINTS
        assert asked[-1] == (("loss",), follow.POINTS)
        sent = await points_of(socket, runner, [0.0, 0.5, 0.0])
        assert (sent["from"], sent["points"]) == (100_001 + follow.MANY, [[0.0, 0.5, 0.0]])


async def test_the_points_of_the_next_attempt_begin_anew(app: App) -> None:
    job, runner = await reporting(app, 3, retries={"user": 1, "wait_seconds": 0})
    async with drawn(app, job) as socket:
        following = await app.next_attempt(job, runner, b"")
        await report(following, line(3))
        while (frame := await socket.frame())["stream"] != "points":
            pass
    assert (frame["series"]["loss"]["from"], frame["series"]["loss"]["points"]) == (0, line(3))


async def test_a_follower_never_asks_for_output_and_metrics_with_the_job(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, runner = await reporting(app, 3)
    whole_jobs: list[object] = []
    monkeypatch.setattr(app.control.jobs, "details", whole_jobs.append)
    async with drawn(app, job) as socket:
        await runner.say(MessageKind.PROGRESS, fraction=0.5)
        assert (await socket.frame())["stream"] == "progress"
    assert whole_jobs == []
