"""A job's metrics as a table: a row for each step, a column for each series."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, overload

from crucible.core.errors import Trouble
from crucible.core.views.records import MetricsView

if TYPE_CHECKING:
    from typing import Any

Row = dict[str, float | str | None]

SAMPLED = "system."
"""Series of the machine: sampled by time, not by step."""


class MetricsTable(Sequence[Row]):
    """Rows as dictionaries, ordered by step; rows without a step follow, ordered by time.

    Each row has `step`, `time`, and the series that have a value there. `columns` names all of them.
    """

    def __init__(self, rows: Sequence[Row], columns: Sequence[str]) -> None:
        self._rows = tuple(rows)
        self.columns = ("step", "time", *columns)

    @classmethod
    def from_view(cls, view: MetricsView) -> MetricsTable:
        stepped: dict[float, Row] = {}
        timed: dict[float | str | None, Row] = {}
        for name, series in sorted(view.series.items()):
            for step, value, at in series.points:
                if step is None or name.startswith(SAMPLED):
                    row = timed.setdefault(at, {"step": None, "time": at})
                else:
                    row = stepped.setdefault(step, {"step": int(step) if step.is_integer() else step, "time": at})
                row[name] = value
        rows = [*(stepped[step] for step in sorted(stepped)), *sorted(timed.values(), key=lambda row: str(row["time"]))]
        return cls(rows, sorted(view.series))

    @property
    def last(self) -> dict[str, float | None]:
        """The last value of each series."""
        values: dict[str, float | None] = {}
        for row in self._rows:
            values.update((name, _float(value)) for name, value in row.items() if name not in ("step", "time"))
        return values

    def column(self, name: str) -> list[float | str | None]:
        return [row.get(name) for row in self._rows]

    def to_pandas(self) -> Any:
        """Return a pandas.DataFrame with the same rows and columns. Needs pandas."""
        try:
            import pandas  # type: ignore[import-not-found,import-untyped,unused-ignore]
        except ImportError as error:
            raise Trouble(
                "pandas is not installed here.",
                why="Only to_pandas() needs it; the table itself is a list of dictionaries.",
                fix="pip install pandas",
            ) from error
        return pandas.DataFrame(list(self._rows), columns=list(self.columns))

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...

    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def __repr__(self) -> str:
        return f"<MetricsTable of {len(self)} rows: {', '.join(self.columns)}>"


def _float(value: float | str | None) -> float | None:
    return value if isinstance(value, int | float) else None
