"""Whether it can be interrupted: does it save while it trains, and does it go on from what it saved?"""

from __future__ import annotations

import re

from crucible.analysis.conclusions.facts import Seen
from crucible.analysis.conclusions.training.training import trainer_arguments, trains
from crucible.analysis.values.facts import Call
from crucible.analysis.values.values import Thing, settled
from crucible.core.routing.profile import Conclusion, Confidence

_SAVES = frozenset(
    {
        "torch.save",
        "joblib.dump",
        "pickle.dump",
        "torch.distributed.checkpoint.save",
        "crucible.checkpoint.save",
        "flax.training.checkpoints.save_checkpoint",
        "torch.distributed.checkpoint.save_state_dict",
        "safetensors.torch.save_file",
        "numpy.save",
        "accelerate.Accelerator.save_state",
        "deepspeed.DeepSpeedEngine.save_checkpoint",
    }
)
_SAVING_ROOTS = (
    ".", "keras.", "transformers.", "accelerate.", "tensorflow.", "orbax.", "model.", "lightning.", "xgboost.",
    "lightgbm.", "torch.nn.",
)  # fmt: skip
"""Libraries with methods that save; a dot begins a method of an unknown object."""

_PICTURE = re.compile(r"""\.(png|jpe?g|gif|webp)["']""")
_SAVE_METHODS = frozenset({"save", "save_weights", "save_pretrained", "save_checkpoint", "save_state", "save_model"})
_CALLBACKS = frozenset(
    {
        "keras.callbacks.ModelCheckpoint",
        "keras.callbacks.BackupAndRestore",
        "lightning.callbacks.ModelCheckpoint",
        "lightning.pytorch.callbacks.ModelCheckpoint",
        "orbax.checkpoint.CheckpointManager",
        "tensorflow.train.CheckpointManager",
        "lightning.Trainer",
        "xgboost.callback.TrainingCheckPoint",
        "stable_baselines3.common.callbacks.CheckpointCallback",
        "ray.train.xgboost.RayTrainReportCallback",
        "ray.train.lightgbm.RayTrainReportCallback",
    }
)
_LOADS = frozenset(
    {
        "torch.load",
        "crucible.checkpoint.latest",
        "torch.distributed.checkpoint.load",
        "flax.training.checkpoints.restore_checkpoint",
        "keras.callbacks.BackupAndRestore",
        "torch.distributed.checkpoint.load_state_dict",
    }
)
_TRAINS = frozenset({"backward", "fit", "fit_generator", "train_on_batch", "apply_gradients"})
_LOAD_METHODS = frozenset(
    {"load_state_dict", "load_state", "restore", "load_weights", "load_checkpoint", "restore_or_initialize"}
)


def checkpointing(seen: Seen) -> Conclusion[bool]:
    saving = seen.calls_where(_saves)
    during = [call for call in saving if call.loops and _is_progress(seen, call)]
    if any(call.path != ".save" for call in during) or (during and trains(seen)):
        return seen.say(True, (call.where for call in during))
    for call in seen.calls_among(_CALLBACKS):
        if call.kwargs.get("enable_checkpointing") is not False:
            return seen.say(True, [call.where])
    for call in _snapshots(seen):
        return seen.say(True, [call.where])
    for call in trainer_arguments(seen):
        if call.kwargs.get("save_strategy") != "no":
            return seen.say(True, [call.where], Confidence.HIGH, "The Trainer saves as it goes.")
    if saving:
        return seen.say(
            False, [call.where for call in saving], Confidence.MEDIUM, "It saves once, not while it trains."
        )
    return seen.say(False, (), Confidence.HIGH, "It saves nothing that training could go on from.")


def _is_progress(seen: Seen, call: Call) -> bool:
    """Pictures are none. Arrays are written in loops that train nothing as well: those hold data."""
    if call.path != "numpy.save":
        return call.path != ".save" or not _is_picture(seen, call)
    around = {loop.where for loop in call.loops}
    return any(loop.where in around for step in seen.calls_named(*_TRAINS, "step") for loop in step.loops)


def _saves(path: str) -> bool:
    return path in _SAVES or (path.startswith(_SAVING_ROOTS) and path.rpartition(".")[2] in _SAVE_METHODS)


def _is_picture(seen: Seen, call: Call) -> bool:
    """By how its name ends on the line itself: what stands before differs from one round of the loop to the next."""
    line = seen.evidence(call.where)
    return line is not None and _PICTURE.search(line.text) is not None


_GOES_ON = ("keras.callbacks.BackupAndRestore", "crucible.checkpoint.latest")


def _snapshots(seen: Seen) -> list[Call]:
    """CatBoost keeps them as it goes, and goes on from the last by itself."""
    return [call for call in seen.calls_with("save_snapshot") if call.kwargs["save_snapshot"] is True]


def _loads(path: str) -> bool:
    return path in _LOADS or path in _GOES_ON or path.rpartition(".")[2] in _LOAD_METHODS


def resume(seen: Seen) -> Conclusion[bool]:
    for call in seen.calls_where(_loads, ("resume_from_checkpoint", "ckpt_path")):
        if call.kwargs.get("resume_from_checkpoint") not in (None, False) or call.kwargs.get("ckpt_path") is not None:
            return seen.say(True, [call.where])
        if call.path in _GOES_ON:
            return seen.say(True, [call.where])
    for call in _snapshots(seen):
        return seen.say(True, [call.where])
    loads = _loads_before_training(seen)
    found = [call.where for call in loads]
    if any(call.last == "load_state_dict" and call.path.startswith("torch.optim") for call in loads):
        return seen.say(True, found)
    weights = {"load_state_dict", "load_weights", "load_model"}
    whole_states = [call for call in loads if call.path not in _LOADS and call.last not in weights]
    if found and trains(seen) and (whole_states or _asked_to(seen) or _loads_what_it_saves(seen, loads)):
        return seen.say(True, found, Confidence.MEDIUM)
    asked = [each.where for each in seen.facts.options if each.name.startswith("resume")]
    if asked:
        return seen.say(True, asked, Confidence.MEDIUM)
    return seen.say(False, found, Confidence.MEDIUM, "It loads weights, but not where training stood." if found else "")


def _loads_before_training(seen: Seen) -> list[Call]:
    """What is loaded once the program has trained is there to be looked at. Code that nobody was seen to call comes
    after all else, whenever it would run: there the order says nothing.
    """
    found: list[Call] = []
    if not seen.calls(*_LOADS) and not seen.calls_named(*_LOAD_METHODS):
        return found
    trained = False
    for call in seen.facts.calls:
        if (call.path in _LOADS or call.last in _LOAD_METHODS) and (not trained or call.swept):
            found.append(call)
        trained = trained or (call.last in _TRAINS and not call.swept)
    return found


def _loads_what_it_saves(seen: Seen, loads: list[Call]) -> bool:
    saved = {path for call in seen.facts.calls if _saves(call.path) or call.path in _CALLBACKS for path in _paths(call)}
    return any(path in saved for call in loads for path in _paths(call))


def _paths(call: Call) -> list[str]:
    given = (settled(each) for each in (*call.args, *call.kwargs.values()))
    named = (
        each.args[0] if isinstance(each, Thing) and each.path == "pathlib.Path" and each.args else each
        for each in given
    )
    return [each for each in named if isinstance(each, str) and each not in ("cpu", "cuda")]


def _asked_to(seen: Seen) -> bool:
    return any("resume" in each.name.lower() for each in (*seen.facts.options, *seen.facts.assigned))


def interruptible(saves: Conclusion[bool], goes_on: Conclusion[bool], hours: Conclusion[float]) -> Conclusion[bool]:
    """Worth running where a machine may be taken away."""
    if saves.value and goes_on.value:
        return Conclusion(True, min(saves.confidence, goes_on.confidence, key=str), saves.evidence + goes_on.evidence)
    if hours.value is not None and not hours.assumed and hours.value < 0.25:
        return Conclusion(
            True, Confidence.MEDIUM, hours.evidence, False, "It is over so soon that starting again costs little."
        )
    why = "It does not go on from what it saved." if saves.value else "What it did would be lost."
    return Conclusion(False, saves.confidence, saves.evidence, False, why)
