"""TF32: the share of a program's 32-bit arithmetic that GPUs compute in TF32, which is faster.

The framework decides: torch uses it for convolutions, TensorFlow and JAX for matrices too; a program can forbid it.
"""

from __future__ import annotations

from crucible.analysis.conclusions.compute.activations import Work
from crucible.analysis.conclusions.facts import Seen
from crucible.analysis.values.values import Where, settled
from crucible.core.routing.profile import Conclusion, Confidence, GpuNeed, Precision, Profile

_CONVOLUTIONS = ("torch.backends.cudnn.allow_tf32 =", "torch.backends.cudnn.conv.fp32_precision =")
_MATRICES = ("torch.backends.cuda.matmul.allow_tf32 =", "torch.backends.cuda.matmul.fp32_precision =")
_TENSORFLOW = "tensorflow.config.experimental.enable_tensor_float_32_execution"
_ALL = frozenset({"tensorflow", "keras", "jax"})


def tf32_share(seen: Seen, learned: Profile, work: Work | None) -> Conclusion[float]:
    """Return the share of the work of a step; 0 if it is not in 32 bits."""
    if learned.precision.value is not Precision.FP32 or learned.gpu.value is GpuNeed.NONE:
        return seen.say(0.0)
    if work is None or not work.flops:
        return Conclusion()  # the question about the work of a step is asked already
    frameworks = set(learned.frameworks.value or ())
    if _ALL & frameworks and not ("torch" in frameworks and work.followed):
        return _all(seen)
    convolutions, matrices = _last_setting(seen, _CONVOLUTIONS), _last_setting(seen, _MATRICES)
    if matrices[0]:
        return seen.say(1.0, matrices[1], Confidence.HIGH, "It allows TF32 for matrix products.")
    if convolutions[0] is False:
        return seen.say(0.0, convolutions[1], Confidence.HIGH, "It forbids TF32.")
    share = min(1.0, work.convolved / work.flops)
    return seen.say(share, (), work.confidence, "torch computes convolutions in TF32 by default." if share else "")


def _all(seen: Seen) -> Conclusion[float]:
    """Return the share for frameworks that use TF32 for everything."""
    for call in seen.calls(_TENSORFLOW):
        if call.argument(0, "enabled") is False:
            return seen.say(0.0, [call.where], Confidence.HIGH, "It forbids TF32.")
    for call in seen.calls("jax.config.update"):
        if call.args[:1] == ("jax_default_matmul_precision",) and call.args[1:] in (("highest",), ("float32",)):
            return seen.say(0.0, [call.where], Confidence.HIGH, "It forbids TF32.")
    why = "TensorFlow and JAX compute matrix products and convolutions in TF32."
    return seen.say(1.0, (), Confidence.MEDIUM, why)


def _last_setting(seen: Seen, paths: tuple[str, ...]) -> tuple[bool | None, list[Where]]:
    """Return how the program sets the switch last, with the line; None if it does not set it."""
    found = [(settled(call.args[0]), call.where) for call in seen.calls(*paths) if call.args]
    settings = [(value in (True, "tf32"), where) for value, where in found if isinstance(value, bool | str)]
    return (settings[-1][0], [settings[-1][1]]) if settings else (None, [])
