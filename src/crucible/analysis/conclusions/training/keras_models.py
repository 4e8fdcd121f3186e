"""Models of Keras: networks of layers, model classes, and layers used in between."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from crucible.analysis.conclusions.facts import Seen
from crucible.analysis.library.keras.layers import NETWORKS, network
from crucible.analysis.library.keras.own_layers import own_weights
from crucible.analysis.values.facts import Call
from crucible.analysis.values.values import Instance, Tensor, Thing, Where, is_network

_WEIGHTED = (
    "Dense", "Conv", "Embedding", "LSTM", "GRU", "SimpleRNN", "MultiHead", "BatchNorm", "LayerNorm", "Separable",
    "Depthwise", "GroupNorm", "EinsumDense",
)  # fmt: skip


@dataclass(frozen=True)
class Counted:
    """A model: `learns` of its `parameters` are trainable. `complete`: the shape of every weight is known."""

    name: str
    value: Thing | Instance
    where: Where
    parameters: int
    learns: int
    complete: bool


def keras_models(seen: Seen) -> Iterator[Counted]:
    """Yield the models. Each weight is counted once, for the first model that has it.

    Weights built inside the program's own layers belong to the last network around them or, without one, to the first
    model class.
    """
    done: set[int] = set()
    _freeze(seen)
    roots = _roots(seen)
    whole = not _has_open_layers(seen)
    found = [_counted(thing, where, done, whole) for thing, where in roots]
    rest = _take_new(_certain_weights(seen), done)
    classes = [each for each in seen.facts.made if is_network(each) and _of_keras(each)]
    owners = [each for each in found if each.parameters or not each.complete]
    if rest and not owners:
        owners = [Counted(each.cls.name, each, each.where, 0, 0, False) for each in classes[:1]]
    if rest and owners:
        owners[-1] = _with_weights(owners[-1], rest, whole)
    yield from owners


def _freeze(seen: Seen) -> None:
    """Apply `trainable = False` of a network to the layers inside it."""
    for call in seen.results:
        if call.result.attrs.get("frozen") is True:
            for each in weights_of(call.result):
                each.grad = False


def _roots(seen: Seen) -> list[tuple[Thing, Where]]:
    """Return the networks that are not part of another one, with their lines."""
    rows = [(call.result, call.where) for call in seen.results if call.result.path in NETWORKS]
    inner = {id(child) for thing, _ in rows for child in thing.children}
    for thing, _ in rows:
        inner |= {id(each.origin[0]) for each in network(thing) if each.origin is not None}
    return [(thing, where) for thing, where in rows if id(thing) not in inner]


def _counted(thing: Thing, where: Where, done: set[int], whole: bool) -> Counted:
    """Return the network with its weights counted, apart from those already `done`."""
    layers = [each.origin[0] for each in network(thing) if each.origin is not None]
    weights = [weight for layer in layers for weight in weights_of(layer)]
    complete = whole and all(each.items is not None for each in weights)
    argument = thing.kwargs.get("name")
    name = argument if isinstance(argument, str) and argument else thing.path.rpartition(".")[2]
    fresh = _take_new(weights, done)
    return Counted(name, thing, where, _sum(fresh), _sum(each for each in fresh if each.grad), complete)


def weights_of(thing: Thing) -> list[Tensor]:
    """Return the weights of a layer, or of all layers of a network."""
    if thing.path in NETWORKS:
        return [weight for each in network(thing) if each.origin is not None for weight in weights_of(each.origin[0])]
    return [each for name, each in thing.attrs.items() if name.startswith("weight") and isinstance(each, Tensor)]


def _certain_weights(seen: Seen) -> list[Tensor]:
    """Return all weights that were built in code that runs for certain, inside of networks or not."""
    found = [weight for call in seen.results if _makes_certain_layer(call) for weight in weights_of(call.result)]
    own = [each for each in seen.facts.made[: seen.facts.followed] if isinstance(each, Instance) and _of_keras(each)]
    return found + [weight for each in own if id(each) not in seen.facts.doubtful for weight in own_weights(each)]


def _makes_certain_layer(call: Call) -> bool:
    """Return whether the call makes a layer on every run."""
    return not call.guards and call.result.path.startswith("keras.layers.")


def _has_open_layers(seen: Seen) -> bool:
    """Return whether a layer with weights never got an input of known shape."""
    return any(call.result.path.startswith("keras.layers.") and _is_open(call.result) for call in seen.results)


def _is_open(layer: Thing) -> bool:
    """Return whether the layer should have weights, but got no input of known shape."""
    has_weights = layer.path.rpartition(".")[2].startswith(_WEIGHTED)
    return has_weights and not weights_of(layer) and "wrapped" not in layer.attrs


def _of_keras(value: Instance) -> bool:
    return any(base.startswith("keras.") for base in value.bases)


def _take_new(weights: Iterable[Tensor], done: set[int]) -> list[Tensor]:
    """Return the weights that were not counted yet, and mark them as done."""
    found = []
    for each in weights:
        if id(each.store) not in done:
            done.add(id(each.store))
            found.append(each)
    return found


def _with_weights(one: Counted, weights: list[Tensor], complete: bool) -> Counted:
    """Return the model with more weights added."""
    known = complete and all(each.items is not None for each in weights)
    learns = one.learns + _sum(each for each in weights if each.grad)
    return Counted(one.name, one.value, one.where, one.parameters + _sum(weights), learns, known)


def _sum(weights: Iterable[Tensor]) -> int:
    return sum(each.items or 0 for each in weights)
