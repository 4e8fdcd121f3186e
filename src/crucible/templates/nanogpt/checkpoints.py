"""Checkpoints: everything that a run needs to continue as if it had never stopped.

A checkpoint is one file `step_00001000.pt` of tensors, numbers, strings, lists and dicts, read with
`weights_only=True`: loading one never runs code. Truncated and damaged files fail their checksums and are never used.
"""

from __future__ import annotations

import hashlib
import pickle
import random
import re
import zipfile
from pathlib import Path
from typing import Any

import torch

from config import Refused
from job import checkpoint_dir, save_whole

FORMAT = "nanogpt-checkpoint"
VERSION = 1
NEEDED = frozenset(
    {
        "config",
        "text",
        "vocabulary",
        "step",
        "history",
        "model",
        "optimizer",
        "scheduler",
        "scaler",
        "sampler",
    }
)

_NAME = re.compile(r"step_(\d+)\.pt")


class Unusable(Refused):
    """The file is not a complete checkpoint of this program."""


def random_state() -> dict[str, Any]:
    """Return the random states of Python, torch and each GPU."""
    return {
        "python": random.getstate(),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def restore_random_state(state: dict[str, Any] | None) -> str | None:
    """Restore the random states. Return None, or why the run will draw other random numbers than without a stop."""
    if state is None:
        return "the checkpoint has no random state"
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    torch.set_rng_state(state["torch"])
    if torch.cuda.is_available() and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])
    elif torch.cuda.is_available() or state["cuda"]:
        return "the checkpoint was made on other devices"
    return None


def save(content: dict[str, Any], step: int, metric: float | None) -> Path:
    whole = {"format": FORMAT, "version": VERSION, **content}
    return save_whole(f"step_{step:08d}.pt", lambda path: torch.save(whole, path), step, metric)


def load(path: Path) -> dict[str, Any]:
    """Load a checkpoint. Raises Unusable for anything but a complete one in this format and version."""
    content = load_tensors(path)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise Unusable(f"{path} is no checkpoint of this program")
    if content.get("version") != VERSION:
        raise Unusable(f"{path} has format version {content.get('version')}, this program reads {VERSION}")
    missing = sorted(NEEDED - set(content))
    if missing:
        raise Unusable(f"{path} lacks {', '.join(missing)}")
    return content


def load_tensors(path: Path) -> Any:
    """Load what torch.save wrote to `path` onto the CPU, after checking every checksum."""
    try:
        with zipfile.ZipFile(path) as packed:
            damaged = packed.testzip()
        if damaged is not None:
            raise Unusable(f"{path} is damaged: the checksum of {damaged} is wrong")
        return torch.load(path, map_location="cpu", weights_only=True)
    except (zipfile.BadZipFile, pickle.UnpicklingError, OSError, EOFError) as error:
        raise Unusable(f"{path} is cut short or damaged: {error}") from error
    except (RuntimeError, ValueError, KeyError, NotImplementedError) as error:
        raise Unusable(f"{path} cannot be read: {error}") from error


def find(path: Path) -> tuple[Path, dict[str, Any]]:
    """Return the checkpoint at `path`, or the newest complete one if it is a folder. Raises Unusable."""
    if not path.exists():
        raise Unusable(f"there is no checkpoint at {path}")
    if not path.is_dir():
        return path, load(path)
    for each in newest_first(path):
        try:
            return each, load(each)
        except Unusable as error:
            print(f"skipped: {error}", flush=True)
    raise Unusable(f"no file in {path} is a whole checkpoint")


def newest_first(folder: Path) -> list[Path]:
    found = [(int(match[1]), path) for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))]
    return [path for _, path in sorted(found, reverse=True)]


def clear() -> None:
    """Remove the checkpoints of an earlier run, so that two runs are never mixed."""
    for path in newest_first(checkpoint_dir()):
        path.unlink()


class Kept:
    """Keeps the newest `count` checkpoints that this process wrote; checkpoints of others are left alone."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._written: list[Path] = []

    def add(self, path: Path) -> None:
        self._written = [each for each in self._written if each != path] + [path]
        while self._count and len(self._written) > self._count:
            self._written.pop(0).unlink(missing_ok=True)


def digest(weights: dict[str, torch.Tensor]) -> str:
    """Return the SHA-256 over names and bytes of all weights: equal for two models exactly if they are the same."""
    found = hashlib.sha256()
    for name in sorted(weights):
        values = weights[name].detach().cpu().contiguous()
        found.update(f"{name} {values.dtype} {tuple(values.shape)}\n".encode())
        found.update(values.reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
