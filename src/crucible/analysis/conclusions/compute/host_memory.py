"""Host memory: the interpreter with its libraries, the model, the data it holds, and its worker processes."""

from __future__ import annotations

from crucible.analysis.conclusions.compute.resident_data import ResidentData, batch_bytes, resident_data
from crucible.analysis.conclusions.facts import Seen
from crucible.analysis.values.values import Where, settled, whole
from crucible.core.routing.profile import Conclusion, Confidence, GpuNeed, HostMemory, Memory, Precision, Profile
from crucible.core.routing.roofline import CORES

INTERPRETER = 0.1e9
"""Bytes of Python, NumPy and the program itself."""
LIBRARIES = {
    "torch": 0.3e9, "tensorflow": 0.6e9, "jax": 0.3e9, "keras": 0.1e9, "transformers": 0.3e9, "sklearn": 0.1e9,
    "xgboost": 0.1e9, "lightgbm": 0.1e9, "catboost": 0.2e9, "ray": 0.3e9, "vllm": 1.0e9, "rapids": 1.0e9,
}  # fmt: skip
"""Bytes that each library takes once imported. Rough values: versions differ."""
_BACKENDS = frozenset({"torch", "tensorflow", "jax"})
_ON_TORCH = (
    "transformers", "diffusers", "trl", "stable_baselines3", "sentence_transformers", "ultralytics", "accelerate",
    "deepspeed",
)  # fmt: skip
_STAND_ON = {**dict.fromkeys(_ON_TORCH, "torch"), "keras": "tensorflow"}
"""The backend that a library brings along if the program imports none itself."""
DRIVER = 1.5e9
"""Bytes of host memory for the libraries of a GPU."""
WORKER = 0.25e9
"""Bytes of a data loading process, or of one of several that fit estimators."""
AHEAD = 2
"""Batches that each worker prefetches."""
SHARD = 5e9
"""Bytes of the largest weights file as Hugging Face shards them: read at once if each goes on to the GPU."""

_SEARCHES = (
    "GridSearchCV",
    "RandomizedSearchCV",
    "cross_val_score",
    "cross_validate",
    "Parallel",
    "HalvingGridSearchCV",
)


def host_memory(
    seen: Seen, learned: Profile, parts: Memory | None, offloaded: float = 0.0
) -> tuple[Conclusion[float], Conclusion[HostMemory]]:
    """Return the host memory in GB and its parts in bytes, for one process with its workers.

    `parts` is the memory of the model where it runs, `offloaded` the bytes that its GPUs move to the host.
    """
    data = resident_data(seen)
    unknown = next((each for each in data if each.bytes is None), None)
    workers, lines = _workers(seen)
    size = HostMemory.COPIES * sum(each.bytes or 0 for each in data)
    model = max(
        0.0, _model_bytes(seen, learned, parts) - offloaded
    )  # not at once: weights pass through before anything is offloaded
    found = HostMemory(_base_bytes(learned), model, size, workers, offloaded)
    sure = _confidence(learned, parts, data, unknown)
    question = f"How large is {unknown.name}, which is read whole?" if unknown else ""
    wheres = [each.where for each in sorted(data, key=lambda each: -(each.bytes or 0))] + lines
    evidence = (*seen.say(0, wheres).evidence, *(learned.parameters.evidence if found.model else ()))[:3]
    why = _description(found, data, unknown)
    total = Conclusion(round(found.total / 1e9, 2), sure, evidence, False, why, question)
    return total, Conclusion(found, sure, evidence, False, why)


def _base_bytes(learned: Profile) -> float:
    """Return the bytes of the interpreter, the imported libraries and the GPU's driver."""
    names = set(learned.frameworks.value or ())
    if not names & _BACKENDS:
        names |= {backend for name, backend in _STAND_ON.items() if name in names}
    libraries = sum(LIBRARIES.get(name, 0.0) for name in names)
    return INTERPRETER + libraries + (DRIVER if learned.gpu.value is GpuNeed.REQUIRED else 0.0)


def _model_bytes(seen: Seen, learned: Profile, parts: Memory | None) -> float:
    """Return the bytes of the model: all of it if no GPU does the work, else the weights, which are made or read on the
    host first, at once or file by file.
    """
    if parts is None:
        return 0.0
    if learned.gpu.value is GpuNeed.NONE:
        return parts.total - parts.workspace
    half = learned.precision.value or Precision.FP32
    if _loads_file_by_file(seen, half):
        return min(parts.weights, SHARD)
    return max(parts.weights, (learned.parameters.value or 0) * min(4.0, max(2.0, half.bytes)))


def _loads_file_by_file(seen: Seen, half: Precision) -> bool:
    """Return whether weights go to the GPU as they are read: quantized ones always, others with a `device_map`."""
    if half in (Precision.INT4, Precision.INT8):
        return True
    made = seen.calls_ending("from_pretrained")
    return any(settled(call.kwargs.get("device_map")) not in (None, "cpu") for call in made)


def _workers(seen: Seen) -> tuple[float, list[Where]]:
    """Return the bytes and lines of the loader with the most workers, or of a search with parallel fits."""
    most, lines = 0.0, list[Where]()
    for call in seen.calls_ending("DataLoader"):
        count = whole(call.argument(5, "num_workers", 0)) or 0
        takes = count * (WORKER + AHEAD * batch_bytes(call))
        if takes > most:
            most, lines = takes, [call.where]
    for call in seen.calls_named(*_SEARCHES):
        jobs = settled(call.kwargs.get("n_jobs"))
        count = jobs if isinstance(jobs, int) and jobs > 0 else CORES if jobs == -1 else 0
        if count > 1 and count * WORKER > most:
            most, lines = count * WORKER, [call.where]
    return most, lines


def _confidence(
    learned: Profile, parts: Memory | None, data: list[ResidentData], unknown: ResidentData | None
) -> Confidence:
    """Return the confidence: low if data of unknown size is read, or the model's size is unknown."""
    modelled = parts is not None or not learned.model.known
    if unknown is not None or not modelled:
        return Confidence.LOW
    if parts is not None and learned.gpu.value is GpuNeed.NONE:
        return Confidence.MEDIUM if learned.parameters.confidence is Confidence.HIGH else Confidence.LOW
    return Confidence.MEDIUM if data or parts is not None else Confidence.LOW


def _description(found: HostMemory, data: list[ResidentData], unknown: ResidentData | None) -> str:
    """Return the parts in words."""
    text = f"interpreter and libraries {found.base / 1e9:.2f} GB"
    if found.model:
        text += f", model {found.model / 1e9:.2f} GB"
    if found.data:
        names = ", ".join(dict.fromkeys(each.name for each in data if each.bytes))
        text += f", data with a copy {found.data / 1e9:.2f} GB ({names:.120})"
    if found.offloaded:
        text += f", offloaded by the GPUs {found.offloaded / 1e9:.2f} GB"
    if found.workers:
        text += f", worker processes {found.workers / 1e9:.2f} GB"
    return f"{text}. The size of {unknown.name} is not included." if unknown else f"{text}."
