"""Placement: libraries that put the work somewhere themselves, and what they are told about it."""

from __future__ import annotations

from collections.abc import Iterator

from crucible.analysis.conclusions.seen import Seen
from crucible.analysis.facts import Call
from crucible.analysis.values import Thing, Value, Where, settled

Sign = tuple[Where, str]

ARGUMENTS = frozenset(
    {
        "transformers.TrainingArguments", "transformers.Seq2SeqTrainingArguments",
        "sentence_transformers.SentenceTransformerTrainingArguments",
        "trl.SFTConfig", "trl.DPOConfig", "trl.GRPOConfig", "trl.RewardConfig", "trl.ORPOConfig", "trl.KTOConfig",
    }
)  # fmt: skip
"""Settings of a Trainer."""

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
_BY_ARGUMENTS = ("transformers.", "trl.", "sentence_transformers.")
"""Trainers that go where their settings say."""

DEEPSPEED = frozenset({"deepspeed.initialize", "deepspeed.init_distributed"})
BITS = ("load_in_8bit", "load_in_4bit")
OFFLOADS = ("enable_model_cpu_offload", "enable_sequential_cpu_offload")
"""Of diffusers: weights wait in main memory, the work is on a GPU."""

_YOLO = "ultralytics."
_YOLO_WORK = ("train", "val", "predict", "track", "export", "benchmark")
BOOSTED = ("xgboost.", "lightgbm.", "catboost.")


def demands(call: Call) -> Iterator[Sign]:
    """A setting that fails where there is no GPU."""
    if (
        call.path in ARGUMENTS
        and not _off(call)
        and (call.kwargs.get("fp16") is True or call.kwargs.get("bf16") is True)
    ):
        yield call.where, "Half precision of the Trainer needs a GPU."
    if call.path == "accelerate.Accelerator" and call.argument(2, "mixed_precision") in ("fp16", "fp8"):
        yield call.where, "Half precision of the Accelerator needs a GPU."
    if call.path == "lightning.Trainer" and (
        call.kwargs.get("accelerator") in ("gpu", "cuda") or _count(call.kwargs.get("gpus"))
    ):
        yield call.where, "The Trainer is told to use GPUs."
    if call.path in DEEPSPEED:
        yield call.where, "DeepSpeed runs on GPUs."
    if call.last in OFFLOADS:
        yield call.where, "It works on a GPU and keeps in main memory what is not in use."
    if call.path.startswith(_YOLO) and call.last in _YOLO_WORK and _numbered(call.kwargs.get("device")):
        yield call.where, "It names GPUs by their numbers."
    if call.last == "from_pretrained" and (
        any(call.kwargs.get(name) is True for name in BITS)
        or _quantised(settled(call.kwargs.get("quantization_config")))
    ):
        yield call.where, "What is loaded in 8 or 4 bits is put on a GPU."


def boosted(seen: Seen) -> Iterator[Sign]:
    """Parameters of boosted trees that are given as a dict."""
    for call in seen.calls_where(lambda path: path.startswith(BOOSTED)):
        if not call.situation.certain:
            continue
        for each in (*call.args, *call.kwargs.values()):
            given = settled(each)
            if isinstance(given, dict):
                for name in ("device", "tree_method", "device_type", "task_type", "predictor"):
                    value = given.get(name)
                    if isinstance(value, str) and (value.startswith(("cuda", "gpu")) or value == "GPU"):
                        yield call.where, "Its parameters put the trees on a GPU."


def is_trainer(call: Call) -> bool:
    """It takes a GPU that is there."""
    if call.path.startswith("fastai."):
        return call.last.endswith(("earner", "DataLoaders", "dataloaders"))
    return call.path in TRAINERS or (
        call.path.startswith(TRAINER_ROOTS) and call.path.count(".") <= 2 and call.last[:1].isupper()
    )


def kept_off(telling: list[Call]) -> list[Call]:
    """Trainers that are told to stay on the CPU."""
    off = any(call.path in ARGUMENTS and _off(call) and call.situation.certain for call in telling)
    return [call for call in telling if _stays(call) or (off and call.path.startswith(_BY_ARGUMENTS))]


def _stays(call: Call) -> bool:
    if not (is_trainer(call) or call.path.startswith(_YOLO)):
        return False
    return (
        "cpu" in (call.kwargs.get("device"), call.kwargs.get("accelerator"))
        or call.kwargs.get("device") == -1
        or call.kwargs.get("cpu") is True
    )


def _off(call: Call) -> bool:
    return any(call.kwargs.get(name) is True for name in ("use_cpu", "no_cuda"))


def _numbered(value: Value) -> bool:
    """`0`, `[0, 1]` or `"0,1"`."""
    if isinstance(value, (list, tuple)):
        return bool(value) and all(isinstance(each, int) and each >= 0 for each in value)
    if isinstance(value, str):
        return value.replace(",", "").isdigit()
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _quantised(config: Value) -> bool:
    if not isinstance(config, Thing) or not config.path.endswith("BitsAndBytesConfig"):
        return False
    return any(config.kwargs.get(name) is True for name in BITS)


def _count(value: Value) -> bool:
    count = settled(value)
    return isinstance(count, int) and count > 0
