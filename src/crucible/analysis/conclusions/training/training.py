"""How it trains: optimizer and its state, precision, batch, lengths."""

from __future__ import annotations

from crucible.analysis.conclusions.compute.placement import ARGUMENTS, BY_ARGUMENTS
from crucible.analysis.conclusions.facts import Seen, number_named
from crucible.analysis.conclusions.training.library_arguments import batch_told
from crucible.analysis.interpreter.with_statements import AUTOCAST, half_of
from crucible.analysis.knowledge.frameworks import GRADIENTS, of_module
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
"""Libraries whose `fit` and `minimize` are no training in steps."""

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
    """Its name, and the bytes it keeps for each parameter that learns."""
    found = _optimizer(seen)
    if found is not None:
        name, call = found
        sure = Confidence.HIGH if call.certain else Confidence.MEDIUM
        return seen.say(name, [call.where], sure), seen.say(state_bytes(name, call), [call.where], sure)
    trainers = trainer_arguments(seen)
    if trainers:
        return _trainers_own(seen, trainers[0])
    if trains(seen):
        return assumed_optimizer(seen)
    question = "Which optimizer trains the model, if any?"
    return seen.ask(question), seen.ask(question)


def _trainers_own(seen: Seen, call: Call) -> tuple[Conclusion[str], Conclusion[float]]:
    """`optim="paged_adamw_8bit"`, or AdamW where nothing is said."""
    said = settled(call.kwargs.get("optim"))
    if not isinstance(said, str):
        return seen.say("AdamW", [call.where], Confidence.HIGH, "The Trainer's own."), seen.say(8.0, [call.where])
    kind = said.removeprefix("paged_").partition("_")[0]
    state = float(STATES.get(kind, 8.0)) / (4 if said.endswith("8bit") else 1)
    return seen.say(said, [call.where]), seen.say(state, [call.where])


def assumed_optimizer(seen: Seen) -> tuple[Conclusion[str], Conclusion[float]]:
    why = "Its optimizer was not found: Adam is assumed."
    return seen.assume("Adam", why), seen.assume(8.0, why)


def _optimizer(seen: Seen) -> tuple[str, Call] | None:
    """The first that is made."""
    made = seen.calls_where(lambda path: path.startswith(_OPTIMIZERS) or path.endswith("compile"))
    return next(((name, call) for call in made if (name := optimizer_name(call)) is not None), None)


def optimizer_name(call: Call) -> str | None:
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
    return [call for call in seen.calls_named(*_ARGUMENTS) if call.path.startswith(BY_ARGUMENTS)]


def recomputes(seen: Seen) -> bool:
    """Whether a model of transformers keeps only what goes into its blocks, and does each again on the way back."""
    if any(settled(call.kwargs.get("gradient_checkpointing")) is True for call in trainer_arguments(seen)):
        return True
    if any(call.certain for call in seen.calls_named("gradient_checkpointing_enable")):
        return True
    prepared = seen.calls("peft.prepare_model_for_kbit_training")
    return any(call.argument(1, "use_gradient_checkpointing", True) is True for call in prepared)


def trains(seen: Seen) -> bool:
    """Whether weights change at all, step by step. To fit a forest or a scaler is something else."""
    if goes_through_steps(seen):
        return True
    made = seen.calls("flax.training.train_state.TrainState.create")
    return bool(made) or bool(trainer_arguments(seen)) or _optimizer(seen) is not None


def goes_through_steps(seen: Seen) -> bool:
    """Whether a step was seen, not only what is made for one."""
    ends = ["backward", "train_on_batch", "apply_gradients", "minimize", "fit_generator"]
    if _has_gradients(seen):
        ends.append("fit")
    if any(not call.path.startswith(_ESTIMATORS) for call in seen.calls_named(*ends)):
        return True
    return bool(seen.calls(*_STEPPING))


def _has_gradients(seen: Seen) -> bool:
    return any(name in GRADIENTS for each in seen.facts.imports for name in of_module(each.module))


def _kind(value: Value) -> Precision | None:
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
    calls = seen.calls_where(_may_be_precise, ("load_in_4bit", "load_in_8bit"))
    told = [(found, call) for call in calls if (found := _precision_of(call)) is not None]
    if told:
        # TF32 is how the rest is done, beside what is in half precision.
        found, call = next((each for each in told if each[0] is not Precision.TF32), told[0])
        return seen.say(found, [call.where], Confidence.HIGH if call.certain else Confidence.MEDIUM)
    return seen.say(
        Precision.FP32, (), Confidence.MEDIUM, "Nothing says otherwise, and it is what frameworks start with."
    )


_PRECISE = frozenset(
    {
        *AUTOCAST, "lightning.Trainer", "accelerate.Accelerator", "torch.set_float32_matmul_precision",
        "torch.set_default_dtype", "vllm.LLM", "transformers.pipeline",
    }
)  # fmt: skip
_PRECISE_ENDS = (
    *_ARGUMENTS, "BitsAndBytesConfig", "set_global_policy", "set_policy", "set_dtype_policy", "half", "bfloat16",
    "from_pretrained", "fsdp.MixedPrecision",
)  # fmt: skip


def _may_be_precise(path: str) -> bool:
    return path in _PRECISE or path.endswith(_PRECISE_ENDS)


def _precision_of(call: Call) -> Precision | None:
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
        given = settled(call.kwargs.get("precision"))
        return _kind(str(given)) if given is not None else None
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
    first = batch_told(seen) or _first_dimension(seen)
    if first is not None:
        return seen.say(first[0], [first[1]], Confidence.MEDIUM)
    return seen.ask("How many samples are in a batch?")


def _loader_batch(seen: Seen) -> tuple[int, Where] | None:
    """The loader that the training loop goes over, else the first one."""
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
    data = settled(data)
    if isinstance(data, Thing) and data.path.endswith("DataLoader"):
        size = whole(data.attrs.get("batch_size"))
        return size if size else None
    return None


_FROM_FOLDERS = ("image_dataset_from_directory", "text_dataset_from_directory", "flow", "flow_from_directory")


def _fit_batch(seen: Seen) -> tuple[int, Where] | None:
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
    for call in seen.calls("torch.randn", "torch.rand", "torch.randint", "torch.stack"):
        if isinstance(call.result, Tensor) and call.result.shape and len(call.result.shape) > 1:
            size = whole(call.result.shape[0])
            if size and size > 1 and call.loops:
                return size, call.where
    return None


def sequence_length(seen: Seen) -> Conclusion[int]:
    given = _given_to_a_known_model(seen)
    if given is not None:
        return seen.say(given[0], [given[1]], Confidence.HIGH)
    named = number_named(seen, SEQUENCE_NAMES, 2, 1e7)
    if named is not None:
        return seen.say(named[0], [named[1]], Confidence.MEDIUM, f"Taken from {named[2]}.")
    for call in seen.calls_with(*_LENGTHS):
        if call.path == "collections.deque":
            continue  # a memory of so many entries
        for name, given in call.kwargs.items():
            size = whole(given) if name in _LENGTHS else None
            if size and size > 1:
                return seen.say(size, [call.where], Confidence.MEDIUM)
    return seen.ask("How many tokens are in a sequence?")


def _given_to_a_known_model(seen: Seen) -> tuple[int, Where] | None:
    """The second dimension of the words that a model of transformers is called with."""
    for call in seen.calls(f"{MODEL}()"):
        words = settled(call.argument(0, "input_ids"))
        if isinstance(words, Tensor) and words.shape and len(words.shape) == 2 and words.kind.startswith("int"):
            length = whole(words.shape[1])
            if length and length > 1:
                return length, call.where
    return None


def image_size(seen: Seen, pictures: tuple[int, Where] | None) -> Conclusion[int]:
    if pictures is not None:
        return seen.say(pictures[0], [pictures[1]], Confidence.HIGH)
    named = number_named(seen, IMAGE_NAMES, 8, 20_000)
    if named is not None:
        return seen.say(named[0], [named[1]], Confidence.MEDIUM, f"Taken from {named[2]}.")
    return seen.ask("How large are the pictures, in pixels?")
