from __future__ import annotations

import base64
import html
import json
import random
import re
import time
from collections.abc import Callable
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.agent.output.redaction import MASK, Redactor
from crucible.agent.output.secret_forms import SHORTEST, secret_forms

SECRET = "s3cr3t-Válue/with+odd=chars"
values = st.text(min_size=4, max_size=30).filter(lambda value: any(map(long_enough, re.split("[\r\n]+", value))))
"""Each line of a value is searched for separately, except lines that are too short."""


def long_enough(line: str) -> bool:
    return len(line.encode()) >= SHORTEST


def through(redactor: Redactor, pieces: list[bytes]) -> bytes:
    return b"".join([*(redactor.feed(piece) for piece in pieces), redactor.finish()])


def cut(text: bytes, seed: int) -> list[bytes]:
    """Split the data into pieces of 1 to 7 bytes."""
    dice, at, found = random.Random(seed), 0, []
    while at < len(text):
        size = dice.randint(1, 7)
        found.append(text[at : at + size])
        at += size
    return found


@pytest.mark.parametrize(
    "form",
    [
        str.encode,
        lambda v: v.encode().hex().encode(),
        lambda v: v.encode().hex().upper().encode(),
        lambda v: base64.b64encode(v.encode()),
        lambda v: base64.b64encode(b"user:" + v.encode()),
        lambda v: base64.urlsafe_b64encode(b"ab" + v.encode() + b"cd"),
        lambda v: quote(v, safe="").encode(),
        lambda v: json.dumps({"key": v}).encode(),
        lambda v: json.dumps({"key": v}, ensure_ascii=False).encode(),
        lambda v: repr({"key": v}).encode(),
        lambda v: repr(v.encode()).encode(),
        lambda v: f"Traceback: KeyError: {v!r}".encode(),
        lambda v: re.sub("%..", lambda found: found.group().lower(), quote(v, safe="")).encode(),
        lambda v: quote(v).encode(),
        lambda v: "".join(f"%{byte:02X}" for byte in v.encode()).encode(),
        lambda v: "".join(f"%{byte:02x}" for byte in v.encode()).encode(),
        lambda v: json.dumps(json.dumps({"key": v})).encode(),
        lambda v: f"<b>{html.escape(v)}</b>".encode(),
    ],
)
@pytest.mark.parametrize("whole", [True, False])
def test_every_form_is_hidden(form: Callable[[str], bytes], whole: bool) -> None:
    line = b"before " + form(SECRET) + b" after\n"
    shown = through(Redactor([SECRET]), [line] if whole else [bytes([byte]) for byte in line])
    assert MASK in shown
    assert not any(hidden in shown for hidden in secret_forms([SECRET]))
    assert shown.startswith(b"before ")
    assert shown.endswith(b" after\n")


@given(values, st.binary(max_size=60), st.binary(max_size=60), st.integers(0, 1000))
def test_no_cut_lets_it_through(value: str, before: bytes, after: bytes, seed: int) -> None:
    raw = value.encode()
    shown = through(Redactor([value]), cut(before + raw + after, seed))
    # What is left may hold the value only if the mask itself completes it.
    assert raw not in shown or MASK.decode() in value or "*" in value


@given(st.binary(max_size=200), st.integers(0, 1000))
def test_what_holds_no_secret_comes_out_as_it_was(text: bytes, seed: int) -> None:
    text = text.replace(b"~", b"")
    redactor = Redactor(["~" * 8])
    hidden = secret_forms(["~" * 8])
    if any(form in text for form in hidden):
        return
    assert through(redactor, cut(text, seed)) == text


@given(st.lists(values, max_size=4), st.binary(max_size=200), st.integers(0, 1000))
def test_how_it_is_cut_changes_nothing_that_matters(secrets: list[str], text: bytes, seed: int) -> None:
    whole, pieces = through(Redactor(secrets), [text]), through(Redactor(secrets), cut(text, seed))
    for form in secret_forms(secrets):
        if b"*" not in form:
            assert form not in pieces
            assert form not in whole


def test_nothing_to_hide_keeps_nothing_back() -> None:
    redactor = Redactor([])
    assert redactor.feed(b"anything") == b"anything"
    assert redactor.held == 0


def test_short_values_are_not_looked_for() -> None:
    assert secret_forms(["", "a", "abc"]) == set()


def test_only_what_may_be_a_beginning_is_kept_back() -> None:
    redactor = Redactor(["secret-value"])
    assert redactor.feed(b"a line\n") == b"a line\n"
    assert redactor.feed(b"it is sec") == b"it is "
    assert redactor.held == 3
    assert redactor.feed(b"ond") == b"second"


def test_a_longer_secret_that_begins_like_a_shorter_one() -> None:
    assert through(Redactor(["abcd", "abcdefgh"]), [b"ab", b"cdef", b"gh!"]) == MASK + b"!"


@pytest.mark.quiet
@pytest.mark.parametrize("hit", [b"nothing here", b"token k3" + b"%d" % 7 + b"-zz"])
def test_megabytes_a_second(hit: bytes) -> None:
    text = (b"epoch 1 step 100 loss 0.5 " + hit + b"\n") * 20_000
    dice = random.Random(1)
    redactor = Redactor(["".join(dice.choices("abcdefghijKLMNOP0123456789-_/+", k=40)) for _ in range(25)])
    began = time.process_time()
    assert through(redactor, [text[at : at + 65536] for at in range(0, len(text), 65536)]) == text
    assert time.process_time() - began < len(text) / 1e6


@pytest.mark.quiet
def test_output_full_of_secrets_is_no_burden() -> None:
    dice = random.Random(2)
    secrets = ["".join(dice.choices("abcdefghijKLMNOP0123456789-_/+", k=40)) for _ in range(25)]
    text = b"".join(b"line %d of many, with %s\n" % (n, secrets[n % 25].encode()) for n in range(10_000))
    began = time.process_time()
    shown = through(Redactor(secrets), [text[at : at + 65536] for at in range(0, len(text), 65536)])
    assert time.process_time() - began < 2.0
    assert shown.count(MASK) == 10_000


@pytest.mark.quiet
def test_a_very_long_value_costs_no_more_than_its_length() -> None:
    value = "".join(random.Random(3).choices("abcdefgh0123", k=32 * 1024))
    began = time.process_time()
    redactor = Redactor([value])
    shown = through(redactor, [b"x" * 65536, value[:20_000].encode(), value[20_000:].encode(), b"y" * 65536])
    assert time.process_time() - began < 2.0
    assert shown == b"x" * 65536 + MASK + b"y" * 65536


def test_a_line_that_has_ended_is_never_kept_back() -> None:
    redactor = Redactor(["first line of it\nsecond line of it", "\nleading end"])
    for line in (b"first line of\n", b"f\n", b"\n", b"second\r\n", b"progress\r"):
        assert redactor.feed(line) == line
    assert redactor.held == 0


def test_each_line_of_a_value_is_hidden() -> None:
    key = "-----BEGIN KEY-----\nMIIBVAIBADANBgkq\n9kqh0BAQEFAASC\n-----END KEY-----\n"
    shown = through(Redactor([key]), [line.encode() + b"\n" for line in key.splitlines()])
    assert shown == (MASK + b"\n") * 4
    assert b"MIIB" not in through(Redactor([key]), [json.dumps({"key": key}).encode()])


def test_base64_that_was_broken_into_lines_is_hidden() -> None:
    value = "".join(random.Random(4).choices("abcdef0123456789", k=200))
    encoded = base64.encodebytes(value.encode())
    shown = through(Redactor([value]), [encoded])
    assert not any(line[:40] in shown for line in encoded.splitlines())


@pytest.mark.parametrize("value", [" padded value ", "trailing end\n"])
def test_a_value_that_the_program_strips_is_hidden(value: str) -> None:
    assert through(Redactor([value]), [value.strip().encode() + b"!"]) == MASK + b"!"


def test_texts_and_data_are_made_clean() -> None:
    redactor = Redactor([SECRET])
    assert redactor.text(f"KeyError: {SECRET!r}") == "KeyError: '***'"
    data = {"argv": ["run", f"--key={SECRET}"], SECRET: 1, "n": 2.5, "none": None, "deep": [{"a": (SECRET,)}]}
    assert redactor.data(data) == {
        "argv": ["run", "--key=***"],
        "***": 1,
        "n": 2.5,
        "none": None,
        "deep": [{"a": ["***"]}],
    }


def test_text_that_is_no_utf8_stays_as_it_is() -> None:
    odd = b"\xff\xfe caf\xe9".decode("utf-8", "surrogateescape")
    assert Redactor([SECRET]).text(odd) == odd


def test_data_is_the_same_object_when_there_is_nothing_to_hide() -> None:
    data = {"a": ["b"]}
    assert Redactor([]).is_idle
    assert Redactor([]).data(data) is data
