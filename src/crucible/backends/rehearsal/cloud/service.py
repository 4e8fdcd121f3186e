"""The running cloud: its state folder, its listeners and its main loop."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from urllib.parse import quote

from .clock import Anchor, Clock
from .desk import Dispatcher, Keys
from .listeners import listen_on_port, listen_on_socket, remove_socket
from .processes import Machines
from .store import Store
from .world import World

MAX_WAIT = 0.1
"""Between two checks of the machines, in the computer's time."""
ALREADY_RUNNING = 3
"""Exit code if another cloud uses the state folder."""
_PASSED = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR")


@dataclass(frozen=True)
class Options:
    """`port`: a TCP port of this computer to listen at besides the Unix socket; 0: none."""

    state: Path
    port: int
    seed: int
    speed: float
    price_seconds: int


def serve(options: Options) -> int:
    """Run until SIGTERM or SIGINT, or until the folder is gone; return the exit code. Machines outlive the cloud."""
    options.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(options.state / "lock", "ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.stderr.write(f"another cloud runs in {options.state}\n")
            return ALREADY_RUNNING
        os.umask(0o077)
        (options.state / "cloud.json").unlink(missing_ok=True)  # the address of a cloud that has ended
        _run(options, lambda: _is_at(options.state / "lock", lock.fileno()))
    return 0


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _run(options: Options, is_there: Callable[[], bool]) -> None:
    store = Store(options.state / "cloud.db")
    world = World(
        store, _clock(store, options.speed), Machines(options.state / "machines"), options.seed,
        options.price_seconds,
    )  # fmt: skip
    keys = _keys(store)
    dispatcher = Dispatcher(world, keys, os.getpid())
    listener = listen_on_socket(options.state, dispatcher)
    listeners = [listener, listen_on_port(options.port, dispatcher)] if options.port else [listener]
    path = str(listener.server_address)
    world.environ = {name: os.environ[name] for name in _PASSED if name in os.environ}
    world.metadata_url = f"http+unix://{quote(path, safe='')}"
    stop = threading.Event()
    _end_on_signal(stop)
    for each in listeners:
        threading.Thread(target=each.serve_forever, daemon=True).start()
    _publish(options.state / "cloud.json", f"unix:{quote(path)}", keys)
    while is_there() and not stop.wait(min(world.tick(), MAX_WAIT)):
        pass
    for each in listeners:
        each.server_close()
    if is_there():
        remove_socket(listener, options.state)


def _clock(store: Store, speed: float) -> Clock:
    """Return the clock. It has continued while the cloud was down, and runs at the new speed from now on."""
    kept = store.note("anchor")
    clock = Clock(Anchor(**json.loads(kept)) if kept else Anchor(0.0, 0.0, 1.0))
    anchor = clock.run_at(speed)
    with store.transaction():
        store.write_note("anchor", json.dumps(asdict(anchor)))
    return clock


def _keys(store: Store) -> Keys:
    with store.transaction():
        for name in ("key", "admin_key"):
            if store.note(name) is None:
                store.write_note(name, secrets.token_urlsafe(24))
    return Keys(store.note("key") or "", store.note("admin_key") or "")


def _end_on_signal(stop: threading.Event) -> None:
    def end(number: int, frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)


def _publish(path: Path, url: str, keys: Keys) -> None:
    """Write the address and keys atomically, readable only by the owner."""
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)
    doc = {"url": url, "pid": os.getpid(), "key": keys.customer, "admin_key": keys.admin}
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(doc, file)
    part.replace(path)
