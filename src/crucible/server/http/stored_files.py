"""Send a stored file: whole, a range of it, or 304 if the client has it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import MappingProxyType
from typing import Protocol
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from crucible.control.objects.bundles import StoredFile
from crucible.server.http import ranges
from crucible.server.http.problems import problem_response, request_id

RANGE_STATUSES = MappingProxyType({206: "The requested range", 304: "The client has it already (If-None-Match)"})


class FileResponse(Response):
    """Response class for the OpenAPI entry of a route that sends a file."""

    media_type = "application/octet-stream"


class RangeReader(Protocol):
    def open_range(self, key: str, start: int, end: int) -> Iterator[bytes]:
        """Return the bytes from `start` up to, not including, `end`. Blocks; each step reads a bounded piece."""
        ...


async def send_file(request: Request, store: RangeReader, file: StoredFile, name: str) -> Response:
    """Return a 200, 206, 304 or 416 response. Always an attachment, so that browsers never run job output."""
    etag = f'"{file.sha256}"'
    headers = {
        "ETag": etag,
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, no-cache",
        "Content-Disposition": f"attachment; filename*=utf-8''{quote(name.rsplit('/', 1)[-1], safe='')}",
    }
    if ranges.is_unchanged(request.headers.get("if-none-match"), etag):
        return Response(status_code=304, headers=headers)
    try:
        span = _span(request, file.size, etag)
    except ranges.RangeNotThere as error:
        return problem_response(error, request_id(request), {"Content-Range": f"bytes */{file.size}"})
    if span.length < file.size:
        headers["Content-Range"] = span.content_range
    return await _send(request, store, file, span, headers)


def _span(request: Request, size: int, etag: str) -> ranges.ByteRange:
    header = request.headers.get("range") if ranges.range_applies(request.headers.get("if-range"), etag) else None
    return ranges.parse_range(header, size) or ranges.ByteRange(0, size, size)


async def _send(
    request: Request, store: RangeReader, file: StoredFile, span: ranges.ByteRange, headers: dict[str, str]
) -> Response:
    headers["Content-Length"] = str(span.length)
    media_type = FileResponse.media_type
    status = 206 if "Content-Range" in headers else 200
    if request.method == "HEAD" or span.length == 0:
        return Response(status_code=status, headers=headers, media_type=media_type)
    # The store blocks: it is opened in a thread, and the response reads one piece at a time in threads too.
    opened = partial(store.open_range, start=span.start, end=span.end)
    pieces = await run_in_threadpool(file.read, opened)
    return StreamingResponse(pieces, status, headers, media_type=media_type)
