"""The parts of docs/reliability.md that are made, not written: the figures, and what keeps peers' failures away."""

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
    """The mark after which a part is made."""
    return f"<!-- {name}: made by `python -m benchmarks.prove --render` -->"


def rewrite(path: Path, results: Results, planted: Planted) -> None:
    text = rendered(path.read_text(), results, planted)
    part = path.with_name(f".{path.name}.part")
    part.write_text(text)
    os.replace(part, path)


def rendered(page: str, results: Results, planted: Planted) -> str:
    """The page with its made parts made anew. Raises Trouble where it has no place for them."""
    return _with(_with(page, "figures", figure_table(results)), "peers", _peers(planted))


def _with(page: str, name: str, lines: Iterable[str]) -> str:
    before, mark, rest = page.partition(begin(name))
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise Trouble(f"The page has no place for the {name}.", fix=f"Write {begin(name)} and {END} there.")
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
