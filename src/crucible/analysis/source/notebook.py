"""Reads a notebook's code cells as one text whose lines know their cell. Magics become blank lines."""

from __future__ import annotations

import json
import re

from crucible.analysis.source.sources import MAX_LINES, Text

_MAGIC = re.compile(r"^\s*(%|!|\?)|^\s*[\w.]+\?{1,2}\s*$|^\s*[A-Za-z_][\w.]*\s*=\s*[!%]")
_RUNS_ITS_BODY = ("%%time", "%%timeit", "%%capture", "%%prun")


def read_notebook(name: str, data: bytes) -> Text:
    """Return the text of a notebook of any format version; cells that are not Python become blank lines."""
    try:
        cells = _cells(json.loads(data.decode("utf-8", errors="replace")))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return Text(name, (), (f"{name} is not a notebook.",))
    lines: list[str] = []
    origins: list[tuple[str, int]] = []
    for number, source in enumerate(cells, 1):
        for at, line in enumerate(_python(source), 1):
            lines.append(line)
            origins.append((f"{name}#cell{number}", at))
    notes = () if lines else (f"{name} has no code cells.",)
    if len(lines) > MAX_LINES:
        notes = (f"Only the first {MAX_LINES:,} lines of {name} were read.",)
    return Text(name, tuple(lines[:MAX_LINES]), notes, tuple(origins[:MAX_LINES]))


def _cells(document: dict[str, object]) -> list[str]:
    """Return the sources of the code cells. Version 3 kept cells in worksheets and called the source `input`."""
    cells = document.get("cells")
    if cells is None:
        sheets = document["worksheets"]
        cells = [cell for sheet in sheets for cell in sheet["cells"]] if isinstance(sheets, list) else None
    if not isinstance(cells, list):
        raise TypeError("its cells are not a list")
    sources = (cell.get("source", cell.get("input", "")) for cell in cells if cell.get("cell_type") == "code")
    return ["".join(source) if isinstance(source, list) else str(source) for source in sources]


def _python(source: str) -> list[str]:
    """Return the lines of a cell with its magics blanked, or only blank lines if its magic runs another language."""
    lines = source.replace("\r\n", "\n").split("\n")
    first = source.lstrip()
    if first.startswith("%%") and not first.startswith(_RUNS_ITS_BODY):
        return ["" for _ in lines]
    return [_blank(line) if _MAGIC.match(line) else line for line in lines]


def _blank(line: str) -> str:
    """Return what replaces a magic: `pass` if it is indented, so that a block of magics alone still parses."""
    indent = line[: len(line) - len(line.lstrip())]
    return f"{indent}pass" if indent else ""
