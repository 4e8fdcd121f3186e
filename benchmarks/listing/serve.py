"""Serve the API on a prefilled database without performing anything in it.

    python -m benchmarks.listing.serve DATABASE FOLDER

Says its address on standard output, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path

import uvicorn

from crucible.control.control_plane import ControlPlane
from crucible.control.runtime.compose import ControlOptions, build_control
from crucible.core.secret import Secret
from crucible.server.api import build_api
from crucible.server.http.listen import bind, url_of
from crucible.storage import StoreOptions

TOKEN = "b" * 64


def control_over(database: str, folder: Path) -> ControlPlane:
    """A control plane whose background tasks never start, so that waiting jobs keep waiting."""
    url_file = folder / "agents.url"
    url_file.write_text("http://127.0.0.1:9", encoding="utf-8")
    given = ControlOptions(
        home=folder,
        database=database if "://" in database else Path(database),
        store=str(folder / "store"),
        store_options=StoreOptions(),
        agents_url_file=url_file,
        agents_address_file=url_file,
        agents_socket_file=url_file,
        local_folder=folder / "local",
        backends=("local",),
        key=Secret("k" * 32),
        python=sys.executable,
        uv=None,
        bundle_limit=1024,
        environ={},
    )
    return build_control(given)


async def serve(database: str, folder: Path) -> None:
    control = control_over(database, folder)
    app = build_api(control, token=TOKEN, nonce="n", version="0", home=str(folder), on_stop=lambda: None)
    listening = bind("127.0.0.1", None)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off", access_log=False))
    running = asyncio.create_task(server.serve([listening]))
    sys.stdout.write(url_of(listening) + "\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    server.should_exit = True
    with contextlib.suppress(asyncio.CancelledError):
        await running


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], Path(sys.argv[2])))
