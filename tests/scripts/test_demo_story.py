"""The demo's story says what the server knows, and no more."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from crucible.core.views.jobs import CheckpointView, JobView

SCRIPT = Path(__file__).parents[2] / "scripts" / "demo_story.py"
SAVED = {"id": "ckp-1", "short": "ckp-abc123", "name": "step_00001026.pt", "step": 1026, "size": 1024}
SPOT = {"backend": "rehearsal", "market": "spot", "instance_type": "sim.c2", "simulated": True}
LOST = {"number": 1, "state": "ended", "reason": "interrupted", "exit_code": 0, "progress": {"step": 1020}, **SPOT}
HERE = {"backend": "local", "resume_from": SAVED}
THROUGH = {"number": 2, "state": "ended", "reason": "completed", "exit_code": 0, **HERE}


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("CRUCIBLE_HOME", "/somewhere/.demo")
    monkeypatch.setenv("CRUCIBLE_BACKENDS", "local,rehearsal")
    spec = importlib.util.spec_from_file_location("demo_story", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def job(*attempts: dict[str, Any]) -> JobView:
    return JobView.model_validate(
        {
            "id": "job-1",
            "short": "job-xyz789",
            "status": "completed",
            "phase": "completed",
            "progress": {"step": 3000, "total_steps": 3000, "loss": 0.5508},
            "cost": {"micros": 480},
            "ran_seconds": 70.0,
            "attempts": attempts,
        }
    )


def told(script: ModuleType, found: JobView) -> str:
    kept = (CheckpointView.model_validate({**SAVED, "step": 3000, "name": "step_00003000.pt"}),)
    return "\n".join(script.story(found, kept))


def test_it_says_where_each_attempt_ran_and_what_it_began_from(script: ModuleType) -> None:
    text = told(script, job(LOST, THROUGH))
    assert "Attempt 1   rehearsal spot sim.c2 (simulated)" in text
    assert "ended: interrupted; step 1026 was saved" in text
    assert "Attempt 2   local" in text
    assert "went on at step 1027, from the checkpoint step_00001026.pt" in text
    assert "3000 of 3000 steps, loss 0.551, 2 attempts" in text
    assert "ckp-abc123 of step 3000, step_00003000.pt, 1 KiB, in the store of /somewhere/.demo" in text


def test_money_is_said_to_be_play_money(script: ModuleType) -> None:
    assert "$0.0005 of play money" in told(script, job(LOST, THROUGH))


def test_steps_that_were_done_twice_are_counted(script: ModuleType) -> None:
    assert "no step: the job saved when the notice came" in told(script, job(LOST, THROUGH))
    hard = {**LOST, "exit_code": None, "progress": {"step": 1060}}
    assert "34 steps of those it had told of were computed again" in told(script, job(hard, THROUGH))


def test_it_does_not_claim_that_a_killed_program_saved(script: ModuleType) -> None:
    killed = {**LOST, "exit_code": None}
    assert "saved when the notice came" not in told(script, job(killed, THROUGH))


def test_a_job_that_was_through_first_lost_nothing(script: ModuleType) -> None:
    assert "through before its machine was taken away" in told(script, job({**LOST, "reason": "completed"}))


def test_what_to_try_next_works_on_the_state_of_the_demo(script: ModuleType) -> None:
    kept = tuple(CheckpointView.model_validate({**SAVED, "step": step}) for step in (3000, 2800, 1026))
    text = "\n".join(script.next_steps(job(LOST, THROUGH), kept))
    assert "export CRUCIBLE_HOME=/somewhere/.demo CRUCIBLE_BACKENDS=local,rehearsal" in text
    assert "crucible resume job-xyz789 --checkpoint ckp-abc123" in text
    assert "go on from step 2800 once more" in text
