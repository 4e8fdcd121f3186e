"""Methods of tensors."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING

from crucible.analysis.facts import Step
from crucible.analysis.iteration import UNROLLED
from crucible.analysis.library import torch_forward, torch_moves
from crucible.analysis.library.asked import Asked
from crucible.analysis.tensors import broadcast, like, lost, matmul, product, tensor, tensor_arithmetic, view
from crucible.analysis.values import UNKNOWN, Name, Tensor, Value, settled, whole

if TYPE_CHECKING:
    from crucible.analysis.machine import Machine

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
    act = _METHODS.get(name) or torch_moves.METHODS.get(name)
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
    """The end of a training step: what was kept is needed now, and then free."""
    tape = machine.tape
    if tape.kept or tape.flops:
        machine.facts.steps.append(Step(tape.saved, tape.flops, tape.complete, machine.situation()))
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


def _dims(args: tuple[Value, ...]) -> tuple[Value, ...]:
    if len(args) == 1 and isinstance(settled(args[0]), list | tuple):
        return tuple(settled(args[0]))
    return tuple(settled(each) for each in args)


def _reshaped(asked: Asked, source: Tensor) -> Value:
    dims = _dims(asked.args or tuple(asked.kwargs.values())[:1])
    if dims and isinstance(dims[0], Name):
        return like(source, kind=dims[0].path.rpartition(".")[2])
    if not dims:
        return lost(asked.machine, source)
    numbers = [whole(each) for each in dims]
    if -1 in numbers:
        rest = product(tuple(each for each in numbers if each != -1)) if None not in numbers else None
        items = source.items
        missing = items // rest if items is not None and rest else None
        numbers = [missing if each == -1 else each for each in numbers]
    shape = tuple(UNKNOWN if each is None else each for each in numbers)
    if asked.name == "reshape" and source.strided:
        return like(Tensor(shape, source.kind, source.grad))
    return view(source, shape)


def _permuted(source: Tensor, order: list[int]) -> Tensor:
    assert source.shape is not None
    made = view(source, tuple(source.shape[place] for place in order))
    made.strided = True
    return made


def _transposed(asked: Asked, source: Tensor) -> Value:
    places = [whole(each) for each in (asked.get(0, "dim0"), asked.get(1, "dim1"))]
    if source.shape is None or None in places or len(source.shape) < 2:
        return view(source, None)
    order = list(range(len(source.shape)))
    first, second = (each % len(order) for each in places if each is not None)
    order[first], order[second] = order[second], order[first]
    return _permuted(source, order)


def _permute(asked: Asked, source: Tensor) -> Value:
    dims = [whole(each) for each in _dims(asked.args)]
    if source.shape is None or None in dims or len(dims) != len(source.shape):
        return view(source, None)
    return _permuted(source, [each % len(dims) for each in dims if each is not None])


def _flattened(asked: Asked, source: Tensor) -> Value:
    return torch_forward.flattened(asked.machine, source, asked.get(0, "start_dim", 0), asked.get(1, "end_dim", -1))


def _unsqueezed(asked: Asked, source: Tensor) -> Value:
    place = whole(asked.get(0, "dim"))
    if source.shape is None or place is None:
        return view(source, None)
    place %= len(source.shape) + 1
    return view(source, (*source.shape[:place], 1, *source.shape[place:]))


def _squeezed(asked: Asked, source: Tensor) -> Value:
    place = whole(asked.get(0, "dim"))
    if source.shape is None:
        return view(source, None)
    if place is None:
        return view(source, tuple(each for each in source.shape if each != 1))
    place %= max(1, len(source.shape))
    return view(source, tuple(each for number, each in enumerate(source.shape) if number != place or each != 1))


def _pieces(asked: Asked, source: Tensor) -> Value:
    """`split` by size, `chunk` by number."""
    size, place = settled(asked.get(0, "split_size")), whole(asked.get(1, "dim", 0))
    if source.shape is None or place is None:
        return UNKNOWN
    place %= max(1, len(source.shape))
    total = whole(source.shape[place])
    lengths: list[int | None]
    if isinstance(size, list | tuple):
        lengths = [whole(each) for each in size]
    elif isinstance(size, int) and size > 0 and total is not None:
        each = -(-total // size) if asked.name == "chunk" else size
        lengths = [min(each, total - start) for start in range(0, total, max(1, each))[:UNROLLED]]
    elif isinstance(size, int) and asked.name == "chunk":
        lengths = [None] * min(size, UNROLLED)
    else:
        return UNKNOWN
    shapes = [
        (*source.shape[:place], UNKNOWN if each is None else each, *source.shape[place + 1 :]) for each in lengths
    ]
    return tuple(view(source, shape) for shape in shapes)


def _unbound(asked: Asked, source: Tensor) -> Value:
    place = whole(asked.get(0, "dim", 0))
    if not source.shape or place is None:
        return UNKNOWN
    place %= len(source.shape)
    count = whole(source.shape[place])
    if count is None or count > 512:
        return UNKNOWN
    return tuple(view(source, (*source.shape[:place], *source.shape[place + 1 :])) for _ in range(count))


def _expanded(asked: Asked, source: Tensor) -> Value:
    dims = _dims(asked.args)
    if source.shape is None:
        return view(source, None)
    old = ((1,) * (len(dims) - len(source.shape))) + source.shape
    return view(source, tuple(mine if new == -1 else new for new, mine in zip(dims, old, strict=False)))


def _repeated(asked: Asked, source: Tensor) -> Value:
    dims = _dims(asked.args)
    if source.shape is None or not all(isinstance(each, int) for each in dims):
        return lost(asked.machine, source)
    old = ((1,) * (len(dims) - len(source.shape))) + source.shape
    return tensor(
        tuple(UNKNOWN if whole(a) is None else a * b for a, b in zip(old, dims, strict=False)),
        source.kind,
        source.grad,
    )


def _size(asked: Asked, source: Tensor) -> Value:
    if source.shape is None:
        return UNKNOWN
    if not asked.args and "dim" not in asked.kwargs:
        return source.shape
    place = whole(asked.get(0, "dim"))
    return source.shape[place] if place is not None and -len(source.shape) <= place < len(source.shape) else UNKNOWN


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
    dims = _dims(asked.args)
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
    """`where(condition, a, b)`; the condition is kept."""
    parts = [each for each in map(settled, asked.args) if isinstance(each, Tensor)]
    shape = source.shape
    for each in parts:
        shape = broadcast(shape, each.shape)
    grad = any(each.grad for each in parts)
    if grad:
        asked.machine.tape.save(source)
    return tensor(shape, parts[0].kind if parts else "float32", grad)


def _viewed_as(asked: Asked, source: Tensor) -> Value:
    other = settled(asked.get(0, "other"))
    return view(source, other.shape if isinstance(other, Tensor) else None)


def _count(asked: Asked, source: Tensor) -> Value:
    items = source.items
    return UNKNOWN if items is None else items


def _dim(asked: Asked, source: Tensor) -> Value:
    return UNKNOWN if source.shape is None else len(source.shape)


_METHODS: dict[str, Method] = {
    "view": _reshaped, "reshape": _reshaped, "transpose": _transposed, "swapaxes": _transposed, "permute": _permute,
    "flatten": _flattened, "unsqueeze": _unsqueezed, "squeeze": _squeezed, "split": _pieces, "chunk": _pieces,
    "unbind": _unbound,
    "expand": _expanded, "repeat": _repeated, "size": _size, "pow": _powered, "matmul": _multiplied, "mm": _multiplied,
    "bmm": _multiplied, "gather": _gathered, "new_zeros": _new, "new_ones": _new, "topk": _top, "where": _chosen,
    "view_as": _viewed_as, "reshape_as": _viewed_as, "numel": _count, "dim": _dim, "t": lambda asked,
    source: _permuted(source, [1, 0]) if source.shape and len(source.shape) == 2 else view(source, None),
}  # fmt: skip
