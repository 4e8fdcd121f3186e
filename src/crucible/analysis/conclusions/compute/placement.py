"""Libraries that place the work on a device themselves, and the arguments that control them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from crucible.analysis.conclusions.facts import Seen
from crucible.analysis.values.facts import Call
from crucible.analysis.values.values import Either, Name, Thing, Value, Where, settled

Sign = tuple[Where, str]

ARGUMENTS = frozenset(
    {
        "transformers.TrainingArguments", "transformers.Seq2SeqTrainingArguments", "transformers.TFTrainingArguments",
        "sentence_transformers.SentenceTransformerTrainingArguments",
        "trl.SFTConfig", "trl.DPOConfig", "trl.GRPOConfig", "trl.RewardConfig", "trl.ORPOConfig", "trl.KTOConfig",
        "trl.PPOConfig",
    }
)  # fmt: skip
"""Arguments of a Trainer."""

TRAINERS = frozenset(
    {
        "transformers.Trainer", "transformers.Seq2SeqTrainer", "accelerate.Accelerator", "lightning.Trainer",
        "lightning.Fabric",
        "transformers.pipeline", "sentence_transformers.SentenceTransformer", "lightning.fabric.Fabric",
        "ultralytics.YOLO",
        "composer.Trainer", "sentence_transformers.SentenceTransformerTrainer", "sentence_transformers.CrossEncoder",
        "lightning.pytorch.cli.LightningCLI", "lightning.cli.LightningCLI", "transformers.TFTrainer",
    }
)  # fmt: skip
TRAINER_ROOTS = ("trl.", "stable_baselines3.", "sb3_contrib.")
BY_ARGUMENTS = ("transformers.", "trl.", "sentence_transformers.")
"""Trainers that choose the device by their arguments."""

DEEPSPEED = frozenset({"deepspeed.initialize", "deepspeed.init_distributed"})
BITS = ("load_in_8bit", "load_in_4bit")
OFFLOADS = ("enable_model_cpu_offload", "enable_sequential_cpu_offload")
"""Methods of diffusers: weights stay in host memory, the work runs on a GPU."""

NEEDS = frozenset(
    {
        "torch.cuda.set_device", "torch.cuda.Stream", "torch.cuda.CUDAGraph", "torch.cuda.graph",
        "torch.cuda.get_device_properties", "torch.cuda.get_device_name", "torch.cuda.get_device_capability",
        "torch.cuda.current_device", "torch.cuda.synchronize", "torch.cuda.mem_get_info", "torch.cuda.FloatTensor",
        "torch.cuda.HalfTensor", "torch.cuda.LongTensor", "torch.cuda.ByteTensor", "torch.cuda.IntTensor",
        "pynvml.nvmlInit", "numba.cuda.to_device",
        "numba.cuda.device_array", "numba.cuda.device_array_like", "numba.cuda.select_device",
        "numba.cuda.get_current_device", "numba.cuda.synchronize", "numba.cuda.pinned_array",
        "spacy.require_gpu", "mxnet.gpu", "faiss.StandardGpuResources", "faiss.index_cpu_to_all_gpus",
    }
)  # fmt: skip
"""Calls that fail without a GPU."""

_TF_PLACES = frozenset({"tensorflow.distribute.MirroredStrategy", "tensorflow.distribute.OneDeviceStrategy"})
_TENSOR_TYPE = "torch.set_default_tensor_type"
_RAY_SHARES = ("num_gpus", "num_gpus_per_env_runner", "num_gpus_per_learner", "num_gpus_per_worker")
WORDS = ("quantization_config", "providers", "use_gpu", "attn_implementation", "use_flash_attention_2", *_RAY_SHARES)
"""Keyword arguments that concern GPUs in some library."""

_TAKES = frozenset(
    {"spacy.prefer_gpu", "accelerate.PartialState", "mxnet.context.num_gpus", "mxnet.num_gpus", "@numba.cuda.jit"}
)
"""Calls that use a GPU if there is one."""

PLACED = frozenset({*_TF_PLACES, *_TAKES, _TENSOR_TYPE})

_YOLO = "ultralytics."
_YOLO_RUNS = ("train", "val", "predict", "track", "benchmark", "YOLO()")
_YOLO_WORK = (*_YOLO_RUNS, "export")
BOOSTED = ("xgboost.", "lightgbm.", "catboost.")
_TREE_SETTINGS = ("device", "tree_method", "device_type", "task_type", "predictor")


def demands(call: Call) -> Iterator[Sign]:
    """Yield the settings of a call that fail without a GPU, each with why."""
    if (
        call.path in ARGUMENTS
        and not _gpu_disabled(call)
        and (call.kwargs.get("fp16") is True or call.kwargs.get("bf16") is True)
    ):
        yield call.where, "Half precision in the Trainer needs a GPU."
    if call.path == "accelerate.Accelerator" and call.argument(2, "mixed_precision") in ("fp16", "fp8"):
        yield call.where, "Half precision in the Accelerator needs a GPU."
    if call.path == "lightning.Trainer" and (
        call.kwargs.get("accelerator") in ("gpu", "cuda") or _count(call.kwargs.get("gpus"))
    ):
        yield call.where, "The Trainer is set to use GPUs."
    if call.path in DEEPSPEED:
        yield call.where, "DeepSpeed runs on GPUs."
    if call.last in OFFLOADS:
        yield call.where, "It works on a GPU and offloads unused weights to host memory."
    if call.path.startswith(_YOLO) and call.last in _YOLO_WORK and _is_gpu_number(call.kwargs.get("device")):
        yield call.where, "It names GPUs by number."
    if call.path in _TF_PLACES and any(names_gpu(each) for each in _items(call.argument(0, "devices"))):
        yield call.where, "It names a GPU, which fails if there is none."
    if call.path == _TENSOR_TYPE and ".cuda." in _text(call.argument(0, "t")):
        yield call.where, "It creates its tensors on a GPU by default."
    if call.last == "ScalingConfig" and call.kwargs.get("use_gpu") is True:
        yield call.where, "Its workers wait for GPUs."
    if (call.path.startswith("ray.") or call.path == ".options") and call.path != "ray.init" and _takes_share(call):
        yield call.where, "Ray waits until a GPU is free."
    if call.last == "from_pretrained" and _flash(call):
        yield call.where, "Flash attention runs on GPUs."
    if call.path in ARGUMENTS and "bnb" in _text(call.kwargs.get("optim")).replace("paged", "bnb"):
        yield call.where, "The bitsandbytes optimizer runs on GPUs."
    if call.last == "from_pretrained" and _is_gpu_number(_first(call.kwargs.get("device_map"))):
        yield call.where, "It puts the model on a GPU by number."
    if call.last == "from_pretrained" and (
        any(call.kwargs.get(name) is True for name in BITS)
        or _quantised(settled(call.kwargs.get("quantization_config")))
    ):
        yield call.where, "Models loaded in 8 or 4 bits are placed on a GPU."


def _takes_share(call: Call) -> bool:
    """Return whether the call asks Ray for a GPU, as a keyword or as one of the resources in a dict."""
    shares = [settled(call.kwargs.get(name)) for name in _RAY_SHARES]
    for argument in (*call.args, *call.kwargs.values()):
        if isinstance(argument, dict):
            shares += [settled(argument.get(name)) for name in ("gpu", "GPU")]
    return any(isinstance(each, int | float) and each > 0 for each in shares)


def trees_on_gpu(seen: Seen) -> Iterator[Sign]:
    """Yield the calls whose parameter dict puts boosted trees on a GPU, each with why."""
    for call, value in _tree_settings(seen):
        if call.certain and not call.tried and _trees_on_gpu(value):
            yield call.where, "Its parameters put the trees on a GPU."


def fits_are_tried(seen: Seen, call: Call) -> bool:
    """Return whether all fits of this estimator are in `try` blocks. Trees are placed when they are fitted, not when
    the estimator is made.
    """
    if not call.path.startswith(BOOSTED) or not isinstance(call.result, Thing):
        return False
    fits = [each.tried for each in seen.calls_named("fit") if each.owner is call.result]
    return bool(fits) and all(fits)


def trees_maybe_on_gpu(seen: Seen) -> Iterator[Sign]:
    """Yield the calls whose parameter dict may put boosted trees on a GPU, each with why."""
    for call, value in _tree_settings(seen):
        if any(map(_trees_on_gpu, value.options if isinstance(value, Either) else (value,))):
            yield call.where, "Its parameters put the trees on a GPU under a condition."


def _tree_settings(seen: Seen) -> Iterator[tuple[Call, Value]]:
    """Yield the device settings in parameter dicts of calls to boosting libraries."""
    for call in seen.calls_under(*BOOSTED):
        for each in (*call.args, *call.kwargs.values()):
            params = settled(each)
            if isinstance(params, dict):
                yield from ((call, params[name]) for name in _TREE_SETTINGS if name in params)


def _trees_on_gpu(value: Value) -> bool:
    """Return whether the device setting of a boosting library names a GPU."""
    return isinstance(value, str) and (value.startswith(("cuda", "gpu")) or value == "GPU")


def is_trainer(call: Call) -> bool:
    """Return whether the call makes something that uses a GPU if there is one."""
    if call.path.startswith("fastai."):
        return call.last.endswith(("earner", "DataLoaders", "dataloaders"))
    if call.path in _TAKES or "CUDA" in "".join(map(_text, _items(call.kwargs.get("providers")))):
        return True
    made = call.path.removesuffix(".load")
    return call.path in TRAINERS or (
        made.startswith(TRAINER_ROOTS) and made.count(".") <= 2 and made.rpartition(".")[2][:1].isupper()
    )


def is_trainers_class(path: str) -> bool:
    """Return whether the path is a class of the program itself that derives from a Trainer."""
    return path.startswith("class ") and path.removeprefix("class ") in TRAINERS


_SWITCH = re.compile(r"(\w+_)?(cuda|gpus?|device|accelerator)")


def device_variables(seen: Seen) -> Iterator[Sign]:
    """Yield the environment variables that choose the device, such as `USE_CUDA=1`."""
    for call in seen.calls("os.environ.get", "os.getenv"):
        name = call.argument(0, "key")
        if isinstance(name, str) and _SWITCH.fullmatch(name.lower()):
            yield call.where, f"The variable {name} chooses the device."


def required_by_environment(seen: Seen) -> Iterator[Sign]:
    """Yield the environment settings that fail without a GPU, each with why."""
    for call in seen.calls("os.environ[]"):
        named = call.args[0] in ("JAX_PLATFORMS", "JAX_PLATFORM_NAME") and call.args[1] in ("cuda", "gpu")
        if named and call.certain:
            yield call.where, "JAX is set to use a GPU only."


def roots_kept_off(calls: list[Call]) -> tuple[str, ...]:
    """Return the path prefixes of the libraries that are kept on the CPU."""
    off = any(call.path in ARGUMENTS and _gpu_disabled(call) and call.certain for call in calls)
    return (*(BY_ARGUMENTS if off else ()), *((_YOLO,) if _detects_on_cpu(calls) else ()))


def is_kept_off(call: Call, roots: tuple[str, ...]) -> bool:
    """Return whether the call makes a trainer that is kept on the CPU, by itself or with its library."""
    return _set_to_cpu(call) or _plain(call).startswith(roots)


def _detects_on_cpu(calls: list[Call]) -> bool:
    """Return whether all work of ultralytics detectors is set to run on the CPU. An export uses a GPU only by name."""
    work = [call for call in calls if call.path.startswith(_YOLO) and call.last in _YOLO_RUNS]
    return any(map(_set_to_cpu, work)) and all(_set_to_cpu(call) and call.certain for call in work)


def _plain(call: Call) -> str:
    return call.path.removeprefix("class ")


def _set_to_cpu(call: Call) -> bool:
    """Return whether the call sets its trainer to the CPU or to TPUs."""
    if not (is_trainer(call) or call.path.startswith(_YOLO)):
        return False
    return (
        "cpu" in (call.kwargs.get("device"), call.kwargs.get("accelerator"))
        or call.kwargs.get("accelerator") == "tpu"
        or call.kwargs.get("device") == -1
        or call.kwargs.get("cpu") is True
    )


def _gpu_disabled(call: Call) -> bool:
    """Return whether the arguments of a Trainer disable GPUs."""
    return any(call.kwargs.get(name) is True for name in ("use_cpu", "no_cuda"))


def _is_gpu_number(value: Value) -> bool:
    """Return whether the value names GPUs by number: `0`, `[0, 1]` or `"0,1"`."""
    if isinstance(value, (list, tuple)):
        return bool(value) and all(isinstance(each, int) and each >= 0 for each in value)
    if isinstance(value, str):
        return value.replace(",", "").isdigit()
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def names_gpu(value: Value) -> bool:
    """Return whether the value names a GPU as TensorFlow writes it: `GPU:0`, `/gpu:0`, `/device:GPU:0`."""
    return isinstance(value, str) and "gpu:" in value.lower()


def _text(value: Value) -> str:
    return value if isinstance(value, str) else value.path if isinstance(value, Name) else ""


def _items(value: Value) -> tuple[Value, ...]:
    """Return the items of a list; of an item that is a pair of name and options, the name."""
    many = value if isinstance(value, (list, tuple)) else (value,)
    return tuple(each[0] if isinstance(each, tuple) and each else each for each in many)


def _first(value: Value) -> Value:
    """Return the first value of a dict, or None."""
    return next(iter(value.values()), None) if isinstance(value, dict) else None


def _flash(call: Call) -> bool:
    """Return whether the call selects flash attention."""
    chosen = call.kwargs.get("attn_implementation")
    return chosen == "flash_attention_2" or call.kwargs.get("use_flash_attention_2") is True


def _quantised(config: Value) -> bool:
    """Return whether the config loads weights in 8 or 4 bits."""
    if not isinstance(config, Thing) or not config.path.endswith("BitsAndBytesConfig"):
        return False
    return any(config.kwargs.get(name) is True for name in BITS)


def _count(value: Value) -> bool:
    """Return whether the value is a positive number."""
    count = settled(value)
    return isinstance(count, int) and count > 0
