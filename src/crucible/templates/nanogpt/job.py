"""The few calls that differ on and off Crucible.

On Crucible they use its API (`import crucible`). Without it the same files are written and SIGTERM has the same effect,
so `python train.py` needs nothing but torch.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

try:
    from crucible import checkpoint as platform_checkpoint
    from crucible import report as platform_report
    from crucible import should_stop as platform_should_stop

    HAVE_CRUCIBLE = True
except ImportError:
    HAVE_CRUCIBLE = False

_signals: list[int] = []


def on_platform() -> bool:
    return bool(os.environ.get("CRUCIBLE_JOB_ID"))


def output_dir() -> Path:
    return _made("CRUCIBLE_OUTPUT_DIR", "outputs")


def checkpoint_dir() -> Path:
    return _made("CRUCIBLE_CHECKPOINT_DIR", "checkpoints")


def resume_from() -> Path | None:
    value = os.environ.get("CRUCIBLE_RESUME_FROM")
    return Path(value) if value else None


def watch_for_stop() -> None:
    """From now on, SIGTERM does not end the process; should_stop() reports it."""
    if HAVE_CRUCIBLE:
        platform_should_stop()
    else:
        signal.signal(signal.SIGTERM, lambda number, frame: _signals.append(number))


def should_stop() -> bool:
    if HAVE_CRUCIBLE:
        return bool(platform_should_stop())
    return bool(_signals) or _stop_file_exists()


def stop_code() -> int:
    """Return the exit code after a stop: 0 if the user or the platform, which writes its stop file first, asked for it.

    A SIGTERM from anyone else must not make an unfinished job look complete.
    """
    return 0 if _stop_file_exists() or not on_platform() else 128 + signal.SIGTERM


def report(step: int, **metrics: float) -> None:
    """Report metrics that are not in the printed lines; only on the platform."""
    if HAVE_CRUCIBLE and on_platform():
        platform_report(step, **metrics)


def save_whole(name: str, write: Callable[[Path], object], step: int, metric: float | None) -> Path:
    """Write a file to checkpoint_dir() that appears under its name only when it is complete and on disk."""
    if HAVE_CRUCIBLE:
        return platform_checkpoint.save(write, step=step, metric=metric, name=name)
    target = checkpoint_dir() / name
    replace_whole(target, write)
    return target


def replace_whole(target: Path, write: Callable[[Path], object]) -> None:
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        write(unfinished)
        _sync(unfinished)
        os.replace(unfinished, target)
    finally:
        unfinished.unlink(missing_ok=True)
    _sync(target.parent)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _stop_file_exists() -> bool:
    path = os.environ.get("CRUCIBLE_STOP_FILE")
    return bool(path and os.path.exists(path))


def _made(variable: str, default: str) -> Path:
    path = Path(os.environ.get(variable) or default)
    path.mkdir(parents=True, exist_ok=True)
    return path
