"""Functions of torch that compute with tensors."""

from __future__ import annotations

import ast
from collections.abc import Callable

from crucible.analysis.library.call import Asked
from crucible.analysis.library.torch import attention as torch_attention
from crucible.analysis.library.torch import forward_pass as torch_forward
from crucible.analysis.library.torch import methods as torch_methods
from crucible.analysis.values.tensors import linear, lost, matmul, tensor, tensor_arithmetic, view
from crucible.analysis.values.values import UNKNOWN, Tensor, Thing, Value, settled, whole

Handler = Callable[[Asked], Value]


def _unary(keep: str) -> Handler:
    def act(asked: Asked) -> Value:
        source = settled(asked.get(0, "input"))
        if not isinstance(source, Tensor):
            return lost(asked.machine, source)
        if keep == "input":
            return torch_forward.keeps_input(asked.machine, source)
        if keep == "result":
            return torch_forward.keeps_result(asked.machine, source, asked.kwargs.get("inplace") is True)
        return tensor(source.shape, source.kind, source.grad)

    return act


def _arithmetic(kind: type) -> Handler:
    def act(asked: Asked) -> Value:
        left, right = (settled(each) for each in (asked.get(0, "input"), asked.get(1, "other")))
        if not isinstance(left, Tensor) and not isinstance(right, Tensor):
            return lost(asked.machine)
        return tensor_arithmetic(asked.machine, kind, left, right)

    return act


def _matmul(asked: Asked) -> Value:
    return matmul(asked.machine, settled(asked.get(0, "input")), settled(asked.get(1, "other")))


def _linear(asked: Asked) -> Value:
    source, matrix = settled(asked.get(0, "input")), settled(asked.get(1, "weight"))
    if not isinstance(source, Tensor) or not isinstance(matrix, Tensor) or not matrix.shape:
        return lost(asked.machine, source)
    return linear(asked.machine, source, matrix, matrix.shape[0])


def _softmax(asked: Asked) -> Value:
    source = settled(asked.get(0, "input"))
    if not isinstance(source, Tensor):
        return lost(asked.machine, source)
    if asked.machine.tape.half is not None:
        source = Tensor(source.shape, "float32", source.grad)
    return torch_forward.keeps_result(asked.machine, source)


def _dropout(asked: Asked) -> Value:
    source = settled(asked.get(0, "input"))
    if not isinstance(source, Tensor):
        return lost(asked.machine, source)
    return torch_forward.dropped(asked.machine, source, asked.get(1, "p", 0.5), asked.get(2, "training", True))


def _attention(asked: Asked) -> Value:
    parts = [settled(asked.get(place, name)) for place, name in enumerate(("query", "key", "value"))]
    if not all(isinstance(each, Tensor) for each in parts):
        return lost(asked.machine, *parts)
    return torch_attention.attended(asked.machine, *parts)


def _pool(count: int, largest: bool) -> Handler:
    def act(asked: Asked) -> Value:
        source = settled(asked.get(0, "input"))
        if not isinstance(source, Tensor):
            return lost(asked.machine, source)
        given = {
            "kernel_size": asked.get(1, "kernel_size"),
            "stride": asked.get(2, "stride"),
            "padding": asked.get(3, "padding", 0),
        }
        return torch_forward.pooled(asked.machine, source, given, count, largest)

    return act


def _adaptive(count: int, largest: bool) -> Handler:
    def act(asked: Asked) -> Value:
        source, size = settled(asked.get(0, "input")), settled(asked.get(1, "output_size"))
        if not isinstance(source, Tensor) or source.shape is None or len(source.shape) < count:
            return lost(asked.machine, source)
        outs = tuple(size) if isinstance(size, list | tuple) else (size,) * count
        return torch_forward.shrunk(asked.machine, source, outs, largest)

    return act


def _loss(asked: Asked) -> Value:
    return torch_forward.loss(
        asked.machine, asked.name, [settled(each) for each in (*asked.args, *asked.kwargs.values())]
    )


def _flatten(asked: Asked) -> Value:
    source = settled(asked.get(0, "input"))
    if not isinstance(source, Tensor):
        return lost(asked.machine, source)
    return torch_forward.flattened(asked.machine, source, asked.get(1, "start_dim", 0), asked.get(2, "end_dim", -1))


def _gated(asked: Asked) -> Value:
    """Return the result of `glu`: one half gates the other."""
    source, place = settled(asked.get(0, "input")), whole(asked.get(1, "dim", -1))
    if not isinstance(source, Tensor) or not source.shape or place is None:
        return lost(asked.machine, source)
    place %= len(source.shape)
    size = whole(source.shape[place])
    if source.grad:
        asked.machine.tape.save(source)
    half = UNKNOWN if size is None else size // 2
    return tensor((*source.shape[:place], half, *source.shape[place + 1 :]), source.kind, source.grad)


def _interpolate(asked: Asked) -> Value:
    source = settled(asked.get(0, "input"))
    if not isinstance(source, Tensor):
        return lost(asked.machine, source)
    return torch_forward.resized(asked.machine, source, asked.get(1, "size"), asked.get(2, "scale_factor"))


def _layer_norm(asked: Asked) -> Value:
    source = settled(asked.get(0, "input"))
    if not isinstance(source, Tensor) or source.shape is None:
        return lost(asked.machine, source)
    affine = isinstance(asked.get(2, "weight"), Tensor)
    return torch_forward.normalised(asked.machine, source, affine, "LayerNorm")


def _as_method(asked: Asked) -> Value:
    """Call `torch.name(tensor, ...)` as `tensor.name(...)`."""
    source = settled(asked.get(0, "input"))
    if not isinstance(source, Tensor):
        return lost(asked.machine, source)
    inner = Asked(
        asked.machine, asked.path, asked.args[1:], {k: v for k, v in asked.kwargs.items() if k != "input"}, asked.scope
    )
    return torch_methods.method(inner, source, asked.name)


def _one_hot(asked: Asked) -> Value:
    source, count = settled(asked.get(0, "tensor")), whole(asked.get(1, "num_classes"))
    if not isinstance(source, Tensor) or source.shape is None:
        return lost(asked.machine, source)
    return tensor((*source.shape, UNKNOWN if count is None else count), "int64")


def _einsum(asked: Asked) -> Value:
    equation = asked.get(0, "equation")
    parts = [settled(each) for each in asked.args[1:]]
    if (
        not isinstance(equation, str)
        or "->" not in equation
        or "." in equation
        or not all(isinstance(each, Tensor) for each in parts)
    ):
        return lost(asked.machine, *parts)
    inputs, _, output = equation.replace(" ", "").partition("->")
    sizes: dict[str, Value] = {}
    for letters, each in zip(inputs.split(","), parts, strict=False):
        if each.shape is None or len(letters) != len(each.shape):
            return lost(asked.machine, *parts)
        sizes.update(zip(letters, each.shape, strict=True))
        if sum(other.grad for other in parts) > each.grad or (each.grad and len(parts) > 1 and parts.count(each) > 1):
            asked.machine.tape.save(each)
    result = tensor(
        tuple(sizes.get(letter, UNKNOWN) for letter in output), parts[0].kind, any(each.grad for each in parts)
    )
    summed = 1
    for letter, size in sizes.items():
        summed *= (whole(size) or 1) if letter not in output else 1
    asked.machine.tape.flops += 2 * (result.items or 0) * summed
    return result


def _checkpoint(asked: Asked) -> Value:
    """Follow a checkpointed function: only its inputs are kept, and its work is done twice."""
    tape = asked.machine.tape
    for each in asked.args[1:]:
        if isinstance(each, Tensor):
            tape.save(each)
    before, tape.checkpoint, flops = tape.checkpoint, True, tape.flops
    result = asked.machine.call(asked.get(0, "function"), asked.args[1:], {}, asked.scope)
    tape.checkpoint = before
    tape.flops += (tape.flops - flops) / 3  # one more forward pass, while a step counts as three
    return result


def _device(asked: Asked) -> Value:
    chosen = asked.get(0, "type")
    return Thing("torch.device", (chosen,), {}, asked.machine.line)


def _norm_value(asked: Asked) -> Value:
    return view(tensor((), "float32"), ())


_METHODS = [
    "sum",
    "mean",
    "transpose",
    "permute",
    "reshape",
    "unsqueeze",
    "squeeze",
    "split",
    "chunk",
    "unbind",
    "clamp",
    "masked_fill",
    "argmax",
    "argmin",
    "topk",
    "gather",
    "norm",
    "cumsum",
    "triu",
    "tril",
    "repeat_interleave",
    "roll",
    "flip",
    "index_select",
    "max",
    "min",
    "var",
    "std",
    "exp",
    "log",
    "sqrt",
    "rsqrt",
    "pow",
    "square",
    "abs",
    "neg",
    "sin",
    "cos",
    "normalize",
    "swapaxes",
    "movedim",
    "logsumexp",
    "where",
    "narrow",
    "log_softmax",
    "sigmoid",
    "tanh",
    "relu",
]
_BASE = {
    "matmul": _matmul, "bmm": _matmul, "mm": _matmul, "add": _arithmetic(ast.Add), "mul": _arithmetic(ast.Mult),
    "sub": _arithmetic(ast.Sub), "div": _arithmetic(ast.Div), "flatten": _flatten, "softmax": _softmax,
    "einsum": _einsum, "device": _device, "dropout": _dropout,
}  # fmt: skip
_FUNCTIONAL = {
    "relu": _unary("result"), "relu_": _unary("result"), "tanh": _unary("result"), "sigmoid": _unary("result"),
    "gelu": _unary("input"),
    "silu": _unary("input"), "leaky_relu": _unary("input"), "elu": _unary("input"), "softplus": _unary("input"),
    "mish": _unary("input"),
    "relu6": _unary("result"), "softmax": _softmax, "log_softmax": _softmax, "dropout": _dropout, "dropout2d": _dropout,
    "linear": _linear, "scaled_dot_product_attention": _attention, "interpolate": _interpolate,
    "layer_norm": _layer_norm, "glu": _gated,
    "one_hot": _one_hot, "logsigmoid": _unary("input"), "normalize": _unary("input"), "hardtanh": _unary("input"),
    "hardswish": _unary("input"), "selu": _unary("input"),
    **{f"max_pool{size}d": _pool(size, True) for size in (1, 2, 3)},
    **{f"avg_pool{size}d": _pool(size, False) for size in (1, 2, 3)},
    **{f"adaptive_avg_pool{size}d": _adaptive(size, False) for size in (1, 2, 3)},
    **{f"adaptive_max_pool{size}d": _adaptive(size, True) for size in (1, 2, 3)},
    **dict.fromkeys(("cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "kl_div", "huber_loss",
        "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss", "triplet_margin_loss",
        "ctc_loss"), _loss),
}  # fmt: skip
HANDLERS: dict[str, Handler] = {
    **{f"torch.{name}": _as_method for name in _METHODS},
    **{f"torch.nn.functional.{name}": act for name, act in _FUNCTIONAL.items()},
    **{f"torch.{name}": act for name, act in _BASE.items()},
    "torch.utils.checkpoint.checkpoint": _checkpoint,
    "torch.relu": _unary("result"), "torch.sigmoid": _unary("result"), "torch.tanh": _unary("result"),
}  # fmt: skip
