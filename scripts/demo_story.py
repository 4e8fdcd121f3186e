"""Tells what became of the demo's job, from two lines of JSON on standard input.

{ crucible status JOB --json; crucible checkpoints JOB --json; } | demo_story.py
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import pairwise

from crucible.cli.output.attempts import count_lost_steps, format_attempt_end, format_attempt_offer
from crucible.cli.output.format import format_dollars
from crucible.core.compute.resources import format_duration, format_memory
from crucible.core.views.jobs import AttemptView, CheckpointPage, CheckpointView, JobView

SETTINGS = ("CRUCIBLE_HOME", "CRUCIBLE_BACKENDS")


def main() -> None:
    job = JobView.model_validate_json(sys.stdin.readline())
    saved = CheckpointPage.model_validate_json(sys.stdin.readline()).items
    kept = tuple(each for each in saved if each.kept)
    for line in (*story(job, kept), *next_steps(job, kept)):
        print(line)


def story(job: JobView, kept: tuple[CheckpointView, ...]) -> Iterator[str]:
    yield f"\n== What happened to {job.display_name}\n"
    for attempt, following in pairwise((*job.attempts, None)):
        assert attempt is not None
        yield f"Attempt {attempt.number}   {format_attempt_offer(attempt)}"
        yield f"            {begun(attempt)}"
        yield f"            {ended(attempt, following)}"
    yield f"\nDone        {done(job)}"
    yield f"Lost        {lost(job)}"
    yield f"Cost        {cost(job)}"
    if kept:
        yield f"Checkpoint  {checkpoint(kept[0])}"


def begun(attempt: AttemptView) -> str:
    found = attempt.resume_from
    if found is None:
        return "began at step 1"
    return f"went on at step {(found.step or 0) + 1}, from the checkpoint {found.name}"


def ended(attempt: AttemptView, following: AttemptView | None) -> str:
    saved = following.resume_from if following else None
    where = f"; step {saved.step} was saved and stored before" if saved is not None else ""
    return f"ended: {format_attempt_end(attempt) or attempt.state}{where}"


def done(job: JobView) -> str:
    progress, attempts = job.progress, len(job.attempts)
    steps = f"{progress.step} of {progress.total_steps} steps, " if progress and progress.step else ""
    loss = f"loss {progress.loss:.3g}, " if progress and progress.loss is not None else ""
    ran = format_duration(job.ran_seconds or 0)
    return f"{steps}{loss}{attempts} attempt{'s' if attempts > 1 else ''}, {ran} of computing"


def lost(job: JobView) -> str:
    if len(job.attempts) < 2:
        return "nothing: the job was through before its machine was taken away"
    again = sum(count_lost_steps(*move) or 0 for move in pairwise(job.attempts))
    if again == 0 and all(attempt.exit_code == 0 for attempt in job.attempts):
        return "no step: the job saved when the notice came, so nothing was computed twice"
    return f"{again} steps of those it had told of were computed again"


def cost(job: JobView) -> str:
    spent = format_dollars(job.cost.micros)
    if not job.is_simulated:
        return spent
    return f"{spent} of play money for the simulated machine; this computer is free, and nobody is billed"


def checkpoint(last: CheckpointView) -> str:
    where = f"in the store of {os.environ['CRUCIBLE_HOME']}"
    return f"{last.display_name} of step {last.step}, {last.name}, {format_memory(last.size)}, {where}"


def next_steps(job: JobView, kept: tuple[CheckpointView, ...]) -> Iterator[str]:
    yield "\n== What to try next\n"
    yield "  source .venv/bin/activate"
    yield f"  export {' '.join(f'{name}={os.environ[name]}' for name in SETTINGS)}"
    for command, about in commands(job, kept):
        yield f"  {command:<60}  # {about}"
    yield "\nIn another terminal, without the export, your own jobs run on this computer and live in your user folders:"
    yield "\n  crucible run examples/train_digits.py -- --epochs 8"
    yield "  crucible run your_script.py"


def commands(job: JobView, kept: tuple[CheckpointView, ...]) -> Iterator[tuple[str, str]]:
    yield f"crucible checkpoints {job.display_name}", "what was saved; --download latest fetches it"
    yield f"crucible download {job.display_name}", "the model, and a text that it wrote"
    yield f"crucible events {job.display_name}", "the same story, event by event"
    if len(kept) > 1:
        before = kept[1]
        yield (
            f"crucible resume {job.display_name} --checkpoint {before.display_name}",
            f"go on from step {before.step} once more",
        )
    bigger = "crucible run --template nanogpt --spot --backend rehearsal"
    yield bigger, "a bigger one; docs/rehearsal.md says how to disturb it"


if __name__ == "__main__":
    main()
