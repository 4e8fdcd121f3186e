"""Whether the program needs a GPU: never, if there is one, or without fail."""

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
    boosted,
    by_environment,
    chosen_by_environment,
    demands,
    fits_are_tried,
    is_kept_off,
    is_trainer,
    is_trainers_class,
    names_gpu,
    perhaps_boosted,
    roots_kept_off,
)
from crucible.analysis.conclusions.facts import Seen
from crucible.analysis.conclusions.guarded_calls import caught, unless_tried
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
    """`unseen_model`: the class of the model is not among the files, so it may well move to a GPU itself."""
    telling = seen.calls_where(_may_tell, _TELLING_WORDS, _names_device)
    required = unless_tried(seen, _required(seen, telling))
    forbidden = _forbidden(seen, bool(required))
    if forbidden is not None:
        return seen.say(GpuNeed.NONE, [forbidden[0]], Confidence.HIGH, forbidden[1])
    if required:
        return seen.say(GpuNeed.REQUIRED, (where for where, _ in required), Confidence.HIGH, required[0][1])
    optional = _optional(seen, telling)
    first = next(optional, None)
    if first is not None:
        places = (where for where, _ in chain((first,), optional))
        return seen.say(GpuNeed.OPTIONAL, places, Confidence.HIGH, first[1])
    if unseen_model:
        return seen.assume(
            GpuNeed.OPTIONAL, "The model's own code is not here; it is assumed to use a GPU that is there."
        )
    why = "Nothing in the code that runs moves work to a GPU."
    return seen.say(GpuNeed.NONE, (), Confidence.MEDIUM if seen.facts.notes else Confidence.HIGH, why)


def _always(situation: Situation) -> bool:
    """It happens on every run, as far as the conditions around it tell, and nothing goes round it."""
    return situation.certain and not situation.tried


def is_cuda(value: Value) -> bool:
    """Certainly a GPU: the text, or a device made from it."""
    if isinstance(value, int):
        return not isinstance(value, bool) and value >= 0
    if isinstance(value, str):
        return value.startswith(("cuda", "gpu")) or value == "GPU"
    return isinstance(value, Thing) and value.path == "torch.device" and is_cuda(value.argument(0, "type"))


def maybe_cuda(value: Value) -> bool:
    if isinstance(value, Either):
        return any(is_cuda(each) or maybe_cuda(each) for each in value.options)
    return isinstance(value, Thing) and value.path == "torch.device" and maybe_cuda(value.argument(0, "type"))


_NUMPYRO = "numpyro.set_platform"
_DEVICE_WORDS = ("device", "device_map", "map_location", "device_type", "accelerator", "tree_method", "task_type")
_TELLING_WORDS = (*_DEVICE_WORDS, *BITS, *WORDS)
_PLACING = frozenset({"torch.device", "jax.devices", "torch.set_default_device", "paddle.set_device", _NUMPYRO})
_TELLING = frozenset({*_PLACING, *PLACED, *ARGUMENTS, *DEEPSPEED, *NEEDS, *_GPU_MEMORY, *ASKS, *TRAINERS})
_TELLING_ROOTS = (*TRAINER_ROOTS, *_ITSELF, "torch.accelerator.", "fastai.", "ultralytics.", "ray.")
_TELLING_ENDS = ("cuda", "to", "DistributedDataParallel", "init_process_group", *OFFLOADS)


def _may_tell(path: str) -> bool:
    """Whether calls of this path are worth a look; most say nothing about a GPU, whatever they are given."""
    return (
        path in _TELLING or path.startswith(_TELLING_ROOTS) or path.endswith(_TELLING_ENDS) or is_trainers_class(path)
    )


def _places(call: Call) -> Iterator[Value]:
    """The arguments that may name a device."""
    if call.last == "to" or call.path in _PLACING:
        yield from call.args
    if call.path.startswith("jax."):
        yield call.kwargs.get("backend")
    for name in _DEVICE_WORDS:
        if name in call.kwargs and call.last != "autocast":
            yield call.kwargs[name]


def _required(seen: Seen, telling: list[Call]) -> Iterator[Sign]:
    for where in seen.facts.refusals:
        yield where, "It gives up where there is no GPU."
    asks = any(call.path in ASKS for call in telling)
    for call in telling:
        if not _always(call) or call.without_gpu:
            continue
        if asks and call.path == "torch.device":
            continue  # To make one does not fail: what is put there says whether it was asked for first.
        if fits_are_tried(seen, call):
            continue
        if call.last == "cuda" and call.path not in ("torch.cuda", "torch.version.cuda"):
            yield call.where, "It moves to a GPU without asking whether there is one."
        elif any(is_cuda(each) for each in map(_one, _places(call))):
            yield call.where, "It names the GPU as its device."
        elif _names_device(call):
            yield call.where, "It hands on the GPU as a device."
        elif call.path in NEEDS:
            yield call.where, f"It calls {call.path}, which fails without a GPU."
        elif call.path in _GPU_MEMORY and names_gpu(call.argument(0, "device")):
            yield call.where, "It asks for the memory of a GPU, which fails without one."
        elif call.last == "DistributedDataParallel" and isinstance(call.kwargs.get("device_ids"), list):
            yield call.where, "Its copies of the model are placed on GPUs by number."
        elif _nccl(call):
            yield call.where, "Its processes talk over NCCL, which needs GPUs."
        else:
            yield from demands(call)
    for each in seen.facts.imports:
        if each.module.partition(".")[0] in ONLY_GPU and each.certain and not _tried(seen, each):
            yield each.where, f"It imports {each.module}, which needs a GPU."
    yield from boosted(seen)
    yield from by_environment(seen)


_NAMING = frozenset({str, list, tuple})
"""What may name a device; most calls are given nothing of the kind, which is told without a look at each."""


def _names_device(call: Call) -> bool:
    """`"cuda:0"` among the arguments, or in a list among them. Half precision "for cuda" works without one."""
    everything = (*call.args, *call.kwargs.values()) if call.kwargs else call.args
    if _NAMING.isdisjoint(map(type, everything)):
        return False
    for given in everything:
        kind = type(given)
        many = given[:16] if kind is list or kind is tuple else (given,) if kind is str else ()
        if many and any(map(_is_device, many)):
            return _hands_on(call)
    return False


def _is_device(value: Value) -> bool:
    return isinstance(value, str) and len(value) < 12 and _DEVICE.fullmatch(value) is not None


_ONLY_TOLD = frozenset(
    {
        "autocast", "GradScaler", "startswith", "endswith", "count", "index", "append", "add_text", "split",
        "isin", "replace", "query", "eq",
    }
)  # fmt: skip
"""Methods that do nothing with a device but compare, keep or show its name."""

_TELLS = (PLAIN - {"joblib"}) | {
    "builtins", "argparse", "os", "sys", "subprocess", "logging", "warnings", "re", "json", "csv", "pathlib", "string",
    "textwrap", "time", "datetime", "platform", "shutil", "glob", "sqlite3", "pickle", "configparser", "unittest",
}  # fmt: skip
"""What writes, shows or looks for the name of a device; other modules may keep it for functions that use it."""


def _hands_on(call: Call) -> bool:
    return call.last not in _ONLY_TOLD and call.path.partition(".")[0] not in _TELLS


def _spread(call: Call) -> bool:
    return call.kwargs.get("device_map") in ("auto", "balanced", "balanced_low_0", "sequential")


def _one(value: Value) -> Value:
    return value if not isinstance(value, Either) else None


def _tried(seen: Seen, situation: Situation) -> bool:
    return not situation.certain


def _nccl(call: Call) -> bool:
    if not call.path.endswith("init_process_group"):
        return False
    return bool(call.argument(0, "backend") == "nccl")


def _optional(seen: Seen, telling: list[Call]) -> Iterator[Sign]:
    off = roots_kept_off(telling)
    for call in telling:
        if is_kept_off(call, off):
            continue
        if call.path in ASKS:
            yield call.where, "It asks whether there is a GPU."
        elif (
            call.last == "cuda"
            or any(is_cuda(each) or maybe_cuda(each) for each in _places(call))
            or _names_device(call)
        ):
            yield call.where, "It uses a GPU where a condition holds."
        elif is_trainer(call) or is_trainers_class(call.path):
            yield call.where, f"{call.path} uses a GPU that is there."
        elif _computes(call.path):
            yield call.where, f"{call.path.partition('.')[0]} uses a GPU that is there."
        elif call.path.startswith("torch.accelerator.") or _spread(call):
            yield call.where, "It runs on an accelerator where there is one."
    for each in seen.facts.made:
        bases = each.bases if isinstance(each, Instance) else ()
        if any(base in TRAINERS or base.startswith(_ITSELF) for base in bases):
            yield each.where, "Its framework uses a GPU that is there."
    yield from perhaps_boosted(seen)
    for where in seen.facts.switched_off:
        yield where, "A flag would switch GPU use on."
    if _imports_what_may_use_one(seen):
        for option in _device_options(seen):
            yield option.where, f"The option {option.name} chooses the device."
        for call in seen.calls_where(lambda path: path.endswith(".add_argument"), ("choices",)):
            if any(map(is_cuda, filter(_is_text, items_of(call.kwargs.get("choices")) or ()))):
                yield call.where, "An option has the GPU among its choices."
        yield from chosen_by_environment(seen)
    for each in seen.facts.imports:
        if each.module.partition(".")[0] in ONLY_GPU:
            yield each.where, f"It imports {each.module} where it can."


def _is_text(value: Value) -> bool:
    return isinstance(value, str)


def _device_options(seen: Seen) -> list[Assigned]:
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
    return name in ("CUDA_VISIBLE_DEVICES", "JAX_PLATFORMS", "JAX_PLATFORM_NAME") and value in ("", "-1", "cpu")


def _forbidden(seen: Seen, required: bool) -> Sign | None:
    """`required`: something needs a GPU all the same, so what speaks for one library alone does not count."""
    jax = any(each.module.partition(".")[0] in ("jax", "flax") for each in seen.facts.imports)
    for call in seen.calls_among(_HIDING):
        if (
            call.path.startswith("os.")
            and call.certain
            and (_hides(*call.args[:2]) or (call.args[:2] in _KERAS_ON_CPU and not required))
            and not _chosen(seen, call)
        ):
            return call.where, "It keeps itself off GPUs."
        if (
            call.path in _TF_HIDES
            and call.argument(0, "devices") == []
            and call.argument(1, "type") == "GPU"
            and not jax
        ):
            # With JAX this only keeps TensorFlow from taking the memory that JAX needs.
            return call.where, "It hides GPUs from itself."
        if call.path == "paddle.set_device" and call.argument(0, "device") == "cpu" and call.certain:
            return call.where, "It runs on the CPU only."
        if (_keeps_jax_off(call) or (_defaults_to_host(call) and not required)) and not _device_options(seen):
            return call.where, "It runs on the CPU only."
        if _only_tpus(seen, call):
            return call.where, "It runs on TPUs only."
    return None


def _chosen(seen: Seen, call: Call) -> bool:
    """An option says so, and could say otherwise."""
    return any(option.value == call.args[1] for option in _device_options(seen))


def _keeps_jax_off(call: Call) -> bool:
    if call.path == _NUMPYRO:
        return call.argument(0, "platform") == "cpu" and call.certain
    return call.path == "jax.config.update" and call.args[:2] in _ON_CPU


def _defaults_to_host(call: Call) -> bool:
    if call.path != "jax.config.update" or call.args[:1] != ("jax_default_device",):
        return False
    value = call.argument(1, "")
    return isinstance(value, Thing) and value.path == JAX_DEVICE and value.attrs.get("platform") == "cpu"


def _only_tpus(seen: Seen, call: Call) -> bool:
    """Without fail: many programs try for a TPU first and take what there is."""
    asks = call.path in _TPUS or (call.path in _JAX_DEVICES and call.argument(0, "backend") == "tpu")
    if not asks or not call.certain or caught(seen, call.where):
        return False
    return not call.swept or all(each.swept for each in seen.calls_where(_computes))


def _computes(path: str) -> bool:
    return path.startswith(_ITSELF) and not path.startswith(_DATA_ONLY) and not path.endswith(" =")


def _imports_what_may_use_one(seen: Seen) -> bool:
    """With Python and packages such as NumPy alone there is nothing that could."""
    tops = {each.module.partition(".")[0] for each in seen.facts.imports}
    return bool(tops - _NEVER)
