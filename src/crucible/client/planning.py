"""Planning: asking the server what a program needs and where it would run best, before anything is submitted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

from pydantic import ValidationError

from crucible.client.api import Api
from crucible.client.payload import Payload
from crucible.client.payload.notebook import read_cells
from crucible.client.placeviews import PlanView
from crucible.client.wishes import Wishes, make_spec, out_of_bounds
from crucible.core.errors import BadInput
from crucible.core.offers import Market
from crucible.core.planrequest import MAX_FILE, MAX_FILES, MOST, READ, Objective, PlanRequest
from crucible.core.spec import DEFAULT_BACKEND, Source, SourceKind


@dataclass(frozen=True)
class Aims:
    """What is wished of the place that runs a job; None, empty: nothing. Time is in hours, money in dollars."""

    optimize: Objective | None = None
    hours: float | None = None
    deadline_hours: float | None = None
    allowed_backends: tuple[str, ...] = ()
    dedicated: bool = False
    interruptible: bool | None = None
    every_region: bool = False
    limit: int | None = None

    def said(self) -> dict[str, object]:
        """What is said of it. `interruptible` False says something, as 0 dollars do."""
        given = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: value for name, value in given.items() if value is not None and value != ()}


def ask_for(payload: Payload, wishes: Wishes, aims: Aims) -> PlanRequest:
    """Raises BadInput naming the option that is out of bounds."""
    if wishes.gpu_types and wishes.resources.get("gpus") == 0:
        kinds = " or ".join(wishes.gpu_types)
        raise BadInput(f"It wants {kinds}, and no GPU.", fix="Ask for at least one (--gpus 1), or for no type.")
    spec = make_spec(payload, replace(wishes, env={}, secrets={}, data=()), bundle=None)
    told = {**dict(spec), "source": Source(), **_program(payload), **aims.said()}
    try:
        return PlanRequest.model_validate(told)
    except ValidationError as error:
        raise out_of_bounds(error) from error


def nothing_to_decide(ask: PlanRequest) -> bool:
    """Whether it is plain where it goes and that it costs nothing: to this computer, which needs no plan."""
    places = (ask.backend, *ask.fallback)
    return places == (DEFAULT_BACKEND,) or (
        places == (None,) and ask.program is None and not (ask.tier or ask.resources.gpus)
    )


def followed(plan: PlanView, wishes: Wishes) -> Wishes:
    """The wishes, with what has to be said for the place that the plan chose; what was said stands."""
    job = plan.job or {}
    wishes = replace(wishes, plan=job.get("plan"))
    market = wishes.market or (Market(job["market"]) if "market" in job else None)
    sizes: Mapping[str, float | int] = job.get("resources", {})
    if wishes.backend is not None:
        return replace(wishes, resources={**sizes, **wishes.resources})
    if job.get("backend", DEFAULT_BACKEND) == DEFAULT_BACKEND:
        return wishes
    return replace(wishes, backend=job["backend"], market=market, resources={**sizes, **wishes.resources})


def look_ahead(api: Api, ask: PlanRequest) -> PlanView | None:
    return None if nothing_to_decide(ask) else api.plan(ask)


def _program(payload: Payload) -> dict[str, object]:
    """Of a notebook the cells that its owner knows, not the script that is made of them."""
    files, source = program_of(payload), payload.source
    if source.kind is not SourceKind.NOTEBOOK or source.path is None:
        return {"files": files}
    name, made = Path(source.path).name, f"{Path(source.path).stem}.py"
    rest = {path: text for path, text in files.items() if path != made}
    return {"files": {name: _cells(Path(source.path)), **rest}, "entry": name}


def _cells(path: Path) -> str:
    """The notebook without its results: the pictures in them are larger than any code."""
    sources = read_cells(path.read_bytes(), path.name)
    return json.dumps({"cells": [{"cell_type": "code", "source": source} for source in sources]})[:MAX_FILE]


def program_of(payload: Payload) -> dict[str, str]:
    """The texts that say what the program does, as far as they are not too many."""
    found: dict[str, str] = {}
    left = MOST
    for name, data in _texts(payload):
        text = data[:MAX_FILE].decode(errors="replace")
        if len(found) >= MAX_FILES or len(text) > left:
            break
        found[name] = text
        left -= len(text)
    return found


def _texts(payload: Payload) -> Iterator[tuple[str, bytes]]:
    """The program that is started first, as much of it as is read; others if they are not too large."""
    if payload.entries is None:
        yield from _in_place(payload)
        return
    entries = [entry for entry in payload.entries if entry.name.endswith(READ)]
    for entry in sorted(entries, key=lambda entry: (entry.name not in payload.command, not entry.name.endswith(".py"))):
        if isinstance(entry.source, bytes):
            yield entry.name, entry.source
        elif isinstance(entry.source, Path) and (entry.size <= MAX_FILE or entry.name in payload.command):
            yield entry.name, _beginning(entry.source)


def _in_place(payload: Payload) -> Iterator[tuple[str, bytes]]:
    """What is started in its own folder, and the modules beside it."""
    folder = Path(payload.in_place or ".")
    started = [name for name in payload.command if name.endswith(READ) and (folder / name).is_file()]
    beside = sorted(path.name for path in folder.glob("*.py")) if started else []
    for name in dict.fromkeys((*started, *beside)):
        if name in started or (folder / name).stat().st_size <= MAX_FILE:
            yield name, _beginning(folder / name)


def _beginning(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_FILE)
