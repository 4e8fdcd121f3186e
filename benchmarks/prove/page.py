"""Render the generated parts of docs/reliability.md: the figures, and the failures of other projects."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.prove.figuretable import figure_table
from benchmarks.prove.markdown import head, line, links
from benchmarks.prove.peers import PEERS, Planted
from benchmarks.prove.results import Results
from crucible.core.errors import Trouble

END = "<!-- until here -->"
HEAD = ("seen in", "failure", "our rule", "shown by")


def begin(name: str) -> str:
    """Return the comment that starts a generated part."""
    return f"<!-- {name}: made by `python -m benchmarks.prove --render` -->"


def rewrite(path: Path, results: Results, planted: Planted) -> None:
    text = rendered(path.read_text(), results, planted)
    part = path.with_name(f".{path.name}.part")
    part.write_text(text)
    os.replace(part, path)


def rendered(page: str, results: Results, planted: Planted) -> str:
    """Return the page with its generated parts rendered again. Raises Trouble if a part's markers are missing."""
    return _with(_with(page, "figures", figure_table(results)), "peers", _peers(planted))


def _with(page: str, name: str, lines: Iterable[str]) -> str:
    before, mark, rest = page.partition(begin(name))
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise Trouble(f"The page has no part for the {name}.", fix=f"Add {begin(name)} and {END} to it.")
    return f"{before}{mark}\n\n" + "\n".join(lines) + f"\n\n{end}{after}"


def _peers(planted: Planted) -> Iterator[str]:
    yield from head(HEAD)
    for peer in PEERS:
        shown = "; ".join(filter(None, (_bugs(planted, peer.seen), links(peer.tests))))
        yield line((peer.seen, peer.failure, peer.rule, shown))
    others = [seen for seen in planted if seen not in {peer.seen for peer in PEERS}]
    if others:
        yield ""
        yield "Also planted: " + "; ".join(f"{_names(planted[seen])} ({seen})" for seen in sorted(others)) + "."


def _bugs(planted: Planted, seen: str) -> str:
    return f"planted: {_names(planted[seen])}" if seen in planted else ""


def _names(bugs: tuple[str, ...]) -> str:
    return ", ".join(f"*{bug}*" for bug in bugs)
