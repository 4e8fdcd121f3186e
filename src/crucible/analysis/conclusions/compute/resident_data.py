"""Held: the data that a program has in its machine's memory at once, as far as sizes are known."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from crucible.analysis.conclusions.facts import Seen
from crucible.analysis.knowledge.datasets import dataset as known_dataset
from crucible.analysis.library.numpy import DRAWN, FILLED, kind_told, size_told
from crucible.analysis.values.facts import Call
from crucible.analysis.values.values import WIDTHS, Tensor, Value, Where, settled, whole

NUMBER = 8
"""Bytes of a number, as NumPy and scikit-learn make them."""
PIXEL = 1 + 4
"""Pictures come as bytes, and programs make floats of them."""
TEXT = 5
"""Texts as Python has them, and the words they become, beside what they take on disk."""
TABLE = 3
PACKED = 5
"""What a table takes in memory beside its file: of text, and of a format that is compressed."""
LEAST = 1e6
"""Arrays below that are not worth a word."""

_MADE = "sklearn.datasets.make_"
_FEATURES = {
    "make_classification": 20, "make_regression": 100, "make_blobs": 2, "make_hastie_10_2": 10, "make_moons": 2,
    "make_circles": 2, "make_friedman1": 10, "make_s_curve": 3, "make_swiss_roll": 3,
    "make_multilabel_classification": 20, "make_low_rank_matrix": 100, "make_sparse_uncorrelated": 10,
    "make_gaussian_quantiles": 2, "make_friedman2": 4, "make_friedman3": 4,
}  # fmt: skip
_IN_MEMORY = frozenset(
    {"mnist", "fashionmnist", "kmnist", "emnist", "qmnist", "cifar10", "cifar100", "svhn", "stl10", "usps"}
)
"""Datasets of torchvision that are read whole; the others open their files one by one."""
_TABLES = {
    "pandas.read_csv": TABLE, "pandas.read_table": TABLE, "pandas.read_json": TABLE, "pandas.read_excel": PACKED,
    "pandas.read_parquet": PACKED, "pandas.read_feather": PACKED, "pandas.read_pickle": 1, "numpy.load": 1,
    "numpy.loadtxt": 1, "numpy.genfromtxt": 1, "polars.read_csv": TABLE, "polars.read_parquet": PACKED,
}  # fmt: skip


class Held(NamedTuple):
    """`bytes` is None for what is read whole and has a size that nobody knows."""

    name: str
    bytes: float | None
    where: Where


def held(seen: Seen) -> list[Held]:
    """Each line once: what a loop makes again takes the place of what it made before."""
    found: dict[Where, Held] = {}
    for each in (*_arrays(seen), *_datasets(seen), *_files(seen)):
        before = found.get(each.where)
        if before is None or (before.bytes or 0) < (each.bytes or 0):
            found[each.where] = each
    return [each for each in found.values() if each.bytes is None or each.bytes >= LEAST]


def _arrays(seen: Seen) -> Iterator[Held]:
    for call in seen.calls_where(_makes_arrays):
        if not call.certain:
            continue
        items = _items(call)
        if items is not None:
            width = WIDTHS[kind_told(call.last, call.args, call.kwargs)]
            yield Held(f"{call.last} of {items:,} numbers", items * width, call.where)


def _makes_arrays(path: str) -> bool:
    home, _, name = path.rpartition(".")
    if home.startswith("numpy.random"):
        return name in DRAWN
    return (home == "numpy" and name in FILLED) or path.startswith(_MADE)


def _items(call: Call) -> int | None:
    if call.path.startswith(_MADE):
        return _made_up(call)
    shape = settled(size_told(call.last, call.args, call.kwargs))
    if isinstance(shape, list | tuple):
        return _product(tuple(shape))
    return whole(shape)


def _made_up(call: Call) -> int | None:
    samples = settled(call.argument(0, "n_samples", 12_000 if "hastie" in call.last else 100))
    features = whole(call.argument(1, "n_features", _FEATURES.get(call.last, 2)))
    rows = sum(samples) if isinstance(samples, list | tuple) and None not in map(whole, samples) else whole(samples)
    fixed = call.last in ("make_moons", "make_circles", "make_s_curve", "make_swiss_roll", "make_hastie_10_2")
    columns = _FEATURES[call.last] if fixed else features
    return None if rows is None or columns is None else rows * (columns + 1)


def _product(sizes: tuple[Value, ...]) -> int | None:
    known = [whole(each) for each in sizes]
    return None if None in known or not known else math.prod(each or 0 for each in known)


def _datasets(seen: Seen) -> Iterator[Held]:
    starts = ("keras.datasets.", "sklearn.datasets.fetch_", "sklearn.datasets.load_", "torchvision.datasets.")
    for call in seen.calls_under(*starts):
        name, each = _named(call)
        known = known_dataset(name)
        if known is None or each is None:
            continue
        if known.samples and known.shape:
            yield Held(known.name, known.samples * math.prod(known.shape) * each, call.where)
        elif known.gb:
            yield Held(known.name, known.gb * 1e9 * TEXT, call.where)


def _named(call: Call) -> tuple[str, int | None]:
    """What it is called, and the bytes of each of its numbers; None for what is read piece by piece."""
    if call.path.startswith("keras.datasets."):
        return call.path.split(".")[-2], PIXEL if call.last == "load_data" else None
    if call.path.startswith("torchvision.datasets."):
        return call.last, 1 if call.last.lower() in _IN_MEMORY else None
    name = call.last.partition("_")[2]
    if name == "openml":
        given = settled(call.argument(0, "name"))
        name = given.removesuffix("_784").lower() if isinstance(given, str) else ""
    return name, NUMBER


def _files(seen: Seen) -> Iterator[Held]:
    for call in seen.calls(*_TABLES):
        if call.kwargs.keys() & {"mmap_mode", "chunksize", "iterator"} or not call.certain:
            continue
        path = settled(call.args[0]) if call.args else None
        name = path if isinstance(path, str) else "files"
        rows = whole(call.kwargs.get("nrows"))
        data = seen.machine.sources.files.get(name.removeprefix("./"))
        if rows is not None and data is None:
            continue
        yield Held(name, None if data is None else float(len(data) * _TABLES[call.path]), call.where)


def batch_bytes(call: Call) -> float:
    """Of what a loader hands over at once."""
    like = getattr(call.result, "attrs", {}).get("like")
    parts = like if isinstance(like, list | tuple) else (like,)
    tensors = [each for each in map(settled, parts) if isinstance(each, Tensor)]
    return sum((each.items or 0) * each.width for each in tensors)
