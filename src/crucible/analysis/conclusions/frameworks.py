"""The frameworks the program is written with."""

from __future__ import annotations

from crucible.analysis.conclusions.facts import Seen
from crucible.analysis.knowledge.frameworks import FRAMEWORKS, frameworks_of_module
from crucible.analysis.values.values import Value, Where
from crucible.core.routing.profile import Conclusion, Confidence


def frameworks(seen: Seen) -> Conclusion[tuple[str, ...]]:
    """Return the names of the frameworks that the program imports, in the order of the table."""
    found: dict[str, Where] = {}
    for each in seen.facts.imports:
        for name in frameworks_of_module(each.module):
            found.setdefault(name, each.where)
    if "tensorflow" in found and "keras" not in found:
        # `import tensorflow as tf` does not name Keras: only uses of `tf.keras` do.
        used = [call.where for call in seen.calls_under("keras.")]
        used += [each.where for each in seen.facts.made if _of_keras(each)]
        if used:
            found["keras"] = used[0]
    order = list(dict.fromkeys(name for names in FRAMEWORKS.values() for name in names))
    names = tuple(sorted(found, key=order.index))
    why = "" if names else "It imports no known framework."
    return seen.say(names, found.values(), Confidence.HIGH, why)


def _of_keras(value: Value) -> bool:
    """Return whether the object derives from a class of Keras."""
    return any(base.startswith("keras.") for base in getattr(value, "bases", ()))
