"""A server that kills itself at one crash point after another and is restarted by its callers."""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Callable, Sequence
from typing import TypeVar

import httpx2 as httpx
from tests.harness import TERMINAL, Deployment, View

T = TypeVar("T")

SECONDS = 120.0
"""Maximum wait in seconds, on a busy computer."""


class DyingServer:
    """The first of `points` is armed at once; each restart arms the next one."""

    def __init__(self, crucible: Deployment, points: Sequence[str]) -> None:
        self.crucible = crucible
        self.crucible.env["CRUCIBLE_WEBHOOK_HOSTS"] = "127.0.0.1"
        self.reached: list[str] = []
        self._points = points
        self.start()

    @property
    def armed(self) -> str | None:
        """Return the next crash point; None after the last."""
        return self._points[len(self.reached)] if len(self.reached) < len(self._points) else None

    def start(self) -> None:
        """Start the server, again if it dies before it is ready."""
        while True:
            env = {} if self.armed is None else {"CRUCIBLE_CRASHPOINT": self.armed}
            try:
                self.crucible.start(seconds=SECONDS, **env)
            except AssertionError:
                if not self._is_dead():
                    raise
                self._note_death()
            else:
                return

    def persist(self, call: Callable[[], T | None], what: str) -> T:
        """Poll `call` until it returns something true, while the server may die.

        Each start of the server gets its own time: on a busy computer it may take a minute to be ready.
        """
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            try:
                found = call()
            except (OSError, ValueError, httpx.HTTPError):
                found = None
            if found:
                return found
            if self.revive():
                deadline = time.monotonic() + SECONDS
            time.sleep(0.05)
        raise AssertionError(f"waited {SECONDS:g} s for {what}")

    def has_died(self, times: int, seconds: float) -> bool:
        """Wait for this many deaths; return whether they happened in time."""
        deadline = time.monotonic() + seconds
        while len(self.reached) < times and time.monotonic() < deadline:
            self.revive()
            time.sleep(0.05)
        return len(self.reached) >= times

    def revive(self) -> bool:
        """Start the server if it is dead; return whether it was."""
        if not self._is_dead():
            return False
        self._note_death()
        self.start()
        return True

    def submit(self, spec: View) -> str:
        key = uuid.uuid4().hex
        return self.persist(lambda: self.crucible.submit(spec, key), "the acknowledgement")

    def end_of(self, job: str) -> View:
        return self.persist(lambda: self._terminal(job), f"{job} to end")

    def _terminal(self, job: str) -> View | None:
        view = self.crucible.job(job)
        return view if view["phase"] in TERMINAL else None

    def _is_dead(self) -> bool:
        assert self.crucible.server is not None
        return self.crucible.server.poll() is not None

    def _note_death(self) -> None:
        assert self.crucible.server is not None
        assert self.armed is not None, "it died though nothing was armed"
        assert self.crucible.server.returncode == -signal.SIGKILL, "it ended, but not by its own hand"
        self.reached.append(self.armed)
