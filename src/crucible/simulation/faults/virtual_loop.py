"""An asyncio event loop in virtual time: it never waits, and the same program always runs in the same order."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextvars import Context, copy_context
from typing import Any, TypeVar

from crucible.simulation.faults.world.task_group import TaskGroup, task_group_of

T = TypeVar("T")


class Deadlock(RuntimeError):
    """Raised when the main task is not done, and no callback or timer is left that could wake it."""


class ScheduledCall:
    """A scheduled callback: a cheap replacement of asyncio.Handle and TimerHandle."""

    __slots__ = ("_args", "_callback", "_context", "_when", "is_cancelled")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None) -> None:
        self._callback, self._args = callback, args
        self._context = context if context is not None else copy_context()
        self._when = 0.0
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self._when

    def run(self) -> None:
        self._context.run(self._callback, *self._args)

    def is_frozen(self) -> bool:
        group = task_group_of(self._context)
        return group is not None and group.frozen


def virtual_loop() -> VirtualLoop:
    """Return the running loop, which must be a VirtualLoop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop), "simulations run in virtual time"
    return loop


class VirtualLoop(asyncio.AbstractEventLoop):
    """An event loop whose time stands still while callbacks are ready, then jumps to the next timer. Starts at 0."""

    def __init__(self) -> None:
        self._now = 0.0
        self._ready: deque[ScheduledCall] = deque()
        self._timers: list[tuple[float, int, ScheduledCall]] = []
        self._count = 0
        self._frozen: list[TaskGroup] = []
        self._held: list[ScheduledCall] = []
        self.failed: Callable[[BaseException], None] = lambda error: None
        """Called with the error of every task that fails, awaited or not."""

    def time(self) -> float:
        return self._now

    async def give_way(self) -> None:
        """Like `asyncio.sleep(0)`, but free if no other callback is ready.

        Always yields while any group is frozen: if the caller's own group is, it must stop here.
        """
        if self._ready or self._frozen:
            await asyncio.sleep(0)

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> Any:  # type: ignore[override]
        call = ScheduledCall(callback, args, context)
        self._ready.append(call)
        return call

    def call_later(self, delay: float, callback: Any, *args: Any, context: Context | None = None) -> Any:  # type: ignore[override]
        return self.call_at(self._now + max(delay, 0.0), callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> Any:  # type: ignore[override]
        call = ScheduledCall(callback, args, context)
        call._when = when
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, call))
        return call

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> Any:
        """Create a task. It joins the task group of its creator, and dies and freezes with it."""
        task = asyncio.Task(coro, loop=self, name=name or "task", context=context)
        task.add_done_callback(self._report_failure)
        group = task_group_of(context)
        if group is not None:
            group.join(task)
        return task

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Ignore errors of tasks that nothing awaits: `failed` was called with them."""

    def _report_failure(self, task: asyncio.Task[Any]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.failed(error)

    def run_until_complete(self, future: Coroutine[Any, Any, T]) -> T:  # type: ignore[override]
        asyncio._set_running_loop(self)
        try:
            task: asyncio.Task[T] = self.create_task(future)
            while not task.done():
                self._advance()
            return task.result()
        finally:
            asyncio._set_running_loop(None)

    def freeze(self, groups: Iterable[TaskGroup]) -> None:
        """Stop running tasks of these groups until `thaw`, which then runs all that became due, in order."""
        for group in groups:
            group.frozen = True
            self._frozen.append(group)

    def thaw(self, groups: Iterable[TaskGroup]) -> None:
        for group in groups:
            group.frozen = False
        self._frozen = [group for group in self._frozen if group.frozen]
        held, self._held = self._held, []
        for call in held:
            (self._held if call.is_frozen() else self._ready).append(call)

    def _advance(self) -> None:
        if not self._ready:
            self._jump()
        call = self._ready.popleft()
        if self._frozen and call.is_frozen():
            self._held.append(call)
        elif not call.is_cancelled:
            call.run()

    def _jump(self) -> None:
        """Advance the time to the next timer. Raises Deadlock if there is none."""
        timers = self._timers
        while timers and timers[0][2].is_cancelled:
            heapq.heappop(timers)
        if not timers:
            raise Deadlock("nothing is left to wait for")
        self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            self._ready.append(heapq.heappop(timers)[2])
