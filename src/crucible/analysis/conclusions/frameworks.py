"""Which frameworks the program is written with."""

from __future__ import annotations

from crucible.analysis.conclusions.seen import Seen
from crucible.analysis.knowledge.frameworks import FRAMEWORKS, of_module
from crucible.analysis.values import Where
from crucible.core.profile import Conclusion, Confidence


def frameworks(seen: Seen) -> Conclusion[tuple[str, ...]]:
    found: dict[str, Where] = {}
    for each in seen.facts.imports:
        for name in of_module(each.module):
            found.setdefault(name, each.situation.where)
    for call in seen.facts.calls:
        # `import tensorflow as tf` and then `tf.keras`: the second is only seen where it is used.
        if call.path.startswith("keras.") and "keras" not in found and "tensorflow" in found:
            found["keras"] = call.where
    for each in seen.facts.made:
        bases = getattr(each, "bases", ())
        if "keras" not in found and "tensorflow" in found and any(base.startswith("keras.") for base in bases):
            found["keras"] = each.where
    order = list(dict.fromkeys(name for names in FRAMEWORKS.values() for name in names))
    names = tuple(sorted(found, key=order.index))
    why = "" if names else "It imports no framework that is known here."
    return seen.say(names, found.values(), Confidence.HIGH, why)
