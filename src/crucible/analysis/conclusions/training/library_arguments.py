"""Batch sizes and epochs that are passed to the training functions of libraries."""

from __future__ import annotations

from collections.abc import Iterator

from crucible.analysis.conclusions.facts import Seen
from crucible.analysis.values.values import Where, whole

_FASTAI_FITS = ("fit", "fit_one_cycle", "fine_tune", "fit_flat_cos", "fit_sgdr")
_FASTAI_BATCH = 64
_SIZES = ("batch_size", "bs", "batch", "train_batch_size")
_BATCHES = ("padded_batch", "ragged_batch", "dense_to_ragged_batch")
"""Methods of tf.data, besides `batch`."""


def batch_argument(seen: Seen) -> tuple[int, Where] | None:
    """Return the batch size from a keyword with a usual name in any library, and its line, or None."""
    return next(_batches(seen), None)


def _batches(seen: Seen) -> Iterator[tuple[int, Where]]:
    yield from _keywords(seen)
    yield from _fastai_default(seen)
    if any(each.module.startswith("tensorflow") for each in seen.facts.imports):
        for call in seen.calls(".batch"):  # a dataset of unknown origin
            size = whole(call.argument(0, "batch_size"))
            if size and size > 0:
                yield size, call.where


def _fastai_default(seen: Seen) -> Iterator[tuple[int, Where]]:
    """Yield fastai's default batch size for loaders without one."""
    for call in seen.calls_under("fastai."):
        makes = call.last == "dataloaders" or ("DataLoaders." in call.path and call.last.startswith("from_"))
        if makes and "bs" not in call.kwargs:
            yield _FASTAI_BATCH, call.where


def _keywords(seen: Seen) -> Iterator[tuple[int, Where]]:
    """Yield the batch sizes that are passed as keywords. fastai calls it `bs`, ultralytics `batch`."""
    for call in seen.calls_where(lambda path: path.endswith(_BATCHES), _SIZES):
        if call.last in _BATCHES:
            size = whole(call.argument(0, "batch_size"))
        elif call.path.startswith("fastai."):
            size = whole(call.kwargs.get("bs"))
        elif call.path.startswith("ultralytics."):
            size = whole(call.kwargs.get("batch"))
        else:
            size = whole(call.kwargs.get("train_batch_size", call.kwargs.get("batch_size")))
        if size and size > 0 and not call.path.startswith(("builtins.", "argparse.")):
            yield size, call.where


def epochs_argument(seen: Seen) -> tuple[int, Where] | None:
    """Return the epochs passed to a library's training function, and the line, or None."""
    for call in seen.calls_under("fastai.", "ultralytics.", "gensim.", "spacy.", "skorch."):
        count = call.kwargs.get("max_epochs" if call.path.startswith("skorch.") else "epochs")
        if call.path.startswith("fastai.") and call.last in _FASTAI_FITS:
            count = call.argument(0, "epochs" if call.last == "fine_tune" else "n_epoch")
        if whole(count):
            return whole(count) or 1, call.where
    return None
