"""The server's log: one JSON object per line, without secrets."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import MutableMapping
from typing import Any, TextIO

import structlog

MASK = "***"
_NAMES = frozenset({"authorization", "key", "nonce", "password", "secret", "token"})
_VALUES = re.compile(r"(bearer[ .]+)[^\s\"',;]+", re.IGNORECASE)

REFUSED_SOCKET = "ASGI callable returned without completing handshake."
"""uvicorn logs this error for each socket that is refused with a problem. Any client could fill the log with it."""

LogFields = MutableMapping[str, Any]


class TeeWriter:
    """Writes everything to several files."""

    def __init__(self, *files: TextIO) -> None:
        self._files = files

    def write(self, text: str) -> int:
        for file in self._files:
            file.write(text)
        return len(text)

    def flush(self) -> None:
        for file in self._files:
            file.flush()


class LossyWriter:
    """Writer that never fails: lines that a full disk does not take are dropped, counted and reported later."""

    def __init__(self, file: TextIO | TeeWriter) -> None:
        self._file = file
        self._dropped = 0

    def write(self, text: str) -> int:
        report = ""
        if self._dropped:
            report = json.dumps({"event": "lines left out", "lines": self._dropped, "level": "warning"}) + "\n"
        try:
            self._file.write(report + text)
            self._file.flush()
        except OSError:
            self._dropped += 1
        else:
            self._dropped = 0
        return len(text)

    def flush(self) -> None:
        """Do nothing: every write flushes."""


def configure_logging(file: TextIO | TeeWriter) -> None:
    """Send everything this process logs, its libraries included, to `file`."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            mask,
            structlog.processors.JSONRenderer(default=str),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(file=LossyWriter(file)),  # type: ignore[arg-type]  # it writes and flushes
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(handlers=[_Bridge()], level=logging.WARNING, force=True)


def mask(_logger: object, _method: str, line: LogFields) -> LogFields:
    """Mask values with a secret's name, and bearer tokens inside texts."""
    for name, value in line.items():
        if name.lower() in _NAMES:
            line[name] = MASK
        elif isinstance(value, str):
            line[name] = _VALUES.sub(rf"\1{MASK}", value)
    return line


class _Bridge(logging.Handler):
    """Logging handler that writes the records of libraries in the same form."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg == REFUSED_SOCKET:
            return
        log = structlog.get_logger()
        log.log(record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info)
