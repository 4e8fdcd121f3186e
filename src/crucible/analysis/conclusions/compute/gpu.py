"""Whether the program needs a GPU: never, optionally, or always."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from itertools import chain

from crucible.analysis.conclusions.compute.placement import (
    ARGUMENTS,
    BITS,
    DEEPSPEED,
    NEEDS,
    OFFLOADS,
    PLACED,
    TRAINER_ROOTS,
    TRAINERS,
    WORDS,
    Sign,
    demands,
    device_variables,
    fits_are_tried,
    is_kept_off,
    is_trainer,
    is_trainers_class,
    names_gpu,
    required_by_environment,
    roots_kept_off,
    trees_maybe_on_gpu,
    trees_on_gpu,
)
from crucible.analysis.conclusions.facts import Seen
from crucible.analysis.conclusions.guarded_calls import errors_are_caught, without_handled
from crucible.analysis.interpreter.iteration import items_of
from crucible.analysis.knowledge.frameworks import ONLY_GPU, PLAIN
from crucible.analysis.library.python.standard import ASKS, JAX_DEVICE
from crucible.analysis.values.facts import Assigned, Call, Situation
from crucible.analysis.values.values import Either, Instance, Thing, Value
from crucible.core.routing.profile import Conclusion, Confidence, GpuNeed

_FLAG = re.compile(
    r"(^|_)(cuda|gpu|gpus|gpu_id|device|devices|accel|accelerator)($|_)|^(no|use|disable|enable)_?(cuda|gpu|accel)"
)
_NEVER = PLAIN | sys.stdlib_module_names
_DEVICE = re.compile(r"cuda(:\d+)?")
_ITSELF = (
    "keras.",
    "tensorflow.",
    "jax.",
    "flax.",
    "haiku.",
    "equinox.",
    "optax.",
    "numpyro.",
    "keras_nlp.",
    "keras_cv.",
    "keras_hub.",
    "keras_core.",
    "keras_rs.",
    "paddle.",
    "brax.",
    "transformers.TF",
    "transformers.Flax",
)
_DATA_ONLY = (
    "keras.datasets.", "keras.utils.", "tensorflow.data.", "tensorflow.io.", "tensorflow.random.set_seed",
    "keras.preprocessing.",
    "tensorflow.config.", "tensorflow.get_logger", "tensorflow.compat.", "tensorflow.summary.", "jax.config.",
    "tensorflow.train.Bytes", "tensorflow.train.Int64", "tensorflow.train.Float", "tensorflow.train.Feature",
    "tensorflow.train.Example", "tensorflow.train.SequenceExample", "tensorflow.make_tensor_proto",
    "tensorflow.make_ndarray", "numpyro.set_", "tensorflow.lite.",
    "tensorflow.autograph.", "paddle.io.", "paddle.vision.transforms.", "paddle.vision.datasets.", "paddle.set_device",
)  # fmt: skip
_GPU_MEMORY = (
    "tensorflow.config.experimental.get_memory_info",
    "tensorflow.config.experimental.reset_memory_stats",
    "tensorflow.config.experimental.get_memory_usage",
)
_JAX_DEVICES = ("jax.devices", "jax.local_devices", "jax.device_count", "jax.local_device_count")
_TPUS = (
    "tensorflow.tpu.experimental.initialize_tpu_system",
    "tensorflow.distribute.TPUStrategy",
    "tensorflow.distribute.experimental.TPUStrategy",
    "jax.tools.colab_tpu.setup_tpu",
)


def gpu_need(seen: Seen, unseen_model: bool = False) -> Conclusion[GpuNeed]:
    """Return whether the program needs a GPU. `unseen_model`: the model's class is not among the files, so that it may
    move itself to a GPU.
    """
    calls = seen.calls_where(_may_concern_gpus, _RELEVANT_KEYWORDS, _names_device)
    required = without_handled(seen, _required(seen, calls))
    forbidden = _forbidden(seen, bool(required))
    if forbidden is not None:
        return seen.say(GpuNeed.NONE, [forbidden[0]], Confidence.HIGH, forbidden[1])
    if required:
        return seen.say(GpuNeed.REQUIRED, (where for where, _ in required), Confidence.HIGH, required[0][1])
    optional = _optional(seen, calls)
    first = next(optional, None)
    if first is not None:
        lines = (where for where, _ in chain((first,), optional))
        return seen.say(GpuNeed.OPTIONAL, lines, Confidence.HIGH, first[1])
    if unseen_model:
        return seen.assume(
            GpuNeed.OPTIONAL, "The model's own code is not among the files; it is assumed to use a GPU if there is one."
        )
    why = "Nothing in the code that runs moves work to a GPU."
    return seen.say(GpuNeed.NONE, (), Confidence.MEDIUM if seen.facts.notes else Confidence.HIGH, why)


def _always(situation: Situation) -> bool:
    """Return whether it happens on every run, as far as its conditions tell, and its failure is not handled."""
    return situation.certain and not situation.tried


def is_cuda(value: Value) -> bool:
    """Return whether the value certainly names a GPU: as text, as a number, or as a device made from one."""
    if isinstance(value, int):
        return not isinstance(value, bool) and value >= 0
    if isinstance(value, str):
        return value.startswith(("cuda", "gpu")) or value == "GPU"
    return isinstance(value, Thing) and value.path == "torch.device" and is_cuda(value.argument(0, "type"))


def maybe_cuda(value: Value) -> bool:
    """Return whether the value may name a GPU, depending on a condition."""
    if isinstance(value, Either):
        return any(is_cuda(each) or maybe_cuda(each) for each in value.options)
    return isinstance(value, Thing) and value.path == "torch.device" and maybe_cuda(value.argument(0, "type"))


_NUMPYRO = "numpyro.set_platform"
_DEVICE_WORDS = ("device", "device_map", "map_location", "device_type", "accelerator", "tree_method", "task_type")
_RELEVANT_KEYWORDS = (*_DEVICE_WORDS, *BITS, *WORDS)
_PLACING = frozenset({"torch.device", "jax.devices", "torch.set_default_device", "paddle.set_device", _NUMPYRO})
_RELEVANT = frozenset({*_PLACING, *PLACED, *ARGUMENTS, *DEEPSPEED, *NEEDS, *_GPU_MEMORY, *ASKS, *TRAINERS})
_RELEVANT_ROOTS = (*TRAINER_ROOTS, *_ITSELF, "torch.accelerator.", "fastai.", "ultralytics.", "ray.")
_RELEVANT_ENDS = ("cuda", "to", "DistributedDataParallel", "init_process_group", *OFFLOADS)


def _may_concern_gpus(path: str) -> bool:
    """Return whether calls of this path are worth a look; most say nothing about a GPU, whatever their arguments."""
    return (
        path in _RELEVANT
        or path.startswith(_RELEVANT_ROOTS)
        or path.endswith(_RELEVANT_ENDS)
        or is_trainers_class(path)
    )


def _device_arguments(call: Call) -> Iterator[Value]:
    """Yield the arguments that may name a device."""
    if call.last == "to" or call.path in _PLACING:
        yield from call.args
    if call.path.startswith("jax."):
        yield call.kwargs.get("backend")
    for name in _DEVICE_WORDS:
        if name in call.kwargs and call.last != "autocast":
            yield call.kwargs[name]


def _required(seen: Seen, calls: list[Call]) -> Iterator[Sign]:
    """Yield the lines that fail without a GPU, each with why."""
    for where in seen.facts.refusals:
        yield where, "It exits if there is no GPU."
    asks = any(call.path in ASKS for call in calls)
    for call in calls:
        if not _always(call) or call.without_gpu:
            continue
        if asks and call.path == "torch.device":
            continue  # Making the device object never fails; only placing something on it does.
        if fits_are_tried(seen, call):
            continue
        if call.last == "cuda" and call.path not in ("torch.cuda", "torch.version.cuda"):
            yield call.where, "It moves work to a GPU without checking whether there is one."
        elif any(is_cuda(each) for each in map(_definite, _device_arguments(call))):
            yield call.where, "It names a GPU as its device."
        elif _names_device(call):
            yield call.where, "It passes on a GPU as the device."
        elif call.path in NEEDS:
            yield call.where, f"It calls {call.path}, which fails without a GPU."
        elif call.path in _GPU_MEMORY and names_gpu(call.argument(0, "device")):
            yield call.where, "It reads the memory of a GPU, which fails without one."
        elif call.last == "DistributedDataParallel" and isinstance(call.kwargs.get("device_ids"), list):
            yield call.where, "It places copies of the model on GPUs by number."
        elif _nccl(call):
            yield call.where, "Its processes communicate over NCCL, which needs GPUs."
        else:
            yield from demands(call)
    for each in seen.facts.imports:
        if each.module.partition(".")[0] in ONLY_GPU and each.certain:
            yield each.where, f"It imports {each.module}, which needs a GPU."
    yield from trees_on_gpu(seen)
    yield from required_by_environment(seen)


_NAMING = frozenset({str, list, tuple})
"""Types of values that may name a device. Most calls have no such argument, which this tells without a look at each."""


def _names_device(call: Call) -> bool:
    """Return whether a call passes on `"cuda:0"`, alone or in a list. Precision set "for cuda" works without a GPU."""
    everything = (*call.args, *call.kwargs.values()) if call.kwargs else call.args
    if _NAMING.isdisjoint(map(type, everything)):
        return False
    for argument in everything:
        kind = type(argument)
        texts = argument[:16] if kind is list or kind is tuple else (argument,) if kind is str else ()
        if texts and any(map(_is_device, texts)):
            return _hands_on(call)
    return False


def _is_device(value: Value) -> bool:
    """Return whether the value is the name of a GPU device."""
    return isinstance(value, str) and len(value) < 12 and _DEVICE.fullmatch(value) is not None


_NAME_ONLY = frozenset(
    {
        "autocast", "GradScaler", "startswith", "endswith", "count", "index", "append", "add_text", "split",
        "isin", "replace", "query", "eq",
    }
)  # fmt: skip
"""Methods that only compare, keep or show the name of a device."""

_NAME_ONLY_MODULES = (PLAIN - {"joblib"}) | {
    "builtins", "argparse", "os", "sys", "subprocess", "logging", "warnings", "re", "json", "csv", "pathlib", "string",
    "textwrap", "time", "datetime", "platform", "shutil", "glob", "sqlite3", "pickle", "configparser", "unittest",
}  # fmt: skip
"""Modules that only print, keep or look up the name of a device. Others may keep it for functions that use it."""


def _hands_on(call: Call) -> bool:
    """Return whether the callee may put work on a device that it is given."""
    return call.last not in _NAME_ONLY and call.path.partition(".")[0] not in _NAME_ONLY_MODULES


def _spread(call: Call) -> bool:
    """Return whether the call spreads a model over the devices there are."""
    return call.kwargs.get("device_map") in ("auto", "balanced", "balanced_low_0", "sequential")


def _definite(value: Value) -> Value:
    """Return the value, or None if it is one of several."""
    return value if not isinstance(value, Either) else None


def _nccl(call: Call) -> bool:
    """Return whether the call sets up communication over NCCL."""
    if not call.path.endswith("init_process_group"):
        return False
    return bool(call.argument(0, "backend") == "nccl")


def _optional(seen: Seen, calls: list[Call]) -> Iterator[Sign]:
    """Yield the lines that use a GPU if there is one, or if a setting says so, each with why."""
    off = roots_kept_off(calls)
    for call in calls:
        if is_kept_off(call, off):
            continue
        if call.path in ASKS:
            yield call.where, "It checks whether there is a GPU."
        elif (
            call.last == "cuda"
            or any(is_cuda(each) or maybe_cuda(each) for each in _device_arguments(call))
            or _names_device(call)
        ):
            yield call.where, "It uses a GPU under a condition."
        elif is_trainer(call) or is_trainers_class(call.path):
            yield call.where, f"{call.path} uses a GPU if there is one."
        elif _computes(call.path):
            yield call.where, f"{call.path.partition('.')[0]} uses a GPU if there is one."
        elif call.path.startswith("torch.accelerator.") or _spread(call):
            yield call.where, "It runs on an accelerator if there is one."
    for each in seen.facts.made:
        bases = each.bases if isinstance(each, Instance) else ()
        if any(base in TRAINERS or base.startswith(_ITSELF) for base in bases):
            yield each.where, "Its framework uses a GPU if there is one."
    yield from trees_maybe_on_gpu(seen)
    for where in seen.facts.switched_off:
        yield where, "A flag would turn on GPU use."
    if _imports_gpu_capable(seen):
        for option in _device_options(seen):
            yield option.where, f"The option {option.name} chooses the device."
        for call in seen.calls_where(lambda path: path.endswith(".add_argument"), ("choices",)):
            if any(map(is_cuda, filter(_is_text, items_of(call.kwargs.get("choices")) or ()))):
                yield call.where, "One of its options has a GPU among its choices."
        yield from device_variables(seen)
    for each in seen.facts.imports:
        if each.module.partition(".")[0] in ONLY_GPU:
            yield each.where, f"It imports {each.module} if it is installed."


def _is_text(value: Value) -> bool:
    return isinstance(value, str)


def _device_options(seen: Seen) -> list[Assigned]:
    """Return the options that sound like they choose a device."""
    return [option for option in seen.facts.options if _FLAG.search(option.name.lower())]


_TF_HIDES = ("tensorflow.config.set_visible_devices", "tensorflow.config.experimental.set_visible_devices")
_ON_CPU = (("jax_platform_name", "cpu"), ("jax_platforms", "cpu"))


_KERAS_ON_CPU = (("KERAS_BACKEND", "numpy"), ("KERAS_BACKEND", "openvino"))
_HIDING = frozenset(
    {
        "os.environ[]",
        "os.environ.setdefault",
        "os.putenv",
        "paddle.set_device",
        "jax.config.update",
        _NUMPYRO,
        *_TF_HIDES,
        *_TPUS,
        *_JAX_DEVICES,
    }
)


def _hides(name: Value = None, value: Value = None) -> bool:
    """Return whether setting this environment variable hides all GPUs."""
    return name in ("CUDA_VISIBLE_DEVICES", "JAX_PLATFORMS", "JAX_PLATFORM_NAME") and value in ("", "-1", "cpu")


def _forbidden(seen: Seen, required: bool) -> Sign | None:
    """Return the line that keeps the program off GPUs, and why; None if there is none.

    `required`: something needs a GPU anyway, so that a setting of one library alone does not count.
    """
    jax = any(each.module.partition(".")[0] in ("jax", "flax") for each in seen.facts.imports)
    for call in seen.calls_among(_HIDING):
        if (
            call.path.startswith("os.")
            and call.certain
            and (_hides(*call.args[:2]) or (call.args[:2] in _KERAS_ON_CPU and not required))
            and not _set_by_option(seen, call)
        ):
            return call.where, "It hides all GPUs from itself."
        if (
            call.path in _TF_HIDES
            and call.argument(0, "devices") == []
            and call.argument(1, "type") == "GPU"
            and not jax
        ):
            # Beside JAX this only keeps TensorFlow from taking the memory that JAX needs.
            return call.where, "It hides all GPUs from itself."
        if call.path == "paddle.set_device" and call.argument(0, "device") == "cpu" and call.certain:
            return call.where, "It runs on the CPU only."
        if (_keeps_jax_off(call) or (_defaults_to_host(call) and not required)) and not _device_options(seen):
            return call.where, "It runs on the CPU only."
        if _only_tpus(seen, call):
            return call.where, "It runs on TPUs only."
    return None


def _set_by_option(seen: Seen, call: Call) -> bool:
    """Return whether the value comes from an option, which could choose another one."""
    return any(option.value == call.args[1] for option in _device_options(seen))


def _keeps_jax_off(call: Call) -> bool:
    """Return whether the call keeps JAX on the CPU."""
    if call.path == _NUMPYRO:
        return call.argument(0, "platform") == "cpu" and call.certain
    return call.path == "jax.config.update" and call.args[:2] in _ON_CPU


def _defaults_to_host(call: Call) -> bool:
    """Return whether the call makes the CPU the default device of JAX."""
    if call.path != "jax.config.update" or call.args[:1] != ("jax_default_device",):
        return False
    value = call.argument(1, "")
    return isinstance(value, Thing) and value.path == JAX_DEVICE and value.attrs.get("platform") == "cpu"


def _only_tpus(seen: Seen, call: Call) -> bool:
    """Return whether the call needs TPUs. Many programs try TPUs first and fall back to what there is."""
    asks = call.path in _TPUS or (call.path in _JAX_DEVICES and call.argument(0, "backend") == "tpu")
    if not asks or not call.certain or errors_are_caught(seen, call.where):
        return False
    return not call.swept or all(each.swept for each in seen.calls_where(_computes))


def _computes(path: str) -> bool:
    """Return whether calls of this path compute with a framework that uses a GPU by itself."""
    return path.startswith(_ITSELF) and not path.startswith(_DATA_ONLY) and not path.endswith(" =")


def _imports_gpu_capable(seen: Seen) -> bool:
    """Return whether the program imports a package that could use a GPU; Python's own and NumPy, for one, cannot."""
    tops = {each.module.partition(".")[0] for each in seen.facts.imports}
    return bool(tops - _NEVER)
