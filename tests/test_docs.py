"""The pages name files that are there, and their links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent
PAGES = [*PROJECT.glob("*.md"), *(PROJECT / "docs").rglob("*.md")]
CURRENT = [page for page in PAGES if page.parent.name != "decisions" and page.name != "CHANGELOG.md"]
"""Decisions and the change log tell of what was there at their time."""
FILE = re.compile(r"(?<![\w/.-])((?:[a-z_0-9]+/)+[a-z_0-9]+\.py)\b")
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def name_of(page: Path) -> str:
    return str(page.relative_to(PROJECT))


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives a page's headings."""
    headings = (re.sub(r"[`*]", "", heading) for heading in HEADING.findall(page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", CURRENT, ids=name_of)
def test_files_that_a_page_names_are_there(page: Path) -> None:
    named = {name for name in FILE.findall(page.read_text(encoding="utf-8")) if not name.startswith("src/my_")}
    roots = (PROJECT, PROJECT / "src", PROJECT / "src" / "crucible", page.parent)
    assert {name for name in named if not any((root / name).exists() for root in roots)} == set()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        found = (page.parent / target).resolve() if target else page
        assert found.exists(), target
        if anchor and found.suffix == ".md":
            assert anchor in anchors(found), f"{target}#{anchor}"
