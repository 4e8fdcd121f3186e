"""Lambda's instance types: prices, sizes, and where there is capacity just now."""

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
    answer = fetcher.json(URL, headers={"Authorization": f"Bearer {key.reveal()}"})
    return read(answer, quotes, known)


def read(answer: object, quotes: Quotes, known: Iterable[Row]) -> list[str]:
    """Prices are the same in every region: in those where a type is known, and where it can be had now.

    Notes name the types that are new and cannot be told.
    """
    types = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(types, dict):
        raise bad_answer("lambda", "It answered without instance types.")
    shapes = dict(quotes.shapes)
    notes = []
    for name, entry in types.items():
        shape = shapes.get(name) or _shape(name, entry, quotes)
        if shape is None:
            notes.append(f"{name!r:.60} is left out: its GPU or its size is not known.")
            continue
        shapes[name] = shape
        cents = amount_of(_part(entry, "instance_type").get("price_cents_per_hour"))
        for region in {row.region for row in known if row.instance_type == name} | _regions(entry):
            quotes.add(region, name, "on_demand", None if cents is None else cents / 100)
    quotes.shapes = shapes
    return notes


def _regions(entry: object) -> set[str]:
    found = entry.get("regions_with_capacity_available") if isinstance(entry, dict) else None
    places = found if isinstance(found, list) else []
    return {place["name"] for place in places if isinstance(place, dict) and isinstance(place.get("name"), str)}


def _shape(name: str, entry: object, quotes: Quotes) -> Row | None:
    """A new type's size, as it is described; None where that cannot be understood."""
    about = _part(entry, "instance_type")
    specs = _part(about, "specs")
    like = next(iter(quotes.shapes.values()), None)
    model = _gpu(str(about.get("gpu_description")))
    gpus, cpus, memory = (amount_of(specs.get(part)) for part in ("gpus", "vcpus", "memory_gib"))
    if like is None or model is None or not gpus or not cpus or not memory:
        return None
    known = replace(like, instance_type=name, gpu=model.name, gpus=int(gpus))
    return replace(known, vcpus=cpus, memory_bytes=round(memory * GiB))


def _gpu(text: str) -> Gpu | None:
    """`H100 (80 GB SXM5)` as a type of ours."""
    found = _GPU.fullmatch(text.strip())
    if found is None or not is_gpu(found["name"]):
        return None
    fitting = [one for one in find_gpus(found["name"]) if one.memory_bytes == int(found["size"]) * GiB]
    formed = [one for one in fitting if found["form"].lower() in one.name.lower()] or fitting
    return formed[0] if len(formed) == 1 else None


def _part(value: object, name: str) -> Mapping[str, object]:
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}
