"""`crucible client`: submit and monitor training tasks over `/orchestrate` and `/status`."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from crucible.cli.context import CommandContext
from crucible.cli.options.job_options import Text, Texts
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
class ActionArguments:
    """What an action works with."""

    cli: CommandContext
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
    action: Annotated[str, typer.Option("--action", metavar="ACTION", help="Action: demo, submit, status or wait.")],
    url: Annotated[Text, typer.Option("--url", metavar="URL", help="Same as --server.")] = None,
    task_id: Annotated[Text, typer.Option("--task-id", metavar="ID", help="Task ID.")] = None,
    config: Annotated[
        Texts,
        typer.Option(
            "--config", metavar="FILE|KEY=VALUE", help="Task definition, as accepted by /orchestrate. Repeatable."
        ),
    ] = None,
    worker: Annotated[
        Path | None, typer.Option("--worker", metavar="PATH", help="Local script or folder that trains.")
    ] = None,
    timeout: Annotated[
        Text, typer.Option("--timeout", metavar="TIME", help="Maximum time to wait, such as 10m (default: no limit).")
    ] = None,
) -> int:
    """Submit a training task, show its status, or wait for its end; `demo` does all three.

    `wait` exits with 1 if the task did not complete, with 8 on a timeout.
    """
    cli = CommandContext.from_typer(ctx)
    cli = cli if url is None else replace(cli, flags={**cli.flags, "server": url})
    act, seconds = _ACTIONS[_action(action)], None if timeout is None else parse_duration(timeout)
    with TrainingClient(worker=worker, platform=SyncMLPlatform(settings=cli.settings)) as made:
        return act(ActionArguments(cli, made, task_id, tuple(config or ()), seconds))


def _action(name: str) -> Action:
    try:
        return Action(name.lower())
    except ValueError:
        raise UnknownName("action", name, list(Action)) from None


def _demo(arguments: ActionArguments) -> int:
    request = TrainingJobRequest(
        tenant_id=arguments.cli.settings.project.value or DEFAULT_PROJECT,
        training_params={"epochs": 5, "batch_size": 16, "learning_rate": 0.001, "code": DEMO},
        model_params={"architecture": "demo"},
        custom_name="demo-training-job",
        wandb_tags=["demo"],
    )
    task = arguments.client.submit(request)
    arguments.cli.out.say(f"Submitted {task}")
    for status in arguments.client.monitor(task):
        arguments.cli.out.say(f"  {status.status}: {status.progress.message}")
    return _exit_code(arguments.cli, arguments.client.wait(task, arguments.timeout))


def _submit(arguments: ActionArguments) -> int:
    if not arguments.config:
        fix = "Give a file with tenant_id, training_params and model_params; docs/sdk.md has an example."
        raise BadInput("--config is missing.", why="It defines the task.", fix=fix)
    request = TrainingJobRequest.from_mapping(read_config(arguments.config, arguments.cli.folder, None, ""))
    task = arguments.client.submit(request)
    if arguments.cli.out.as_json:
        return _show(arguments.cli, arguments.client.status(task))
    arguments.cli.out.data(task)
    arguments.cli.out.say(f"Wait for it: crucible client --action wait --task-id {task}")
    return 0


def _status(arguments: ActionArguments) -> int:
    return _show(arguments.cli, arguments.client.status(arguments.task()))


def _wait(arguments: ActionArguments) -> int:
    return _exit_code(arguments.cli, arguments.client.wait(arguments.task(), arguments.timeout))


def _exit_code(cli: CommandContext, status: TaskView) -> int:
    _show(cli, status)
    return 0 if status.status == "completed" else 1


def _show(cli: CommandContext, status: TaskView) -> int:
    if cli.out.as_json:
        cli.out.json(status.as_json())
        return 0
    progress = status.progress
    of = f"/{progress.total_epochs:g}" if progress.total_epochs else ""
    cli.out.fields(
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


_ACTIONS: dict[Action, Callable[[ActionArguments], int]] = {
    Action.DEMO: _demo,
    Action.SUBMIT: _submit,
    Action.STATUS: _status,
    Action.WAIT: _wait,
}
