"""From payload and wishes to a submitted job. All that can be refused is refused before anything is sent."""

from __future__ import annotations

import uuid
from pathlib import Path

from crucible.client.api import Api
from crucible.client.payload import Payload
from crucible.client.placing import check_places
from crucible.client.views import JobView
from crucible.client.wishes import Wishes, make_spec
from crucible.core.errors import BadInput
from crucible.wire.bundle import Bundle, make_bundle


def pack(payload: Payload, scratch: Path) -> Bundle | None:
    """The payload's files as a bundle in `scratch`; None if it has none."""
    if payload.entries is None:
        return None
    try:
        return make_bundle(payload.entries, scratch)
    except OSError as error:
        raise BadInput(
            f"{error.filename or 'A file'} could not be read while the code was packed.",
            why=error.strerror or str(error),
            fix="Submit again when nothing writes to the folder.",
        ) from error


def store(api: Api, bundle: Bundle) -> None:
    if not api.has_bundle(bundle.sha256):
        api.put_bundle(bundle.sha256, bundle.path)


def submit(api: Api, payload: Payload, wishes: Wishes, scratch: Path) -> JobView:
    """Submit as one job, however often a request has to be repeated."""
    bundle = pack(payload, scratch)
    spec = make_spec(payload, wishes, bundle=bundle.sha256 if bundle else None)
    check_places(api, [name for name in (spec.backend, *spec.fallback) if name is not None])
    if bundle is not None:
        store(api, bundle)
    return api.submit(spec, key=uuid.uuid4().hex)
