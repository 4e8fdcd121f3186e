"""Training callbacks: any object with `on_epoch_end(epoch, metrics)` or `on_checkpoint_save(epoch, path)`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Optional

from crucible.inside import checkpoint
from crucible.inside.model import BaseModel, implements
from crucible.inside.reporting import write_note, write_report
from crucible.inside.stopping import should_checkpoint, should_stop

_BEST_BY = ("val_loss", "validation_loss", "eval_loss", "loss")


class StopTraining(BaseException):
    """Raised by a callback to end the training, because the job was asked to stop.

    A BaseException like KeyboardInterrupt, so that a model's own `except Exception` does not catch it.
    """


class CallbackList:
    """Calls several callbacks in order, each for the events that it has a method for."""

    def __init__(self, callbacks: Iterable[Any]) -> None:
        self.callbacks = tuple(callbacks)

    def on_epoch_end(self, epoch: int, metrics: Optional[Mapping[str, Any]] = None) -> None:
        self._each("on_epoch_end", epoch, dict(metrics or {}))

    def on_checkpoint_save(self, epoch: int, path: Any) -> None:
        self._each("on_checkpoint_save", epoch, Path(path))

    @staticmethod
    def should_stop() -> bool:
        """Return whether the job was asked to stop; a training that checks this can end by itself."""
        return should_stop()

    def _each(self, event: str, *arguments: Any) -> None:
        for callback in self.callbacks:
            method = getattr(callback, event, None)
            if callable(method):
                method(*arguments)


class PlatformCallbacks:
    """Turns metrics into reports and files into checkpoints, the same on every backend."""

    def __init__(self, total_epochs: object = None) -> None:
        self._total: dict[str, int] = {}
        if isinstance(total_epochs, int) and not isinstance(total_epochs, bool):
            self._total = {"total_epochs": total_epochs}
        self._metric: Optional[float] = None

    def on_epoch_end(self, epoch: int, metrics: Mapping[str, Any]) -> None:
        write_report({"from_zero": True}, {**metrics, "epoch": epoch, **self._total})
        value = next((metrics[name] for name in _BEST_BY if name in metrics), None)
        self._metric = None if value is None else float(value)

    def on_checkpoint_save(self, epoch: int, path: Path) -> None:
        """Copy a file or folder saved elsewhere; one in the checkpoint folder already is a checkpoint."""
        if not path.exists():
            raise FileNotFoundError(f"on_checkpoint_save({epoch}, ...): there is no {path}")
        if os.path.realpath(path.parent) != os.path.realpath(checkpoint.dir()):
            checkpoint.save(path, step=epoch, metric=self._metric)
            return
        stat = path.stat()
        write_note(checkpoint=path.name, step=epoch, metric=self._metric, inode=stat.st_ino, mtime_ns=stat.st_mtime_ns)


class StopCallbacks:
    """Comes last: saves a checkpoint when one is requested, and ends the training when the job has to stop.

    A model with a `save` method is saved and ended at the end of the epoch. One without may still report its own
    checkpoint of this epoch, and is ended after that, or at the end of the next epoch.
    """

    def __init__(self, model: BaseModel) -> None:
        self._model = model
        self._saves = implements(type(model), "save")
        self._ending = False

    def on_epoch_end(self, epoch: int, metrics: Mapping[str, Any]) -> None:
        stop, wanted = should_stop(), should_checkpoint()
        if self._saves and (stop or wanted):
            checkpoint.save(self._model.save, step=epoch)
        if stop and (self._saves or self._ending):
            raise StopTraining(f"stopped as requested, after epoch {epoch}")
        self._ending = stop

    def on_checkpoint_save(self, epoch: int, path: Path) -> None:
        if self._ending:
            raise StopTraining(f"stopped as requested, with the checkpoint of epoch {epoch}")


def make_callbacks(model: BaseModel, more: Iterable[Any] = ()) -> CallbackList:
    """Return the callbacks in order: the platform's, the model's own, the user's, and the one that ends a training."""
    own = PlatformCallbacks(model.config.get("epochs"))
    return CallbackList([own, *model.callbacks(), *more, StopCallbacks(model)])
