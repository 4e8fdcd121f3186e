"""Activations that a Keras network keeps per sample, and its work, from the shapes between its layers."""

from __future__ import annotations

import math

from crucible.analysis.library.keras.arguments import Shape, kind_of, read
from crucible.analysis.library.keras.layers import NETWORKS, network
from crucible.analysis.library.keras.shapes import output
from crucible.analysis.values.values import Tensor, Thing, whole

_IN_TURN = ("LSTM", "GRU", "SimpleRNN", "Bidirectional")
"""Layers that process a sequence step by step, whether they return all steps or only the last."""

COLOURS = 4
SMALLER = 8
"""An input with more than COLOURS channels is taken for a feature map, 1/SMALLER as wide as the image."""


def keras_work(thing: Thing, side: int, length: int) -> tuple[float, float]:
    """Return the numbers kept and the FLOPs of the forward pass for one sample. Dimensions that the network leaves open
    are `side` for images and `length` for sequences.
    """
    return _Walk(side, length).of(thing)


class _Walk:
    """Walks through a network and the networks inside it."""

    def __init__(self, side: int, length: int) -> None:
        self._side, self._length = side, length
        self._shapes: dict[int, Shape | None] = {}

    def of(self, thing: Thing, depth: int = 0) -> tuple[float, float]:
        """Return the numbers kept and the FLOPs of a network."""
        kept = flops = 0.0
        tensors = network(thing)
        self._resolve(tensors)
        for each in tensors:
            shape = self._shapes[id(each)]
            if each.origin is None or shape is None:
                kept += _numbers(shape)
                continue
            layer, sources = each.origin
            if layer.path in NETWORKS and layer is not thing and depth < 8:
                inner = self.of(layer, depth + 1)
            else:
                inner = _layer(layer, shape, self._shapes.get(id(sources[0])) if sources else None)
            kept, flops = kept + inner[0], flops + inner[1]
        return kept, flops

    def _resolve(self, tensors: list[Tensor]) -> None:
        """Record the shape of each tensor, inputs first, whose open dimensions become numbers."""
        waiting = list(tensors)
        while waiting:
            each = waiting[-1]
            sources = each.origin[1] if each.origin is not None else ()
            if id(each) in self._shapes:
                waiting.pop()
            elif open_ones := [source for source in sources if id(source) not in self._shapes]:
                waiting.extend(open_ones)
            else:
                self._shapes[id(each)] = self._shape(each, sources)
                waiting.pop()

    def _shape(self, each: Tensor, sources: tuple[Tensor, ...]) -> Shape | None:
        """Return the shape of a tensor whose sources are resolved."""
        if each.shape is None or all(whole(size) is not None for size in each.shape[1:]):
            return each.shape
        if each.origin is not None and each.origin[0].path.startswith("keras.layers.") and sources:
            inputs = tuple(Tensor(self._shapes[id(source)], library="keras") for source in sources)
            return self._filled(output(each.origin[0], inputs[0].shape, inputs))
        return self._filled(each.shape)

    def _filled(self, shape: Shape | None) -> Shape | None:
        """Return the shape with open dimensions replaced by the usual sizes."""
        if shape is None or not shape:
            return shape
        usual = self._side if len(shape) > 3 else self._length
        if len(shape) > 3 and (whole(shape[-1]) or 0) > COLOURS:
            usual = max(1, usual // SMALLER)
        return (shape[0], *(usual if whole(size) is None else size for size in shape[1:]))


def _numbers(shape: Shape | None) -> float:
    """Return how many numbers a sample of this shape has."""
    return math.prod(float(whole(size) or 1) for size in (shape or ())[1:])


def _layer(layer: Thing, shape: Shape, source: Shape | None) -> tuple[float, float]:
    """Return the numbers kept and the FLOPs of a layer, for one sample."""
    kept = _numbers(shape)
    weights = [each for name, each in layer.attrs.items() if name.startswith("weight") and isinstance(each, Tensor)]
    name = kind_of(layer)
    if name == "Embedding":
        return kept, 0.0
    positions = kept / max(1, whole(shape[-1]) or 1) if len(shape) > 2 else 1.0
    if name in _IN_TURN and source is not None and len(source) > 2:
        positions = float(whole(source[1]) or 1)
        kept = positions * sum(whole(each.shape[-1]) or 0 for each in weights if each.shape and len(each.shape) > 1)
    flops = 2 * positions * sum(each.items or 0 for each in weights)
    if name == "MultiHeadAttention":
        more = _attention(layer, shape, source)
        kept, flops = kept + more[0], flops + more[1]
    return kept, flops


def _attention(layer: Thing, shape: Shape, source: Shape | None) -> tuple[float, float]:
    """Return what attention adds for all heads: queries, keys, values, and the scores before and after softmax."""
    arguments = read(layer)
    heads, wide = whole(arguments.get("num_heads")) or 1, whole(arguments.get("key_dim")) or 1
    queries = _numbers(shape[:-1])
    keys = _numbers(source[:-1]) if source else queries
    rows = max(1.0, _numbers((*shape[:-2], 1)))
    scores = queries * keys / rows * heads
    return 3 * queries * heads * wide + 2 * scores, 4 * scores * wide
