"""A job's status, and the reducer that turns the frames of a stream into statuses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from crucible.core.job.states import JobState, Status
from crucible.core.views.frames import Frame, HealthFrame, JobFrame, PointsFrame, ProgressFrame
from crucible.core.views.jobs import CheckpointMark, HealthView, JobView, ProgressView


@dataclass(frozen=True)
class JobStatus:
    """The status of a job. `state` is one of five, `phase` a finer state; `message` gives the reason.

    `progress` is in percent, 0 until the program reports any; `cost` in dollars so far, and `estimated_remaining` the
    expected rest (None: unknown). `backend_changed` is true once for each move to another backend, and
    `previous_backend` is the one before. `health` has the job's health, with causes and advice.
    """

    id: str
    state: Status
    phase: JobState
    backend: str | None = None
    previous_backend: str | None = None
    backend_changed: bool = False
    progress: float = 0.0
    cost: float = 0.0
    estimated_remaining: float | None = None
    message: str = ""
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    epoch: float | None = None
    total_epochs: float | None = None
    step: float | None = None
    attempt: int = 0
    exit_code: int | None = None
    signal: int | None = None
    reason: str | None = None
    advice: str | None = None
    checkpoint: CheckpointMark | None = None
    logs: tuple[str, ...] = ()
    simulated: bool = False
    health: HealthView | None = None

    @property
    def ended(self) -> bool:
        return self.phase.terminal

    @property
    def cost_so_far(self) -> float:
        """The same as `cost`."""
        return self.cost


def status_of(job: JobView) -> JobStatus:
    remaining = job.cost.estimated_remaining_micros
    progress = job.progress or ProgressView()
    return JobStatus(
        id=job.id,
        state=Status(job.status),
        phase=JobState(job.phase),
        backend=job.backend,
        previous_backend=job.previous_backend,
        progress=_percent(progress, job.status),
        cost=job.cost.micros / 1e6,
        estimated_remaining=None if remaining is None else remaining / 1e6,
        message=_message(job),
        metrics=dict(job.metrics),
        epoch=progress.epoch,
        total_epochs=progress.total_epochs,
        step=progress.step,
        attempt=job.attempt or 0,
        exit_code=job.exit_code,
        signal=job.signal,
        reason=job.reason.code if job.reason else None,
        advice=job.reason.advice if job.reason else None,
        checkpoint=job.checkpoint,
        logs=job.recent_logs,
        simulated=job.is_simulated,
        health=job.health,
    )


def _percent(progress: ProgressView, status: str) -> float:
    if status == Status.COMPLETED:
        return 100.0
    return round(min(max(progress.fraction or 0.0, 0.0), 1.0) * 100, 1)


def _message(job: JobView) -> str:
    if job.ended:
        return job.reason.message if job.reason else ""
    progress = job.progress.message if job.progress else None
    return job.waiting or ("; ".join(job.conditions) if job.conditions else "") or progress or ""


class StatusReducer:
    """Turns a job's frames into statuses: one whenever something has changed."""

    def __init__(self, job: JobView) -> None:
        """`job` is the last known state: a move since then is reported."""
        self._job = job
        self._metrics = dict(job.metrics)
        self._backend = job.backend
        self._last: JobStatus | None = None

    @property
    def job(self) -> JobView:
        """The job after the latest frame."""
        return self._job

    def apply(self, frame: Frame) -> JobStatus | None:
        """Return the status after this frame; None if it is unchanged."""
        match frame:
            case JobFrame():
                self._metrics.update(frame.job.metrics)
                self._job = frame.job.model_copy(update={"health": frame.job.health or self._job.health})
            case ProgressFrame():
                self._job = self._job.model_copy(update={"progress": frame.progress})
            case HealthFrame():
                self._job = self._job.model_copy(update={"health": frame.health})
            case PointsFrame():
                known = ((name, series.last) for name, series in frame.series.items())
                self._metrics.update((name, last) for name, last in known if last is not None)
            case _:
                return None
        return self._new(replace(status_of(self._job), metrics=dict(self._metrics)))

    def _new(self, status: JobStatus) -> JobStatus | None:
        if status == self._last:
            return None
        self._last = status
        moved = self._backend is not None and status.backend not in (None, self._backend)
        status = replace(
            status, backend_changed=moved, previous_backend=self._backend if moved else status.previous_backend
        )
        self._backend = status.backend or self._backend
        return status
