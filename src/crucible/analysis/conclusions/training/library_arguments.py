"""Told: batches and epochs that a library's own way to train is called with."""

from __future__ import annotations

from collections.abc import Iterator

from crucible.analysis.conclusions.facts import Seen
from crucible.analysis.values.values import Where, whole

_FASTAI_FITS = ("fit", "fit_one_cycle", "fine_tune", "fit_flat_cos", "fit_sgdr")
_FASTAI_BATCH = 64
_SIZES = ("batch_size", "bs", "batch", "train_batch_size")
_BATCHES = ("padded_batch", "ragged_batch", "dense_to_ragged_batch")
"""Of tf.data, besides `batch`."""


def batch_told(seen: Seen) -> tuple[int, Where] | None:
    """A keyword by its usual name, of any library; in fastai it is `bs`, in ultralytics `batch`."""
    return next(_batches(seen), None)


def _batches(seen: Seen) -> Iterator[tuple[int, Where]]:
    yield from _keywords(seen)
    yield from _fastai_default(seen)
    if any(each.module.startswith("tensorflow") for each in seen.facts.imports):
        for call in seen.calls(".batch"):  # of a dataset that came from somewhere unknown
            size = whole(call.argument(0, "batch_size"))
            if size and size > 0:
                yield size, call.where


def _fastai_default(seen: Seen) -> Iterator[tuple[int, Where]]:
    for call in seen.calls_under("fastai."):
        makes = call.last == "dataloaders" or ("DataLoaders." in call.path and call.last.startswith("from_"))
        if makes and "bs" not in call.kwargs:
            yield _FASTAI_BATCH, call.where


def _keywords(seen: Seen) -> Iterator[tuple[int, Where]]:
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


def epochs_told(seen: Seen) -> tuple[int, Where] | None:
    for call in seen.calls_under("fastai.", "ultralytics.", "gensim.", "spacy.", "skorch."):
        told = call.kwargs.get("max_epochs" if call.path.startswith("skorch.") else "epochs")
        if call.path.startswith("fastai.") and call.last in _FASTAI_FITS:
            told = call.argument(0, "epochs" if call.last == "fine_tune" else "n_epoch")
        if whole(told):
            return whole(told) or 1, call.where
    return None
