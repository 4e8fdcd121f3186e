from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.control.harness import ControlHarness, FakeRunner, service

from crucible.control.agents import ingest
from crucible.control.agents.ingest import Gap, parse_progress
from crucible.control.agents.slots import AttemptGone
from crucible.control.db import schema as t
from crucible.control.telemetry import points
from crucible.control.telemetry.feed import Hint
from crucible.control.upkeep import restore_hold
from crucible.core.lifecycle import AttemptState, JobState, Reason
from crucible.core.people.identity import OWNER
from crucible.wire.documents.messages import Cause, MessageKind

BLOCK = points.BLOCK
RECORDS = (
    t.jobs,
    t.attempts,
    t.slots,
    t.events,
    t.log_segments,
    t.artifacts,
    t.checkpoints,
    t.results,
    t.metric_blocks,
)


async def notes(harness: ControlHarness) -> list[str]:
    return [json.loads(e["data"])["text"] for e in await harness.rows(t.events) if e["type"] == "note"]


async def events(harness: ControlHarness, job: str) -> list[str]:
    return [e["type"] for e in await harness.rows(t.events) if e["job"] == job]


async def series(harness: ControlHarness, attempt: str, name: str) -> points.Series:
    found = await harness.read(lambda conn: points.read_series(conn, attempt, [name], 100_000))
    return found[name]


async def test_a_life_from_staging_to_its_end(harness: ControlHarness) -> None:
    job = await harness.submit()
    await harness.host_up()
    runner = await harness.runner(job)
    phases = []
    for kind, data in (
        (MessageKind.STAGING, {"what": "building the environment"}),
        (MessageKind.STARTED, {"pid": 42, "python": "/usr/bin/python3"}),
        (MessageKind.EXITED, {"code": 0, "cause": "exit", "peak_memory": 5}),
        (MessageKind.ENDED, {"complete": True}),
    ):
        harness.clock.move(1)
        await runner.say(kind, **data)
        phases.append((await harness.world(job)).job.state.value)
    assert phases == ["starting", "running", "running", "completed"]
    (attempt,) = (await harness.world(job)).attempts
    assert (attempt.pid, attempt.exit_code, attempt.reason) == (42, 0, Reason.COMPLETED)
    assert attempt.started_at is not None
    assert attempt.exited_at == attempt.started_at + 1
    assert attempt.ended_at == attempt.started_at + 2
    assert await events(harness, job) == [
        "submitted",
        "queued",
        "placed",
        "staging",
        "started",
        "exited",
        "attempt_ended",
        "completed",
    ]


async def test_what_a_runner_says_of_itself_is_kept(harness: ControlHarness) -> None:
    _, runner = await harness.running()
    await runner.end(peak_memory=5)
    (row,) = await harness.rows(t.attempts)
    assert json.loads(row["facts"]) == {
        "started": {"pid": 77},
        "exited": {"code": 0, "cause": "exit", "peak_memory": 5},
    }


@pytest.mark.parametrize(
    ("cause", "code", "reason", "state"),
    [
        (Cause.EXIT, 3, Reason.EXIT_CODE, JobState.FAILED),
        (Cause.SIGNAL, None, Reason.KILLED, JobState.FAILED),
        (Cause.OUT_OF_MEMORY, None, Reason.OUT_OF_MEMORY, JobState.FAILED),
        (Cause.TIME_LIMIT, None, Reason.TIME_LIMIT, JobState.FAILED),
        (Cause.STAGING_FAILED, None, Reason.STAGING_FAILED, JobState.FAILED),
        (Cause.RUNNER_LOST, None, Reason.RUNNER_LOST, JobState.QUEUED),
        (Cause.FENCED, None, Reason.FENCED, JobState.QUEUED),
        (Cause.STOPPED, None, Reason.RUNNER_LOST, JobState.QUEUED),
    ],
)
async def test_each_cause_has_its_outcome(
    harness: ControlHarness, cause: Cause, code: int | None, reason: Reason, state: JobState
) -> None:
    job, runner = await harness.running()
    await runner.say(MessageKind.EXITED, code=code, signal=9, cause=cause.value, text="why")
    await runner.say(MessageKind.ENDED)
    world = await harness.world(job)
    assert (world.attempts[0].reason, world.job.state) == (reason, state)
    assert (world.attempts[0].detail, world.attempts[0].signal) == ("why", 9)


@pytest.mark.parametrize("cause", list(Cause))
def test_every_cause_is_understood(cause: Cause) -> None:
    assert ingest.parse_reason({"cause": cause.value}) in Reason


async def test_a_stop_that_was_asked_for_is_a_cancellation(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    await service(harness).jobs.cancel(OWNER, job)
    await runner.say(MessageKind.EXITED, signal=15, cause="stopped")
    assert (await harness.world(job)).job.state is JobState.STOPPING, "outputs are still coming"
    await runner.say(MessageKind.ENDED)
    assert (await harness.world(job)).job.state is JobState.CANCELLED


async def test_exit_to_settled_and_the_next_job_placed_is_one_commit(harness: ControlHarness) -> None:
    first = await harness.submit(cpus=4)
    following = await harness.submit(cpus=4)
    await harness.host_up()
    runner = await harness.runner(first)
    with harness.feed.watch(None) as watch:
        await runner.end()
        assert await watch.changed(0)
    assert (await harness.world(first)).job.state is JobState.COMPLETED
    world = await harness.world(following)
    assert world.live is not None
    assert world.live.state is AttemptState.PLACED
    assert world.live.placed_at == (await harness.world(first)).job.ended_at


async def test_the_same_batch_twice_is_stored_once(harness: ControlHarness) -> None:
    _, runner = await harness.running()
    batch = [
        runner.message(MessageKind.NOTE, text="once"),
        runner.message(MessageKind.POINTS, series={"loss": [[1, 2, 3]]}),
    ]
    assert await runner.send(batch) == await runner.send(batch) == 3
    assert await notes(harness) == ["once"]
    assert (await series(harness, runner.attempt, "loss")).count == 1


async def test_of_an_overlapping_batch_only_the_new_part_counts(harness: ControlHarness) -> None:
    _, runner = await harness.running()
    first, second = (runner.message(MessageKind.NOTE, text=text) for text in ("a", "b"))
    await runner.send([first])
    assert await runner.send([first, second]) == 3
    assert await notes(harness) == ["a", "b"]


async def test_an_empty_batch_says_how_far_we_are(harness: ControlHarness) -> None:
    _, runner = await harness.running()
    assert await runner.send([]) == 1


async def test_a_gap_is_refused_with_the_number_to_go_on_from(harness: ControlHarness) -> None:
    _, runner = await harness.running()
    runner.message(MessageKind.NOTE, text="never sent")
    with pytest.raises(Gap) as raised:
        await runner.send([runner.message(MessageKind.NOTE, text="too early")])
    assert raised.value.acked == 1
    assert await notes(harness) == []


@pytest.mark.parametrize("order", [(0, 2), (0, 0, 1), (1, 0), (0, 2, 1)])
async def test_a_batch_out_of_order_is_refused_whole(harness: ControlHarness, order: tuple[int, ...]) -> None:
    _, runner = await harness.running()
    written = [runner.message(MessageKind.NOTE, text=str(i)) for i in range(3)]
    with pytest.raises(Gap):
        await runner.send([written[i] for i in order])
    assert await notes(harness) == []
    assert await runner.send(written) == 4


async def test_an_unknown_attempt_or_rank_is_gone(harness: ControlHarness) -> None:
    _, runner = await harness.running()
    for stranger in (FakeRunner(harness.agents, "att-unknown"), FakeRunner(harness.agents, runner.attempt, rank=1)):
        with pytest.raises(AttemptGone):
            await stranger.say(MessageKind.NOTE, text="hello")


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (MessageKind.EXITED, {"cause": "boredom"}),
        (MessageKind.EXITED, {"cause": "exit", "code": 1e300}),
        (MessageKind.STARTED, {"pid": 2**80}),
        (MessageKind.LOG, {"n": 0}),
        (MessageKind.LOG, {"n": -1, "start": 0, "end": 1}),
        (MessageKind.LOG, {"n": 0, "start": 5, "end": 1}),
        (MessageKind.LOG, {"n": "zero", "start": 0, "end": 1}),
        (MessageKind.LOG, {"n": 10**400, "start": 0, "end": 1}),
        (MessageKind.ARTIFACT, {"path": "../etc/passwd", "size": 1, "sha256": "x"}),
        (MessageKind.ARTIFACT, {"path": "model.pt", "size": None, "sha256": "x"}),
        (MessageKind.ARTIFACT, {"size": 1, "sha256": "x"}),
        (MessageKind.ARTIFACT, {"path": "model.pt", "size": 1, "sha256": "a" * 63 + "\x00"}),
        (MessageKind.ARTIFACT, {"path": "model.pt", "size": 1, "sha256": "a" * 5000}),
        (MessageKind.LOG, {"n": 2**31, "start": 0, "end": 1}),
    ],
)
async def test_a_message_that_cannot_be_read_is_noted_and_acknowledged(
    harness: ControlHarness, kind: MessageKind, data: dict[str, Any]
) -> None:
    job, runner = await harness.running()
    assert await runner.say(kind, **data) == 2
    (note,) = await notes(harness)
    assert note.startswith(f"a {kind.value} message could not be read")
    assert await harness.rows(t.log_segments) == await harness.rows(t.artifacts) == []
    await runner.end()
    assert (await harness.world(job)).job.state is JobState.COMPLETED


async def test_text_that_is_no_text_does_not_stop_the_runner(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    half = "half a pair: \ud83d"
    for kind, data in (
        (MessageKind.NOTE, {"text": half}),
        (MessageKind.POINTS, {"series": {half: [[1, 2, 3]]}}),
        (MessageKind.PROGRESS, {"message": half}),
        (MessageKind.EXITED, {"code": 1, "text": half}),
        (MessageKind.ENDED, {"text": half}),
    ):
        await runner.say(kind, **data)
    assert (await harness.world(job)).attempts[0].detail == "half a pair: ?"


@pytest.mark.parametrize("kind", list(MessageKind))
async def test_news_of_an_ended_attempt_is_refused_and_changes_nothing(
    harness: ControlHarness, kind: MessageKind
) -> None:
    job, runner = await harness.running(retries={"user": 1, "wait_seconds": 0})
    await runner.end(code=1)
    await harness.place()
    assert (await harness.world(job)).live is not None, "the next attempt is on its way"
    before = [await harness.rows(table) for table in RECORDS]
    data: dict[str, object] = {"path": "model.pt", "size": 3, "sha256": "a" * 64, "text": "late", "code": 0}
    data |= {"n": 0, "start": 0, "end": 3, "series": {"loss": [[1, 0.5, 12.0]]}, "name": "last", "form": "file"}
    with pytest.raises(AttemptGone, match="has ended"):
        await runner.say(kind, **data)
    assert [await harness.rows(table) for table in RECORDS] == before


async def test_what_an_ended_attempt_has_said_before_is_acknowledged_again(harness: ControlHarness) -> None:
    _, runner = await harness.running()
    last = [runner.message(MessageKind.EXITED, code=0, cause="exit"), runner.message(MessageKind.ENDED)]
    acked = await runner.send(last)
    assert await runner.send(last) == acked
    assert await runner.send(last[:1]) == acked


async def test_any_message_is_a_sign_of_life(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    await harness.listen(100)
    assert (await harness.world(job)).job.conditions == {"unreachable"}
    await runner.say(MessageKind.PROGRESS, fraction=0.5)
    world = await harness.world(job)
    assert world.job.conditions == frozenset()
    assert world.attempts[0].last_seen == harness.clock.now()


async def test_progress_is_the_newest(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    with harness.feed.watch(job) as watch:
        await runner.say(MessageKind.PROGRESS, fraction=0.1)
        await runner.say(MessageKind.PROGRESS, fraction=0.5, epoch=2)
        assert Hint.PROGRESS in await watch.changed(0)
    (row,) = await harness.rows(t.attempts)
    told = {name: value for name, value in json.loads(row["progress"]).items() if value is not None}
    assert told == {"fraction": 0.5, "epoch": 2}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1e300, 10**400, "0.5", True, [1], {"a": 1}, None])
def test_progress_that_is_no_plain_number_is_left_out(value: object) -> None:
    told = parse_progress({"fraction": value, "epoch": 3, "unknown": 7})
    assert (told["fraction"], told["epoch"]) == (None, 3)
    assert "unknown" not in told
    json.dumps(told, allow_nan=False)


def test_the_words_of_progress_are_short() -> None:
    assert parse_progress({"message": "x" * 5000})["message"] == "x" * 200
    assert parse_progress({"message": 5})["message"] is None


async def test_a_batch_sent_twice_at_once_is_stored_once(harness: ControlHarness) -> None:
    _, runner = await harness.running()
    batch = [runner.message(MessageKind.NOTE, text="once")]
    assert set(await asyncio.gather(runner.send(batch), runner.send(batch))) == {runner.n}
    assert await notes(harness) == ["once"]


async def test_points_run_on_over_the_borders_of_blocks(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    sent = [[i, i / 2, 1000 + i] for i in range(BLOCK * 2 + 10)]
    with harness.feed.watch(job) as watch:
        for start, end in ((0, 1000), (1000, 1030), (1030, len(sent))):
            await runner.say(MessageKind.POINTS, series={"loss": sent[start:end]})
        assert Hint.POINTS in await watch.changed(0)
    rows = await harness.rows(t.metric_blocks)
    assert [(r["n"], r["points"]) for r in rows] == [(0, BLOCK), (1, BLOCK), (2, 10)]
    found = await series(harness, runner.attempt, "loss")
    assert [list(p) for p in found.points] == [list(map(float, p)) for p in sent]


async def test_points_that_are_none_are_left_out_and_the_rest_kept(harness: ControlHarness) -> None:
    _, runner = await harness.running()
    raw = [
        [1, 2, 3],
        "text",
        [1, 2],
        [2, "x", 3],
        None,
        [3, None, 3],
        [4, "inf", 3],
        [5, 10**400, 3],
        [6, 7, 3],
    ]
    await runner.say(MessageKind.POINTS, series={"loss": raw, "bad": 7, "empty": []})
    found = await series(harness, runner.attempt, "loss")
    assert [p[:2] for p in found.points] == [(1, 2), (3, None), (4, None), (6, 7)]
    assert {r["series"] for r in await harness.rows(t.metric_blocks)} == {"loss"}
    await runner.say(MessageKind.POINTS, series="none at all")


async def test_a_program_that_invents_series_without_end_is_not_followed(
    harness: ControlHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "MAX_SERIES", 5)
    _, runner = await harness.running()
    for batch in range(4):
        await runner.say(MessageKind.POINTS, series={f"s{batch}-{i}": [[0, 1, 2]] for i in range(2)})
    await runner.say(MessageKind.POINTS, series={"s0-0": [[1, 1, 2]]})
    assert len({r["series"] for r in await harness.rows(t.metric_blocks)}) == 5
    assert (await series(harness, runner.attempt, "s0-0")).count == 2


async def test_a_segment_counts_once(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    with harness.feed.watch(job) as watch:
        for _ in range(2):
            await runner.say(MessageKind.LOG, n=0, start=0, end=5, lines=1, sha256="a" * 64)
        assert Hint.LOG in await watch.changed(0)
    (row,) = await harness.rows(t.log_segments)
    assert (row["start"], row["end"], row["lines"], row["sha256"]) == (0, 5, 1, "a" * 64)


async def test_another_content_of_an_artifact_is_noted_and_the_first_stays(harness: ControlHarness) -> None:
    _, runner = await harness.running()
    await runner.say(MessageKind.ARTIFACT, path="out/model.pt", size=3, sha256="a" * 64)
    await runner.say(MessageKind.ARTIFACT, path="out/model.pt", size=3, sha256="a" * 64)
    assert await notes(harness) == []
    await runner.say(MessageKind.ARTIFACT, path="out/model.pt", size=4, sha256="b" * 64)
    (row,) = await harness.rows(t.artifacts)
    assert (row["path"], row["size"], row["sha256"]) == ("out/model.pt", 3, "a" * 64)
    (note,) = await notes(harness)
    assert "'out/model.pt' is stored already" in note


async def test_a_segment_far_after_the_last_one_is_noted_and_not_recorded(harness: ControlHarness) -> None:
    _, runner = await harness.running()
    for n in (2**31 - 1, ingest.MOST_AHEAD + 1):
        await runner.say(MessageKind.LOG, n=n, start=0, end=3, lines=1, sha256="a" * 64)
    assert await harness.rows(t.log_segments) == []
    assert all("too far after segment 0" in note for note in await notes(harness))
    await runner.say(MessageKind.LOG, n=ingest.MOST_AHEAD, start=0, end=3, lines=1, sha256="a" * 64)
    assert await harness.count(t.log_segments) == 1


async def test_after_a_restore_output_goes_on_wherever_its_runner_is(harness: ControlHarness) -> None:
    _, runner = await harness.running()
    await harness.sql(lambda conn: restore_hold.mark_restored(conn, harness.clock.now(), harness.clock.now()))
    await runner.say(MessageKind.LOG, n=1_000_000, start=0, end=3, lines=1, sha256="a" * 64)
    assert await harness.count(t.log_segments) == 1


async def test_an_end_without_an_exit_is_a_lost_runner(harness: ControlHarness) -> None:
    job, runner = await harness.running(retries={"infrastructure": 0})
    await runner.say(MessageKind.ENDED, complete=False, text="killed")
    world = await harness.world(job)
    assert (world.job.state, world.job.reason) == (JobState.FAILED, Reason.RUNNER_LOST)
