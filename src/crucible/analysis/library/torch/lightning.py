"""Lightning: what a Trainer does with the module that it is given, as if the loop were in the program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from crucible.analysis.interpreter.functions import follow, method
from crucible.analysis.interpreter.iteration import item_like, length_of
from crucible.analysis.interpreter.machine import Machine
from crucible.analysis.library.call import Asked
from crucible.analysis.library.torch.methods import backward
from crucible.analysis.values.facts import Loop
from crucible.analysis.values.values import UNKNOWN, Bound, Instance, Thing, Value, Where, settled, whole, worded

EPOCHS = 1000
"""Epochs of a Trainer without a limit on epochs or steps."""
_HALF = {"16": "float16", "bf16": "bfloat16"}


def _fit(asked: Asked) -> Value:
    """Follow what `Trainer.fit` does: the optimizer, the loader, and one training step inside the loops."""
    trainer, module = asked.owner, settled(asked.get(0, "model"))
    if not isinstance(trainer, Thing) or not isinstance(module, Instance):
        return None
    machine, here = asked.machine, asked.machine.line
    _asked_for(machine, module, "configure_optimizers")
    loader = _loader(asked, module)
    with _half(machine, trainer), _loops(machine, trainer, loader, here):
        machine.tape.clear()
        _asked_for(machine, module, "training_step", item_like(loader), UNKNOWN)
        machine.note_call("lightning.Trainer.backward", (), {}, module, None)
        backward(machine)
    return None


def _asked_for(machine: Machine, owner: Value, name: str, *args: Value) -> Value:
    """Return the result of a method of the program's own class that the framework calls; UNKNOWN if it has none."""
    found = method(owner, name)
    if not isinstance(found, Bound):
        return UNKNOWN
    wanted = len(found.function.node.args.args)
    return follow(machine, found.function, (owner, *args)[:wanted], {})


def _loader(asked: Asked, module: Instance) -> Value:
    """Return the loader that the Trainer goes over, or UNKNOWN."""
    given = settled(asked.get(1, "train_dataloaders", asked.kwargs.get("train_dataloader")))
    source = settled(asked.kwargs.get("datamodule", given))
    if isinstance(source, Instance) and method(source, "train_dataloader") is not None:
        _asked_for(asked.machine, source, "setup", "fit")
        return settled(_asked_for(asked.machine, source, "train_dataloader"))
    if given is not None:
        return given
    return settled(_asked_for(asked.machine, module, "train_dataloader"))


@contextmanager
def _half(machine: Machine, trainer: Thing) -> Iterator[None]:
    """Apply the Trainer's precision while it lasts."""
    before, recording = machine.tape.half, machine.tape.recording
    kind = worded(trainer.kwargs.get("precision", "")).partition("-")[0]
    machine.tape.half, machine.tape.recording = _HALF.get(kind), True
    try:
        yield
    finally:
        machine.tape.half, machine.tape.recording = before, recording


@contextmanager
def _loops(machine: Machine, trainer: Thing, loader: Value, here: Where) -> Iterator[None]:
    """Put the Trainer's loops over epochs and batches around what follows; with a limit on steps, only that many."""
    told = trainer.kwargs
    most = whole(told.get("max_steps", -1))
    limit = settled(told.get("limit_train_batches"))
    batches = length_of(loader)
    if type(limit) is int:
        batches = min(limit, batches or limit)
    elif isinstance(limit, float) and batches is not None:
        batches = max(1, int(batches * limit))
    epochs = whole(told.get("max_epochs", EPOCHS if most == -1 else None))
    steps = most * (whole(told.get("accumulate_grad_batches", 1)) or 1) if most is not None and most > 0 else None
    data = loader.attrs.get("data", loader) if isinstance(loader, Thing) else None
    epochs = epochs if epochs is None or epochs > 0 else None
    if steps is not None and (epochs is None or batches is None or steps < epochs * batches):
        epochs, batches = 1, steps
    with (
        machine.around(Loop("epoch", epochs, here)),
        machine.around(Loop("batch", batches, here, data)),
    ):
        machine.rounds += 1
        try:
            yield
        finally:
            machine.rounds -= 1


def _hyperparameters(asked: Asked) -> Value:
    """Give `self.hparams` the arguments that the module was made with."""
    if isinstance(asked.owner, Instance):
        names = {
            name: each for name, each in asked.scope.names.items() if name.isidentifier() and each is not asked.owner
        }
        asked.owner.attrs["hparams"] = Thing("namespace", attrs={**names, **asked.kwargs})
    return None


def _manual(asked: Asked) -> Value:
    backward(asked.machine)
    return None


HANDLERS: dict[str, Callable[[Asked], Value]] = {
    "lightning.Trainer.fit": _fit,
    "lightning.LightningModule.manual_backward": _manual,
    **{
        f"lightning.{kind}.save_hyperparameters": _hyperparameters
        for kind in ("LightningModule", "LightningDataModule")
    },
    **{f"lightning.LightningModule.{name}": lambda asked: None for name in ("log", "log_dict")},
}
