"""Submits a job. Whatever can be checked here is checked before anything is sent."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path

from crucible.client.api import Api
from crucible.client.payload import CodeSource, Payload, load_code
from crucible.client.payload.suggestions import nearest
from crucible.client.request.job_request import PartialSpec
from crucible.client.request.model_jobs import build_model_payload
from crucible.core.errors import BadInput, UnknownName
from crucible.core.job.spec import JobSpec
from crucible.core.views.compute import BackendPage
from crucible.core.views.jobs import JobView
from crucible.wire.files.bundle import Bundle, make_bundle

HINT = "`crucible backends` lists the server's backends, and how to connect others."


def build_payload(source: CodeSource, fields: PartialSpec) -> tuple[Payload, PartialSpec]:
    """Return the code or model to send, and the fields with what a model adds to them."""
    return build_model_payload(source, fields) if source.kind == "model" else (load_code(source), fields)


def pack_bundle(payload: Payload, scratch: Path) -> Bundle | None:
    """Return the payload's files as a bundle in `scratch`; None if it has none."""
    if payload.entries is None:
        return None
    try:
        return make_bundle(payload.entries, scratch)
    except OSError as error:
        raise BadInput(
            f"{error.filename or 'A file'} could not be read while packing the code.",
            why=error.strerror or str(error),
            fix="Submit again while nothing writes to the folder.",
        ) from error


def upload_bundle(api: Api, bundle: Bundle) -> None:
    """Upload the bundle unless the server has it."""
    if not api.has_bundle(bundle.sha256):
        api.put_bundle(bundle.sha256, bundle.path)


def submit(api: Api, spec: JobSpec, payload: Payload, scratch: Path) -> JobView:
    """Submit a job, with its bundle. A retry of the request does not submit it twice."""
    bundle = pack_bundle(payload, scratch)
    check_backends(api, [name for name in (spec.backend, *spec.fallback) if name is not None])
    if bundle is not None:
        upload_bundle(api, bundle)
        spec = spec.model_copy(update={"bundle": bundle.sha256})
    return api.submit(spec, key=uuid.uuid4().hex)


def check_backends(api: Api, names: Sequence[str]) -> None:
    """Raise UnknownName for a backend that the server does not have."""
    page = api.compute.backends_page() if names else BackendPage()
    known = [backend.name for backend in page.items]
    for name in names:
        if name not in known:
            why = next((other.why for other in page.others if other.name == name), "")
            raise UnknownName("backend", name, known, fix=why or ("" if nearest(name, known) else HINT))


def any_simulated(api: Api, names: Iterable[str | None]) -> bool:
    """Return whether one of these backends is simulated."""
    used = frozenset(names) - {None}
    return bool(used) and any(backend.is_simulated and backend.name in used for backend in api.compute.backends())
