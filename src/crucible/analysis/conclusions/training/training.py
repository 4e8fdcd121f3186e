"""How the program trains: optimizer and its state, precision, batch size, sequence length and image size."""

from __future__ import annotations

from crucible.analysis.conclusions.compute.placement import ARGUMENTS, BY_ARGUMENTS
from crucible.analysis.conclusions.facts import Seen, number_named
from crucible.analysis.conclusions.training.library_arguments import batch_argument
from crucible.analysis.interpreter.with_statements import AUTOCAST, half_of
from crucible.analysis.knowledge.frameworks import GRADIENTS, frameworks_of_module
from crucible.analysis.library.torch.models import MODEL
from crucible.analysis.values.facts import Call
from crucible.analysis.values.values import Either, Name, Tensor, Thing, Value, Where, settled, whole
from crucible.core.routing.profile import Conclusion, Confidence, Precision

STATES: dict[str, float] = {
    "adam": 8, "adamw": 8, "nadam": 8, "radam": 8, "adamax": 8, "adadelta": 8, "fusedadam": 8, "lamb": 8,
    "sparseadam": 8,
    "amsgrad": 12, "sgd": 0, "asgd": 8, "rmsprop": 4, "adagrad": 4, "rprop": 8, "lion": 4, "adafactor": 0.1,
    "lbfgs": 800,
    "adam8bit": 2, "adamw8bit": 2, "pagedadamw8bit": 2, "ftrl": 8, "muon": 4, "lars": 4, "adabelief": 8,
    "noisysgd": 4, "fromage": 0,
}  # fmt: skip
_ARGUMENTS = tuple(sorted(path.rpartition(".")[2] for path in ARGUMENTS))
BATCH_NAMES = (
    "per_device_train_batch_size",
    "per_gpu_train_batch_size",
    "device_batch_size",
    "per_device_batch_size",
    "per_replica_batch_size",
    "train_batch_size",
    "minibatch_size",
    "mini_batch_size",
    "batch_size",
    "batchsize",
    "bs",
    "batch",
    "BATCH_SIZE",
    "batch_size_train",
    "TRAIN_BATCH_SIZE",
    "batchSize",
)
SEQUENCE_NAMES = (
    "block_size",
    "max_seq_length",
    "max_seq_len",
    "seq_length",
    "seq_len",
    "sequence_length",
    "max_length",
    "context_length",
    "ctx_len",
    "bptt",
    "max_len",
    "maxlen",
    "MAX_LEN",
    "n_ctx",
    "n_positions",
    "max_source_length",
    "SEQ_LEN",
    "MAX_LENGTH",
    "max_sequence_length",
    "block",
)
_LENGTHS = frozenset(
    {"max_length", "max_seq_length", "maxlen", "output_sequence_length", "sequence_length", "block_size", "n_positions"}
)
_STEPPING = (
    "jax.grad",
    "jax.value_and_grad",
    "transformers.Trainer",
    "transformers.Seq2SeqTrainer",
    "tensorflow.GradientTape",
    "optax.apply_updates",
)
_ESTIMATORS = ("sklearn.", "scipy.", "xgboost.", "lightgbm.", "catboost.", "cuml.", "statsmodels.")
"""Libraries whose `fit` and `minimize` do not train in steps."""

IMAGE_NAMES = (
    "image_size",
    "img_size",
    "imgsz",
    "crop_size",
    "input_size",
    "IMG_SIZE",
    "IMAGE_SIZE",
    "resolution",
    "imageSize",
    "image_height",
    "img_height",
)


_OPTIMIZERS = (
    "torch.optim.",
    "keras.optimizers.",
    "transformers.",
    "bitsandbytes.optim.",
    "apex.optimizers.",
    "timm.optim.",
    "optax.",
    "tensorflow.train.",
    "deepspeed.ops.adam.",
)


def optimizer(seen: Seen) -> tuple[Conclusion[str], Conclusion[float]]:
    """Return the optimizer's name, and the bytes it keeps for each trainable parameter."""
    found = _optimizer(seen)
    if found is not None:
        name, call = found
        sure = Confidence.HIGH if call.certain else Confidence.MEDIUM
        return seen.say(name, [call.where], sure), seen.say(state_bytes(name, call), [call.where], sure)
    trainers = trainer_arguments(seen)
    if trainers:
        return _trainer_optimizer(seen, trainers[0])
    if trains(seen):
        return assumed_optimizer(seen)
    question = "Which optimizer trains the model, if any?"
    return seen.ask(question), seen.ask(question)


def _trainer_optimizer(seen: Seen, call: Call) -> tuple[Conclusion[str], Conclusion[float]]:
    """Return the optimizer of a Trainer: the one named in `optim`, or AdamW by default."""
    name = settled(call.kwargs.get("optim"))
    if not isinstance(name, str):
        return seen.say("AdamW", [call.where], Confidence.HIGH, "The Trainer's default."), seen.say(8.0, [call.where])
    kind = name.removeprefix("paged_").partition("_")[0]
    state = float(STATES.get(kind, 8.0)) / (4 if name.endswith("8bit") else 1)
    return seen.say(name, [call.where]), seen.say(state, [call.where])


def assumed_optimizer(seen: Seen) -> tuple[Conclusion[str], Conclusion[float]]:
    """Return Adam, as an assumption."""
    why = "Its optimizer was not found; Adam is assumed."
    return seen.assume("Adam", why), seen.assume(8.0, why)


def _optimizer(seen: Seen) -> tuple[str, Call] | None:
    """Return the name and call of the first optimizer that is made, or None."""
    made = seen.calls_where(lambda path: path.startswith(_OPTIMIZERS) or path.endswith("compile"))
    return next(((name, call) for call in made if (name := optimizer_name(call)) is not None), None)


def optimizer_name(call: Call) -> str | None:
    """Return the name of the optimizer that the call makes or configures, or None."""
    top = call.path.partition(".")[0]
    if call.path.startswith(_OPTIMIZERS):
        plain = call.last.lower().replace("_", "").removesuffix("optimizer")
        return (
            call.last
            if plain in STATES or (top == "torch" and call.path.count(".") == 2 and call.last[:1].isupper())
            else None
        )
    if call.last == "compile" and isinstance(settled(call.argument(0, "optimizer")), str):
        chosen = str(settled(call.argument(0, "optimizer")))
        return chosen if chosen.lower() in STATES else None
    return None


def state_bytes(name: str, call: Call) -> float:
    """Return the bytes of state that the optimizer keeps for each trainable parameter."""
    plain = name.lower().replace("_", "").removesuffix("optimizer")
    if plain == "sgd":
        momentum = settled(call.kwargs.get("momentum", call.args[2] if len(call.args) > 2 else 0))
        return 4.0 if isinstance(momentum, int | float) and momentum else 0.0
    if plain == "rmsprop":
        return 4.0 + 4.0 * bool(whole(call.kwargs.get("momentum", 0)))
    if call.kwargs.get("amsgrad") is True:
        return 12.0
    return float(STATES.get(plain, 8.0))


def trainer_arguments(seen: Seen) -> list[Call]:
    """Return the calls that make the arguments of a Trainer."""
    return [call for call in seen.calls_named(*_ARGUMENTS) if call.path.startswith(BY_ARGUMENTS)]


def recomputes(seen: Seen) -> bool:
    """Return whether a transformers model uses gradient checkpointing: only inputs of blocks are kept, and blocks are
    recomputed in the backward pass.
    """
    if any(settled(call.kwargs.get("gradient_checkpointing")) is True for call in trainer_arguments(seen)):
        return True
    if any(call.certain for call in seen.calls_named("gradient_checkpointing_enable")):
        return True
    prepared = seen.calls("peft.prepare_model_for_kbit_training")
    return any(call.argument(1, "use_gradient_checkpointing", True) is True for call in prepared)


def trains(seen: Seen) -> bool:
    """Return whether the program trains step by step; fitting a forest or a scaler does not count."""
    if has_training_step(seen):
        return True
    made = seen.calls("flax.training.train_state.TrainState.create")
    return bool(made) or bool(trainer_arguments(seen)) or _optimizer(seen) is not None


def has_training_step(seen: Seen) -> bool:
    """Return whether a training step was seen, not only what is made for one."""
    ends = ["backward", "train_on_batch", "apply_gradients", "minimize", "fit_generator"]
    if _has_gradients(seen):
        ends.append("fit")
    if any(not call.path.startswith(_ESTIMATORS) for call in seen.calls_named(*ends)):
        return True
    return bool(seen.calls(*_STEPPING))


def _has_gradients(seen: Seen) -> bool:
    """Return whether the program imports a framework that learns by gradients."""
    return any(name in GRADIENTS for each in seen.facts.imports for name in frameworks_of_module(each.module))


def _kind(value: Value) -> Precision | None:
    """Return the reduced precision that the value names, or None."""
    if isinstance(value, Either):
        kinds = [found for each in value.options if (found := _kind(each)) is not None and found is not Precision.FP32]
        return kinds[0] if kinds else None
    if isinstance(value, Name):
        value = value.path.rpartition(".")[2]
    if not isinstance(value, str):
        return None
    text = value.lower()
    if "bfloat16" in text or "bf16" in text:
        return Precision.BF16
    if "float16" in text or "fp16" in text or text in ("half", "16", "16-mixed", "16-true"):
        return Precision.FP16
    return None


def precision(seen: Seen) -> Conclusion[Precision]:
    """Return the precision of the work."""
    calls = seen.calls_where(_may_set_precision, ("load_in_4bit", "load_in_8bit"))
    settings = [(found, call) for call in calls if (found := _precision_of(call)) is not None]
    if settings:
        # TF32 beside half precision is only for the remaining work.
        found, call = next((each for each in settings if each[0] is not Precision.TF32), settings[0])
        return seen.say(found, [call.where], Confidence.HIGH if call.certain else Confidence.MEDIUM)
    return seen.say(
        Precision.FP32, (), Confidence.MEDIUM, "No other precision is set, and this is the default of frameworks."
    )


_PRECISION = frozenset(
    {
        *AUTOCAST, "lightning.Trainer", "accelerate.Accelerator", "torch.set_float32_matmul_precision",
        "torch.set_default_dtype", "vllm.LLM", "transformers.pipeline",
    }
)  # fmt: skip
_PRECISION_ENDS = (
    *_ARGUMENTS, "BitsAndBytesConfig", "set_global_policy", "set_policy", "set_dtype_policy", "half", "bfloat16",
    "from_pretrained", "fsdp.MixedPrecision",
)  # fmt: skip


def _may_set_precision(path: str) -> bool:
    """Return whether calls of this path may set the precision."""
    return path in _PRECISION or path.endswith(_PRECISION_ENDS)


def _precision_of(call: Call) -> Precision | None:
    """Return the precision that the call sets, or None."""
    if call.path.endswith("BitsAndBytesConfig"):
        return Precision.INT4 if call.kwargs.get("load_in_4bit") is True else Precision.INT8
    if call.kwargs.get("load_in_4bit") is True:
        return Precision.INT4
    if call.kwargs.get("load_in_8bit") is True:
        return Precision.INT8
    if call.path in AUTOCAST and isinstance(call.result, Thing):
        half = half_of(call.result)
        return _kind(half) if half else None
    if call.last in _ARGUMENTS:
        return (
            Precision.BF16
            if call.kwargs.get("bf16") is True
            else Precision.FP16
            if call.kwargs.get("fp16") is True
            else None
        )
    if call.path == "lightning.Trainer":
        setting = settled(call.kwargs.get("precision"))
        return _kind(str(setting)) if setting is not None else None
    if call.path == "accelerate.Accelerator":
        return _kind(settled(call.kwargs.get("mixed_precision")))
    if call.last in ("set_global_policy", "set_policy", "set_dtype_policy"):
        return _kind(call.argument(0, "policy"))
    if call.last in ("half", "bfloat16") and not call.args and not isinstance(call.owner, Tensor):
        return Precision.BF16 if call.last == "bfloat16" else Precision.FP16
    if call.last == "MixedPrecision":
        return _kind(settled(call.argument(0, "param_dtype")))
    if call.last in ("from_pretrained", "LLM", "pipeline"):
        return _kind(call.kwargs.get("torch_dtype", call.kwargs.get("dtype")))
    if call.path == "torch.set_float32_matmul_precision" and call.argument(0, "precision") in ("high", "medium"):
        return Precision.TF32
    if call.path == "torch.set_default_dtype":
        return _kind(call.argument(0, "d"))
    return None


def batch_size(seen: Seen) -> Conclusion[int]:
    """Return the batch size of a training step, per process."""
    found = _loader_batch(seen) or _fit_batch(seen)
    if found is not None:
        return seen.say(found[0], [found[1]], Confidence.HIGH)
    for call in trainer_arguments(seen):
        size = whole(call.kwargs.get("per_device_train_batch_size", 8))
        if size:
            return seen.say(size, [call.where], Confidence.HIGH)
    named = number_named(seen, BATCH_NAMES, 1, 1e7)
    if named is not None:
        return seen.say(named[0], [named[1]], Confidence.MEDIUM, f"Taken from {named[2]}.")
    first = batch_argument(seen) or _first_dimension(seen)
    if first is not None:
        return seen.say(first[0], [first[1]], Confidence.MEDIUM)
    return seen.ask("How many samples are in a batch?")


def _loader_batch(seen: Seen) -> tuple[int, Where] | None:
    """Return the batch size of the loader that the training loop goes over, else of the first loader, or None."""
    for call in seen.calls_named("backward", "step"):
        for loop in reversed(call.loops):
            size = _batch_of(loop.data)
            if size is not None:
                return size, loop.data.where
    for call in seen.calls("torch.utils.data.DataLoader", "torch_geometric.loader.DataLoader"):
        size = whole(call.argument(1, "batch_size"))
        if size is not None and size > 0:
            return size, call.where
    return None


def _batch_of(data: Value) -> int | None:
    """Return the batch size of a loader, or None."""
    data = settled(data)
    if isinstance(data, Thing) and data.path.endswith("DataLoader"):
        size = whole(data.attrs.get("batch_size"))
        return size if size else None
    return None


_FROM_FOLDERS = ("image_dataset_from_directory", "text_dataset_from_directory", "flow", "flow_from_directory")


def _fit_batch(seen: Seen) -> tuple[int, Where] | None:
    """Return the batch size that Keras or tf.data is called with, or Keras' default, or None."""
    for call in seen.calls_named("fit", "batch", *_FROM_FOLDERS):
        if call.last == "fit" and whole(call.kwargs.get("batch_size")):
            return whole(call.kwargs["batch_size"]) or 1, call.where
        if (
            call.last == "batch"
            and call.path != ".batch"
            and "torch" not in call.path
            and whole(call.argument(0, "batch_size"))
        ):
            return whole(call.argument(0, "batch_size")) or 1, call.where
        if call.last in _FROM_FOLDERS:
            return whole(call.kwargs.get("batch_size", 32)) or 32, call.where
    for call in seen.calls_named("fit"):
        if call.path.startswith("keras.") and isinstance(settled(call.argument(0, "x")), Tensor):
            return 32, call.where
    return None


def _first_dimension(seen: Seen) -> tuple[int, Where] | None:
    """Return the first dimension of random or stacked tensors made in a loop, or None."""
    for call in seen.calls("torch.randn", "torch.rand", "torch.randint", "torch.stack"):
        if isinstance(call.result, Tensor) and call.result.shape and len(call.result.shape) > 1:
            size = whole(call.result.shape[0])
            if size and size > 1 and call.loops:
                return size, call.where
    return None


def sequence_length(seen: Seen) -> Conclusion[int]:
    """Return the tokens in a sequence."""
    length = _model_input_length(seen)
    if length is not None:
        return seen.say(length[0], [length[1]], Confidence.HIGH)
    named = number_named(seen, SEQUENCE_NAMES, 2, 1e7)
    if named is not None:
        return seen.say(named[0], [named[1]], Confidence.MEDIUM, f"Taken from {named[2]}.")
    for call in seen.calls_with(*_LENGTHS):
        if call.path == "collections.deque":
            continue  # a buffer of this many entries
        for name, value in call.kwargs.items():
            size = whole(value) if name in _LENGTHS else None
            if size and size > 1:
                return seen.say(size, [call.where], Confidence.MEDIUM)
    return seen.ask("How many tokens are in a sequence?")


def _model_input_length(seen: Seen) -> tuple[int, Where] | None:
    """Return the second dimension of the token ids that a transformers model is called with, or None."""
    for call in seen.calls(f"{MODEL}()"):
        words = settled(call.argument(0, "input_ids"))
        if isinstance(words, Tensor) and words.shape and len(words.shape) == 2 and words.kind.startswith("int"):
            length = whole(words.shape[1])
            if length and length > 1:
                return length, call.where
    return None


def image_size(seen: Seen, pictures: tuple[int, Where] | None) -> Conclusion[int]:
    """Return the side of the images in pixels. `pictures` is what loaders or input layers say."""
    if pictures is not None:
        return seen.say(pictures[0], [pictures[1]], Confidence.HIGH)
    named = number_named(seen, IMAGE_NAMES, 8, 20_000)
    if named is not None:
        return seen.say(named[0], [named[1]], Confidence.MEDIUM, f"Taken from {named[2]}.")
    return seen.ask("How large are the images, in pixels?")
