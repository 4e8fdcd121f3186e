"""Rows as they stand in a file: read, written back, and refused where they are none."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.catalog.builders import make_row, usd

from crucible.catalog.findings import Rule
from crucible.catalog.rows import HEAD, read_rows, write_rows

LINE = "us-east-1,g4dn.xlarge,T4,1,4,16,0.526,0.22,,,5-10%,aws-ec2,2025-09-01"


def text_of(*lines: str) -> str:
    return "\n".join([",".join(HEAD), *lines]) + "\n"


def test_a_line_is_a_row() -> None:
    read = read_rows(text_of(LINE), "aws", "aws.csv")
    assert read.findings == ()
    (row,) = read.rows
    assert (row.key, row.gpu, row.gpus) == (("aws", "us-east-1", "g4dn.xlarge"), "T4", 1)
    assert row.prices() == [("on_demand", 526_000), ("spot", 220_000)]
    assert row.memory_bytes == 16 * 1024**3
    assert row.origin == "aws.csv:2"


def test_an_empty_price_is_not_known_and_zero_is_zero() -> None:
    (row,) = read_rows(text_of(LINE.replace("0.526,0.22", "0,")), "aws", "aws.csv").rows
    assert (row.on_demand, row.spot) == (0, None)


def test_one_bad_line_costs_one_line() -> None:
    bad = (
        LINE.replace("0.526", "cheap"),
        LINE.replace("0.526", "nan"),
        LINE.replace("0.526", "inf"),
        LINE.replace(",4,", ",,"),
        LINE + ",more",
        "us-east-1",
        LINE.replace("g4dn.xlarge", "x" * 300),
    )
    read = read_rows(text_of(*bad, LINE), "aws", "aws.csv")
    assert len(read.rows) == 1
    assert [finding.rule for finding in read.findings] == [Rule.UNREADABLE] * len(bad)
    assert read.findings[0].origin == "aws.csv:2"
    assert all(finding.fix for finding in read.findings)


def test_another_table_is_no_file_of_rows() -> None:
    read = read_rows("InstanceType,Price\ng4dn.xlarge,0.526\n", "aws", "aws.csv")
    assert read.rows == ()
    assert "first line" in read.findings[0].what


def test_an_empty_file_is_told() -> None:
    assert read_rows("", "aws", "aws.csv").findings[0].rule is Rule.UNREADABLE


def test_what_is_written_is_read_back() -> None:
    rows = [
        make_row(),
        make_row(region="eu-west-1", on_demand=0.587, spot=0.2, reserved_1y=0.4, reserved_3y=0.3, origin="x"),
        make_row(instance_type="m6i.large", gpu="", gpus=0, vcpus=0.5, memory_bytes=int(12.5 * 1024**3)),
    ]
    read = read_rows(write_rows(rows), "aws", "again.csv")
    assert read.findings == ()
    assert [(row.key, row.vcpus, row.memory_bytes, row.prices()) for row in read.rows] == [
        (row.key, row.vcpus, row.memory_bytes, row.prices()) for row in rows
    ]


def test_prices_can_be_taken_away() -> None:
    row = make_row(spot=0.2).without({"on_demand"})
    assert row.prices() == [("spot", usd(0.2))]


@given(st.text(max_size=300))
def test_any_text_is_read_or_told(text: str) -> None:
    read = read_rows(f"{','.join(HEAD)}\n{text}", "aws", "any.csv")
    assert len(read.rows) + len(read.findings) <= text.count("\n") + text.count("\r") + 2


@given(micros=st.integers(min_value=1, max_value=10**9))
def test_money_survives_the_file(micros: int) -> None:
    (row,) = read_rows(write_rows([make_row(on_demand=micros)]), "aws", "any.csv").rows
    assert row.on_demand == micros
