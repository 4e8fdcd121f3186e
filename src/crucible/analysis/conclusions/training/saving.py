"""Whether a run can be interrupted: does it save checkpoints while it trains, and can it resume from them?"""

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
"""Path prefixes of methods that save; a dot begins a method of an unknown object."""

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
    """Return whether the program saves checkpoints while it trains."""
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
            return seen.say(True, [call.where], Confidence.HIGH, "The Trainer saves checkpoints by default.")
    if saving:
        return seen.say(
            False, [call.where for call in saving], Confidence.MEDIUM, "It saves only once, not while it trains."
        )
    return seen.say(False, (), Confidence.HIGH, "It saves nothing that training could resume from.")


def _is_progress(seen: Seen, call: Call) -> bool:
    """Return whether the call saves progress. Images are not progress, and arrays only in loops that train: others hold
    data.
    """
    if call.path != "numpy.save":
        return call.path != ".save" or not _is_picture(seen, call)
    around = {loop.where for loop in call.loops}
    return any(loop.where in around for step in seen.calls_named(*_TRAINS, "step") for loop in step.loops)


def _saves(path: str) -> bool:
    """Return whether calls of this path save something."""
    return path in _SAVES or (path.startswith(_SAVING_ROOTS) and path.rpartition(".")[2] in _SAVE_METHODS)


def _is_picture(seen: Seen, call: Call) -> bool:
    """Return whether an image is saved, by the file extension in the line: the rest of a name varies in a loop."""
    line = seen.evidence(call.where)
    return line is not None and _PICTURE.search(line.text) is not None


_RESUMES = ("keras.callbacks.BackupAndRestore", "crucible.checkpoint.latest")


def _snapshots(seen: Seen) -> list[Call]:
    """Return the calls that make CatBoost save snapshots. It resumes from the last one by itself."""
    return [call for call in seen.calls_with("save_snapshot") if call.kwargs["save_snapshot"] is True]


def _loads(path: str) -> bool:
    """Return whether calls of this path load a saved state."""
    return path in _LOADS or path in _RESUMES or path.rpartition(".")[2] in _LOAD_METHODS


def resume(seen: Seen) -> Conclusion[bool]:
    """Return whether the program can resume training from what it saved."""
    for call in seen.calls_where(_loads, ("resume_from_checkpoint", "ckpt_path")):
        if call.kwargs.get("resume_from_checkpoint") not in (None, False) or call.kwargs.get("ckpt_path") is not None:
            return seen.say(True, [call.where])
        if call.path in _RESUMES:
            return seen.say(True, [call.where])
    for call in _snapshots(seen):
        return seen.say(True, [call.where])
    loads = _loads_before_training(seen)
    found = [call.where for call in loads]
    if any(call.last == "load_state_dict" and call.path.startswith("torch.optim") for call in loads):
        return seen.say(True, found)
    weights = {"load_state_dict", "load_weights", "load_model"}
    whole_states = [call for call in loads if call.path not in _LOADS and call.last not in weights]
    if found and trains(seen) and (whole_states or _has_resume_setting(seen) or _loads_what_it_saves(seen, loads)):
        return seen.say(True, found, Confidence.MEDIUM)
    options = [each.where for each in seen.facts.options if each.name.startswith("resume")]
    if options:
        return seen.say(True, options, Confidence.MEDIUM)
    return seen.say(False, found, Confidence.MEDIUM, "It loads weights, but not the training state." if found else "")


def _loads_before_training(seen: Seen) -> list[Call]:
    """Return the calls that load something before training; what is loaded afterwards is for evaluation.

    Code that nobody calls comes last in the list, whenever it would run: for it, order says nothing.
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
    """Return whether a call loads a file that the program also saves."""
    saved = {
        path for call in seen.facts.calls if _saves(call.path) or call.path in _CALLBACKS for path in _file_names(call)
    }
    return any(path in saved for call in loads for path in _file_names(call))


def _file_names(call: Call) -> list[str]:
    """Return the texts among the arguments that may be file names."""
    arguments = (settled(each) for each in (*call.args, *call.kwargs.values()))
    named = (
        each.args[0] if isinstance(each, Thing) and each.path == "pathlib.Path" and each.args else each
        for each in arguments
    )
    return [each for each in named if isinstance(each, str) and each not in ("cpu", "cuda")]


def _has_resume_setting(seen: Seen) -> bool:
    """Return whether an option or variable mentions resuming."""
    return any("resume" in each.name.lower() for each in (*seen.facts.options, *seen.facts.assigned))


def interruptible(saves: Conclusion[bool], resumes: Conclusion[bool], hours: Conclusion[float]) -> Conclusion[bool]:
    """Return whether the run is worth starting on a machine that may be taken away."""
    if saves.value and resumes.value:
        return Conclusion(True, min(saves.confidence, resumes.confidence, key=str), saves.evidence + resumes.evidence)
    if hours.value is not None and not hours.assumed and hours.value < 0.25:
        return Conclusion(
            True, Confidence.MEDIUM, hours.evidence, False, "It ends so soon that starting over costs little."
        )
    why = "It does not resume from what it saved." if saves.value else "Its progress would be lost."
    return Conclusion(False, saves.confidence, saves.evidence, False, why)
