"""A labelled corpus: scripts in a folder, and their labels."""

from __future__ import annotations

import csv
import enum
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LABELS = "labels.csv"
OURS = Path(__file__).parent / "labels.jsonl"
NEEDS = ("none", "optional", "required")
HELD = 3
"""Of the first 140 files, every N-th is held out."""
SECOND = 2
"""Value of `set` for the labels that were added later."""


class Part(enum.StrEnum):
    ALL = "all"
    SHOWN = "shown"
    HELD = "held"
    SECOND = "second"
    """Whether the script was drawn and labelled later, before the analysis changed again."""


@dataclass(frozen=True)
class Label:
    path: Path
    frameworks: frozenset[str]
    gpu: str
    parameters: int | None


@dataclass(frozen=True)
class Corpus:
    """`changed` are files that changed after they were labelled."""

    labels: list[Label]
    changed: tuple[str, ...] = ()


def corpus(folder: Path, part: Part = Part.ALL) -> Corpus:
    """By the folder's own `labels.csv`, else by ours; a script that is missing is an error, so that none is left out
    unseen.
    """
    if (folder / LABELS).is_file():
        return Corpus(labels(folder))
    return _ours(folder, part)


def labels(folder: Path) -> list[Label]:
    with (folder / LABELS).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    found = [_label(folder / row["file"], row) for row in rows]
    _all_there(each.path for each in found)
    return found


def _ours(folder: Path, part: Part) -> Corpus:
    rows = [json.loads(line) for line in OURS.read_text(encoding="utf-8").splitlines()]
    chosen = [row for row in rows if part is Part.ALL or _part(row) is part]
    placed = [(folder / row["repository"] / row["path"], row) for row in chosen]
    _all_there(path for path, _ in placed)
    same = [_label(path, row) for path, row in placed if _sha1(path) == row["sha1"]]
    return Corpus(same, tuple(row["path"] for path, row in placed if _sha1(path) != row["sha1"]))


def _part(row: Mapping[str, Any]) -> Part:
    if row.get("set") == SECOND:
        return Part.SECOND
    return Part.HELD if int(row["sha1"], 16) % HELD == 0 else Part.SHOWN


def _sha1(path: Path) -> str:
    return hashlib.sha1(path.read_bytes(), usedforsecurity=False).hexdigest()


def _all_there(paths: Iterable[Path]) -> None:
    missing = [str(path) for path in paths if not path.is_file()]
    if missing:
        raise FileNotFoundError(f"labelled but missing: {', '.join(missing)}")


def _label(path: Path, row: Mapping[str, Any]) -> Label:
    gpu = row["gpu"].strip()
    if gpu not in NEEDS:
        raise ValueError(f"{path.name}: gpu is {gpu!r}, not none, optional or required")
    given = row["frameworks"]
    frameworks = frozenset(given.split() if isinstance(given, str) else given)
    count = str(row.get("parameters") or "").strip()
    return Label(path, frameworks, gpu, int(count) if count else None)
