"""From sources to a profile: follow the program, then draw conclusions from the collected facts."""

from __future__ import annotations

import sys
from dataclasses import replace

from crucible.analysis.conclusions import frameworks
from crucible.analysis.conclusions.compute import (
    deepspeed,
    distribution,
    environment,
    gpu,
    gpu_memory,
    host_memory,
    tf32,
)
from crucible.analysis.conclusions.compute.activations import Inputs, step_work
from crucible.analysis.conclusions.compute.runtime import T4, Reference, runtime
from crucible.analysis.conclusions.facts import Seen
from crucible.analysis.conclusions.training import data, length, models, saving, training
from crucible.analysis.interpreter.attributes import attribute
from crucible.analysis.interpreter.calls import call
from crucible.analysis.interpreter.expressions import evaluate
from crucible.analysis.interpreter.imports import follow_file
from crucible.analysis.interpreter.machine import Exhausted, Machine, Verbs
from crucible.analysis.interpreter.statements import assign, execute, set_attribute
from crucible.analysis.interpreter.uncalled import sweep
from crucible.analysis.source.sources import Sources
from crucible.analysis.values.values import worded
from crucible.core.routing.profile import Conclusion, Precision, Profile

STEPS = 80_000
"""How many interpreter steps a program is followed for."""

VERBS = Verbs(evaluate, execute, assign, call, attribute, set_attribute)

_ASSUMED_BATCH, _ASSUMED_TEXTS, _ASSUMED_LENGTH, _ASSUMED_SIDE = 32, 12, 1024, 224


def analyse(sources: Sources, reference: Reference = T4, steps: int = STEPS) -> Profile:
    """Return the profile of a program, from its text alone. Pure: the same sources give the same profile."""
    sources.check()
    machine = Machine(VERBS, sources, steps)
    deep = sys.getrecursionlimit()
    sys.setrecursionlimit(max(deep, 6_000))
    try:
        _read(machine)
        return _profile(Seen(machine), reference)
    finally:
        sys.setrecursionlimit(deep)


def _read(machine: Machine) -> None:
    """Follow the entry and everything it reaches, then the functions that were never called."""
    try:
        follow_file(machine, machine.sources.entry)
    except Exhausted:
        machine.facts.notes.append("The program was not followed to its end, because it is very large.")
    except RecursionError:
        machine.facts.notes.append("The program is nested too deeply to be followed to its end.")
    sweep(machine)


def _profile(seen: Seen, reference: Reference) -> Profile:
    made = models.models_in_memory(models.models(seen))
    unseen = any(each.value is None for each in made)
    learned = Profile(
        frameworks=frameworks.frameworks(seen),
        gpu=gpu.gpu_need(seen, unseen),
        distribution=distribution.distribution(seen),
        precision=training.precision(seen),
        batch_size=training.batch_size(seen),
        sequence_length=training.sequence_length(seen),
        image_size=training.image_size(seen, data.pictures(seen)),
        dataset=data.dataset(seen),
        epochs=length.epochs(seen),
        checkpointing=saving.checkpointing(seen),
        resume=saving.resume(seen),
        network=environment.network(seen),
        entrypoint=environment.entrypoint(seen),
        notes=tuple(dict.fromkeys((*seen.machine.sources.partial, *seen.facts.notes))),
    )
    # A new model of which only the sizes are known is made in order to train it.
    trains = training.trains(seen) or unseen
    zero = deepspeed.settings(seen, distribution.declared_gpus(seen))
    return _sized(seen, reference, _with_model(seen, learned, made, trains, zero), made, trains, zero)


def _with_model(
    seen: Seen, learned: Profile, made: tuple[models.Model, ...], trains: bool, zero: deepspeed.Zero | None
) -> Profile:
    name, count, learns = models.parameters(seen, made)
    optimizer, state = training.optimizer(seen)
    if trains and not optimizer.known:
        optimizer, state = training.assumed_optimizer(seen)
    found = replace(
        learned,
        model=name,
        parameters=count,
        trainable_parameters=learns,
        optimizer=optimizer,
        optimizer_bytes_per_parameter=state,
    )
    if zero is not None:
        found = deepspeed.apply_settings(seen, zero, found)
    return replace(found, gpus=distribution.gpu_count(seen, found.gpu, found.distribution))


def _sized(
    seen: Seen,
    reference: Reference,
    learned: Profile,
    made: tuple[models.Model, ...],
    trains: bool,
    zero: deepspeed.Zero | None,
) -> Profile:
    """Return the profile with memory, steps and time, which follow from the rest."""
    inputs, assumed = _assumed(learned, made)
    work = step_work(seen, made, inputs)
    if work is not None and work.followed:
        assumed = []
    parts = gpu_memory.memory_of(learned, work, trains, _mixed(seen, learned))
    if parts is not None and zero is not None and trains:
        parts = deepspeed.split_memory(parts, zero, learned)
    offloaded = deepspeed.host_bytes(zero, learned) if zero is not None and trains else 0.0
    total, memory = gpu_memory.gpu_memory(seen, learned, parts, work, assumed)
    host, held = host_memory.host_memory(seen, learned, parts, offloaded)
    batch = learned.batch_size.value or (inputs.batch if trains else None)
    steps = length.steps(seen, trains, learned.epochs, batch, learned.dataset)
    learned = replace(learned, tf32_share=tf32.tf32_share(seen, learned, work))
    hours = runtime(seen, learned, reference, steps, work, parts)
    flops: Conclusion[float] = seen.ask("How much work is one step?")
    if work is not None:
        flops = seen.say(work.flops, (), work.confidence, work.why)
    return replace(
        learned,
        gpu_memory_gb=total,
        memory=memory,
        host_memory_gb=host,
        host_memory=held,
        steps=steps,
        flops_per_step=flops,
        runtime_hours=hours,
        interruptible=saving.interruptible(learned.checkpointing, learned.resume, hours),
    )


def _mixed(seen: Seen, learned: Profile) -> bool:
    """Return whether the work is in half precision while the weights stay in full precision."""
    return learned.precision.value in (Precision.FP16, Precision.BF16) and not _pure_half(seen)


def _assumed(learned: Profile, made: tuple[models.Model, ...]) -> tuple[Inputs, list[str]]:
    """Return the model's inputs, with usual sizes for unknown ones, and the descriptions of those assumptions."""
    sizes = next((each.sizes for each in made if each.sizes is not None), None)
    block = sizes.block if sizes is not None else 0
    assumed = []
    most = block or (sizes.longest if sizes is not None else 0)
    tokens = learned.sequence_length.value or block or _ASSUMED_LENGTH
    if most:
        tokens = min(tokens, most)
    usual = _ASSUMED_BATCH if sizes is None else _ASSUMED_TEXTS
    if learned.batch_size.value is None:
        assumed.append(f"batches of {usual}")
    if learned.sequence_length.value is None and not block and sizes is not None:
        assumed.append(f"sequences of {tokens}")
    inputs = Inputs(
        learned.batch_size.value or usual,
        tokens,
        learned.image_size.value or _ASSUMED_SIDE,
        learned.precision.value or Precision.FP32,
        bool(assumed),
    )
    return inputs, assumed


def _pure_half(seen: Seen) -> bool:
    """Return whether the weights themselves are in half precision, not only the work on them."""
    return (
        any(not call.args for call in seen.calls_named("half", "bfloat16"))
        or any(
            "torch_dtype" in call.kwargs or "dtype" in call.kwargs
            for call in seen.calls_named("from_pretrained", "LLM", "pipeline")
        )
        or any(worded(call.kwargs.get("precision")).endswith("-true") for call in seen.calls("lightning.Trainer"))
    )
