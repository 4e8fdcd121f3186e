"""Lambda: its instance types with their prices, sizes, and the regions that have capacity now."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from crucible.catalog.refresh.fetcher import Fetcher, bad_answer
from crucible.catalog.refresh.quotes import Quotes, amount_of
from crucible.catalog.rows import Row
from crucible.core.compute.gpus import Gpu, find_gpus, is_gpu
from crucible.core.compute.resources import GiB
from crucible.core.secret import Secret

URL = "https://cloud.lambda.ai/api/v1/instance-types"
_GPU = re.compile(r"(?P<name>[^(]+?)\s*\((?P<size>\d+)\s*GB\s*(?P<form>[A-Za-z]*)\d*\)")


def fetch(fetcher: Fetcher, quotes: Quotes, known: Sequence[Row], key: Secret) -> list[str]:
    response = fetcher.json(URL, headers={"Authorization": f"Bearer {key.reveal()}"})
    return read(response, quotes, known)


def read(response: object, quotes: Quotes, known: Iterable[Row]) -> list[str]:
    """Add the prices to the quotes. Return notes that name the new types which were left out.

    A price holds in every region, so it is added to the known regions of its type and to those with capacity now.
    """
    types = response.get("data") if isinstance(response, dict) else None
    if not isinstance(types, dict):
        raise bad_answer("lambda", "Its response has no instance types.")
    shapes = dict(quotes.shapes)
    notes = []
    for name, entry in types.items():
        shape = shapes.get(name) or _shape(name, entry, quotes)
        if shape is None:
            notes.append(f"{name!r:.60} was left out: its GPU or its size is not known.")
            continue
        shapes[name] = shape
        cents = amount_of(_object(entry, "instance_type").get("price_cents_per_hour"))
        for region in {row.region for row in known if row.instance_type == name} | _regions(entry):
            quotes.add(region, name, "on_demand", None if cents is None else cents / 100)
    quotes.shapes = shapes
    return notes


def _regions(entry: object) -> set[str]:
    """Return the regions that have capacity for an instance type now."""
    regions = entry.get("regions_with_capacity_available") if isinstance(entry, dict) else None
    if not isinstance(regions, list):
        return set()
    return {region["name"] for region in regions if isinstance(region, dict) and isinstance(region.get("name"), str)}


def _shape(name: str, entry: object, quotes: Quotes) -> Row | None:
    """Return the size of a new type from its description, or None if that cannot be understood."""
    description = _object(entry, "instance_type")
    specs = _object(description, "specs")
    template = next(iter(quotes.shapes.values()), None)
    gpu = _gpu(str(description.get("gpu_description")))
    gpus, cpus, memory = (amount_of(specs.get(key)) for key in ("gpus", "vcpus", "memory_gib"))
    if template is None or gpu is None or not gpus or not cpus or not memory:
        return None
    shape = replace(template, instance_type=name, gpu=gpu.name, gpus=int(gpus))
    return replace(shape, vcpus=cpus, memory_bytes=round(memory * GiB))


def _gpu(text: str) -> Gpu | None:
    """Return the GPU type that a description such as `H100 (80 GB SXM5)` names, or None if it names no single one."""
    match = _GPU.fullmatch(text.strip())
    if match is None or not is_gpu(match["name"]):
        return None
    right_size = [gpu for gpu in find_gpus(match["name"]) if gpu.memory_bytes == int(match["size"]) * GiB]
    candidates = [gpu for gpu in right_size if match["form"].lower() in gpu.name.lower()] or right_size
    return candidates[0] if len(candidates) == 1 else None


def _object(value: object, key: str) -> Mapping[str, object]:
    """Return the JSON object at this key, or an empty one."""
    nested = value.get(key) if isinstance(value, dict) else None
    return nested if isinstance(nested, dict) else {}
