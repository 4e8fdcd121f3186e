"""Which frameworks the program is written with."""

from __future__ import annotations

from crucible.analysis.conclusions.facts import Seen
from crucible.analysis.knowledge.frameworks import FRAMEWORKS, of_module
from crucible.analysis.values.values import Value, Where
from crucible.core.routing.profile import Conclusion, Confidence


def frameworks(seen: Seen) -> Conclusion[tuple[str, ...]]:
    found: dict[str, Where] = {}
    for each in seen.facts.imports:
        for name in of_module(each.module):
            found.setdefault(name, each.where)
    if "tensorflow" in found and "keras" not in found:
        # `import tensorflow as tf` and then `tf.keras`: the second is only seen where it is used.
        used = [call.where for call in seen.calls_under("keras.")]
        used += [each.where for each in seen.facts.made if _of_keras(each)]
        if used:
            found["keras"] = used[0]
    order = list(dict.fromkeys(name for names in FRAMEWORKS.values() for name in names))
    names = tuple(sorted(found, key=order.index))
    why = "" if names else "It imports no framework that is known here."
    return seen.say(names, found.values(), Confidence.HIGH, why)


def _of_keras(value: Value) -> bool:
    return any(base.startswith("keras.") for base in getattr(value, "bases", ()))
