"""From sources to a profile: follow the program, then say what the facts mean."""

from __future__ import annotations

import sys

from crucible.analysis.conclusions import (
    data,
    distribution,
    frameworks,
    gpu,
    length,
    memory,
    models,
    saving,
    surroundings,
    training,
)
from crucible.analysis.conclusions.activations import Inputs, step_work
from crucible.analysis.conclusions.runtime import T4, Reference, runtime
from crucible.analysis.conclusions.seen import Seen
from crucible.analysis.facts import Guard
from crucible.analysis.functions import follow, guessed_arguments
from crucible.analysis.imports import follow_file
from crucible.analysis.machine import Exhausted, Machine
from crucible.analysis.sources import Sources
from crucible.analysis.values import Function
from crucible.core.errors import BadInput
from crucible.core.profile import Conclusion, Precision, Profile

STEPS = 80_000
"""How far a program is followed, in steps of the reader."""

SWEEP_STEPS = 40_000
SWEPT = 200
"""Functions nobody was seen to call that are looked at all the same."""

_ASSUMED_BATCH, _ASSUMED_TEXTS, _ASSUMED_LENGTH, _ASSUMED_SIDE = 32, 12, 1024, 224


def analyse(sources: Sources, reference: Reference = T4, steps: int = STEPS) -> Profile:
    """What the program needs, from its text alone. Pure: the same sources give the same profile."""
    if sources.entry not in sources.files:
        raise BadInput(f"{sources.entry} is not among the files.", fix="Name one of them as the entry.")
    machine = Machine(sources, steps)
    deep = sys.getrecursionlimit()
    sys.setrecursionlimit(max(deep, 6_000))
    try:
        _read(machine)
        return _profile(Seen(machine), reference)
    finally:
        sys.setrecursionlimit(deep)


def _read(machine: Machine) -> None:
    try:
        follow_file(machine, machine.sources.entry)
    except Exhausted:
        machine.facts.notes.append("The program was not followed to its end, because it is very large.")
    except RecursionError:
        machine.facts.notes.append("The program is nested too deeply to be followed to its end.")
    _sweep(machine)


def _sweep(machine: Machine) -> None:
    """Functions that no code was seen to call may still be called by a framework: each is followed once."""
    machine.active.clear()
    machine.facts.followed = len(machine.facts.made)
    for function in list(machine.functions)[:SWEPT]:
        if not isinstance(function, Function) or id(function.node) in machine.visited:
            continue
        machine.limit = machine.steps + SWEEP_STEPS // 20
        machine.guards, machine.loops, machine.depth, machine.rounds = [Guard(swept=True)], [], 0, 0
        machine.active.clear()
        try:
            follow(machine, function, (), guessed_arguments(machine, function))
        except (Exhausted, RecursionError):
            continue
    machine.guards, machine.loops = [], []


def _profile(seen: Seen, reference: Reference) -> Profile:
    made = models.together(models.models(seen))
    need = gpu.gpu_need(seen, any(each.value is None for each in made))
    spread = distribution.distribution(seen)
    name, count, learns = models.parameters(seen, made)
    optimizer, state = training.optimizer(seen)
    half = training.precision(seen)
    batch, length_, side = _inputs(seen)
    trains = training.trains(seen)
    if not trains and any(each.value is None for each in made):
        # Only the sizes of a new model are here; nobody makes one but to train it.
        trains, optimizer, state = True, *training.assumed_optimizer(seen)
    given, assumed = _assumed(seen, made, batch, length_, side, half)
    work = step_work(seen, made, given)
    parts = None
    if count.value is not None:
        mixed = half.value in (Precision.FP16, Precision.BF16) and not _pure_half(seen)
        parts = memory.memory_of(
            count.value, learns.value or 0, state.value or 0.0, half.value or Precision.FP32, work, trains, mixed
        )
    if work is not None and work.why.startswith("Followed through the training"):
        assumed = []
    total, told = memory.gpu_memory(seen, need.value, count, parts, work, assumed)
    dataset = data.dataset(seen)
    epochs = length.epochs(seen)
    steps = length.steps(seen, trains, epochs, batch.value or (given.batch if trains else None), dataset)
    hours = runtime(seen, need.value, reference, steps, work, parts, half.value)
    saves, goes_on = saving.checkpointing(seen), saving.resume(seen)
    flops: Conclusion[float] = (
        seen.say(work.flops, (), work.confidence, work.why)
        if work is not None
        else seen.ask("How much work is one step?")
    )
    return Profile(
        frameworks=frameworks.frameworks(seen),
        gpu=need,
        gpus=distribution.gpu_count(seen, need, spread),
        distribution=spread,
        model=name,
        parameters=count,
        trainable_parameters=learns,
        optimizer=optimizer,
        optimizer_bytes_per_parameter=state,
        precision=half,
        batch_size=batch,
        sequence_length=length_,
        image_size=side,
        gpu_memory_gb=total,
        memory=told,
        dataset=dataset,
        epochs=epochs,
        steps=steps,
        flops_per_step=flops,
        runtime_hours=hours,
        checkpointing=saves,
        resume=goes_on,
        interruptible=saving.interruptible(seen, saves, goes_on, hours),
        network=surroundings.network(seen),
        entrypoint=surroundings.entrypoint(seen),
        notes=tuple(dict.fromkeys((*seen.machine.sources.partial, *seen.facts.notes))),
    )


def _inputs(seen: Seen) -> tuple[Conclusion[int], Conclusion[int], Conclusion[int]]:
    return training.batch_size(seen), training.sequence_length(seen), training.image_size(seen, data.pictures(seen))


def _assumed(
    seen: Seen,
    made: tuple[models.Model, ...],
    batch: Conclusion[int],
    length_: Conclusion[int],
    side: Conclusion[int],
    half: Conclusion[Precision],
) -> tuple[Inputs, list[str]]:
    """What goes into the model, with a sensible guess for what is not known."""
    sizes = next((each.sizes for each in made if each.sizes is not None), None)
    block = sizes.block if sizes is not None else 0
    assumed = []
    tokens = length_.value or block or _ASSUMED_LENGTH
    if block and length_.value:
        tokens = min(length_.value, block)
    usual = _ASSUMED_BATCH if sizes is None else _ASSUMED_TEXTS
    if batch.value is None:
        assumed.append(f"batches of {usual}")
    if length_.value is None and not block and sizes is not None:
        assumed.append(f"sequences of {_ASSUMED_LENGTH}")
    inputs = Inputs(
        batch.value or usual,
        tokens,
        side.value or _ASSUMED_SIDE,
        half.value or Precision.FP32,
        bool(assumed),
    )
    return inputs, assumed


def _pure_half(seen: Seen) -> bool:
    """The weights themselves are in half precision, not only the work on them."""
    names = ("half", "bfloat16")
    return any(
        (call.last in names and not call.args)
        or (call.last == "from_pretrained" and ("torch_dtype" in call.kwargs or "dtype" in call.kwargs))
        for call in seen.facts.calls
    )
