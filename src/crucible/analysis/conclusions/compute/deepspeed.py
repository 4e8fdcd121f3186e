"""DeepSpeed: reads its settings, which split the model over GPUs, offload parts of it and set batch sizes.

The settings are a dict in the program, or a JSON file that the program or its command line names.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from crucible.analysis.conclusions.facts import Seen
from crucible.analysis.conclusions.training.training import STATES, trainer_arguments
from crucible.analysis.values.values import NOWHERE, Value, Where, settled, whole
from crucible.core.routing.profile import Conclusion, Confidence, Distribution, Memory, Precision, Profile

MOST = 1_000_000
"""Characters of a settings file."""
BUCKET = 5e8
LIVE = 1e9
"""DeepSpeed's defaults: elements communicated at once, and parameters gathered at once."""
ON_HOST, WEIGHTS_ON_HOST = 16, 2
"""Bytes of host memory per parameter for an offloaded optimizer, and for offloaded weights."""
BUFFERS = 1.5
"""Pinned buffers and copies on the host, as a factor, from DeepSpeed's own estimate."""
GROUP = 1e9
ROOM = 1e8
"""Parameters in memory at once of an optimizer offloaded to NVMe, and in each buffer of weights offloaded there."""
ROOMS = 5
"""Buffers for weights on NVMe."""
_OPTIONS = ("--deepspeed_config", "--deepspeed-config", "--deepspeed")


class Kept(enum.Enum):
    """Where DeepSpeed keeps a part of the model's state."""

    GPU = enum.auto()
    HOST = enum.auto()
    NVME = enum.auto()


@dataclass(frozen=True)
class Zero:
    """`stage` 1 splits the optimizer's states, 2 gradients too, 3 weights too. `batch` is per GPU."""

    stage: int = 0
    states: Kept = Kept.GPU
    weights: Kept = Kept.GPU
    precision: Precision | None = None
    batch: int | None = None
    accumulate: int = 1
    optimizer: str = ""
    bucket: float = BUCKET
    live: float = LIVE
    group: float = GROUP
    rooms: float = ROOMS * ROOM
    shared: bool = False
    """`batch` is the batch of all GPUs together, because their number is unknown."""

    alone: bool = False
    """The program calls `deepspeed.initialize` itself; otherwise a Trainer fills in what the settings leave open."""

    where: Where = NOWHERE
    name: str = "its settings"


def settings(seen: Seen, gpus: int | None = None) -> Zero | None:
    """Return the program's DeepSpeed settings, or None if it has none or their file is missing. `gpus` splits a total
    batch.
    """
    for config, where in _configs(seen):
        found = _read(seen, config)
        if found is not None:
            name = config if isinstance(config, str) else "its settings"
            alone = bool(seen.calls("deepspeed.initialize"))
            return replace(_zero(found, gpus), alone=alone, where=where, name=name)
    return None


def _configs(seen: Seen) -> Iterator[tuple[Value, Where]]:
    """Yield the settings that are passed somewhere, or the name of their file."""
    for call in seen.calls("deepspeed.initialize"):
        yield settled(call.kwargs.get("config", call.kwargs.get("config_params"))), call.where
    for call in trainer_arguments(seen):
        yield settled(call.kwargs.get("deepspeed")), call.where
    for call in seen.calls("accelerate.DeepSpeedPlugin", "accelerate.utils.DeepSpeedPlugin"):
        yield settled(call.kwargs.get("hf_ds_config")) or _of_plugin(call.kwargs), call.where
    for call in seen.calls("lightning.Trainer"):
        yield _of_strategy(settled(call.kwargs.get("strategy"))), call.where
    words = seen.machine.sources.arguments
    for index, word in enumerate(words):
        name, _, value = word.partition("=")
        if name in _OPTIONS:
            yield value or next(iter(words[index + 1 :]), ""), NOWHERE
    for _, value, where in seen.named(("deepspeed_config", "deepspeed", "ds_config")):
        yield value, where


def _read(seen: Seen, config: Value) -> Mapping[str, Value] | None:
    """Return the settings as a mapping, read from their file if they are a file's name; None if they are neither."""
    if isinstance(config, dict):
        return config if config.keys() & _SECTIONS else None
    data = seen.machine.sources.files.get(config.removeprefix("./")) if isinstance(config, str) else None
    if data is None or len(data) > MOST:
        return None
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


_SECTIONS = frozenset(
    {
        "zero_optimization", "train_batch_size", "train_micro_batch_size_per_gpu", "fp16", "bf16", "optimizer",
        "gradient_accumulation_steps",
    }
)  # fmt: skip


def _of_plugin(arguments: Mapping[str, Value]) -> dict[str, Value]:
    """Return the settings for the arguments of a DeepSpeedPlugin."""
    devices = {name: {"device": arguments.get(f"{name}_device")} for name in ("offload_optimizer", "offload_param")}
    zero = {"stage": arguments.get("zero_stage", 2), **devices}
    steps = arguments.get("gradient_accumulation_steps")
    return {"zero_optimization": zero, "gradient_accumulation_steps": steps}


def _of_strategy(strategy: Value) -> Value:
    """Return the settings for a strategy name of Lightning such as `deepspeed_stage_3_offload`, or None."""
    if not isinstance(strategy, str) or not strategy.startswith("deepspeed"):
        return None
    stage = next((int(part) for part in strategy.split("_") if part.isdecimal()), 2)
    device = {"device": "cpu"} if strategy.endswith("offload") else None
    weights = device if stage == 3 else None
    return {"zero_optimization": {"stage": stage, "offload_optimizer": device, "offload_param": weights}}


def _zero(found: Mapping[str, Value], gpus: int | None) -> Zero:
    """Return the settings in the terms of this module."""
    part = _inner(found, "zero_optimization")
    steps = max(1, whole(found.get("gradient_accumulation_steps")) or 1)
    together = whole(found.get("train_batch_size"))
    each = whole(found.get("train_micro_batch_size_per_gpu"))
    batch = each or (together and max(1, together // (steps * (gpus or 1))))
    kind = settled(_inner(found, "optimizer").get("type"))
    offload = _inner(part, "offload_param")
    return Zero(
        whole(part.get("stage")) or 0,
        Kept.HOST if settled(part.get("cpu_offload")) is True else _kept(_inner(part, "offload_optimizer")),
        _kept(offload),
        _precision(found),
        batch,
        steps,
        kind if isinstance(kind, str) else "",
        _number(part.get("reduce_bucket_size"), BUCKET),
        _number(part.get("stage3_max_live_parameters"), LIVE),
        _number(part.get("sub_group_size"), GROUP),
        _number(offload.get("buffer_count"), ROOMS) * _number(offload.get("buffer_size"), ROOM),
        not each and bool(together) and gpus is None,
    )


def _inner(found: Mapping[str, Value], name: str) -> Mapping[str, Value]:
    """Return a section of the settings, empty if it is missing."""
    value = settled(found.get(name))
    return value if isinstance(value, dict) else {}


def _kept(offload: Mapping[str, Value]) -> Kept:
    """Return where a part with this offload section is kept."""
    device = settled(offload.get("device"))
    return Kept.HOST if device == "cpu" else Kept.NVME if device == "nvme" else Kept.GPU


def _precision(found: Mapping[str, Value]) -> Precision | None:
    """Return the precision that the settings enable, or None."""
    for name, precision in (("bf16", Precision.BF16), ("bfloat16", Precision.BF16), ("fp16", Precision.FP16)):
        if settled(_inner(found, name).get("enabled")) is True:
            return precision
    return None


def _number(value: Value, default: float) -> float:
    value = settled(value)
    return float(value) if isinstance(value, int | float) and value > 0 else default


def apply_settings(seen: Seen, zero: Zero, learned: Profile) -> Profile:
    """Return the profile with the settings applied: they override what the rest of the program suggests."""
    source = f" ({zero.name})" if zero.name != "its settings" else ""
    why = f"From its DeepSpeed settings{source}."
    optimizer, state = learned.optimizer, learned.optimizer_bytes_per_parameter
    if zero.optimizer and (optimizer.assumed or not optimizer.known):
        optimizer = seen.say(zero.optimizer, [zero.where], Confidence.HIGH, why)
        state = seen.say(float(STATES.get(zero.optimizer.lower(), 8.0)), [zero.where], Confidence.HIGH, why)
    spread = learned.distribution
    if spread.value is not Distribution.DEEPSPEED:
        spread = seen.say(Distribution.DEEPSPEED, [zero.where], Confidence.HIGH, why)
    precision: Conclusion[Precision] = learned.precision
    if zero.precision is not None:
        precision = seen.say(zero.precision, [zero.where], Confidence.HIGH, why)
    batch = learned.batch_size if zero.batch is None else _batch(seen, zero.batch, zero, why)
    return replace(
        learned,
        distribution=spread,
        precision=precision,
        batch_size=batch,
        optimizer=optimizer,
        optimizer_bytes_per_parameter=state,
    )


def _batch(seen: Seen, size: int, zero: Zero, why: str) -> Conclusion[int]:
    """Return the batch size as a conclusion, less sure if it is that of all GPUs together."""
    if not zero.shared:
        return seen.say(size, [zero.where], Confidence.HIGH, why)
    why = f"{why} It is the batch of all GPUs together, taken for that of one."
    return seen.say(size, [zero.where], Confidence.LOW, why)


def split_memory(parts: Memory, zero: Zero, learned: Profile) -> Memory:
    """Return the memory as DeepSpeed lays it out: weights and gradients in half precision, and a full-precision copy in
    the optimizer.
    """
    count, learns = learned.parameters.value or 0, learned.trainable_parameters.value or 0
    half = zero.precision if zero.alone else learned.precision.value
    item = 2.0 if half in (Precision.FP16, Precision.BF16) else 4.0
    states = learns * ((learned.optimizer_bytes_per_parameter.value or 0.0) + (4.0 if item < 4 else 0.0))
    weights, gradients = count * item, learns * item
    buffers = 2 * min(zero.bucket, learns) * item
    if zero.states is not Kept.GPU:
        gradients = states = 0.0
    if zero.stage >= 3:
        buffers += min(zero.live, count) * item
    if zero.weights is not Kept.GPU:
        weights = 0.0
    shared = (states, gradients, weights)[: max(0, min(zero.stage, 3))]
    return Memory(weights, gradients, states, parts.activations, parts.workspace + buffers, sum(shared))


def host_bytes(zero: Zero, learned: Profile) -> float:
    """Return the bytes in host memory, for all GPUs of the machine together."""
    count, learns = learned.parameters.value or 0, learned.trainable_parameters.value or 0
    states = _in_memory(zero.states, ON_HOST, learns, zero.group)
    return states + _in_memory(zero.weights, WEIGHTS_ON_HOST, count, zero.rooms)


def _in_memory(kept: Kept, each: float, count: int, most: float) -> float:
    """Return the bytes in host memory. On NVMe only the parameters in buffers count."""
    if kept is Kept.NVME:
        return each * min(count, most)
    return BUFFERS * each * count if kept is Kept.HOST else 0.0
