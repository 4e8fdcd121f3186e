"""Watch a program's checkpoint folder while it runs, and upload its checkpoints."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Callable

from crucible.agent.checkpoints.listing import list_entries
from crucible.agent.checkpoints.notes import SaveNote
from crucible.agent.checkpoints.snapshot import Snapshotter
from crucible.agent.checkpoints.upload import CheckpointCallbacks, CheckpointUploader
from crucible.agent.checkpoints.watch import FolderScan, FolderWatch, ProgramState, ended_in_order, record_scan
from crucible.agent.link.channel import Channel
from crucible.agent.runner.attempt_folder import AttemptFolder
from crucible.wire.documents.messages import Cause

LOOK_SECONDS = 0.5
REST = 20
"""Pause after a scan, in multiples of its duration: scans take at most 5 % of a core."""
MAX_NAMED = 5

_HURRY = frozenset({Cause.INTERRUPTED.value, Cause.SUSPENDED.value, Cause.FENCED.value})
_STOPPED = _HURRY | {Cause.STOPPED.value, Cause.TIME_LIMIT.value}


class CheckpointKeeper:
    """Call `watch` once, when the program runs, and `finish` once, after its end; `add_note` from any thread."""

    def __init__(self, folder: AttemptFolder, channel: Channel, tell: CheckpointCallbacks) -> None:
        self._folder = folder.checkpoints
        self._note = tell.note
        photographer = Snapshotter(folder.checkpoints, folder.snapshots)
        self._uploader = CheckpointUploader(channel, photographer, folder.stored_checkpoints, tell)
        self._lock = threading.Lock()
        self._notes: list[SaveNote] = []
        self._watch = FolderWatch()
        self._lives: Callable[[], bool] = lambda: False
        self._ending = threading.Event()
        self._wake = threading.Event()
        self._watcher: threading.Thread | None = None

    def add_note(self, note: SaveNote) -> None:
        """Record that `crucible.checkpoint.save` completed a checkpoint."""
        with self._lock:
            self._notes.append(note)
        self._wake.set()

    def watch(self, lives: Callable[[], bool]) -> None:
        """Start to scan the folder. `lives` returns whether the program still runs."""
        self._lives = lives
        self._uploader.start()
        self._watcher = threading.Thread(target=self._scan_loop, name="watch", daemon=True)
        self._watcher.start()

    def store_newest_only(self) -> None:
        """Upload only the newest checkpoint from now on, because the machine is about to be reclaimed."""
        self._uploader.store_newest_only()

    def finish(self, exited: Mapping[str, object]) -> None:
        """Store every complete checkpoint that is not stored yet, retrying forever. `exited`: how the program ended.

        Call it after the last `add_note`. Raises Gone.
        """
        self._ending.set()
        self._wake.set()
        if self._watcher is not None:
            self._watcher.join()
        in_order = ended_in_order(exited.get("code"), exited.get("cause") in _STOPPED)
        self._step(self._look(ProgramState.ENDED if in_order else ProgramState.DIED), self._take_notes())
        self._tell_never_whole([name for name in self._watch.never_whole if name not in self._uploader.stored])
        self._uploader.finish(hurry=exited.get("cause") in _HURRY)

    def _scan_loop(self) -> None:
        while not self._ending.is_set():
            self._wake.clear()
            notes = self._take_notes()
            look = self._look(ProgramState.LIVES)
            if not self._lives():
                # The program may have died before this scan: `finish` decides with the last one.
                self._give_back(notes)
                return
            self._step(look, notes)
            self._ending.wait(REST * (look.done - look.began))
            self._wake.wait(LOOK_SECONDS)

    def _look(self, program: ProgramState) -> FolderScan:
        began = time.monotonic()
        entries = list_entries(self._folder)
        return FolderScan(began, time.monotonic(), entries, program)

    def _step(self, look: FolderScan, notes: Sequence[SaveNote]) -> None:
        self._watch, found = record_scan(self._watch, look, notes)
        for whole in found:
            self._uploader.offer(whole)

    def _take_notes(self) -> list[SaveNote]:
        with self._lock:
            notes, self._notes = self._notes, []
            return notes

    def _give_back(self, notes: list[SaveNote]) -> None:
        with self._lock:
            self._notes = notes + self._notes

    def _tell_never_whole(self, names: Sequence[str]) -> None:
        if not names:
            return
        shown = ", ".join(f"{name!a}" for name in names[:MAX_NAMED])
        more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        self._note(
            f"not kept, because the program died while it may have been writing: {shown}{more}. "
            "crucible.checkpoint.save() makes a checkpoint count at once."
        )
