"""Bundles: the code of jobs, uploaded once and named by its hash."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from crucible.core.errors import NotFound
from crucible.core.views.server import BundleView
from crucible.server.context import Control, Server, Sha256, Who
from crucible.server.http.problems import problem_responses
from crucible.server.security.size_limits import check_length, limited_stream

THING = "The bundle"

router = APIRouter(prefix="/api/v1/bundles", tags=["bundles"])


@router.head(
    "/{sha256}", responses=problem_responses(404, also={200: "The bundle exists; no body"}), response_class=Response
)
async def has_bundle(sha256: Sha256, control: Control, who: Who) -> Response:
    """Check whether the server has a bundle, so that it need not be uploaded."""
    if not await control.bundles.has(who, sha256):
        raise NotFound("There is no such bundle.", fix=f"PUT it to /api/v1/bundles/{sha256}.")
    return Response(status_code=200)


@router.put("/{sha256}", status_code=201, responses=problem_responses(413, also={200: "The bundle existed already"}))
async def put_bundle(
    sha256: Sha256, request: Request, control: Control, who: Who, server: Server, response: Response
) -> BundleView:
    """Upload a bundle. If its SHA-256 is not the one in the path, it is refused and nothing is stored."""
    check_length(request.headers, server.bundle_limit, THING)
    created = await control.bundles.put(who, sha256, limited_stream(request, server.bundle_limit, THING))
    response.status_code = 201 if created else 200
    return BundleView(sha256=sha256, created=created)
