"""Groups of tasks that die together, like the threads of a process or everything on a machine."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

T = TypeVar("T")

_CURRENT: ContextVar[TaskGroup | None] = ContextVar("task_group", default=None)


class TaskGroup:
    """A group of tasks, and of all tasks that they start. `frozen` is set by the loop: none of them runs."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.frozen = False
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def join(self, task: asyncio.Task[Any]) -> None:
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        context = copy_context()
        context.run(_CURRENT.set, self)
        task: asyncio.Task[T] = asyncio.get_running_loop().create_task(work, context=context)
        return task

    def die(self) -> None:
        """Cancel all tasks, except the one that calls this, which is expected to return."""
        self.alive = False
        me = asyncio.current_task()
        for task in tuple(self._tasks):
            if task is not me:
                task.cancel()


def task_group_of(context: Context | None) -> TaskGroup | None:
    """Return the task group of a context (default: the current one), or None."""
    return _CURRENT.get() if context is None else context.get(_CURRENT)
