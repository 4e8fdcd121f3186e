"""The standard library, as far as it returns numbers, paths and texts; and checks for a GPU."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

from crucible.analysis.interpreter.iteration import items_of
from crucible.analysis.library.call import Asked
from crucible.analysis.library.python.literals import literal
from crucible.analysis.values.operators import MAX_LENGTH
from crucible.analysis.values.values import (
    GPUS,
    HAS_GPU,
    UNKNOWN,
    Either,
    Instance,
    Name,
    Tensor,
    Thing,
    Value,
    settled,
)


def _math(act: Callable[..., Any]) -> Callable[[Asked], Value]:
    def run(asked: Asked) -> Value:
        if not asked.args or not all(isinstance(each, int | float) for each in asked.args):
            return UNKNOWN
        try:
            return act(*asked.args[:3])
        except (ValueError, TypeError, ZeroDivisionError, OverflowError):
            return UNKNOWN

    return run


def _prod(asked: Asked) -> Value:
    items = items_of(asked.get(0, "iterable"))
    if (
        items is None
        or not all(isinstance(each, int | float) and abs(each) < 1e12 for each in items)
        or len(items) > 64
    ):
        return UNKNOWN
    return math.prod(items)


def _environment(asked: Asked) -> Value:
    """Return the default of an environment variable, whose value cannot be known."""
    default = asked.get(1, "default", None)
    return UNKNOWN if default is None else default


def _path_text(value: Value) -> str | None:
    """Return the path as text, or None if it is not known."""
    value = settled(value)
    if isinstance(value, str):
        return value
    if isinstance(value, Thing) and value.path == "pathlib.Path":
        parts = [_path_text(each) for each in value.args]
        return str(PurePosixPath(*[each for each in parts if each is not None])) if None not in parts else None
    return None


def _open(asked: Asked) -> Value:
    """Return the text of a file among the sources; for any other file, an unknown file object."""
    text = file_text(asked, asked.get(0, "file"))
    mode = asked.get(1, "mode", "r")
    return text if text is not None and mode in ("r", "rt", "rb") else asked.thing()


def file_text(asked: Asked, path: Value) -> str | None:
    """Return the text of a file among the sources, or None."""
    name = _path_text(path)
    if name is None:
        return None
    files = asked.machine.sources.files
    near = PurePosixPath(asked.machine.sources.entry).parent
    for candidate in (name.removeprefix("./"), str(near / name), PurePosixPath(name).name):
        data = files.get(candidate)
        if data is not None and len(data) <= MAX_LENGTH and b"\0" not in data:
            return data.decode("utf-8", errors="replace")
    return None


def _path(asked: Asked) -> Value:
    return Thing("pathlib.Path", asked.args)


def _joined(asked: Asked) -> Value:
    parts = [_path_text(each) for each in asked.args]
    known = [each for each in parts if each is not None]
    return str(PurePosixPath(*known)) if len(known) == len(parts) and known else UNKNOWN


def _read_text(asked: Asked) -> Value:
    text = file_text(asked, asked.owner)
    return UNKNOWN if text is None else text


def _copied(asked: Asked) -> Value:
    return copied(asked.get(0, "x"))


def copied(value: Value, depth: int = 0) -> Value:
    """Return a deep copy, with new layers."""
    if depth > 30:
        return UNKNOWN
    if isinstance(value, Tensor):
        made = copy.copy(value)
        made.store = copy.copy(value.store)
        return made
    if isinstance(value, list):
        return [copied(each, depth + 1) for each in value]
    if isinstance(value, dict):
        return {key: copied(each, depth + 1) for key, each in value.items()}
    if isinstance(value, Thing):
        attrs = {name: copied(each, depth + 1) for name, each in value.attrs.items()}
        return Thing(
            value.path,
            value.args,
            value.kwargs,
            value.where,
            attrs,
            [copied(each, depth + 1) for each in value.children],
        )
    if isinstance(value, Instance):
        return Instance(value.cls, value.where, {name: copied(each, depth + 1) for name, each in value.attrs.items()})
    return value


def _literal(asked: Asked) -> Value:
    text = asked.get(0, "node_or_string")
    return literal(text) if isinstance(text, str) else UNKNOWN


def _gpu_here(asked: Asked) -> Value:
    return HAS_GPU


def _nowhere_else(asked: Asked) -> Value:
    """Return False for accelerators that are not offered here, such as MPS and XPU."""
    return False


def _device_count(asked: Asked) -> Value:
    return Name("torch.cuda.device_count()")


JAX_DEVICE = "jax.Device"


def _jax_devices(asked: Asked) -> Value:
    """Return a list of devices: GPUs if there are any and no other kind is asked for."""
    kind = asked.get(1 if asked.name == "local_devices" else 0, "backend", None)
    return Thing(
        "list", attrs={"like": Thing(JAX_DEVICE, attrs={"platform": _jax_kind(asked) if kind is None else kind})}
    )


def _jax_kind(asked: Asked) -> Value:
    return Either(("gpu", "cpu"), gpu=True)


def _partial(asked: Asked) -> Value:
    return asked.thing()


def _spawn(asked: Asked) -> Value:
    """Call the function as `spawn(function, args)` does in each process, with its rank first."""
    more = items_of(asked.get(1, "args", ())) or []
    return asked.machine.call(asked.get(0, "fn"), (UNKNOWN, *more), {}, asked.scope)


def _process(asked: Asked) -> Value:
    more = items_of(asked.kwargs.get("args", ())) or []
    named = asked.kwargs.get("kwargs", {})
    asked.machine.call(asked.kwargs.get("target"), tuple(more), named if isinstance(named, dict) else {}, asked.scope)
    return asked.thing()


def _product(asked: Asked) -> Value:
    import itertools

    rows = [items_of(each) for each in asked.args]
    if None in rows or math.prod(len(row or []) for row in rows) > 256:
        return UNKNOWN
    return [tuple(each) for each in itertools.product(*[row or [] for row in rows])]


def _array(asked: Asked) -> Value:
    value = asked.get(0, "object")
    return value if isinstance(value, list | tuple | int | float | Tensor) else asked.thing()


def _first(asked: Asked) -> Value:
    return asked.get(0, "x", UNKNOWN)


def _cycle(asked: Asked) -> Value:
    source = asked.get(0, "iterable")
    like = source.attrs.get("like", UNKNOWN) if isinstance(source, Thing) else UNKNOWN
    return Thing("cycle", attrs={"like": like, "data": source})


def _bar(asked: Asked) -> Value:
    """Return what a progress bar iterates over."""
    source = asked.get(0, "iterable")
    total = asked.kwargs.get("total")
    if source is None and isinstance(total, int):
        return Thing("range", (total,))
    return source if source is not None else asked.thing()


def _bars(asked: Asked) -> Value:
    return Thing("range", asked.args)


ASKS = (
    "torch.cuda.is_available", "torch.accelerator.is_available", "torch.cuda.is_bf16_supported",
    "torch.cuda.device_count", "tensorflow.test.is_gpu_available", "catboost.utils.get_gpu_device_count",
    "numba.cuda.is_available", "transformers.is_torch_cuda_available", "transformers.utils.is_torch_cuda_available",
    "transformers.is_torch_bf16_gpu_available", "transformers.utils.is_torch_bf16_gpu_available",
    "accelerate.utils.is_cuda_available", "GPUtil.getAvailable", "faiss.get_num_gpus",
    "cupy.is_available", "cupy.cuda.is_available", "onnxruntime.get_available_providers",
)  # fmt: skip
"""Functions that check for a GPU."""

HANDLERS: dict[str, Callable[[Asked], Value]] = {
    **dict.fromkeys(ASKS, _gpu_here),
    **{f"math.{name}": _math(getattr(math, name)) for name in ("floor", "ceil", "sqrt", "log", "log2", "log10", "exp",
        "cos", "sin", "gcd", "pow")},
    **{f"numpy.{name}": _math(getattr(math, name)) for name in ("floor", "ceil", "sqrt", "log", "log2", "exp")},
    "math.prod": _prod, "numpy.prod": _prod, "numpy.array": _array, "numpy.asarray": _array, "numpy.int32": _first,
    "numpy.int64": _first, "numpy.float32": _first,
    "os.environ.get": _environment, "os.getenv": _environment, "os.path.join": _joined, "pathlib.Path": _path,
    "pathlib.Path.read_text": _read_text, "pathlib.Path.read_bytes": _read_text,
    **{f"pathlib.Path.{name}": lambda asked: asked.owner for name in ("resolve", "absolute", "expanduser")},
    "builtins.open": _open,
    "pathlib.Path.open": lambda asked: file_text(asked, asked.owner) or asked.thing(),
    "copy.copy": _copied, "copy.deepcopy": _copied, "ast.literal_eval": _literal, "functools.partial": _partial,
    "itertools.product": _product, "itertools.cycle": _cycle, "itertools.count": lambda asked: asked.thing(),
    "torch.backends.mps.is_available": _nowhere_else, "torch.backends.mps.is_built": _nowhere_else,
    "torch.has_mps": _nowhere_else,
    "torch.xpu.is_available": _nowhere_else, "torch.cuda.device_count": _device_count,
    "catboost.utils.get_gpu_device_count": _device_count, "mxnet.context.num_gpus": _device_count,
    "faiss.get_num_gpus": _device_count, "mxnet.num_gpus": _device_count, "mxnet.device.num_gpus": _device_count,
    "tensorflow.test.gpu_device_name": lambda asked: Either(("/device:GPU:0", ""), gpu=True),
    "tensorflow.config.list_physical_devices": lambda asked: GPUS if asked.get(0,
        "device_type") == "GPU" else UNKNOWN,
    "tensorflow.config.experimental.list_physical_devices": lambda asked: GPUS if asked.get(0,
        "device_type") == "GPU" else UNKNOWN,
    "jax.default_backend": _jax_kind, "jax.devices": _jax_devices, "jax.local_devices": _jax_devices,
    "torch.multiprocessing.spawn": _spawn, "torch.multiprocessing.start_processes": _spawn,
    "multiprocessing.Process": _process,
    "torch.multiprocessing.Process": _process, "threading.Thread": _process,
    "tqdm.tqdm": _bar, "tqdm.auto.tqdm": _bar, "tqdm.notebook.tqdm": _bar, "tqdm.trange": _bars,
    "tqdm.auto.trange": _bars,
    "rich.progress.track": _bar,
}  # fmt: skip
