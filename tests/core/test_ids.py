from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.core.ids import ALPHABET, Prefix, is_id, make_id, short

JOB = make_id(Prefix.JOB, 1_700_000_000_000, 0xABCDEF)

milliseconds = st.integers(0, 2**48 - 1)
randoms = st.integers(0, 2**80 - 1)


@given(st.sampled_from(Prefix), milliseconds, randoms)
def test_every_id_is_one(prefix: Prefix, at: int, bits: int) -> None:
    made = make_id(prefix, at, bits)
    assert is_id(made)
    assert made.startswith(f"{prefix.value}-")
    assert set(made.partition("-")[2]) <= set(ALPHABET)


@given(st.tuples(milliseconds, randoms), st.tuples(milliseconds, randoms))
def test_ids_sort_by_time_then_by_chance(one: tuple[int, int], other: tuple[int, int]) -> None:
    assert (make_id(Prefix.JOB, *one) < make_id(Prefix.JOB, *other)) == (one < other)


def test_more_bits_than_fit_are_cut() -> None:
    assert make_id(Prefix.JOB, 2**48, 2**80) == make_id(Prefix.JOB, 0, 0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "job-",
        JOB + "\n",
        " " + JOB,
        JOB[:-1],
        JOB + "0",
        JOB.upper(),
        JOB.replace("job", "jab"),
        JOB[:-1] + "u",
    ],
)
def test_what_only_looks_like_an_id_is_none(text: str) -> None:
    assert not is_id(text)


def test_the_short_form_is_the_prefix_and_six_characters() -> None:
    assert short(JOB) == f"job-{JOB[-6:]}"
