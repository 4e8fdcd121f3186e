"""Builds plan requests, and applies a plan to a job."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from crucible.client.payload import Payload
from crucible.client.payload.notebook import read_cells
from crucible.client.request.job_request import validation_error
from crucible.core.compute.gpus import join_types
from crucible.core.errors import BadInput
from crucible.core.job.spec import DEFAULT_BACKEND, JobSpec, Source, SourceKind
from crucible.core.routing.plan_request import MAX_FILE, MAX_FILES, MOST, READ, Goal, PlanRequest
from crucible.core.views.plans import PlanView, SubmissionView
from crucible.wire.files.archive import Entry


def plan_request(spec: JobSpec, payload: Payload, goal: Goal) -> PlanRequest:
    """Return the request for a plan of this job, without its variables, secrets and data, which plans do not need."""
    if spec.gpu_types and not spec.resources.gpus and "gpus" in spec.resources.model_fields_set:
        raise BadInput(
            f"--gpu {join_types(spec.gpu_types)} conflicts with --gpus 0.",
            fix="Ask for at least one (--gpus 1), or for no type.",
        )
    hidden = {"env": {}, "secrets": {}, "data": (), "source": Source(), "bundle": None}
    try:
        return PlanRequest.model_validate({**dict(spec), **hidden, **_program_fields(payload), **dict(goal)})
    except ValidationError as error:
        raise validation_error(error) from error


def needs_no_plan(request: PlanRequest) -> bool:
    """Return whether the job plainly runs on this computer, which costs nothing and needs no plan."""
    backends = (request.backend, *request.fallback)
    return backends == (DEFAULT_BACKEND,) or (
        backends == (None,) and request.program is None and not (request.tier or request.resources.gpus)
    )


def apply_plan(plan: PlanView, spec: JobSpec) -> JobSpec:
    """Return the spec with the backend, market and sizes that the plan chose, where the user chose none.

    A market that the plan chose comes with the plan's fallback; one that the user chose is left as it is.
    """
    job = plan.job or SubmissionView(backend=DEFAULT_BACKEND)
    if spec.backend is None and job.backend == DEFAULT_BACKEND:
        return spec
    requested = spec.resources.model_fields_set
    sizes = {name: size for name, size in job.resources.as_json().items() if name not in requested}
    spec = spec.model_copy(update={"resources": spec.resources.model_copy(update=sizes)})
    if spec.backend is not None:
        return spec
    market = {} if spec.market else {"market": job.market, "spot_fallback": job.spot_fallback}
    return spec.model_copy(update={"backend": job.backend, **market})


def _program_fields(payload: Payload) -> dict[str, object]:
    """Return the files to plan from; for a notebook its cells, not the script generated from them."""
    files, source = program_files(payload), payload.source
    if source.kind is not SourceKind.NOTEBOOK or source.path is None:
        return {"files": files}
    name, script = Path(source.path).name, f"{Path(source.path).stem}.py"
    rest = {path: text for path, text in files.items() if path != script}
    return {"files": {name: _cells(Path(source.path)), **rest}, "entry": name}


def _cells(path: Path) -> str:
    """Return the notebook without outputs, which may contain large images."""
    sources = read_cells(path.read_bytes(), path.name)
    return json.dumps({"cells": [{"cell_type": "code", "source": source} for source in sources]})[:MAX_FILE]


def program_files(payload: Payload) -> dict[str, str]:
    """Return the program's text files, up to the limits of a plan request."""
    files: dict[str, str] = {}
    left = MOST
    for name, data in _texts(payload):
        text = data[:MAX_FILE].decode(errors="replace")
        if len(files) >= MAX_FILES or len(text) > left:
            break
        files[name] = text
        left -= len(text)
    return files


def _texts(payload: Payload) -> Iterator[tuple[str, bytes]]:
    """Yield text files, the entry first: of the entry as much as a plan reads, of the others those that fit.

    The modules of the entry's folder come before the others, as a project may have more than a plan reads.
    """
    if payload.entries is None:
        yield from _in_place(payload)
        return
    entries = [entry for entry in payload.entries if entry.name.endswith(READ)]
    start = payload.workdir or ""
    started = {posixpath.normpath(posixpath.join(start, word)) for word in payload.command}
    beside = {posixpath.dirname(entry.name) for entry in entries if entry.name in started}

    def order(entry: Entry) -> tuple[bool, bool, bool]:
        name = entry.name
        return name not in started, not name.endswith(".py"), posixpath.dirname(name) not in beside

    for entry in sorted(entries, key=order):
        if isinstance(entry.source, bytes):
            yield entry.name, entry.source
        elif isinstance(entry.source, Path) and (entry.size <= MAX_FILE or entry.name in started):
            yield entry.name, _read_head(entry.source)


def _in_place(payload: Payload) -> Iterator[tuple[str, bytes]]:
    """Yield the entry of a job that runs in place, and the modules beside it."""
    folder = Path(payload.in_place or ".")
    started = [name for name in payload.command if name.endswith(READ) and (folder / name).is_file()]
    beside = sorted(path.name for path in folder.glob("*.py")) if started else []
    for name in dict.fromkeys((*started, *beside)):
        if name in started or (folder / name).stat().st_size <= MAX_FILE:
            yield name, _read_head(folder / name)


def _read_head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_FILE)
