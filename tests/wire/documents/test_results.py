from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.wire.documents.results import (
    MAX_BYTES,
    BadResult,
    Result,
    decode_result,
    encode_result,
    read_result_document,
)

NUMBERS = st.integers(-(2**62), 2**62) | st.floats(allow_nan=False, allow_infinity=False)
PLAIN = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)


@given(PLAIN)
def test_what_is_plain_json_comes_back_as_it_was(value: object) -> None:
    data = encode_result(Result("inference", value))
    assert decode_result(data) == Result("inference", value)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"loss": math.nan}, "the result['loss'] is nan, which JSON cannot represent"),
        ([1, math.inf], "the result[1] is inf"),
        ({1: 2}, "the result has the key 1, but keys must be texts"),
        ({"model": object()}, "the result['model'] is a object, but a result consists of"),
        (b"bytes", "the result is a bytes"),
        ({"a": {"b": {1, 2}}}, "the result['a']['b'] is a set"),
        ("\ud800", "the result holds half a character"),
        ({"\ud800": 1}, "the result holds half a character"),
        (2**63, "the result is a whole number of more than 63 bits"),
        ("x" * MAX_BYTES, "at most 65536 are allowed"),
    ],
)
def test_what_is_not_is_refused_by_the_name_of_its_part(value: object, says: str) -> None:
    with pytest.raises(BadResult) as error:
        encode_result(Result("value", value))
    assert says in str(error.value)


def test_nesting_has_an_end() -> None:
    value: object = 1
    for _ in range(40):
        value = [value]
    with pytest.raises(BadResult, match="nested more than 32 deep"):
        encode_result(Result("value", value))


@pytest.mark.parametrize("value", [3, [1], "fast", None, True])
def test_a_benchmark_names_what_it_measured(value: object) -> None:
    with pytest.raises(BadResult, match="an object of measurements by name"):
        encode_result(Result("benchmark", value))
    assert encode_result(Result("benchmark", {"speed": value}))


def test_there_are_few_kinds() -> None:
    with pytest.raises(BadResult, match="'guess' is not a kind of result; known: train, inference, benchmark"):
        encode_result(Result("guess", 1))


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"\xff", "not valid JSON"),
        (b"[" * 100_000, "more than 65536 bytes"),
        (b"[" * 60_000, "not valid JSON"),
        (b"[]", "no kind or no value"),
        (b'{"kind": "value"}', "no kind or no value"),
        (b'{"kind": 1, "value": 1}', "no kind or no value"),
        (b'{"kind": "value", "value": NaN}', "is nan"),
    ],
)
def test_bytes_that_are_no_result_are_refused(raw: bytes, says: str) -> None:
    with pytest.raises(BadResult, match=says):
        decode_result(raw)


def test_a_document_is_checked_like_bytes() -> None:
    assert read_result_document({"kind": "train", "value": {"a": 1}, "more": 2}) == Result("train", {"a": 1})
    with pytest.raises(BadResult):
        read_result_document(json.loads('{"kind": "benchmark", "value": 1}'))
