"""Build valid catalog rows, for tests to change one field at a time."""

from __future__ import annotations

from datetime import date
from typing import Any

from crucible.catalog.rows import Row
from crucible.core.compute.pricing import MICROS
from crucible.core.compute.resources import GiB

DAY = date(2025, 10, 1)
"""The day from which tests count ages; every shipped price was read before it."""


def usd(dollars: float) -> int:
    return round(dollars * MICROS)


def make_row(**changes: Any) -> Row:
    """Return a g4dn.xlarge with month-old prices; `changes` are fields, with prices in dollars."""
    for column in ("on_demand", "spot", "reserved_1y", "reserved_3y"):
        if isinstance(changes.get(column), float):
            changes[column] = usd(changes[column])
    sound: dict[str, Any] = {
        "provider": "aws",
        "region": "us-east-1",
        "instance_type": "g4dn.xlarge",
        "gpu": "T4",
        "gpus": 1,
        "vcpus": 4.0,
        "memory_bytes": 16 * GiB,
        "on_demand": usd(0.526),
        "spot": None,
        "reserved_1y": None,
        "reserved_3y": None,
        "interruption": "",
        "price_list": "aws-ec2",
        "dated": "2025-09-01",
        "origin": "test.csv:2",
    }
    return Row(**{**sound, **changes})


def family() -> list[Row]:
    """Return valid rows of T4 machines in several regions."""
    rows = []
    for number, (region, factor) in enumerate(
        {"us-east-1": 1.0, "us-west-2": 1.0, "eu-west-1": 1.116, "ap-northeast-1": 1.35}.items()
    ):
        for size, cpus, price in (("xlarge", 4.0, 0.526), ("2xlarge", 8.0, 0.752), ("4xlarge", 16.0, 1.204)):
            rows.append(
                make_row(
                    region=region,
                    instance_type=f"g4dn.{size}",
                    vcpus=cpus,
                    memory_bytes=int(cpus) * 4 * GiB,
                    on_demand=price * factor,
                    origin=f"test.csv:{number}:{size}",
                )
            )
    return rows
