from __future__ import annotations

import math
from random import Random

import pytest
from tests.control.harness import ControlHarness, FakeRunner, service
from tests.core.health.curves import noisy

from crucible.control.jobs import queries
from crucible.control.telemetry import health, points
from crucible.core.errors import BadInput, NotFound
from crucible.core.health import HealthInputs, Stage, Verdict, judge_health
from crucible.core.people.identity import OWNER
from crucible.core.requests import Resumption
from crucible.core.views.comparisons import LineView
from crucible.core.views.jobs import HealthView
from crucible.wire.documents.messages import MessageKind


async def judged(harness: ControlHarness, job: str) -> HealthView:
    return await harness.read(lambda conn: queries.read_health(conn, job, harness.clock.now()))


async def report(runner: FakeRunner, values: list[float | None], first: int = 0, name: str = "loss") -> None:
    told = [[first + n, value, 100.0 + 5 * (first + n)] for n, value in enumerate(values)]
    for start in range(0, len(told), 500):
        await runner.say(MessageKind.POINTS, series={name: told[start : start + 500]})


async def test_a_job_that_waits_is_waiting(harness: ControlHarness) -> None:
    found = await judged(harness, await harness.submit())
    assert (found.verdict, found.level) == ("waiting", "good")


async def test_a_running_job_is_judged_by_what_it_reported(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    assert (await judged(harness, job)).verdict == "too_early"
    await report(runner, [4 * 0.98**n for n in range(60)])
    assert (await judged(harness, job)).verdict == "healthy"
    await report(runner, [None, None], first=60)
    found = await judged(harness, job)
    assert (found.verdict, found.level) == ("not_finite", "bad")
    [finding] = found.findings
    assert (finding.series, finding.step) == ("loss", 60)
    assert "learning rate" in found.advice


async def test_of_a_long_series_the_last_points_are_seen_one_by_one(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    await report(runner, [1 + 9 / (1 + n) for n in range(6000)])
    await report(runner, [None] * 3, first=6000)
    found = await judged(harness, job)
    assert (found.verdict, found.findings[0].step) == ("not_finite", 6000)


async def test_a_bounded_number_of_points_is_read(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    await report(runner, [math.exp(-n / 5000) for n in range(20_000)])
    world = await harness.world(job)
    signs = await harness.read(lambda conn: health.gather_signs(conn, world, None, harness.clock.now()))
    assert len(signs.series["loss"][0]) <= 2 * health.POINTS
    assert len(signs.tails["loss"]) == health.TAIL


async def again(harness: ControlHarness, job: str) -> FakeRunner:
    """The failed job goes on, and its program runs."""
    await service(harness).jobs.resume(OWNER, job, Resumption())
    await harness.place()
    runner = await harness.runner(job)
    await runner.say(MessageKind.STARTED, pid=78)
    return runner


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("rise", "found"), [(0.0, Verdict.HEALTHY), (6.0, Verdict.DIVERGING)])
def test_a_long_noisy_curve_is_judged_right_by_what_draws_it(seed: int, rise: float, found: Verdict) -> None:
    """Its lowest and highest points are two crowds, which no level may jump between."""
    random = Random(seed)
    values = noisy(lambda x: 2 + 5 * math.exp(-4 * x) + rise * max(0.0, x - 0.6), 20_000, 0.7, random)
    packed = points.pack(points.Point(n, value, 5.0 * n) for n, value in enumerate(values))
    drawn = tuple(points.thin(packed, health.POINTS))
    series = {"loss": (health.course(points.Series(len(values), values[-1], None, None, drawn)),)}
    assert judge_health(HealthInputs(Stage.RUNNING, series)).verdict is found


@pytest.mark.parametrize(("saved", "verdict"), [(True, "healthy"), (False, "too_early")])
async def test_what_it_went_on_from_belongs_to_its_curve(harness: ControlHarness, saved: bool, verdict: str) -> None:
    job, runner = await harness.running()
    await report(runner, [4 * 0.98**n for n in range(60)])
    if saved:
        await runner.say(
            MessageKind.CHECKPOINT, name="a.pt", form="file", size=1, sha256="a" * 64, step=50, metric=None
        )
    await runner.end(code=3)
    second = await again(harness, job)
    await report(second, [1.4, 1.3], first=50)
    assert (await judged(harness, job)).verdict == verdict


async def test_one_that_goes_on_and_has_not_reported_yet_is_not_stalled(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    await report(runner, [4 * 0.98**n for n in range(60)])
    await runner.say(MessageKind.CHECKPOINT, name="a.pt", form="file", size=1, sha256="a" * 64, step=50, metric=None)
    await runner.end(code=3)
    second = await again(harness, job)
    cpu = [[n, 3.0, 9000.0 + 5 * n] for n in range(60)]
    await second.say(MessageKind.POINTS, series={"system.cpu_percent": cpu})
    assert (await judged(harness, job)).verdict == "healthy"


async def test_a_job_that_failed_says_why_and_what_to_do(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    await runner.end(code=3)
    found = await judged(harness, job)
    assert (found.verdict, found.level) == ("failed", "bad")
    assert found.advice


async def test_a_job_that_was_silent_for_long_is_stalled(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    await runner.log(0, 0, b"begun\n")
    await report(runner, [4 * 0.98**n for n in range(60)])
    cpu = [[n, 3.0, 100.0 + 5 * n] for n in range(200)]
    await runner.say(MessageKind.POINTS, series={"system.cpu_percent": cpu})
    assert (await judged(harness, job)).verdict == "healthy", "it printed something just now"
    harness.clock.move(900)
    assert (await judged(harness, job)).verdict == "stalled"


async def test_memory_is_held_against_what_the_job_got(harness: ControlHarness) -> None:
    job, runner = await harness.running(memory=1024**3)
    await report(runner, [0.97 * 1024**3] * 30, name="system.memory_bytes")
    assert (await judged(harness, job)).verdict == "near_memory_limit"


async def test_the_whole_job_tells_its_health_too(harness: ControlHarness) -> None:
    job, _runner = await harness.running()
    control = service(harness)
    shown = await control.jobs.details(OWNER, job)
    assert shown.health == await control.jobs.health(OWNER, job)
    assert "health" not in (await control.jobs.view(OWNER, job)).as_json(), "a list and every change would pay for it"


async def test_a_job_that_is_not_there(harness: ControlHarness) -> None:
    with pytest.raises(NotFound):
        await judged(harness, "job-00000000000000000000000009")
    with pytest.raises(NotFound):
        await service(harness).jobs.health(OWNER, "zzzzzz")


# Comparing


async def two(harness: ControlHarness) -> tuple[str, str]:
    first, runner = await harness.running(command=("{python}", "train.py", "--lr", "0.1"), env={"TOKEN": "s3cret"})
    await report(runner, [2.0, 0.5, 0.75])
    await runner.end(code=0)
    second, runner = await harness.running(command=("{python}", "train.py", "--lr", "0.01"))
    await report(runner, [2.0, 0.25])
    await report(runner, [0.5, 0.9], name="val_acc")
    return first, second


async def test_jobs_are_compared_by_settings_and_measures(harness: ControlHarness) -> None:
    first, second = await two(harness)
    found = await service(harness).jobs.compare(OWNER, [first, second])
    assert [job.id for job in found.jobs] == [first, second]
    assert [job.verdict for job in found.jobs] == ["finished_well", "too_early"]
    config = {line.name: line for line in found.config}
    assert config["--lr"] == LineView(name="--lr", values=("0.1", "0.01"), differs=True, winner=None)
    assert not config["command"].differs
    best = {line.name: line for line in found.metrics.best}
    assert (best["loss"].values, best["loss"].winner) == ((0.5, 0.25), 1)
    assert (best["val_acc"].values, best["val_acc"].winner) == ((None, 0.9), None)
    assert "s3cret" not in str(found)


@pytest.mark.parametrize("count", [0, 1, 21])
async def test_another_number_of_jobs_is_refused(harness: ControlHarness, count: int) -> None:
    job = await harness.submit()
    with pytest.raises(BadInput):
        await service(harness).jobs.compare(OWNER, [job] * count)


async def test_the_same_job_twice_is_one(harness: ControlHarness) -> None:
    job = await harness.submit()
    with pytest.raises(BadInput) as raised:
        await service(harness).jobs.compare(OWNER, [job, "last"])
    assert "1 job cannot be compared" in raised.value.what
