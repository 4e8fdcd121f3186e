from __future__ import annotations

import sys
import types

import pytest

from crucible.client.sdk.metrics_table import MetricsTable
from crucible.core.errors import Trouble
from crucible.core.views.records import MetricsView

FOUND = MetricsView.model_validate(
    {
        "series": {
            "loss": {"count": 2, "points": [[2, 0.5, 12.0], [1, 1.0, 11.0]]},
            "acc": {"count": 1, "points": [[2, 0.9, 12.1]]},
            "system.memory_bytes": {"count": 2, "points": [[0, 7.0, 10.0], [1, 8.0, 13.0]]},
            "wall": {"count": 1, "points": [[None, 3.0, 14.0]]},
        }
    }
)


def test_a_row_for_each_step_and_then_those_without_one() -> None:
    table = MetricsTable.from_view(FOUND)
    assert list(table) == [
        {"step": 1, "time": 11.0, "loss": 1.0},
        {"step": 2, "time": 12.1, "acc": 0.9, "loss": 0.5},
        {"step": None, "time": 10.0, "system.memory_bytes": 7.0},
        {"step": None, "time": 13.0, "system.memory_bytes": 8.0},
        {"step": None, "time": 14.0, "wall": 3.0},
    ]
    assert table.columns == ("step", "time", "acc", "loss", "system.memory_bytes", "wall")
    assert len(table) == 5
    assert table[0]["loss"] == 1.0
    assert table[:1] == (table[0],)
    assert "5 rows" in repr(table)


def test_columns_and_last_values() -> None:
    table = MetricsTable.from_view(FOUND)
    assert table.column("loss") == [1.0, 0.5, None, None, None]
    assert table.last == {"acc": 0.9, "loss": 0.5, "system.memory_bytes": 8.0, "wall": 3.0}


def test_an_empty_table() -> None:
    table = MetricsTable.from_view(MetricsView())
    assert (list(table), table.columns, table.last) == ([], ("step", "time"), {})


def test_pandas_gets_the_same_rows_and_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    pandas = types.ModuleType("pandas")
    pandas.DataFrame = lambda rows, columns: (rows, columns)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    table = MetricsTable.from_view(FOUND)
    assert table.to_pandas() == (list(table), list(table.columns))


def test_without_pandas_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(Trouble, match="pip install pandas"):
        MetricsTable.from_view(FOUND).to_pandas()
