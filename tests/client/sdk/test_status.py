from __future__ import annotations

from typing import Any

from crucible.client.sdk.status import StatusReducer, status_of
from crucible.core.job.states import JobState, Status
from crucible.core.views.frames import HealthFrame, JobFrame, LogFrame, PointsFrame, ProgressFrame
from crucible.core.views.jobs import CheckpointMark, CostView, HealthView, JobView, ProgressView, ReasonView

COMPLETED = JobView(id="job-1", status="completed", phase="completed", exit_code=0)
FAILED = JobView(
    id="job-1",
    status="failed",
    phase="failed",
    exit_code=3,
    reason=ReasonView(code="user_error", message="The code failed.", advice="Look at the last output."),
)


def view(**changes: Any) -> JobView:
    """Return a running job."""
    return JobView(**{"id": "job-1", "status": "running", "phase": "running", "backend": "local", **changes})


def job_frame(**changes: Any) -> JobFrame:
    return JobFrame(job=view(**changes))


def progress_frame(fraction: float) -> ProgressFrame:
    return ProgressFrame(progress=ProgressView(fraction=fraction, message="epoch"))


def test_a_status_is_in_percent_and_dollars() -> None:
    cost = CostView(micros=1_500_000, estimated_remaining_micros=250_000)
    status = status_of(view(progress=ProgressView(fraction=0.125, epoch=1, total_epochs=8), cost=cost))
    assert (status.progress, status.cost, status.estimated_remaining) == (12.5, 1.5, 0.25)
    assert (status.state, status.phase, status.backend) == (Status.RUNNING, JobState.RUNNING, "local")
    assert (status.epoch, status.total_epochs) == (1, 8)
    assert not status.ended


def test_progress_is_zero_until_it_is_told_and_whole_at_the_end() -> None:
    assert status_of(view()).progress == 0.0
    assert status_of(view(progress=ProgressView(fraction=7.0))).progress == 100.0
    assert status_of(COMPLETED).progress == 100.0
    assert status_of(FAILED).progress == 0.0


def test_the_message_says_what_it_waits_for_or_how_it_ended() -> None:
    waits = status_of(view(status="queued", phase="queued", waiting="waits for its turn"))
    assert waits.message == "waits for its turn"
    assert status_of(view(conditions=("unreachable",))).message == "unreachable"
    ended = status_of(FAILED)
    assert (ended.message, ended.advice, ended.exit_code) == ("The code failed.", "Look at the last output.", 3)
    assert ended.ended


def test_what_is_not_new_is_not_told_again() -> None:
    watch = StatusReducer(view())
    assert watch.apply(job_frame()) is not None
    assert watch.apply(job_frame()) is None
    assert watch.apply(LogFrame(attempt=1, cursor=1, text="x")) is None
    told = watch.apply(progress_frame(0.5))
    assert told is not None
    assert told.progress == 50.0
    assert watch.job.progress is not None


SICK = HealthView(verdict="diverging", level="bad", message="loss rises", advice="Lower the learning rate.")


def test_whether_it_does_well_is_told_when_that_changes_and_stays_known() -> None:
    assert status_of(view(health=SICK)).health == SICK
    watch = StatusReducer(view())
    first = watch.apply(job_frame())
    assert first is not None
    assert first.health is None
    told = watch.apply(HealthFrame(health=SICK))
    assert told is not None
    assert told.health is not None
    assert (told.health.verdict, told.health.advice) == ("diverging", "Lower the learning rate.")
    later = watch.apply(job_frame(attempt=2))
    assert later is not None
    assert later.health == told.health


def test_of_the_newest_checkpoint_it_says_which_and_nothing_that_is_not_known() -> None:
    mark = CheckpointMark(id="ckp-1", short="ckp-1", name="epoch_3.pt", step=3)
    found = status_of(view(checkpoint=mark)).checkpoint
    assert found is not None
    assert found.as_json() == {"id": "ckp-1", "short": "ckp-1", "name": "epoch_3.pt", "step": 3}


def test_a_move_is_told_once() -> None:
    watch = StatusReducer(view(backend="rehearsal"))
    first = watch.apply(job_frame(backend="rehearsal"))
    moved = watch.apply(job_frame(backend="local", previous_backend="rehearsal"))
    later = watch.apply(progress_frame(0.5))
    assert first is not None
    assert not first.backend_changed
    assert moved is not None
    assert (moved.backend_changed, moved.previous_backend, moved.backend) == (True, "rehearsal", "local")
    assert later is not None
    assert (later.backend_changed, later.previous_backend) == (False, "rehearsal")


def test_a_move_before_the_first_look_is_told_too() -> None:
    moved = StatusReducer(view(backend="rehearsal")).apply(job_frame(backend="local"))
    assert moved is not None
    assert moved.backend_changed


def test_metrics_are_the_last_values_of_all_series() -> None:
    watch = StatusReducer(view())
    watch.apply(PointsFrame.model_validate({"series": {"loss": {"last": 0.5, "points": []}}}))
    status = watch.apply(PointsFrame.model_validate({"series": {"acc": {"last": 1}}}))
    assert status is not None
    assert status.metrics == {"loss": 0.5, "acc": 1.0}
