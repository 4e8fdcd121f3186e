"""Methods of tensors that compute: their results, and what the backward pass keeps."""

from __future__ import annotations

import ast
from collections.abc import Callable

from crucible.analysis.interpreter.machine import Machine
from crucible.analysis.library.call import Asked
from crucible.analysis.library.torch import forward_pass as torch_forward
from crucible.analysis.library.torch import rearrange as torch_moves
from crucible.analysis.library.torch import shapes as torch_shapes
from crucible.analysis.library.torch.shapes import dims_of
from crucible.analysis.values.facts import Step
from crucible.analysis.values.tensors import broadcast, like, lost, matmul, tensor, tensor_arithmetic, view
from crucible.analysis.values.values import UNKNOWN, Name, Tensor, Value, settled, whole

Method = Callable[[Asked, Tensor], Value]
_KINDS = {
    "float": "float32",
    "long": "int64",
    "int": "int32",
    "half": "float16",
    "bfloat16": "bfloat16",
    "double": "float64",
    "bool": "bool",
}
_ARITHMETIC = {
    "add": ast.Add,
    "sub": ast.Sub,
    "mul": ast.Mult,
    "div": ast.Div,
    "add_": ast.Add,
    "mul_": ast.Mult,
    "sub_": ast.Sub,
    "div_": ast.Div,
}
_KEEP_INPUT = frozenset(
    [
        "log",
        "sin",
        "cos",
        "abs",
        "square",
        "clamp",
        "norm",
        "rsqrt",
        "std",
        "var",
        "prod",
        "cumprod",
        "gelu",
        "silu",
        "logsumexp",
        "normalize",
        "clamp_",
        "clip",
    ]
)
_KEEP_RESULT = frozenset(["exp", "sqrt", "sigmoid", "tanh", "relu", "softmax", "log_softmax", "relu_", "rsqrt"])
_SAME = frozenset(
    [
        "contiguous",
        "type",
        "clone",
        "neg",
        "masked_fill",
        "masked_fill_",
        "triu",
        "tril",
        "cumsum",
        "flip",
        "roll",
        "fill_",
        "zero_",
        "normal_",
        "uniform_",
        "random_",
        "copy_",
        "type_as",
        "astype",
        "float",
        "long",
        "int",
        "half",
        "bfloat16",
        "double",
        "bool",
        "to",
        "cuda",
        "cpu",
        "detach",
        "requires_grad_",
        "numpy",
        "pin_memory",
        "bernoulli_",
        "eq",
        "ne",
        "lt",
        "gt",
        "le",
        "ge",
        "logical_not",
        "retain_grad",
        "expand_as",
        "round",
        "floor",
        "sort",
        "xavier_uniform_",
        "index_fill_",
        "scatter_",
        "scatter",
        "nan_to_num",
        "sign",
        "reciprocal",
        "erf",
    ]
)
_REDUCE = frozenset(
    [
        "sum",
        "mean",
        "max",
        "min",
        "argmax",
        "argmin",
        "all",
        "any",
        "amax",
        "amin",
        "median",
        "norm",
        "std",
        "var",
        "prod",
        "logsumexp",
    ]
)


def method(asked: Asked, source: Tensor, name: str) -> Value:
    """Return the result of a method of a tensor."""
    act = _METHODS.get(name)
    if act is not None:
        return act(asked, source)
    if name == "backward":
        backward(asked.machine)
        return None
    if name in _ARITHMETIC:
        return tensor_arithmetic(asked.machine, _ARITHMETIC[name], source, settled(asked.get(0, "other")))
    if name in _REDUCE:
        return _reduced(asked, source, name)
    if name in _KEEP_RESULT:
        return torch_forward.keeps_result(asked.machine, source)
    if name in _KEEP_INPUT:
        return torch_forward.keeps_input(asked.machine, source)
    if name in _SAME:
        return _same(asked, source, name)
    if name in ("item", "tolist", "nelement", "data_ptr", "element_size"):
        return UNKNOWN
    return lost(asked.machine, source)


def backward(machine: Machine) -> None:
    """Record the end of a training step: what was kept is needed now, and then freed."""
    tape = machine.tape
    if tape.kept or tape.flops:
        machine.facts.steps.append(Step(tape.saved, tape.flops, tape.complete, machine.situation(), tape.convolved))
    tape.clear()


def _same(asked: Asked, source: Tensor, name: str) -> Value:
    if name in _KINDS or name in ("to", "type"):
        kind = _KINDS.get(name, source.kind)
        chosen = [settled(each) for each in (*asked.args, asked.kwargs.get("dtype"))]
        for each in chosen:
            if isinstance(each, Name) and each.path.startswith("torch.") and each.path.count(".") == 1:
                kind = {"half": "float16", "float": "float32", "long": "int64"}.get(each.path[6:], each.path[6:])
        return view(source, source.shape) if kind == source.kind else like(source, kind=kind)
    if name in ("detach", "numpy"):
        return Tensor(source.shape, source.kind, False, source.store)
    if name in ("masked_fill", "masked_fill_") and source.grad:
        mask = settled(asked.get(0, "mask"))
        if isinstance(mask, Tensor):
            asked.machine.tape.save(mask)
        return like(source)
    if name in ("clone", "neg", "triu", "tril", "cumsum", "flip", "roll"):
        return like(source)
    if name == "contiguous":
        return like(source) if source.strided else source
    if name == "requires_grad_":
        source.grad = asked.get(0, "requires_grad", True) is not False
        return source
    return view(source, source.shape)


def _reduced(asked: Asked, source: Tensor, name: str) -> Value:
    place = asked.get(0, "dim", asked.kwargs.get("axis"))
    keep = asked.kwargs.get("keepdim") is True or asked.get(1, "keepdim") is True
    if source.grad and name in ("max", "min", "amax", "amin", "norm", "std", "var", "logsumexp", "prod"):
        asked.machine.tape.save(source)
    asked.machine.tape.flops += source.items or 0
    kind = "int64" if name.startswith("arg") else source.kind
    grad = source.grad and not name.startswith("arg")
    if source.shape is None:
        return Tensor(None, kind, grad)
    if place is None or isinstance(place, Tensor):
        return tensor((), kind, grad)
    places = {
        each % max(1, len(source.shape))
        for each in (place if isinstance(place, list | tuple) else (place,))
        if isinstance(each, int)
    }
    shape = tuple(
        1 if number in places else each for number, each in enumerate(source.shape) if keep or number not in places
    )
    result = tensor(shape, kind, grad)
    return (result, tensor(shape, "int64")) if name in ("max", "min") else result


def _powered(asked: Asked, source: Tensor) -> Value:
    return tensor_arithmetic(asked.machine, ast.Pow, source, settled(asked.get(0, "exponent")))


def _multiplied(asked: Asked, source: Tensor) -> Value:
    return matmul(asked.machine, source, settled(asked.get(0, "other")))


def _gathered(asked: Asked, source: Tensor) -> Value:
    index = settled(asked.get(1, "index"))
    if not isinstance(index, Tensor):
        return lost(asked.machine, source)
    if source.grad:
        asked.machine.tape.save(index)
    return tensor(index.shape, source.kind, source.grad)


def _new(asked: Asked, source: Tensor) -> Value:
    dims = dims_of(asked.args)
    return tensor(tuple(each if isinstance(each, int) else UNKNOWN for each in dims), source.kind)


def _top(asked: Asked, source: Tensor) -> Value:
    count = whole(asked.get(0, "k"))
    if source.shape is None:
        return UNKNOWN
    shape = (*source.shape[:-1], UNKNOWN if count is None else count)
    places = tensor(shape, "int64")
    if source.grad:
        asked.machine.tape.save(places)
    return (tensor(shape, source.kind, source.grad), places)


def _chosen(asked: Asked, source: Tensor) -> Value:
    """Return the result of `where(condition, a, b)`; the condition is kept."""
    parts = [each for each in map(settled, asked.args) if isinstance(each, Tensor)]
    shape = source.shape
    for each in parts:
        shape = broadcast(shape, each.shape)
    grad = any(each.grad for each in parts)
    if grad:
        asked.machine.tape.save(source)
    return tensor(shape, parts[0].kind if parts else "float32", grad)


_METHODS: dict[str, Method] = {
    **torch_shapes.METHODS,
    **torch_moves.METHODS,
    "pow": _powered, "matmul": _multiplied, "mm": _multiplied, "bmm": _multiplied, "gather": _gathered,
    "new_zeros": _new, "new_ones": _new, "topk": _top, "where": _chosen,
}  # fmt: skip
