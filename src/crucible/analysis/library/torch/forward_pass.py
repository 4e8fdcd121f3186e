"""Forward passes of torch layers: the output shape, what is kept for the backward pass, and the work."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

from crucible.analysis.interpreter.machine import Machine
from crucible.analysis.library.torch.rearrange import pad
from crucible.analysis.values.tensors import cast, like, linear, lost, tensor, view
from crucible.analysis.values.values import UNKNOWN, Tensor, Thing, Value, settled, whole

Given = dict[str, Value]


Act = Callable[[Machine, Thing, Given, list[Value]], Value]


@lru_cache(maxsize=1024)
def act_of(name: str) -> Act:
    """Return the function that applies a layer of this class to its inputs."""
    act = _ACTS.get(name) or next((each for start, each in _FAMILIES if name.startswith(start)), None)
    return act or (_loss if name.endswith("Loss") else _lost)


def _loss(machine: Machine, thing: Thing, given: Given, inputs: list[Value]) -> Value:
    return loss(machine, thing.path.rpartition(".")[2], inputs)


def _lost(machine: Machine, thing: Thing, given: Given, inputs: list[Value]) -> Value:
    return lost(machine, *inputs)


def linear_layer(machine: Machine, thing: Thing, given: Given, inputs: list[Value]) -> Value:
    matrix = thing.attrs.get("weight")
    if not isinstance(matrix, Tensor) or matrix.shape is None:
        return lost(machine, *inputs)
    return linear(machine, inputs[0], matrix, matrix.shape[0])


def _embedding(machine: Machine, thing: Thing, given: Given, inputs: list[Value]) -> Value:
    matrix, source = thing.attrs.get("weight"), inputs[0]
    if not isinstance(matrix, Tensor) or source.shape is None or not matrix.shape:
        return lost(machine, *inputs)
    if matrix.grad:
        machine.tape.save(source)
    return tensor((*source.shape, matrix.shape[-1]), "float32", matrix.grad)


def _spatial(size: Value, kernel: Value, stride: Value, padding: Value, dilation: Value, up: bool = False) -> Value:
    """Return the size of one dimension after a convolution or pooling. `up`: a transposed one."""
    numbers = [whole(each) for each in (size, kernel, stride, dilation)]
    if padding == "same":
        return size
    pad = 0 if padding == "valid" else whole(padding)
    if pad is None or any(each is None for each in numbers):
        return UNKNOWN
    n, k, s, d = (each or 0 for each in numbers)
    if up:
        return (n - 1) * s - 2 * pad + d * (k - 1) + 1
    return (n + 2 * pad - d * (k - 1) - 1) // s + 1 if s else UNKNOWN


def _each(value: Value, count: int) -> tuple[Value, ...]:
    """Return one value for each of `count` dimensions; UNKNOWN if the number does not match."""
    value = settled(value)
    found = tuple(value) if isinstance(value, list | tuple) else (value,) * count
    return found if len(found) == count else (UNKNOWN,) * count


def _conv(machine: Machine, thing: Thing, given: Given, inputs: list[Value]) -> Value:
    name, source, matrix = thing.path.rpartition(".")[2], inputs[0], thing.attrs.get("weight")
    count = int(name[-2])
    if source.shape is None or len(source.shape) < count or not isinstance(matrix, Tensor) or not matrix.shape:
        return lost(machine, *inputs)
    up = "Transpose" in name
    extra = _each(given.get("output_padding", 0), count)
    parts = zip(
        source.shape[-count:],
        matrix.shape[2:],
        _each(given.get("stride", 1), count),
        _each(given.get("padding", 0), count),
        _each(given.get("dilation", 1), count),
        extra,
        strict=False,
    )
    outs = []
    for n, k, s, p, d, more in parts:
        out = _spatial(n, k, s, p, d, up)
        outs.append(out + more if up and isinstance(out, int) and isinstance(more, int) else out)
    return convolved(machine, source, matrix, given.get("out_channels", matrix.shape[0]), tuple(outs), up)


def convolved(
    machine: Machine, source: Tensor, matrix: Tensor, channels: Value, outs: tuple[Value, ...], up: bool
) -> Tensor:
    if machine.tape.half is not None:
        source, matrix = cast(machine, source), cast(machine, matrix)
    assert source.shape is not None
    if matrix.grad or source.grad:
        machine.tape.save(source)
        machine.tape.save(matrix)
    channels = whole(channels) if whole(channels) is not None else UNKNOWN
    result = tensor((*source.shape[: -len(outs) - 1], channels, *outs), source.kind, source.grad or matrix.grad)
    per_output = (matrix.items or 0) / max(1, whole((matrix.shape or (1,))[0]) or 1)
    base = source.items if up else result.items
    machine.tape.convolve(2 * (base or 0) * per_output)
    return result


def _norm(machine: Machine, thing: Thing, given: Given, inputs: list[Value]) -> Value:
    source = inputs[0]
    if source.shape is None:
        return lost(machine, *inputs)
    return normalised(machine, source, "weight" in thing.attrs, thing.path.rpartition(".")[2])


def normalised(machine: Machine, source: Tensor, affine: bool, name: str) -> Tensor:
    """Return the input after a norm, which keeps its input and statistics."""
    half = machine.tape.half
    batch = name.startswith(("Batch", "Sync", "Instance"))
    if half is not None and source.kind == half and not batch:
        source = tensor(source.shape, "float32", source.grad)  # autocast keeps these in full precision
    if source.grad or affine:
        machine.tape.save(source)
        if not batch and source.shape:
            rows = 1
            for each in source.shape[:-1]:
                rows *= whole(each) or 1
            machine.tape.save_bytes(8 * rows)
    machine.tape.flops += 5 * (source.items or 0)
    result = like(source, grad=source.grad or affine)
    if name == "RMSNorm" and source.grad:
        machine.tape.save(like(source))
    return result


def keeps_result(machine: Machine, source: Tensor, inplace: bool = False) -> Tensor:
    """Return the result of an activation whose backward pass needs its result."""
    result = view(source, source.shape) if inplace else like(source)
    if source.grad:
        machine.tape.save(result)
    machine.tape.flops += source.items or 0
    return result


def keeps_input(machine: Machine, source: Tensor) -> Tensor:
    """Return the result of an activation whose backward pass needs its input."""
    if source.grad:
        machine.tape.save(source)
    machine.tape.flops += 4 * (source.items or 0)
    return like(source)


def _keeps_result(machine: Machine, thing: Thing, given: Given, inputs: list[Value]) -> Value:
    return keeps_result(machine, inputs[0], given.get("inplace") is True)


def _keeps_input(machine: Machine, thing: Thing, given: Given, inputs: list[Value]) -> Value:
    return keeps_input(machine, inputs[0])


def dropped(machine: Machine, source: Tensor, share: Value, training: Value = True) -> Tensor:
    """Return the input after dropout. The mask counts as wide as the input; kernels with a byte per item keep less."""
    share = settled(share)
    if training is False or (isinstance(share, int | float) and share == 0):
        return source
    result = like(source)
    if source.grad:
        machine.tape.save(tensor(source.shape, source.kind))
    return result


def _dropout(machine: Machine, thing: Thing, given: Given, inputs: list[Value]) -> Value:
    return dropped(machine, inputs[0], given.get("p", 0.5))


def _pool(machine: Machine, thing: Thing, given: Given, inputs: list[Value]) -> Value:
    name = thing.path.rpartition(".")[2]
    return pooled(machine, inputs[0], given, int(name[-2]), name.startswith("Max"))


def pooled(machine: Machine, source: Tensor, given: Given, count: int, largest: bool) -> Tensor:
    """Return the input after pooling over `count` dimensions."""
    if source.shape is None or len(source.shape) < count:
        return lost(machine, source)
    kernel = given.get("kernel_size", UNKNOWN)
    stride = given.get("stride")
    parts = zip(
        source.shape[-count:],
        _each(kernel, count),
        _each(kernel if stride is None else stride, count),
        _each(given.get("padding", 0), count),
        strict=False,
    )
    outs = tuple(_spatial(n, k, s, p, 1) for n, k, s, p in parts)
    return shrunk(machine, source, outs, largest)


def shrunk(machine: Machine, source: Tensor, outs: tuple[Value, ...], largest: bool) -> Tensor:
    """Return the input pooled to these output sizes."""
    assert source.shape is not None
    result = tensor((*source.shape[: -len(outs)], *outs), source.kind, source.grad)
    if source.grad and (largest or any(each != 1 for each in outs)):  # an average over everything keeps nothing
        machine.tape.save(source)
    if source.grad and largest:
        machine.tape.save(tensor(result.shape, "int64"))
    machine.tape.flops += source.items or 0
    return result


def _adaptive(machine: Machine, thing: Thing, given: Given, inputs: list[Value]) -> Value:
    name = thing.path.rpartition(".")[2]
    count = int(name[-2])
    if inputs[0].shape is None or len(inputs[0].shape) < count:
        return lost(machine, *inputs)
    outs = _each(given.get("output_size", 1), count)
    sized = tuple(size if out is None else out for size, out in zip(inputs[0].shape[-count:], outs, strict=True))
    return shrunk(machine, inputs[0], sized, "Max" in name)


def flattened(machine: Machine, source: Tensor, first: Value, last: Value) -> Tensor:
    """Return the input with these dimensions flattened."""
    if source.shape is None or not isinstance(first, int) or not isinstance(last, int):
        return lost(machine, source)
    size = len(source.shape)
    first, last = first % max(size, 1), last % max(size, 1)
    counts = [whole(each) for each in source.shape[first : last + 1]]
    joined: Value = UNKNOWN if None in counts else math.prod(each or 0 for each in counts)
    return view(source, (*source.shape[:first], joined, *source.shape[last + 1 :]))


def _flatten(machine: Machine, thing: Thing, given: Given, inputs: list[Value]) -> Value:
    return flattened(machine, inputs[0], given.get("start_dim", 1), given.get("end_dim", -1))


def _unflatten(machine: Machine, thing: Thing, given: Given, inputs: list[Value]) -> Value:
    source, place, parts = inputs[0], given.get("dim"), given.get("unflattened_size")
    if source.shape is None or not isinstance(place, int) or not isinstance(parts, list | tuple):
        return lost(machine, *inputs)
    place %= len(source.shape)
    return view(source, (*source.shape[:place], *parts, *source.shape[place + 1 :]))


def _identity(machine: Machine, thing: Thing, given: Given, inputs: list[Value]) -> Value:
    return inputs[0]


def _pad(machine: Machine, thing: Thing, given: Given, inputs: list[Value]) -> Value:
    width = settled(given.get("padding", thing.argument(0, "padding")))
    widths = list(width) if isinstance(width, list | tuple) else [width] * (2 * int(thing.path[-2]))
    if inputs[0].grad and "Reflection" in thing.path:
        machine.tape.save(inputs[0])
    return pad(inputs[0], [whole(each) for each in widths])


def _bilinear(machine: Machine, thing: Thing, given: Given, inputs: list[Value]) -> Value:
    matrix = thing.attrs.get("weight")
    if len(inputs) < 2 or not isinstance(matrix, Tensor) or not matrix.shape or inputs[0].shape is None:
        return lost(machine, *inputs)
    for each in inputs[:2]:
        machine.tape.save(each)
    machine.tape.flops += 2 * (inputs[0].items or 0) * (matrix.items or 0) / max(1, whole(matrix.shape[1]) or 1)
    return tensor((*inputs[0].shape[:-1], matrix.shape[0]), inputs[0].kind, True)


def _bag(machine: Machine, thing: Thing, given: Given, inputs: list[Value]) -> Value:
    """Return the mean of the rows of each bag."""
    matrix = thing.attrs.get("weight")
    if not isinstance(matrix, Tensor) or not matrix.shape or not inputs[0].shape:
        return lost(machine, *inputs)
    machine.tape.save(inputs[0])
    machine.tape.save_bytes(24 * (inputs[0].items or 0))
    return tensor((inputs[0].shape[0], matrix.shape[-1]), "float32", matrix.grad)


def _upsample(machine: Machine, thing: Thing, given: Given, inputs: list[Value]) -> Value:
    return resized(machine, inputs[0], given.get("size"), given.get("scale_factor"))


def resized(machine: Machine, source: Tensor, size: Value, scale: Value) -> Tensor:
    """Return the input resized to a size or by a scale."""
    if source.shape is None or len(source.shape) < 3:
        return lost(machine, source)
    space = source.shape[2:]
    if size is not None:
        outs = _each(size, len(space))
    else:
        scales = _each(scale, len(space))
        known = all(isinstance(n, int) and isinstance(s, int | float) for n, s in zip(space, scales, strict=True))
        outs = tuple(int(n * s) for n, s in zip(space, scales, strict=True)) if known else (UNKNOWN,) * len(space)
    return tensor((*source.shape[:2], *outs), source.kind, source.grad)


def _shuffle(machine: Machine, thing: Thing, given: Given, inputs: list[Value]) -> Value:
    source, factor = inputs[0], whole(given.get("upscale_factor")) or 1
    if source.shape is None or len(source.shape) != 4 or not all(isinstance(each, int) for each in source.shape):
        return lost(machine, *inputs)
    n, c, h, w = source.shape
    return tensor((n, c // factor**2, h * factor, w * factor), source.kind, source.grad)


def _recurrent(machine: Machine, thing: Thing, given: Given, inputs: list[Value]) -> Value:
    """Return the output of an unrolled recurrent layer, which keeps the gates and states of each step."""
    source, name = inputs[0], thing.path.rpartition(".")[2]
    hidden = whole(given.get("hidden_size"))
    both = 2 if given.get("bidirectional") is True else 1
    layers = whole(given.get("num_layers", 1)) or 1
    if source.shape is None or len(source.shape) < 2 or hidden is None:
        return (lost(machine, *inputs), lost(machine))
    rows = (source.items or 0) / max(1, whole(source.shape[-1]) or 1)
    kept = {"LSTM": 6, "GRU": 7, "RNN": 2}[name]
    machine.tape.save(source)
    machine.tape.save_bytes(rows * hidden * both * layers * kept * 4)
    matrices = sum(
        each.items or 0 for each in thing.attrs.values() if isinstance(each, Tensor) and len(each.shape or ()) == 2
    )
    machine.tape.flops += 2 * rows * matrices
    result = tensor((*source.shape[:-1], hidden * both), source.kind, True)
    if layers > 1:
        machine.tape.save_bytes(rows * hidden * both * (layers - 1) * 4)
    batch = source.shape[0] if given.get("batch_first") is True else source.shape[-2]
    state = tensor((layers * both, batch, hidden), source.kind, True)
    return (result, (state, like(state)) if name == "LSTM" else state)


def _cell(machine: Machine, thing: Thing, given: Given, inputs: list[Value]) -> Value:
    source, hidden = inputs[0], whole(given.get("hidden_size"))
    if source.shape is None or hidden is None:
        return lost(machine, *inputs)
    rows = (source.items or 0) / max(1, whole(source.shape[-1]) or 1)
    machine.tape.save(source)
    machine.tape.save_bytes(rows * hidden * 6 * 4)
    machine.tape.flops += 2 * rows * hidden * 4 * (hidden + (whole(source.shape[-1]) or 0))
    state = tensor((*source.shape[:-1], hidden), source.kind, True)
    return (state, like(state)) if "LSTM" in thing.path else state


def loss(machine: Machine, name: str, inputs: list[Value]) -> Value:
    """Return the loss, a scalar. What is kept depends on its kind."""
    sources = [each for each in inputs if isinstance(each, Tensor)]
    grad = any(each.grad for each in sources)
    if grad and name in ("CrossEntropyLoss", "cross_entropy"):
        scores = sources[0]
        machine.tape.save(tensor(scores.shape, "float32"))
        if len(sources) > 1:
            machine.tape.save(sources[1])
    elif grad:
        for each in sources:
            machine.tape.save(each)
    machine.tape.flops += sum(5 * (each.items or 0) for each in sources[:1])
    return tensor((), "float32", grad)


_ACTS: dict[str, Callable[[Machine, Thing, Given, list[Value]], Value]] = {
    "Linear": linear_layer, "Embedding": _embedding, "EmbeddingBag": _bag, "Bilinear": _bilinear, "Flatten": _flatten,
    "Unflatten": _unflatten,
    "Identity": _identity, "Dropout": _dropout, "Dropout1d": _dropout, "Dropout2d": _dropout, "Dropout3d": _dropout,
    "AlphaDropout": _dropout, "Upsample": _upsample, "UpsamplingNearest2d": _upsample,
    "UpsamplingBilinear2d": _upsample,
    "PixelShuffle": _shuffle, "LSTM": _recurrent, "GRU": _recurrent, "RNN": _recurrent, "LSTMCell": _cell,
    "GRUCell": _cell,
    "RNNCell": _cell, "LayerNorm": _norm, "GroupNorm": _norm, "RMSNorm": _norm, "SyncBatchNorm": _norm,
    **dict.fromkeys(("ReLU", "Tanh", "Sigmoid", "Softmax", "LogSoftmax", "ReLU6", "Softmax2d"), _keeps_result),
    **dict.fromkeys(("GELU", "SiLU", "Mish", "ELU", "LeakyReLU", "Softplus", "PReLU", "Hardswish", "SELU", "CELU",
        "Hardtanh", "Hardsigmoid", "LogSigmoid"), _keeps_input),
}  # fmt: skip
_FAMILIES: tuple[tuple[str, Callable[[Machine, Thing, Given, list[Value]], Value]], ...] = (
    ("Conv", _conv), ("BatchNorm", _norm), ("InstanceNorm", _norm), ("MaxPool", _pool), ("AvgPool", _pool),
    ("Adaptive", _adaptive), ("ZeroPad", _pad), ("ReflectionPad", _pad), ("ReplicationPad", _pad),
    ("ConstantPad", _pad),
)  # fmt: skip
