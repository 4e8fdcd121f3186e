"""An asyncio event loop in virtual time: it never waits, and the same program runs the same way every time."""

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
    """Nothing can happen any more, and what was waited for has not happened."""


class ScheduledCall:
    """A callback that is due; asyncio's Handle, without its file and line."""

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
        crew = task_group_of(self._context)
        return crew is not None and crew.frozen


def virtual_loop() -> VirtualLoop:
    """The one that runs."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop), "simulations run in virtual time"
    return loop


class VirtualLoop(asyncio.AbstractEventLoop):
    """Time stands still while anything is ready, then jumps to the next timer. Starts at 0."""

    def __init__(self) -> None:
        self._now = 0.0
        self._ready: deque[ScheduledCall] = deque()
        self._timers: list[tuple[float, int, ScheduledCall]] = []
        self._count = 0
        self._frozen: list[TaskGroup] = []
        self._held: list[ScheduledCall] = []
        self.failed: Callable[[BaseException], None] = lambda error: None
        """Told of every task that ends in an error, whoever waits for it."""

    def time(self) -> float:
        return self._now

    async def give_way(self) -> None:
        """As `asyncio.sleep(0)`, and cheaper where nobody waits for a turn. Whoever was just frozen stays here."""
        if self._ready or self._frozen:
            await asyncio.sleep(0)

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> Any:  # type: ignore[override]
        turn = ScheduledCall(callback, args, context)
        self._ready.append(turn)
        return turn

    def call_later(self, delay: float, callback: Any, *args: Any, context: Context | None = None) -> Any:  # type: ignore[override]
        return self.call_at(self._now + max(delay, 0.0), callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> Any:  # type: ignore[override]
        turn = ScheduledCall(callback, args, context)
        turn._when = when
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, turn))
        return turn

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> Any:
        """The task also joins the crew of whoever starts it, and ends with that."""
        task = asyncio.Task(coro, loop=self, name=name or "task", context=context)
        task.add_done_callback(self._over)
        crew = task_group_of(context)
        if crew is not None:
            crew.join(task)
        return task

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Errors that nobody waited for; `failed` was told of them."""

    def _over(self, task: asyncio.Task[Any]) -> None:
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

    def freeze(self, crews: Iterable[TaskGroup]) -> None:
        """Nothing of these crews runs until they thaw; then all that was due meanwhile is, in its order."""
        for crew in crews:
            crew.frozen = True
            self._frozen.append(crew)

    def thaw(self, crews: Iterable[TaskGroup]) -> None:
        for crew in crews:
            crew.frozen = False
        self._frozen = [crew for crew in self._frozen if crew.frozen]
        held, self._held = self._held, []
        for turn in held:
            (self._held if turn.is_frozen() else self._ready).append(turn)

    def _advance(self) -> None:
        if not self._ready:
            self._jump()
        turn = self._ready.popleft()
        if self._frozen and turn.is_frozen():
            self._held.append(turn)
        elif not turn.is_cancelled:
            turn.run()

    def _jump(self) -> None:
        timers = self._timers
        while timers and timers[0][2].is_cancelled:
            heapq.heappop(timers)
        if not timers:
            raise Deadlock("nothing is left to wait for")
        self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            self._ready.append(heapq.heappop(timers)[2])
