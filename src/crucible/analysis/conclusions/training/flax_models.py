"""Models of Flax: linen modules that were initialised, and nnx modules that were made."""

from __future__ import annotations

from collections.abc import Iterator

from crucible.analysis.conclusions.facts import Seen
from crucible.analysis.conclusions.training.keras_models import Counted
from crucible.analysis.library.flax import HAVE_WEIGHTS, PARAMETERS, held, holders
from crucible.analysis.values.values import Instance, Tensor, Thing


def flax_models(seen: Seen) -> Iterator[Counted]:
    """Yield the models with their parameters."""
    made = [each for each in seen.facts.made[: seen.facts.followed] if isinstance(each, Instance)]
    yield from (_counted(each, each.attrs[PARAMETERS]) for each in made if PARAMETERS in each.attrs)
    own = [each for each in made if "flax.nnx.Module" in each.bases]
    inner = {id(part) for each in own for part in holders(each) if part is not each}
    yield from (_counted(each, list(holders(each))) for each in own if id(each) not in inner)


def _counted(model: Instance, parts: list[Thing | Instance]) -> Counted:
    """Return the model with the weights of its parts counted, each once."""
    every = {id(part): part for part in parts}.values()
    weights: dict[int, Tensor] = {id(each.store): each for part in every for each in held(part)}
    total = sum(each.items or 0 for each in weights.values())
    complete = all(each.items is not None for each in weights.values()) and not any(_is_open(each) for each in every)
    return Counted(model.cls.name, model, model.where, total, total, complete)


def _is_open(part: Thing | Instance) -> bool:
    """Return whether the part is a layer whose weights are unknown."""
    return isinstance(part, Thing) and part.path.rpartition(".")[2].startswith(HAVE_WEIGHTS) and not held(part)
