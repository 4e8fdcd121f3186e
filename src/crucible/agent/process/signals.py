"""Notify the user's process, by signals and by files that it may check."""

from __future__ import annotations

import logging
import signal
from collections.abc import Mapping
from pathlib import Path

from crucible.agent.process.user_process import UserProcess
from crucible.agent.runner.attempt_folder import AttemptFolder

log = logging.getLogger(__name__)

CHECKPOINT_SIGNAL = "CRUCIBLE_CHECKPOINT_SIGNAL"
"""Set to USR1 by a program that wants this signal when a checkpoint is requested."""


class ProcessSignals:
    """`ended_first`: the process had already ended when the first signal was sent."""

    def __init__(self, folder: AttemptFolder, user: UserProcess) -> None:
        self._folder = folder
        self._user = user
        self._signalled = False
        self.ended_first = False

    def write_stop_file(self) -> None:
        _touch(self._folder.stop)

    def send_signal(self, number: int) -> None:
        """Send the signal to the whole process group."""
        if not self._signalled:
            self._signalled, self.ended_first = True, not self._user.process.alive
        self._user.send(number)

    def request_checkpoint(self, env: Mapping[str, str]) -> None:
        """Touch the file, and send SIGUSR1 if the program asked for it: by default this signal kills.

        Only the main process gets it, because its children may not handle it.
        """
        _touch(self._folder.checkpoint_now)
        if env.get(CHECKPOINT_SIGNAL) == "USR1":
            self._user.process.send(signal.SIGUSR1)


def _touch(path: Path) -> None:
    try:
        path.touch()
    except OSError as error:
        log.warning("cannot write %s: %s", path.name, error)
