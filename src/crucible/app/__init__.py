"""The composition root: settings become a running server.

`python -m crucible.app serve` holds the state folder's lock, listens on two ports in one event loop,
announces itself in server.json and runs until SIGTERM, SIGINT or a request to stop. When it cannot start, its
last line is a JSON object `{"error": {code, what, why, fix}}` and its exit code is the error's.

`python -m crucible.app db backup|restore|confirm` works on the database of a state folder without a server, and
answers with one JSON object.
"""

from crucible.app.command import leave_soon, main
from crucible.app.control import build_control
from crucible.app.options import Options
from crucible.app.serving import serve

__all__ = ["Options", "build_control", "leave_soon", "main", "serve"]
