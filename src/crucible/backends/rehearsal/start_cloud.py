"""Start and stop a simulated cloud on this computer."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from crucible.backends.rehearsal.connection import Address, CallFailed, Connection
from crucible.backends.rehearsal.offers import documents
from crucible.core.errors import TimedOut, Trouble

START_SECONDS = 10.0
STOP_SECONDS = 10.0
_POLL_SECONDS = 0.02
_CLOUD = Path(__file__).parent / "cloud"


def start_cloud(
    state: Path,
    *,
    seed: int = 0,
    speed: float = 1.0,
    price_seconds: int = 300,
    port: int = 0,
    python: str = sys.executable,
    seconds: float = START_SECONDS,
) -> Address:
    """Return the address of this state folder's cloud, after starting it, detached, if it does not run.

    It keeps its machines, bill and keys over restarts. The options apply only if it is started; `port` is a TCP port of
    this computer to listen at too. Raises Trouble if it cannot be started, TimedOut if it does not respond.
    """
    running = _find_running(state)
    if running is not None:
        return running
    try:
        state.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        fix = "Start the server again; it makes the folder above."
        raise Trouble(f"There is no folder {state} for the simulated cloud.", why=f"{error}.", fix=fix) from error
    options = {"state": state, "seed": seed, "speed": speed, "price-seconds": price_seconds, "port": port}
    arguments = [f"--{name}={value}" for name, value in options.items()]
    with open(state / "cloud.log", "ab") as log:
        try:
            # By path and isolated, so that the cloud cannot import any of our code.
            subprocess.run(
                [python, "-I", str(_CLOUD), "--detach", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=seconds,
                check=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            fix = f"See {state / 'cloud.log'}, then try again."
            raise Trouble("The simulated cloud could not be started.", why=f"{error}.", fix=fix) from error
    return _await(state, seconds)


def stop_cloud(state: Path, seconds: float = STOP_SECONDS) -> None:
    """Kill every machine of this cloud, then stop it. Does nothing if no cloud runs.

    Raises TimedOut if a machine or the cloud does not end, Trouble if the cloud stops responding.
    """
    address = _find_running(state)
    if address is None:
        return
    until = time.monotonic() + seconds
    try:
        while _kill_machines(Connection(state)):
            _pause(until, "A machine of the simulated cloud does not end.", state)
    except CallFailed as error:
        raise _unresponsive(state, error) from error
    _end(state, address, until)


def stop_idle_cloud(state: Path, seconds: float = STOP_SECONDS) -> bool:
    """Stop this cloud unless it has a live machine. Return whether no cloud runs now.

    Raises TimedOut if it does not end, Trouble if it stops responding.
    """
    address = _find_running(state)
    if address is None:
        return True
    try:
        if _alive(Connection(state)):
            return False
    except CallFailed as error:
        raise _unresponsive(state, error) from error
    _end(state, address, time.monotonic() + seconds)
    return True


def _end(state: Path, address: Address, until: float) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(address.pid, signal.SIGTERM)
    while _find_running(state) is not None:
        _pause(until, "The simulated cloud does not stop.", state)


def _kill_machines(connection: Connection) -> int:
    """Kill every live machine, and return how many there were."""
    alive = _alive(connection)
    for id in alive:
        connection.call("POST", f"/admin/instances/{id}/kill")
    return len(alive)


def _alive(connection: Connection) -> list[object]:
    found = documents(connection.call("GET", "/admin/instances"), "instances")
    return [instance["id"] for instance in found if instance["state"] != "terminated"]


def _await(state: Path, seconds: float) -> Address:
    until = time.monotonic() + seconds
    while (found := _find_running(state)) is None:
        _pause(until, "The simulated cloud does not respond.", state)
    return found


def _pause(until: float, what: str, state: Path) -> None:
    if time.monotonic() > until:
        raise TimedOut(what, fix=f"See {state / 'cloud.log'}.")
    time.sleep(_POLL_SECONDS)


def _find_running(state: Path) -> Address | None:
    """Return the address in the folder if the cloud responds there, and it is this folder's and not another's."""
    address = Address.read(state)
    with contextlib.suppress(CallFailed):
        if address is not None and Connection(state).call("GET", "/health").get("pid") == address.pid:
            return address
    return None


def _unresponsive(state: Path, error: CallFailed) -> Trouble:
    fix = f"Try again; if that does not help, see {state / 'cloud.log'}."
    return Trouble("The simulated cloud stopped responding.", why=f"{error}.", fix=fix)
