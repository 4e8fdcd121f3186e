"""`crucible client`: training tasks of tenants, submitted and watched over `/orchestrate` and `/status`."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from crucible.cli.options.job_options import Text, Texts
from crucible.cli.session import Session
from crucible.client.compat.training import TrainingClient, TrainingJobRequest
from crucible.client.model_plugins import read_config
from crucible.client.sdk.blocking import SyncMLPlatform
from crucible.core.compute.resources import parse_duration
from crucible.core.errors import BadInput, UnknownName
from crucible.core.people.identity import DEFAULT_PROJECT
from crucible.core.views.training import TaskView

DEMO = """\
import json, os, time

epochs = json.loads(os.environ["CONFIG"])["epochs"]
for epoch in range(1, epochs + 1):
    time.sleep(0.2)
    print(f"epoch {epoch}/{epochs} loss={1 / epoch:.3f}", flush=True)
"""


class Action(enum.StrEnum):
    DEMO = "demo"
    SUBMIT = "submit"
    STATUS = "status"
    WAIT = "wait"


@dataclass(frozen=True)
class Asked:
    """The command line, as it was written."""

    session: Session
    client: TrainingClient
    task_id: str | None
    config: tuple[str, ...]
    timeout: float | None

    def task(self) -> str:
        if self.task_id is None:
            raise BadInput("--task-id is missing.", fix="`crucible client --action submit` prints it.")
        return self.task_id


def client(
    ctx: typer.Context,
    action: Annotated[str, typer.Option("--action", metavar="ACTION", help="demo, submit, status or wait.")],
    url: Annotated[Text, typer.Option("--url", metavar="URL", help="The same as --server.")] = None,
    task_id: Annotated[Text, typer.Option("--task-id", metavar="ID", help="Of the task that is meant.")] = None,
    config: Annotated[
        Texts, typer.Option("--config", metavar="FILE|KEY=VALUE", help="The task, as /orchestrate takes it.")
    ] = None,
    worker: Annotated[
        Path | None, typer.Option("--worker", metavar="PATH", help="A script or folder here that trains.")
    ] = None,
    timeout: Annotated[Text, typer.Option("--timeout", metavar="TIME", help="Wait no longer, such as 10m.")] = None,
) -> int:
    """Submit a training task, ask how it stands, or wait for its end; `demo` shows all three.

    Exit code 1 when a task that was waited for did not complete, 8 when it has not ended in time.
    """
    session = Session.of(ctx)
    session = session if url is None else replace(session, flags={**session.flags, "server": url})
    act, seconds = _ACTIONS[_action(action)], None if timeout is None else parse_duration(timeout)
    with TrainingClient(worker=worker, platform=SyncMLPlatform(settings=session.settings)) as made:
        return act(Asked(session, made, task_id, tuple(config or ()), seconds))


def _action(said: str) -> Action:
    try:
        return Action(said.lower())
    except ValueError:
        raise UnknownName("action", said, list(Action)) from None


def _demo(asked: Asked) -> int:
    request = TrainingJobRequest(
        tenant_id=asked.session.settings.project.value or DEFAULT_PROJECT,
        training_params={"epochs": 5, "batch_size": 16, "learning_rate": 0.001, "code": DEMO},
        model_params={"architecture": "demo"},
        custom_name="demo-training-job",
        wandb_tags=["demo"],
    )
    task = asked.client.submit(request)
    asked.session.out.say(f"Submitted {task}")
    for status in asked.client.monitor(task):
        asked.session.out.say(f"  {status.status}: {status.progress.message}")
    return _ended(asked.session, asked.client.wait(task, asked.timeout))


def _submit(asked: Asked) -> int:
    if not asked.config:
        fix = "Name a file with tenant_id, training_params and model_params; docs/sdk.md shows one."
        raise BadInput("--config is missing.", why="It says what is to be trained.", fix=fix)
    request = TrainingJobRequest.of(read_config(asked.config, asked.session.folder, None, ""))
    task = asked.client.submit(request)
    if asked.session.out.as_json:
        return _show(asked.session, asked.client.status(task))
    asked.session.out.data(task)
    asked.session.out.say(f"Wait for it: crucible client --action wait --task-id {task}")
    return 0


def _status(asked: Asked) -> int:
    return _show(asked.session, asked.client.status(asked.task()))


def _wait(asked: Asked) -> int:
    return _ended(asked.session, asked.client.wait(asked.task(), asked.timeout))


def _ended(session: Session, status: TaskView) -> int:
    _show(session, status)
    return 0 if status.status == "completed" else 1


def _show(session: Session, status: TaskView) -> int:
    if session.out.as_json:
        session.out.json(status.as_json())
        return 0
    progress = status.progress
    of = f"/{progress.total_epochs:g}" if progress.total_epochs else ""
    session.out.fields(
        [
            ("task", status.task_id),
            ("status", status.status),
            ("created", status.created_at),
            ("epoch", f"{progress.epoch:g}{of}"),
            ("progress", f"{progress.progress_percent:g}%"),
            ("message", progress.message),
        ]
    )
    return 0


_ACTIONS: dict[Action, Callable[[Asked], int]] = {
    Action.DEMO: _demo,
    Action.SUBMIT: _submit,
    Action.STATUS: _status,
    Action.WAIT: _wait,
}
