"""A labelled corpus: scripts in a folder, and what readers said of them."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

LABELS = "labels.csv"


@dataclass(frozen=True)
class Label:
    path: Path
    frameworks: frozenset[str]
    gpu: str
    parameters: int | None


def labels(folder: Path) -> list[Label]:
    """The rows of `labels.csv`; a script that is missing is an error, so that none is left out unseen."""
    with (folder / LABELS).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    found = [_label(folder, row) for row in rows]
    missing = [str(each.path) for each in found if not each.path.is_file()]
    if missing:
        raise FileNotFoundError(f"labelled, but not there: {', '.join(missing)}")
    return found


def _label(folder: Path, row: dict[str, str]) -> Label:
    gpu = row["gpu"].strip()
    if gpu not in ("none", "optional", "required"):
        raise ValueError(f"{row['file']}: gpu is {gpu!r}, not none, optional or required")
    count = (row.get("parameters") or "").strip()
    return Label(folder / row["file"], frozenset(row["frameworks"].split()), gpu, int(count) if count else None)
