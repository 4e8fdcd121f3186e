"""How long it trains: epochs and steps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from crucible.analysis.conclusions.facts import Seen, number_named
from crucible.analysis.conclusions.training.library_arguments import epochs_argument
from crucible.analysis.conclusions.training.training import trainer_arguments
from crucible.analysis.interpreter.iteration import length_of
from crucible.analysis.values.facts import Call, Loop, Situation
from crucible.analysis.values.values import Tensor, Thing, Where, settled, whole
from crucible.core.routing.profile import Conclusion, Confidence, Dataset

EPOCH_NAMES = (
    "num_train_epochs",
    "num_epochs",
    "n_epochs",
    "epochs",
    "max_epochs",
    "nepochs",
    "EPOCHS",
    "NUM_EPOCHS",
    "n_epoch",
    "epoch",
    "num_epoch",
    "total_epochs",
    "N_EPOCHS",
    "niter",
)
STEP_NAMES = (
    "max_steps",
    "max_train_steps",
    "max_iters",
    "total_timesteps",
    "num_steps",
    "n_steps",
    "num_iterations",
    "n_iters",
    "iterations",
    "train_steps",
    "total_steps",
    "num_updates",
    "steps",
    "MAX_STEPS",
    "num_training_steps",
    "iters",
)
ASSUMED_EPOCHS = 100
ASSUMED_STEPS = 5_000
ASSUMED_SAMPLES = 50_000


_ENDS = frozenset({"backward", "train_on_batch", "apply_updates", "apply_gradients", "stateless_apply"})
"""Methods that end a training step, in any library."""


def epochs(seen: Seen) -> Conclusion[int]:
    """Return the epochs that the program trains for."""
    for call in seen.calls_where(lambda path: path == "lightning.Trainer" or path.endswith(("fit", "fit_generator"))):
        if call.last in ("fit", "fit_generator") and whole(call.kwargs.get("epochs")):
            return seen.say(whole(call.kwargs["epochs"]) or 1, [call.where])
        if call.path == "lightning.Trainer" and (whole(call.kwargs.get("max_epochs")) or 0) > 0:
            return seen.say(whole(call.kwargs["max_epochs"]) or 1, [call.where])
    for call in trainer_arguments(seen):
        count = settled(call.kwargs.get("num_train_epochs", 3))
        if isinstance(count, int | float) and (whole(call.kwargs.get("max_steps")) or -1) < 0:
            return seen.say(
                max(1, int(count)),
                [call.where],
                Confidence.HIGH if "num_train_epochs" in call.kwargs else Confidence.MEDIUM,
            )
    for loops in _training_loops(seen):
        for loop in loops:
            if _is_epochs(loop) and loop.length:
                return seen.say(loop.length, [loop.where])
    declared = epochs_argument(seen)
    if declared is not None:
        return seen.say(declared[0], [declared[1]])
    named = number_named(seen, EPOCH_NAMES, 1, 1e6)
    if named is not None:
        return seen.say(named[0], [named[1]], Confidence.MEDIUM, f"Taken from {named[2]}.")
    around = next((loop for loops in _training_loops(seen) for loop in _around_data(loops)), None)
    if around is not None:
        return seen.say(around.length or 1, [around.where], Confidence.MEDIUM, "Each round goes over all the data.")
    loops_by_name = (loop for call in seen.facts.calls for loop in call.loops if loop.length and _is_epochs(loop))
    named_loop = next(loops_by_name, None)
    if named_loop is not None:
        return seen.say(named_loop.length or 1, [named_loop.where], Confidence.MEDIUM)
    return seen.ask("How many epochs should it train?")


def _around_data(loops: tuple[Loop, ...]) -> Iterator[Loop]:
    """Yield counting loops with a loop over data inside, whatever their counters are called."""
    for outer, inner in itertools.pairwise(loops):
        if outer.length and _counts(outer) and inner.data is not None and not _counts(inner):
            yield outer


def _counts(loop: Loop) -> bool:
    """Return whether the loop goes over a `range`."""
    return isinstance(loop.data, Thing) and loop.data.path == "range"


def _is_epochs(loop: Loop) -> bool:
    """Return whether the loop's target is named after epochs."""
    return "epoch" in loop.target.lower()


def _training_loops(seen: Seen) -> list[tuple[Loop, ...]]:
    """Return the loops around each call that updates weights, the most deeply nested first."""
    return sorted((situation.loops for situation in _step_ends(seen)), key=len, reverse=True)


def _step_ends(seen: Seen) -> list[Situation]:
    """Return the calls in loops that end a training step."""
    ends = [call for call in seen.calls_named(*_ENDS, "step", "update") if _ends_a_step(call)]
    return [call for call in ends if call.loops]


def _ends_a_step(call: Call) -> bool:
    """Return whether the call ends a training step, not that of a learning rate scheduler or the like."""
    if call.last == "update":
        return call.path.startswith("flax.nnx.")
    return call.last != "step" or (
        isinstance(call.owner, Thing)
        and call.owner.path.startswith("torch.optim.")
        and "lr_scheduler" not in call.owner.path
    )


def steps(
    seen: Seen, training: bool, epochs: Conclusion[int], batch: int | None, data: Conclusion[Dataset]
) -> Conclusion[int]:
    """Return all steps of the run, assumed if the code does not say."""
    if not training:
        return seen.ask("How many samples does it go through?", "It does not train.")
    for call in trainer_arguments(seen):
        most = whole(call.kwargs.get("max_steps", -1))
        if most is not None and most > 0:
            return _trainer_steps(seen, most, call)
    counted = _product_of_loops(seen)
    if counted is not None:
        return seen.say(*counted)
    named = number_named(seen, STEP_NAMES, 1, 1e10)
    if named is not None and epochs.value is None:
        return seen.say(named[0], [named[1]], Confidence.MEDIUM, f"Taken from {named[2]}.")
    samples = _samples(seen, data)
    if epochs.value is not None and samples is not None and batch:
        return Conclusion(
            epochs.value * -(-samples // batch),
            Confidence.MEDIUM,
            epochs.evidence,
            False,
            f"{samples} samples an epoch.",
        )
    if epochs.value is not None:
        each = -(-ASSUMED_SAMPLES // (batch or 32))
        return seen.assume(epochs.value * each, f"{epochs.value} epochs; {ASSUMED_SAMPLES:,} samples each are assumed.")
    if samples is not None and batch:
        each = -(-samples // batch)
        return seen.assume(ASSUMED_EPOCHS * each, f"{samples:,} samples an epoch; {ASSUMED_EPOCHS} epochs are assumed.")
    return seen.assume(ASSUMED_STEPS, f"The code does not say how long it trains; {ASSUMED_STEPS:,} steps are assumed.")


def _trainer_steps(seen: Seen, most: int, call: Call) -> Conclusion[int]:
    """Return the steps in batches: a step of the Trainer takes one batch for each gradient that it accumulates."""
    each = whole(call.kwargs.get("gradient_accumulation_steps", 1)) or 1
    why = f"{most:,} steps of {each} batches." if each > 1 else ""
    return seen.say(most * each, [call.where], Confidence.HIGH, why)


def _product_of_loops(seen: Seen) -> tuple[int, list[Where]] | None:
    """Return the product of the loops around a step, with their lines, if all lengths are known; else None.

    A condition such as `if i % 4 == 0` around the step divides it.
    """
    best: tuple[int, list[Where]] | None = None
    for situation in sorted(_step_ends(seen), key=lambda each: len(each.loops), reverse=True):
        loops = situation.loops
        lengths = [loop.length for loop in loops]
        if None in lengths:
            continue
        product = math.prod(max(1, each or 1) for each in lengths)
        product = max(1, product // math.prod(guard.every for guard in situation.guards))
        if product > 1 and (best is None or product > best[0]):
            best = (product, [loop.where for loop in loops])
    return best


def _samples(seen: Seen, data: Conclusion[Dataset]) -> int | None:
    """Return the samples of one epoch, or None."""
    for call in seen.calls_named("fit"):
        first = settled(call.argument(0, "x"))
        if isinstance(first, Tensor) and first.shape and whole(first.shape[0]):
            return whole(first.shape[0])
    for loops in _training_loops(seen):
        for loop in loops:
            source = settled(loop.data)
            inner = source.attrs.get("dataset") if isinstance(source, Thing) else None
            if inner is not None and length_of(inner):
                return length_of(inner)
    return data.value.samples if data.value is not None else None
