"""The models that a program makes, and how many parameters they have."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import NamedTuple

from crucible.analysis.conclusions.facts import Seen
from crucible.analysis.conclusions.training.flax_models import flax_models
from crucible.analysis.conclusions.training.keras_models import keras_models
from crucible.analysis.conclusions.training.transformer_sizes import DEPTHS, Sizes, sizes_in, sizes_in_order
from crucible.analysis.knowledge.pretrained import pretrained, size_in_name
from crucible.analysis.library.torch.layers import MODULES, parameters_of
from crucible.analysis.library.torch.models import MODEL, classes_of, shape_of
from crucible.analysis.values.values import (
    Either,
    Instance,
    Thing,
    Value,
    Where,
    is_network,
    settled,
    whole,
    worded,
)
from crucible.core.routing.profile import Conclusion, Confidence

_FRAMEWORK = ("torch.", "keras.", "transformers.", "tensorflow.", "jax.", "builtins.", "numpy.", "argparse.", "flax.")
MOST = 50
"""Models to count; a program with more makes them one after another."""

_HOLDERS = frozenset({Thing, Instance, Either, list, tuple, dict})


@dataclass(frozen=True)
class Model:
    """A model of the program. `parameters` is None if unknown; `complete` if the shape of every weight is known."""

    name: str
    value: Value
    where: Where
    parameters: int | None
    trainable: int | None
    complete: bool = True
    sizes: Sizes | None = None
    doubtful: bool = False


def models(seen: Seen) -> tuple[Model, ...]:
    """Return the models that are not parts of others."""
    candidates = _torch_candidates(seen)
    parts = _parts(candidates)
    own = (_torch_model(seen, each, parts.gaps) for each in _roots(candidates, parts.ids))
    counted = (each for each in own if each.parameters or not each.complete)
    found = list(islice(chain(counted, _models_by_name(seen), _keras_and_flax_models(seen)), MOST))
    return tuple(_certainly_made(seen, found)) if found else tuple(_models_by_sizes(seen))


def _certainly_made(seen: Seen, found: list[Model]) -> list[Model]:
    """Return the models without those from functions that nobody calls, if the program itself makes one."""
    if len(found) < 2:
        return found
    made = set(map(id, seen.facts.made[: seen.facts.followed]))
    if not made.issuperset(id(each.value) for each in found):
        made.update(_returned_by_calls(seen, {id(each.value) for each in found}))
    followed = [each for each in found if id(each.value) in made]
    return followed if any(each.parameters for each in followed) else found


def _returned_by_calls(seen: Seen, wanted: set[int]) -> Iterator[int]:
    """Yield the ids of call results in code that is known to run."""
    for call in seen.facts.calls:
        result = call.result
        if type(result) is tuple:
            if not call.swept:
                yield from map(id, result)
        elif id(result) in wanted and not call.swept:
            yield id(result)


def _torch_candidates(seen: Seen) -> list[Value]:
    """Return the models and layers of torch, including parts of others."""
    candidates: list[Value] = [each for each in seen.facts.made if _is_torch_network(each)]
    for call in seen.results:
        if call.result.path in MODULES and not call.path.startswith("."):
            candidates.append(call.result)
            if not call.certain:
                seen.facts.doubtful.add(id(call.result))
    return candidates


def _roots(candidates: list[Value], inner: set[int]) -> Iterator[Value]:
    """Yield the candidates that are not inside another one, each once."""
    done: set[int] = set()
    for each in candidates:
        if (
            id(each) not in inner
            and id(each) not in done
            and not (isinstance(each, Thing) and each.path.endswith("DataParallel"))
        ):
            done.add(id(each))
            yield each


def _is_torch_network(value: Value) -> bool:
    """Return whether the value is an object of a class that derives from a torch module."""
    return is_network(value) and any(base.startswith(("torch.", "lightning.")) for base in value.bases)


class _Parts(NamedTuple):
    """The ids of everything inside some values, and whether any of them has gaps."""

    ids: set[int]
    gaps: bool


def _parts(values: list[Value]) -> _Parts:
    """Return everything inside the values."""
    gaps = False
    found: set[int] = set()
    done: set[int] = set()
    waiting = list(values)
    while waiting and len(found) < 20_000:
        each = waiting.pop()
        if id(each) in done:
            continue
        done.add(id(each))
        gaps = gaps or _is_gap(each)
        inside = _inside(each)
        if _HOLDERS.isdisjoint(map(type, inside)):
            continue  # only weights and numbers: a layer
        for inner in inside:
            kind = type(inner)
            if kind is Either:
                inner = settled(inner)
                kind = type(inner)
            if kind in _HOLDERS and id(inner) not in found:
                found.add(id(inner))
                waiting.append(inner)
    return _Parts(found, gaps or bool(waiting))


def _inside(value: Value) -> Collection[Value]:
    """Return the values directly inside a value."""
    kind = type(value)
    if kind is Thing:
        return _inside_thing(value)
    if kind is Instance:
        return value.attrs.values()  # type: ignore[no-any-return]
    if kind is list or kind is tuple:
        return value  # type: ignore[no-any-return]
    return value.values() if kind is dict else ()


def _inside_thing(thing: Thing) -> Collection[Value]:
    """Return the values directly inside an object of a library."""
    path = thing.path
    if path.endswith("DataParallel"):
        return ()
    args = thing.args if path in MODULES else ()
    if thing.children or args:
        return (*thing.attrs.values(), *thing.children, *args)
    return thing.attrs.values()


def _torch_model(seen: Seen, value: Value, gaps: bool) -> Model:
    """Return the model with its weights counted. `gaps`: some model of the program has gaps."""
    weights = parameters_of(value)
    counts = [each.items for each in weights]
    total = sum(each or 0 for each in counts)
    learns = sum(count or 0 for count, each in zip(counts, weights, strict=True) if each.grad)
    name = value.cls.name if isinstance(value, Instance) else value.path.rpartition(".")[2]
    complete = None not in counts and not (gaps and _has_gaps(value))
    return Model(name, value, value.where, total, learns, complete, None, id(value) in seen.facts.doubtful)


def _has_gaps(value: Value) -> bool:
    """Return whether the value contains a list of layers of unknown length, or a well-known model as a part."""
    waiting = [value]
    seen: set[int] = set()
    while waiting and len(seen) < 5_000:
        each = settled(waiting.pop())
        if id(each) in seen:
            continue
        seen.add(id(each))
        if _is_gap(each):
            return True
        if isinstance(each, (Instance, Thing, list)):
            waiting += [inner for inner in _inside(each) if type(inner) in _HOLDERS]
    return False


def _is_gap(value: Value) -> bool:
    """Return whether the value stands for layers or weights that are not known one by one."""
    return type(value) is Thing and bool(value.attrs.get("incomplete") or value.path == MODEL)


def _models_by_name(seen: Seen) -> Iterator[Model]:
    """Yield the well-known models that are loaded by name, each line once."""
    done: set[str] = set()
    for call in seen.facts.calls:
        result = call.result
        kind = type(result)
        if kind is not tuple and (kind is not Thing or result.path != MODEL):
            continue
        for thing in result if kind is tuple else (result,):
            if not isinstance(thing, Thing) or thing.path != MODEL or thing.where != call.where:
                continue
            made = _named_model(thing, not call.certain)
            key = f"{made.name}{made.where}"
            if key not in done:
                done.add(key)
                yield made


def _named_model(thing: Thing, doubtful: bool) -> Model:
    """Return the model with the parameters of the model, architecture or config that it is made from."""
    name = thing.attrs.get("name")
    known = pretrained(name) if isinstance(name, str) else None
    config = thing.attrs.get("config")
    sizes = sizes_in(config) if isinstance(config, dict) else None
    part = known.part(worded(thing.kwargs.get("subfolder"))) if known is not None else None
    if known is not None and (part is None or part > known.parameters / 2):
        sizes = Sizes(known.layers, known.width, known.heads, known.vocabulary, longest=known.longest)
    shape = shape_of(thing) if known is None else None
    count: float | None = None
    if known is not None:
        count = (part or known.parameters) * 1e6
    elif shape is not None:
        count = shape.with_classes(classes_of(thing)) * 1e6
    elif sizes is not None:
        count = sizes.parameters
    elif isinstance(name, str) and size_in_name(name) is not None:
        count = (size_in_name(name) or 0) * 1e6
    total = int(count) if count is not None else None
    label = name if isinstance(name, str) else _class_name(thing)
    return Model(label, thing, thing.where, total, _trainable_count(thing, sizes, total), True, sizes, doubtful)


def _class_name(thing: Thing) -> str:
    """Return the class that a model of unknown name is made from."""
    parts = [
        part for part in str(thing.attrs.get("path", "")).split(".") if part not in ("from_pretrained", "from_config")
    ]
    return parts[-1] if parts else "model"


def _trainable_count(thing: Thing, sizes: Sizes | None, total: int | None) -> int | None:
    """Return the trainable parameters: all of them, or the LoRA pairs on attention projections. None if unknown."""
    rank = whole(thing.attrs.get("lora"))
    if rank is None:
        return 0 if thing.attrs.get("frozen") else total
    if sizes is None:
        return int((total or 0) * 0.005)
    targets = thing.attrs.get("lora_targets")
    count = len(targets) if isinstance(targets, list | tuple) and targets else 2
    return 2 * rank * sizes.width * count * sizes.layers


def _keras_and_flax_models(seen: Seen) -> Iterator[Model]:
    """Yield the models of Keras and Flax."""
    for each in (*keras_models(seen), *flax_models(seen)):
        yield Model(each.name, each.value, each.where, each.parameters, each.learns, each.complete)


def _models_by_sizes(seen: Seen) -> Iterator[Model]:
    """Yield a model by sizes in a call or config, for a model whose class is not among the files."""
    for call in seen.calls_where(lambda path: "GPT" in path, DEPTHS):
        if call.path.startswith(_FRAMEWORK):
            continue
        sizes = sizes_in(call.kwargs)
        if sizes is None and "GPT" in call.last:
            sizes = sizes_in_order(call.args)
        if sizes is not None:
            yield Model(call.last, None, call.where, sizes.parameters, sizes.parameters, False, sizes)
            return
    for made in seen.facts.made:
        if isinstance(made, Instance):
            sizes = sizes_in(made.attrs)
            if sizes is not None:
                yield Model(made.cls.name, None, made.where, sizes.parameters, sizes.parameters, False, sizes)
                return
    named = {each.name: each.value for each in (*seen.facts.assigned, *seen.facts.options)}
    sizes = sizes_in(named)
    if sizes is not None and sizes.vocabulary:
        where = next(each.where for each in (*seen.facts.options, *seen.facts.assigned) if each.name in named)
        yield Model("transformer", None, where, sizes.parameters, sizes.parameters, False, sizes)


def models_in_memory(found: tuple[Model, ...]) -> tuple[Model, ...]:
    """Return the models that are in memory at once: all that are certainly made, else the largest possible one."""
    certain = tuple(each for each in found if not each.doubtful)
    if certain:
        return certain
    known = [each for each in found if each.parameters is not None]
    return (max(known, key=lambda each: each.parameters or 0),) if known else found[:1]


def parameters(seen: Seen, found: tuple[Model, ...]) -> tuple[Conclusion[str], Conclusion[int], Conclusion[int]]:
    """Return the name of the largest model, and of all models the parameters and the trainable parameters."""
    used = models_in_memory(found)
    known = [each for each in used if each.parameters]
    if not used:
        question: Conclusion[int] = seen.ask("How many parameters does the model have?")
        return seen.ask("Which model does it make?"), question, seen.ask(question.question)
    largest = max(known, key=lambda each: each.parameters or 0) if known else used[0]
    name = seen.say(largest.name, [largest.where], Confidence.HIGH)
    if not known:
        unknown: Conclusion[int] = seen.ask(
            f"How many parameters does {largest.name} have?", "Its name is not a known model."
        )
        return name, unknown, seen.ask(unknown.question)
    sure = (
        Confidence.HIGH
        if all(each.complete and not each.doubtful for each in used)
        else Confidence.MEDIUM
        if largest.sizes
        else Confidence.LOW
    )
    why = "" if sure is not Confidence.LOW else "Some shapes are not constant; their weights are not counted."
    wheres = [each.where for each in sorted(known, key=lambda each: -(each.parameters or 0))]
    total = sum(each.parameters or 0 for each in known)
    learns = sum(each.trainable if each.trainable is not None else each.parameters or 0 for each in known)
    return name, seen.say(total, wheres, sure, why), seen.say(learns, wheres, sure, why)
