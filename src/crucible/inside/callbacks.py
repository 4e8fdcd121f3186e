"""Callbacks of a training: any object with `on_epoch_end(epoch, metrics)` or `on_checkpoint_save(epoch, path)`."""

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
    """Raised out of a callback when the job was asked to stop: the training is to end here.

    Like KeyboardInterrupt no Exception, so that a model's own `except Exception` does not hold it up.
    """


class CallbackList:
    """Several callbacks as one; each gets what it has a method for, in order."""

    def __init__(self, callbacks: Iterable[Any]) -> None:
        self.callbacks = tuple(callbacks)

    def on_epoch_end(self, epoch: int, metrics: Optional[Mapping[str, Any]] = None) -> None:
        self._each("on_epoch_end", epoch, dict(metrics or {}))

    def on_checkpoint_save(self, epoch: int, path: Any) -> None:
        self._each("on_checkpoint_save", epoch, Path(path))

    @staticmethod
    def should_stop() -> bool:
        """Whether the job was asked to stop; a training that asks ends by itself."""
        return should_stop()

    def _each(self, event: str, *arguments: Any) -> None:
        for callback in self.callbacks:
            method = getattr(callback, event, None)
            if callable(method):
                method(*arguments)


class PlatformCallbacks:
    """Metrics become reports, files become checkpoints, the same wherever the job runs."""

    def __init__(self, total_epochs: object = None) -> None:
        self._total: dict[str, int] = {}
        if isinstance(total_epochs, int) and not isinstance(total_epochs, bool):
            self._total = {"total_epochs": total_epochs}
        self._metric: Optional[float] = None

    def on_epoch_end(self, epoch: int, metrics: Mapping[str, Any]) -> None:
        write_report({"from_zero": True}, {**metrics, "epoch": epoch, **self._total})
        found = next((metrics[name] for name in _BEST_BY if name in metrics), None)
        self._metric = None if found is None else float(found)

    def on_checkpoint_save(self, epoch: int, path: Path) -> None:
        """Copies what was saved elsewhere; what is in the folder of checkpoints is one already."""
        if not path.exists():
            raise FileNotFoundError(f"on_checkpoint_save({epoch}, ...): there is no {path}")
        if os.path.realpath(path.parent) != os.path.realpath(checkpoint.dir()):
            checkpoint.save(path, step=epoch, metric=self._metric)
            return
        found = path.stat()
        write_note(
            checkpoint=path.name, step=epoch, metric=self._metric, inode=found.st_ino, mtime_ns=found.st_mtime_ns
        )


class StopCallbacks:
    """Comes last: saves where that was asked for, and ends the training when the job is to stop.

    A model that saves itself is saved and ended at the end of the epoch. One that does not gets the chance to
    tell of its checkpoint of this epoch, and is ended after that or at the end of the next epoch.
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
            raise StopTraining(f"stopped as asked, after epoch {epoch}")
        self._ending = stop

    def on_checkpoint_save(self, epoch: int, path: Path) -> None:
        if self._ending:
            raise StopTraining(f"stopped as asked, with the checkpoint of epoch {epoch}")


def make_callbacks(model: BaseModel, more: Iterable[Any] = ()) -> CallbackList:
    """The platform's, the model's own, those of the user, and last the one that ends a training."""
    own = PlatformCallbacks(model.config.get("epochs"))
    return CallbackList([own, *model.callbacks(), *more, StopCallbacks(model)])
