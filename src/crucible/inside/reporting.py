"""`report`: send the metrics of a step, one line each. Failures never stop the training."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Optional, SupportsFloat

from crucible.inside.paths import on_platform

LINE_LIMIT = 4000
"""Bytes. A single write below 4096 to a file opened for appending is not mixed with those of other writers."""


class _ReportFile:
    """Appends lines to the report file; counts lines that could not be written instead of raising."""

    def __init__(self) -> None:
        self.dropped = 0
        self._path = ""
        self._fd: Optional[int] = None
        self._torn = False

    def write(self, path: str, line: bytes) -> None:
        # After a line that a full disk cut short, start a new one, so that only the cut line is lost.
        data = (b"\n" if self._torn else b"") + line
        try:
            written = os.write(self._open(path), data)
        except OSError:
            self.dropped += 1
            return
        self._torn = written < len(data)
        self.dropped += self._torn

    def _open(self, path: str) -> int:
        if self._fd is None or path != self._path:
            # O_NONBLOCK, as the path may be a pipe that nobody reads.
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
            fd = os.open(path, flags, 0o600)
            self.close()
            self._fd, self._path, self._torn = fd, path, False
        return self._fd

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


_drain = _ReportFile()


def report(step: Optional[int] = None, **metrics: SupportsFloat) -> None:
    """Report metrics of the job, optionally at a `step`: `report(step, loss=loss, accuracy=0.9)`.

    Values are numbers, or anything that `float()` or `.item()` converts to one (a tensor with one element); others
    raise a TypeError that names the key. `epoch`, `total_epochs` and `total_steps` describe the progress of the job.
    Returns at once; a line that cannot be written is dropped and counted. Off-platform it prints
    `step 5 loss=0.12`.
    """
    write_report({} if step is None else {"step": _whole(step)}, metrics)


def write_report(head: Mapping[str, object], metrics: Mapping[str, SupportsFloat]) -> None:
    """Write a report with its `head`: `step`, and `from_zero` if epochs count from 0 by contract."""
    values = {name: _number(name, value) for name, value in metrics.items()}
    if "step" not in head and not values:
        return
    path = os.environ.get("CRUCIBLE_REPORT_FILE")
    if path and on_platform():
        for line in _lines(head, values):
            _drain.write(path, line)
    else:
        _print(head.get("step"), values)


def write_note(**fields: object) -> None:
    """Send the platform a line that is not a metric; off-platform it does nothing."""
    path = os.environ.get("CRUCIBLE_REPORT_FILE")
    if path and on_platform():
        _drain.write(path, _encode(fields))


def dropped_lines() -> int:
    """Return how many lines could not be written in this process."""
    return _drain.dropped


def _lines(head: Mapping[str, object], values: Mapping[str, float]) -> Iterator[bytes]:
    """Yield one line, or several if the metrics do not fit in one."""
    line = _encode({**head, "metrics": dict(values)})
    if len(line) <= LINE_LIMIT or len(values) < 2:
        yield line
        return
    names = list(values)
    middle = len(names) // 2
    for half in (names[:middle], names[middle:]):
        yield from _lines(head, {name: values[name] for name in half})


def _encode(fields: Mapping[str, object]) -> bytes:
    return json.dumps({"crucible": 1, **fields}, separators=(",", ":")).encode() + b"\n"


def _print(step: object, values: Mapping[str, float]) -> None:
    words = [] if step is None else [f"step {step}"]
    words += [f"{name}={value:.6g}" for name, value in values.items()]
    try:
        sys.stdout.write(" ".join(words) + "\n")
        sys.stdout.flush()
    except (OSError, ValueError):
        _drain.dropped += 1


def _whole(step: object) -> int:
    value = _number("step", step)
    if value != value or value in (float("inf"), float("-inf")):
        raise TypeError(f"report(): step is {step!r}, not a whole number")
    return int(value)


def _number(name: str, value: object) -> float:
    if isinstance(value, (str, bytes)) or value is None:
        raise TypeError(f"report(): {name} is {value!r}, not a number")
    try:
        item = getattr(value, "item", None)
        return float(item() if callable(item) else value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise TypeError(f"report(): {name} is {type(value).__name__}, not a number: {error}") from error
