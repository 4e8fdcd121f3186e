"""Context managers: what a `with` changes while it lasts: gradients, precision, device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from crucible.analysis.interpreter.machine import Machine
from crucible.analysis.values.operators import truth
from crucible.analysis.values.values import Either, Name, Thing, Value, settled

NO_GRADIENTS = frozenset({"torch.no_grad", "torch.inference_mode", "torch.autograd.no_grad"})
AUTOCAST = frozenset({"torch.autocast", "torch.amp.autocast", "torch.cuda.amp.autocast", "torch.cpu.amp.autocast"})


@contextmanager
def entered(machine: Machine, values: list[Value]) -> Iterator[None]:
    """Apply the effects of these context managers while it lasts."""
    recording, half = machine.tape.recording, machine.tape.half
    for value in values:
        found = settled(value)
        if not isinstance(found, Thing):
            found = _thing_of(value)
        if found is None:
            continue
        if found.path in NO_GRADIENTS or (
            found.path == "torch.set_grad_enabled" and found.argument(0, "mode") is False
        ):
            machine.tape.recording = False
        elif found.path in AUTOCAST:
            machine.tape.half = half_of(found)
        elif found.path == "torch.device":
            machine.note_call("torch.set_default_device", (value,), {}, None, None)
    try:
        yield
    finally:
        machine.tape.recording, machine.tape.half = recording, half


def _thing_of(value: Value) -> Thing | None:
    if isinstance(value, Either):
        return next((each for each in value.options if isinstance(each, Thing) and each.path in AUTOCAST), None)
    return None


def half_of(autocast: Thing) -> str | None:
    """Return the dtype that `autocast` computes in, or None if it is disabled."""
    if truth(autocast.kwargs.get("enabled", True)) is False:
        return None
    chosen = settled(autocast.kwargs.get("dtype", autocast.args[1] if len(autocast.args) > 1 else None))
    if isinstance(chosen, Name):
        kind = chosen.path.rpartition(".")[2]
        return {"half": "float16", "float": None, "float32": None}.get(kind, kind)
    device = settled(autocast.argument(0, "device_type"))
    return "bfloat16" if device == "cpu" else "float16"
