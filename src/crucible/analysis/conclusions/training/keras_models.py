"""Models of Keras: those put together from layers, those that are classes, and the layers in between."""

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
    """`learns` of its `parameters` learn; `complete` where every weight's shape is known."""

    name: str
    value: Thing | Instance
    where: Where
    parameters: int
    learns: int
    complete: bool


def keras_models(seen: Seen) -> Iterator[Counted]:
    """Each weight is counted once, for the first model that it is found in.

    What is built inside layers of the program's own belongs to the model that was put together last around it; where
    there is none, to the first class.
    """
    done: set[int] = set()
    _freeze(seen)
    roots = _roots(seen)
    whole = not _open(seen)
    found = [_counted(thing, where, done, whole) for thing, where in roots]
    rest = _fresh(_elsewhere(seen), done)
    classes = [each for each in seen.facts.made if is_network(each) and _of_keras(each)]
    owners = [each for each in found if each.parameters or not each.complete]
    if rest and not owners:
        owners = [Counted(each.cls.name, each, each.where, 0, 0, False) for each in classes[:1]]
    if rest and owners:
        owners[-1] = _more(owners[-1], rest, whole)
    yield from owners


def _freeze(seen: Seen) -> None:
    """`trainable = False` of a network holds for the layers inside of it."""
    for call in seen.results:
        if call.result.attrs.get("frozen") is True:
            for each in weights_of(call.result):
                each.grad = False


def _roots(seen: Seen) -> list[tuple[Thing, Where]]:
    rows = [(call.result, call.where) for call in seen.results if call.result.path in NETWORKS]
    inner = {id(child) for thing, _ in rows for child in thing.children}
    for thing, _ in rows:
        inner |= {id(each.origin[0]) for each in network(thing) if each.origin is not None}
    return [(thing, where) for thing, where in rows if id(thing) not in inner]


def _counted(thing: Thing, where: Where, done: set[int], whole: bool) -> Counted:
    layers = [each.origin[0] for each in network(thing) if each.origin is not None]
    weights = [weight for layer in layers for weight in weights_of(layer)]
    complete = whole and all(each.items is not None for each in weights)
    given = thing.kwargs.get("name")
    name = given if isinstance(given, str) and given else thing.path.rpartition(".")[2]
    mine = _fresh(weights, done)
    return Counted(name, thing, where, _sum(mine), _sum(each for each in mine if each.grad), complete)


def weights_of(thing: Thing) -> list[Tensor]:
    """Of a layer, or of all layers of a network that is used as one."""
    if thing.path in NETWORKS:
        return [weight for each in network(thing) if each.origin is not None for weight in weights_of(each.origin[0])]
    return [each for name, each in thing.attrs.items() if name.startswith("weight") and isinstance(each, Tensor)]


def _elsewhere(seen: Seen) -> list[Tensor]:
    """All weights that were built on the way, in code that runs for certain."""
    found = [weight for call in seen.results if _runs(call) for weight in weights_of(call.result)]
    own = [each for each in seen.facts.made[: seen.facts.followed] if isinstance(each, Instance) and _of_keras(each)]
    return found + [weight for each in own if id(each) not in seen.facts.doubtful for weight in own_weights(each)]


def _runs(call: Call) -> bool:
    return not call.guards and call.result.path.startswith("keras.layers.")


def _open(seen: Seen) -> bool:
    """A layer that has weights was never given anything of a known shape, wherever it is made."""
    return any(call.result.path.startswith("keras.layers.") and _is_open(call.result) for call in seen.results)


def _is_open(layer: Thing) -> bool:
    has_weights = layer.path.rpartition(".")[2].startswith(_WEIGHTED)
    return has_weights and not weights_of(layer) and "wrapped" not in layer.attrs


def _of_keras(value: Instance) -> bool:
    return any(base.startswith("keras.") for base in value.bases)


def _fresh(weights: Iterable[Tensor], done: set[int]) -> list[Tensor]:
    found = []
    for each in weights:
        if id(each.store) not in done:
            done.add(id(each.store))
            found.append(each)
    return found


def _more(one: Counted, weights: list[Tensor], complete: bool) -> Counted:
    known = complete and all(each.items is not None for each in weights)
    learns = one.learns + _sum(each for each in weights if each.grad)
    return Counted(one.name, one.value, one.where, one.parameters + _sum(weights), learns, known)


def _sum(weights: Iterable[Tensor]) -> int:
    return sum(each.items or 0 for each in weights)
