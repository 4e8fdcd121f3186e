"""The composition root: builds a running server from the settings.

`python -m crucible.app serve` locks the state folder, listens on two ports in one event loop, announces itself in
server.json and runs until SIGTERM, SIGINT or a stop request. If it cannot start, its last line is a JSON object
`{"error": {code, what, why, fix}}` and its exit code is the error's.

`python -m crucible.app db backup|restore|confirm` works on the database of a state folder without a server and
prints one JSON object.
"""

from crucible.app.command import exit_soon, main
from crucible.app.control import build_control
from crucible.app.options import Options
from crucible.app.server import serve

__all__ = ["Options", "build_control", "exit_soon", "main", "serve"]
