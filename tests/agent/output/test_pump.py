"""Test the way of a program's output to the log, with secrets in it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.waiting import poll

from crucible.agent.output.output_log import OutputLog
from crucible.agent.output.pump import Pump, make_pipe
from crucible.agent.output.redaction import Redactor
from crucible.agent.output.telemetry import Telemetry

VALUE = "s3cr3t-value"


class Piped:
    """A pump at the reading end of a pipe."""

    def __init__(self, folder: Path, *secrets: str) -> None:
        self.log = OutputLog(folder / "log", lambda text: None)
        self.telemetry = Telemetry()
        reading, self._writing = make_pipe()
        self.pump = Pump(reading, self.log, self.telemetry, redactor=Redactor(secrets) if secrets else None)
        self.pump.start()
        self._shown = b""

    def write(self, *pieces: bytes) -> None:
        for piece in pieces:
            os.write(self._writing, piece)

    def shown(self) -> bytes:
        found = self.log.tail()
        self._shown += found[1] if found is not None else b""
        return self._shown

    def close(self) -> bytes:
        if self._writing >= 0:
            os.close(self._writing)
            self._writing = -1
        self.pump.join(10)
        return self.shown()


@pytest.fixture
def piped(tmp_path: Path) -> Iterator[Piped]:
    piped = Piped(tmp_path, VALUE)
    yield piped
    piped.close()


def test_a_value_cut_over_two_writes_with_a_pause_is_hidden(piped: Piped) -> None:
    piped.write(b"begin\nkey s3cr3t-")
    poll(lambda: piped.shown() == b"begin\n")
    time.sleep(0.5)  # longer than the pump waits for output: it must not let go of the beginning
    piped.write(b"value end\n")
    assert piped.close() == b"begin\nkey *** end\n"


def test_a_line_that_ends_like_a_secret_begins_comes_at_once(piped: Piped) -> None:
    piped.write(b"it is s3cr\n")
    poll(lambda: piped.shown() == b"it is s3cr\n")


def test_a_beginning_that_nothing_follows_comes_out_at_the_end(piped: Piped) -> None:
    piped.write(b"last words: s3cr3t")
    assert piped.close() == b"last words: s3cr3t\n"


def test_a_secret_at_the_very_end_is_hidden(piped: Piped) -> None:
    piped.write(b"last words: s3cr3t", b"-value")
    assert piped.close() == b"last words: ***\n"


def test_metrics_are_read_out_of_what_is_left(tmp_path: Path) -> None:
    piped = Piped(tmp_path, "12345678", "hidden_metric")
    piped.write(b"step 1 loss=0.5 hidden_metric=0.7 code=12345678\n")
    piped.close()
    points = piped.telemetry.take_points(last=True) or {}
    assert "loss" in points
    assert "hidden_metric" not in points
    assert 12345678.0 not in [point[1] for series in points.values() for point in series]


def test_without_secrets_nothing_is_looked_at(tmp_path: Path) -> None:
    piped = Piped(tmp_path)
    piped.write(VALUE.encode() + b"\n")
    assert piped.close() == VALUE.encode() + b"\n"
