"""Attention and transformers of torch, built from projections, fused attention, feed-forward parts and norms."""

from __future__ import annotations

from collections.abc import Callable

from crucible.analysis.interpreter.machine import Machine
from crucible.analysis.library.torch.forward_pass import (
    Given,
    dropped,
    keeps_input,
    keeps_result,
    linear_layer,
    normalised,
)
from crucible.analysis.library.torch.weights import read
from crucible.analysis.values.tensors import cast, like, linear, lost, tensor
from crucible.analysis.values.values import UNKNOWN, Tensor, Thing, Value, whole


def attended(machine: Machine, query: Tensor, key: Tensor, value: Tensor, share: Value = 0) -> Tensor:
    """Return scaled dot-product attention as the fused kernels compute it, which do not keep the scores."""
    query, key, value = cast(machine, query), cast(machine, key), cast(machine, value)
    if query.shape is None or key.shape is None or value.shape is None or len(query.shape) < 3:
        return lost(machine, query)
    result = tensor((*query.shape[:-1], value.shape[-1]), query.kind, query.grad or key.grad or value.grad)
    if result.grad:
        for each in (query, key, value, result):
            machine.tape.save(each)
        rows = 1
        for each in query.shape[:-1]:
            rows *= whole(each) or 1
        machine.tape.save_bytes(4 * rows)
    machine.tape.flops += 4 * (query.items or 0) * (whole(key.shape[-2]) or 1)
    return result


def attention(machine: Machine, thing: Thing, given: Given, inputs: list[Value]) -> Value:
    """Return the output of a MultiheadAttention layer. By default it returns its weights, and uses no fused kernel."""
    query = inputs[0]
    key = inputs[1] if len(inputs) > 1 and isinstance(inputs[1], Tensor) else query
    heads = whole(given.get("num_heads", 8)) or 1
    result = mixed(machine, thing, query, key, heads)
    if given.get("need_weights", True) is not False and result.shape is not None and key.shape is not None:
        first = given.get("batch_first") is True
        batch, rows = (query.shape or (1, 1))[0 if first else 1], (query.shape or (1, 1))[1 if first else 0]
        scores = tensor((batch, heads, rows, key.shape[1 if first else 0]), query.kind, True)
        machine.tape.save(scores)
        machine.tape.save(tensor(query.shape, query.kind))  # the query, scaled
        left = dropped(machine, scores, given.get("dropout", 0.0))
        machine.tape.save(left)
    return (result, UNKNOWN)


def mixed(machine: Machine, thing: Thing, query: Tensor, key: Tensor, heads: int) -> Tensor:
    """Return projections, attention and the output projection of a layer."""
    wide, out = thing.attrs.get("in_proj_weight"), thing.attrs.get("out_proj_weight")
    if (
        query.shape is None
        or key.shape is None
        or not isinstance(wide, Tensor)
        or not isinstance(out, Tensor)
        or not out.shape
    ):
        return lost(machine, query)
    if query is key:
        projected = linear(machine, query, wide, 3 * out.shape[0] if isinstance(out.shape[0], int) else UNKNOWN)
        parts = [tensor(query.shape, projected.kind, True) for _ in range(3)]
    else:
        parts = [linear(machine, each, wide, out.shape[0]) for each in (query, key, key)]
    seen = attended(machine, *parts)
    kept = like(seen)  # the heads merged again
    return linear(machine, kept, out, out.shape[0])


def encoder_layer(machine: Machine, thing: Thing, given: Given, inputs: list[Value]) -> Value:
    """Return attention and a feed-forward part, each with a residual and a norm."""
    source = inputs[0]
    if source.shape is None or len(thing.children) < 5:
        return lost(machine, *inputs)
    heads, share = whole(given.get("nhead", 8)) or 1, given.get("dropout", 0.1)
    decoder = "Decoder" in thing.path
    inner = [each for each in thing.children if isinstance(each, Thing)]
    memory = inputs[1] if decoder and len(inputs) > 1 and isinstance(inputs[1], Tensor) else source
    attention = [each for each in inner if each.path.endswith("MultiheadAttention")]
    linears = [each for each in inner if each.path.endswith("Linear")]
    x = source
    for place, each in enumerate(attention):
        seen = mixed(machine, each, x, x if place == 0 else memory, heads)
        x = normalised(machine, like(dropped(machine, seen, share)), True, "LayerNorm")
    wide = linear_layer(machine, linears[0], {}, [x])
    act = keeps_input if given.get("activation") in ("gelu",) else keeps_result
    wide = dropped(machine, act(machine, wide), share)
    fed = linear_layer(machine, linears[1], {}, [wide])
    return normalised(machine, like(dropped(machine, fed, share)), True, "LayerNorm")


def stack(machine: Machine, thing: Thing, given: Given, inputs: list[Value]) -> Value:
    """Return the input passed through all layers of an encoder or decoder."""

    value: Value = inputs[0]
    for each in thing.children:
        rest = inputs[1:2] if "Decoder" in thing.path and not (isinstance(each, Thing) and "Norm" in each.path) else []
        value = machine.call(each, (value, *rest), {}, machine.nowhere())
    return value


def transformer(machine: Machine, thing: Thing, given: Given, inputs: list[Value]) -> Value:
    """Return the output of a complete transformer."""
    source = inputs[0]
    target = inputs[1] if len(inputs) > 1 else source
    memory: Value = source
    for each in thing.children:
        assert isinstance(each, Thing)
        if each.path.endswith("EncoderLayer"):
            memory = encoder_layer(machine, each, read(each), [memory])
        elif each.path.endswith("DecoderLayer"):
            target = encoder_layer(machine, each, read(each), [target, memory])
    return target


ACTS: dict[str, Callable[[Machine, Thing, Given, list[Value]], Value]] = {
    "MultiheadAttention": attention,
    "TransformerEncoderLayer": encoder_layer,
    "TransformerDecoderLayer": encoder_layer,
    "TransformerEncoder": stack,
    "TransformerDecoder": stack,
    "Transformer": transformer,
}
