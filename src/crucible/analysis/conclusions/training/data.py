"""The dataset: its name, samples and size."""

from __future__ import annotations

from collections.abc import Iterator

from crucible.analysis.conclusions.facts import Seen
from crucible.analysis.knowledge.datasets import dataset as known_dataset
from crucible.analysis.values.facts import Call
from crucible.analysis.values.values import Tensor, Thing, Value, Where, settled, whole
from crucible.core.routing.profile import Conclusion, Confidence, Dataset

_HUBS = ("datasets.load_dataset", "tensorflow_datasets.load", "tensorflow_datasets.builder")
_CLASS_MODULES = ("torchvision.datasets.", "torchaudio.datasets.", "torchtext.datasets.", "torch_geometric.datasets.")
"""Modules whose classes are named after their datasets."""

_FETCH = ("sklearn.datasets.fetch_", "sklearn.datasets.load_")
_READS = frozenset(
    {
        "pandas.read_csv",
        "pandas.read_parquet",
        "numpy.load",
        "numpy.loadtxt",
        "pandas.read_json",
        "pandas.read_pickle",
        "numpy.memmap",
    }
)
_FOLDERS = frozenset(
    {
        "torchvision.datasets.ImageFolder",
        "keras.utils.image_dataset_from_directory",
        "keras.preprocessing.image_dataset_from_directory",
        "keras.utils.text_dataset_from_directory",
    }
)


SMALLEST = 8
"""Pixels; smaller sides are not images, but noise for a generator or a window."""


def dataset(seen: Seen) -> Conclusion[Dataset]:
    """Return the dataset, or the question that would settle it."""
    for name, where, samples in _named_datasets(seen):
        found = known_dataset(name)
        if found is not None:
            return seen.say(Dataset(found.name, samples or found.samples, found.gb), [where], Confidence.HIGH)
    for name, where, samples in _named_datasets(seen):
        question = f"How large is {name}, and how many samples does it have?"
        return Conclusion(
            Dataset(name, samples, None), Confidence.MEDIUM, seen.say(0, [where]).evidence, False, "", question
        )
    for call in seen.calls_where(lambda path: path in _FOLDERS or path in _READS):
        path = settled(call.argument(0, "root" if call.path in _FOLDERS else "path"))
        own = _file_size(seen, path)
        name = path if isinstance(path, str) else "files"
        return seen.say(Dataset(name, None, own), [call.where], Confidence.MEDIUM)
    made = _generated(seen)
    if made is not None:
        return seen.say(Dataset("made by the program", made[0], 0.0), [made[1]], Confidence.MEDIUM)
    return seen.ask("Which data does the program read, and how large is it?")


def _file_size(seen: Seen, path: Value) -> float | None:
    """Return the size in GB of a data file that is among the sources, or None."""
    if isinstance(path, str):
        data = seen.machine.sources.files.get(path.removeprefix("./"))
        return len(data) / 1e9 if data is not None else None
    return None


def _named_datasets(seen: Seen) -> Iterator[tuple[str, Where, int | None]]:
    """Yield the datasets that the program names: name, line, and samples if they are known."""
    for call in seen.calls_where(_is_dataset):
        name = _dataset_name(call)
        if name:
            samples = whole(call.result.attrs.get("length")) if isinstance(call.result, Thing) else None
            yield name, call.where, samples


def _is_dataset(path: str) -> bool:
    """Return whether calls of this path load a dataset by name."""
    return path in _HUBS or path.startswith((*_CLASS_MODULES, *_FETCH, "keras.datasets."))


def _dataset_name(call: Call) -> str | None:
    """Return the dataset's name as the call gives it, or None."""
    if call.path in _HUBS:
        first, second = settled(call.argument(0, "path", call.kwargs.get("name"))), settled(call.argument(1, "name"))
        if isinstance(second, str) and known_dataset(second):
            return second
        return first if isinstance(first, str) else None
    if call.path.startswith(_CLASS_MODULES) and call.path.count(".") == 2:
        return call.last if call.path not in _FOLDERS and call.last[:1].isupper() and call.last != "FakeData" else None
    if call.path.startswith("keras.datasets.") and call.last == "load_data":
        return call.path.split(".")[-2]
    for start in _FETCH:
        if call.path.startswith(start):
            name = call.path.removeprefix(start)
            return (
                settled(call.argument(0, "name"))
                if name == "openml" and isinstance(settled(call.argument(0, "name")), str)
                else name
            )
    return None


def _generated(seen: Seen) -> tuple[int | None, Where] | None:
    """Return the samples and line of data that the program generates, or None."""
    for call in seen.calls_under("sklearn.datasets.make_"):
        return whole(call.argument(0, "n_samples", 100)), call.where
    for call in seen.calls("torch.randn", "torch.rand", "numpy.random.randn", "numpy.random.rand", "torch.randint"):
        if call.loops:
            continue
        if isinstance(call.result, Tensor):
            return whole((call.result.shape or (None,))[0]), call.where
        return whole(call.args[0]) if call.args else None, call.where
    return None


_INPUTS = ("keras.Input", "keras.layers.Input")


def pictures(seen: Seen) -> tuple[int, Where] | None:
    """Return the side of the images in pixels, and the line of the loader or input layer; None if it is unknown."""
    for call in seen.calls_where(lambda path: path in _INPUTS or path.endswith("DataLoader"), ("input_shape",)):
        if call.path.endswith("DataLoader") and isinstance(call.result, Thing):
            like = call.result.attrs.get("like")
            first = settled(like[0]) if isinstance(like, list) and like else None
            if isinstance(first, Tensor) and first.shape and len(first.shape) == 4 and whole(first.shape[-1]):
                return whole(first.shape[-1]) or 0, call.where
        if call.path in _INPUTS and isinstance(call.result, Tensor):
            shape = call.result.shape
            if shape and len(shape) == 4 and (whole(shape[1]) or 0) >= SMALLEST:
                return whole(shape[1]) or 0, call.where
        if "input_shape" in call.kwargs and isinstance(settled(call.kwargs["input_shape"]), list | tuple):
            sizes = settled(call.kwargs["input_shape"])
            if len(sizes) == 3 and whole(sizes[0]):
                return whole(sizes[0]) or 0, call.where
    for step in seen.calls("torch.randn", "torch.rand"):
        if (
            isinstance(step.result, Tensor)
            and step.result.shape
            and len(step.result.shape) == 4
            and (whole(step.result.shape[-1]) or 0) >= SMALLEST
        ):
            return whole(step.result.shape[-1]) or 0, step.where
    return None
