"""What the backward pass keeps and the work of a step: followed where possible, else from the model's sizes."""

from __future__ import annotations

from dataclasses import dataclass

from crucible.analysis.conclusions.facts import Seen
from crucible.analysis.conclusions.training.keras_work import keras_work
from crucible.analysis.conclusions.training.models import Model
from crucible.analysis.conclusions.training.training import recomputes
from crucible.analysis.conclusions.training.transformer_sizes import Sizes, sizes_in
from crucible.analysis.interpreter.machine import Exhausted
from crucible.analysis.knowledge.architectures import Architecture, architecture
from crucible.analysis.values.facts import Step
from crucible.analysis.values.tensors import tensor
from crucible.analysis.values.values import UNKNOWN, Function, Instance, Tensor, Thing, Value, settled, whole
from crucible.core.routing.profile import Confidence, Precision

FORWARD_ONLY = 0.1
"""Peak memory of a forward pass without training, as a share of what training keeps."""

MORE_STEPS = 60_000
"""Steps that following one forward pass with made-up inputs may take."""


@dataclass(frozen=True)
class Work:
    """One training step: bytes kept, FLOPs forward and backward, and how they were found."""

    kept: float
    flops: float
    confidence: Confidence
    why: str
    followed: bool = False
    """The program's own step was followed, with the program's own inputs."""

    convolved: float = 0.0
    """FLOPs of convolutions, included in `flops`."""


@dataclass(frozen=True)
class Inputs:
    """Sizes of the model's inputs: `length` in tokens, `side` in pixels. `half` is the precision of the work."""

    batch: int
    length: int
    side: int
    half: Precision
    assumed: bool


def step_work(seen: Seen, found: tuple[Model, ...], inputs: Inputs) -> Work | None:
    """Return the work of a step, or None if nothing is known about the model."""
    followed = _followed(seen.facts.steps)
    if followed is not None:
        why = "Followed through the training step."
        return Work(followed.saved, 3 * followed.flops, Confidence.HIGH, why, True, 3 * followed.convolved)
    parts = [work for model in _each_once(found) if (work := _of_model(seen, model, inputs)) is not None]
    if not parts:
        return None
    worst = min((each.confidence for each in parts), key=[Confidence.LOW, Confidence.MEDIUM, Confidence.HIGH].index)
    kept, flops, convolved = (sum(each) for each in zip(*((w.kept, w.flops, w.convolved) for w in parts), strict=True))
    return Work(kept, flops, worst, parts[0].why, convolved=convolved)


def _each_once(found: tuple[Model, ...]) -> list[Model]:
    """Return one model per line that makes them: a second one is for inspection, or a slow copy of the first."""
    largest: dict[object, Model] = {}
    for model in found:
        known = largest.setdefault((model.name, model.where), model)
        if (model.parameters or 0) > (known.parameters or 0):
            largest[model.name, model.where] = model
    return list(largest.values())


def _followed(steps: list[Step]) -> Step | None:
    """Return the largest step if all steps could be followed, else None."""
    whole_steps = [step for step in steps if step.complete and step.saved > 0]
    largest = max(whole_steps, key=lambda step: step.saved, default=None)
    broken = [step for step in steps if not step.complete]
    return largest if largest is not None and not broken else None


def _of_model(seen: Seen, model: Model, inputs: Inputs) -> Work | None:
    """Return the work of one model, by the best method that its values allow, or None."""
    kept = 0.5 if inputs.half in (Precision.FP16, Precision.BF16, Precision.INT4, Precision.INT8) else 1.0
    if isinstance(model.value, Instance | Thing) and not model.sizes:
        traced = _traced(seen, model, inputs)
        if traced is not None:
            return traced
    if model.sizes is not None:
        return _of_sizes(seen, model.sizes, inputs, kept, Confidence.MEDIUM, "From the depth and width of the model.")
    shape = architecture(model.name)
    if shape is not None:
        return _of_architecture(shape, inputs, kept, learns=model.trainable != 0)
    if isinstance(model.value, Thing) and model.value.path.startswith("keras."):
        items, flops = keras_work(model.value, inputs.side, inputs.length)
        why = "From the shapes between its layers."
        return Work(items * 4 * 1.5 * inputs.batch * kept, 3 * flops * inputs.batch, Confidence.MEDIUM, why)
    sizes = _sizes_of_its_config(seen) if isinstance(model.value, Instance) and not model.complete else None
    if sizes is not None:
        why = "From the depth and width in its config; the code could not be followed through the model."
        return _of_sizes(seen, sizes, inputs, kept, Confidence.LOW, why)
    if model.parameters:
        # Every weight is used at least once per sample; what is kept is then about as large as the weights.
        why = "A rule of thumb: the code could not be followed through the model."
        return Work(4.0 * model.parameters * kept, 6.0 * model.parameters * inputs.batch, Confidence.LOW, why)
    return None


def _of_sizes(seen: Seen, sizes: Sizes, inputs: Inputs, kept: float, sure: Confidence, why: str) -> Work:
    """Return the work of a transformer of known sizes."""
    tokens, again = inputs.batch * inputs.length, recomputes(seen)
    flops = (4 if again else 3) * sizes.flops(tokens, inputs.length)
    return Work(sizes.kept(tokens, 4 * kept, recomputed=again), flops, sure, why)


def _sizes_of_its_config(seen: Seen) -> Sizes | None:
    """Return transformer sizes from the first config object that has them, or None."""
    made = (each.attrs for each in seen.facts.made if isinstance(each, Instance))
    return next((found for attrs in made if (found := sizes_in(attrs)) is not None), None)


def _of_architecture(shape: Architecture, inputs: Inputs, kept: float, learns: bool) -> Work:
    """Return the work of a known architecture. Without training only the layer at work holds memory."""
    side = shape.size if shape.resizes else inputs.side
    scale = inputs.batch * (side / shape.size) ** 2
    items, passes = (shape.activations, 3) if learns else (shape.activations * FORWARD_ONLY, 1)
    why = f"From the known activations of {shape.name} for an image of {shape.size} pixels."
    flops = passes * 2e9 * scale * shape.multiply_adds
    convolved = flops if shape.convolves else 0.0
    return Work(scale * items * 4e6 * kept, flops, Confidence.MEDIUM, why, convolved=convolved)


def _traced(seen: Seen, model: Model, inputs: Inputs) -> Work | None:
    """Return the work of a forward pass that is followed with inputs that fit the first layer; None if that fails."""
    first = _first_layer(model.value)
    if first is None:
        return None
    made = _input_for(first, inputs)
    machine = seen.machine
    tape, limit = machine.tape, machine.limit
    tape.clear()
    tape.recording = True
    tape.half = {Precision.FP16: "float16", Precision.BF16: "bfloat16"}.get(inputs.half)
    machine.limit = machine.steps + MORE_STEPS
    kept_facts = len(machine.facts.calls)
    try:
        result = machine.call(model.value, (made, *_rest(model.value, inputs)), {}, machine.nowhere())
    except (Exhausted, RecursionError):
        return None
    finally:
        machine.limit = limit
        tape.half = None
        del machine.facts.calls[kept_facts:]
    output = settled(result[0] if isinstance(result, tuple) and result else result)
    if not tape.complete or not isinstance(output, Tensor) or output.items is None or tape.saved <= 0:
        return None
    scores = 4.0 * output.items if len(output.shape or ()) > 1 else 0.0
    why = "Followed through the model's forward pass with inputs that fit it."
    sure = Confidence.MEDIUM if not inputs.assumed else Confidence.LOW
    return Work(tape.saved + scores, 3 * tape.flops, sure, why, convolved=3 * tape.convolved)


def _rest(value: Value, inputs: Inputs) -> tuple[Value, ...]:
    """Return unknown values for the other required arguments of `forward`."""
    if not isinstance(value, Instance):
        return ()
    forward = value.cls.lookup("forward")
    if not isinstance(forward, Function):
        return ()
    names = [each.arg for each in forward.node.args.args][2:]
    return tuple(UNKNOWN for name in names if name not in forward.defaults)


def _first_layer(value: Value, depth: int = 0) -> Thing | None:
    """Return the first layer that was made, which is taken for the one that gets the input; None if there is none."""
    value = settled(value)
    if depth > 12:
        return None
    if isinstance(value, Thing):
        if any(isinstance(each, Tensor) for each in value.attrs.values()) and value.path.startswith("torch.nn."):
            return value
        inner: list[Value] = list(value.children)
    elif isinstance(value, Instance):
        inner = list(value.attrs.values())
    else:
        inner = (
            list(value) if isinstance(value, list | tuple) else list(value.values()) if isinstance(value, dict) else []
        )
    for each in inner:
        found = _first_layer(each, depth + 1)
        if found is not None:
            return found
    return None


def _input_for(layer: Thing, inputs: Inputs) -> Tensor:
    """Return a tensor that the layer accepts."""
    name, weight = layer.path.rpartition(".")[2], layer.attrs.get("weight")
    shape = weight.shape if isinstance(weight, Tensor) and weight.shape else (1, 1)
    if name.startswith("Embedding"):
        return tensor((inputs.batch, inputs.length), "int64")
    if name.startswith("Conv") and "Transpose" not in name:
        groups = whole(layer.kwargs.get("groups", 1)) or 1
        channels = (whole(shape[1]) or 1) * groups
        return tensor((inputs.batch, channels, *([inputs.side] * int(name[-2]))))
    if name.startswith("ConvTranspose"):
        return tensor((inputs.batch, whole(shape[0]) or 1, *([1] * int(name[-2]))))
    if name in ("LSTM", "GRU", "RNN"):
        size = whole(layer.argument(0, "input_size")) or 1
        return tensor((inputs.batch, inputs.length, size))
    if name.startswith(("Transformer", "Multihead")):
        return tensor((inputs.batch, inputs.length, whole(layer.argument(0, "d_model")) or 1))
    return tensor((inputs.batch, whole(shape[-1]) or 1))
