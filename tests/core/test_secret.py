from __future__ import annotations

import copy
import dataclasses
import io
import json
import logging
import pickle
import traceback
from collections.abc import Callable

import pytest

from crucible.core.secret import Secret

VALUE = "hunter2-swordfish"
SECRET = Secret(VALUE)


@dataclasses.dataclass(frozen=True)
class Login:
    user: str
    password: Secret


def logged() -> str:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    record = logging.LogRecord("x", logging.INFO, __file__, 1, "with %s and %r", (SECRET, SECRET), None)
    handler.emit(record)
    return out.getvalue()


def failed() -> str:
    """The text of a traceback that shows the local variables too."""
    token = Secret(VALUE)
    try:
        raise ValueError(f"wrong token: {token}")
    except ValueError as error:
        return "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())


SHOWN: dict[str, Callable[[], str]] = {
    "repr": lambda: repr(SECRET),
    "str": lambda: str(SECRET),
    "f-string": lambda: f"{SECRET} {SECRET!r} {SECRET!s} {SECRET:>40}",
    "percent": lambda: "%s %r" % (SECRET, SECRET),  # noqa: UP031
    "format": lambda: "{}".format(SECRET),  # noqa: UP032
    "container": lambda: str([SECRET, {"a": SECRET}]),
    "dataclass": lambda: repr(Login("me", SECRET)),
    "json as text": lambda: json.dumps({"token": SECRET}, default=str),
    "logging": logged,
    "traceback": failed,
}


@pytest.mark.parametrize("show", SHOWN.values(), ids=SHOWN)
def test_a_secret_is_shown_as_stars(show: Callable[[], str]) -> None:
    text = show()
    assert "***" in text
    assert VALUE not in text


def test_only_reveal_gives_it_out() -> None:
    assert SECRET.reveal() == VALUE


@pytest.mark.parametrize("way", [json.dumps, pickle.dumps, copy.copy, copy.deepcopy], ids=lambda way: way.__name__)
def test_a_secret_cannot_be_written_away(way: Callable[[object], object]) -> None:
    with pytest.raises(TypeError):
        way(SECRET)


def test_a_secret_inside_a_value_cannot_be_pickled_either() -> None:
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(Login("me", SECRET))


def test_a_secret_has_no_dictionary_to_be_dumped() -> None:
    assert not hasattr(SECRET, "__dict__")


def test_comparison() -> None:
    assert Secret(VALUE) == SECRET
    assert Secret("other") != SECRET
    assert SECRET != VALUE
    assert SECRET.matches(VALUE)
    assert not SECRET.matches("")
    assert not SECRET.matches("пароль")
    assert len({SECRET, Secret(VALUE)}) == 1
