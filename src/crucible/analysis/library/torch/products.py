"""Products in torch as functions: outer and fused ones, convolutions and look-ups with given weights."""

from __future__ import annotations

import ast
from collections.abc import Callable

from crucible.analysis.library.call import Asked
from crucible.analysis.library.torch import forward_pass as torch_forward
from crucible.analysis.values.tensors import lost, matmul, tensor, tensor_arithmetic
from crucible.analysis.values.values import UNKNOWN, Tensor, Thing, Value, settled


def _outer(asked: Asked) -> Value:
    left, right = settled(asked.get(0, "input")), settled(asked.get(1, "vec2"))
    if not isinstance(left, Tensor) or not isinstance(right, Tensor) or not left.shape or not right.shape:
        return lost(asked.machine, left, right)
    tall = Tensor((left.shape[0], 1), left.kind, left.grad, left.store)
    return tensor_arithmetic(asked.machine, ast.Mult, tall, right)


def _added(asked: Asked) -> Value:
    """Return the result of `addmm(bias, a, b)` or `baddbmm`."""
    made = matmul(asked.machine, settled(asked.get(1, "mat1")), settled(asked.get(2, "mat2")))
    bias = settled(asked.get(0, "input"))
    return tensor_arithmetic(asked.machine, ast.Add, bias, made) if isinstance(bias, Tensor) else made


def _distances(asked: Asked) -> Value:
    left, right = settled(asked.get(0, "x1")), settled(asked.get(1, "x2"))
    if not isinstance(left, Tensor) or not isinstance(right, Tensor) or not left.shape or not right.shape:
        return lost(asked.machine, left, right)
    made = tensor((*left.shape[:-1], right.shape[-2]), left.kind, left.grad or right.grad)
    for each in (left, right, made) if made.grad else ():
        asked.machine.tape.save(each)
    return made


def _convolved(count: int) -> Callable[[Asked], Value]:
    def act(asked: Asked) -> Value:
        source, matrix = settled(asked.get(0, "input")), settled(asked.get(1, "weight"))
        if not isinstance(source, Tensor) or not isinstance(matrix, Tensor) or not matrix.shape:
            return lost(asked.machine, source)
        names = ("bias", "stride", "padding", "dilation", "groups")
        given = {
            name: asked.get(place, name) for place, name in enumerate(names, 2) if asked.get(place, name) is not None
        }
        layer = Thing(f"torch.nn.Conv{count}d", attrs={"weight": matrix})
        convolve = torch_forward.act_of(f"Conv{count}d")
        return convolve(asked.machine, layer, {**given, "out_channels": matrix.shape[0]}, [source])

    return act


def _embedded(asked: Asked) -> Value:
    source, matrix = settled(asked.get(0, "input")), settled(asked.get(1, "weight"))
    if not isinstance(source, Tensor) or not isinstance(matrix, Tensor) or source.shape is None or not matrix.shape:
        return lost(asked.machine, source)
    if matrix.grad:
        asked.machine.tape.save(source)
    return tensor((*source.shape, matrix.shape[-1]), matrix.kind, matrix.grad)


def _normed(asked: Asked) -> Value:
    source = settled(asked.get(0, "input"))
    if not isinstance(source, Tensor) or source.shape is None:
        return lost(asked.machine, source)
    kind = {"batch_norm": "BatchNorm", "instance_norm": "InstanceNorm", "rms_norm": "RMSNorm"}.get(
        asked.name, "GroupNorm"
    )
    affine = any(isinstance(each, Tensor) and each.grad for each in (*asked.args[1:], *asked.kwargs.values()))
    return torch_forward.normalised(asked.machine, source, affine, kind)


def _alike(asked: Asked) -> Value:
    """Return the cosine similarity; norms and quotients of both are kept."""
    left, right = settled(asked.get(0, "x1")), settled(asked.get(1, "x2"))
    if not isinstance(left, Tensor) or not isinstance(right, Tensor) or left.shape is None:
        return lost(asked.machine, left, right)
    place = asked.get(2, "dim", 1)
    place = place % max(1, len(left.shape)) if isinstance(place, int) else 0
    if left.grad or right.grad:
        for each in (left, right):
            asked.machine.tape.save(each)
            asked.machine.tape.save(tensor(each.shape, each.kind))
            asked.machine.tape.save(tensor(each.shape, each.kind))
    return tensor((*left.shape[:place], *left.shape[place + 1 :]), left.kind, left.grad or right.grad)


def _larger(asked: Asked) -> Value:
    left, right = settled(asked.get(0, "input")), settled(asked.get(1, "other"))
    if not isinstance(left, Tensor) or not isinstance(right, Tensor):
        return lost(asked.machine, left, right)
    return tensor_arithmetic(asked.machine, ast.Mult, left, right)  # keeps both, like a product


def _identity(asked: Asked) -> Value:
    size = settled(asked.get(0, "n"))
    other = settled(asked.get(1, "m", size))
    return tensor(tuple(each if isinstance(each, int) else UNKNOWN for each in (size, other)))


HANDLERS: dict[str, Callable[[Asked], Value]] = {
    "torch.outer": _outer, "torch.addmm": _added, "torch.baddbmm": _added, "torch.cdist": _distances,
    "torch.eye": _identity,
    "torch.maximum": _larger, "torch.minimum": _larger, "torch.cosine_similarity": _alike,
    "torch.nn.functional.cosine_similarity": _alike, "torch.nn.functional.embedding": _embedded,
    **{f"torch.nn.functional.conv{count}d": _convolved(count) for count in (1, 2, 3)},
    **{f"torch.nn.functional.{name}": _normed for name in ("group_norm", "batch_norm", "instance_norm", "rms_norm")},
}  # fmt: skip
