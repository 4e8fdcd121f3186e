"""The server's own log: JSON lines without secrets."""

from __future__ import annotations

import errno
import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from crucible.server.http.server_log import LossyWriter, TeeWriter, configure_logging


@pytest.fixture
def file() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    out = io.StringIO()
    configure_logging(out)
    yield out
    structlog.reset_defaults()
    root.handlers, root.level = handlers, level


def lines(file: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.getvalue().splitlines()]


def test_one_object_a_line(file: io.StringIO) -> None:
    structlog.get_logger().info("ready", url="http://127.0.0.1:1", number=7)
    [line] = lines(file)
    assert (line["event"], line["level"], line["number"]) == ("ready", "info", 7)
    assert line["timestamp"].endswith("Z")


def test_secrets_are_hidden_by_name(file: io.StringIO) -> None:
    structlog.get_logger().info("x", token="canary", Authorization="canary", key="canary", nonce="canary")
    assert "canary" not in file.getvalue()


@pytest.mark.parametrize("text", ["Bearer canary", "authorization: bearer canary", "crucible.bearer.canary, x"])
def test_tokens_are_hidden_in_texts(file: io.StringIO, text: str) -> None:
    structlog.get_logger().info(text, more=text)
    assert "canary" not in file.getvalue()


def test_tracebacks_have_no_values_of_variables(file: io.StringIO) -> None:
    local = "canary-value"
    try:
        len(local) / 0  # type: ignore[operator]
    except ZeroDivisionError:
        structlog.get_logger().exception("broken")
    [line] = lines(file)
    assert "ZeroDivisionError" in line["exception"]
    assert "canary-value" not in file.getvalue()


def test_libraries_log_in_the_same_form(file: io.StringIO) -> None:
    logging.getLogger("some.library").error("cannot %s", "listen")
    logging.getLogger("some.library").info("noise")
    [line] = lines(file)
    assert (line["event"], line["logger"], line["level"]) == ("cannot listen", "some.library", "error")


def test_two_files_as_one() -> None:
    one, two = io.StringIO(), io.StringIO()
    tee = TeeWriter(one, two)
    tee.write("x")
    tee.flush()
    assert one.getvalue() == two.getvalue() == "x"


class SmallFile(io.StringIO):
    """Has room, or none."""

    full = False

    def write(self, text: str) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(text)


def test_a_disk_without_room_stops_nobody_and_what_was_left_out_is_counted() -> None:
    file = SmallFile()
    patient = LossyWriter(file)
    patient.write('{"event": "before"}\n')
    file.full = True
    for _ in range(3):
        patient.write('{"event": "lost"}\n')
    file.full = False
    patient.write('{"event": "after"}\n')
    patient.write('{"event": "later"}\n')
    assert [line["event"] for line in lines(file)] == ["before", "lines left out", "after", "later"]
    assert lines(file)[1]["lines"] == 3
