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
_LOOK_SECONDS = 0.02
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
    """The cloud of this state folder: the one that runs, or one that is started detached.

    Its machines, bill and keys are those it had before. Seed, speed and port only count for one that is
    started. Raises Trouble when it cannot be started, TimedOut when it does not answer.
    """
    running = _answering(state)
    if running is not None:
        return running
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    options = {"state": state, "seed": seed, "speed": speed, "price-seconds": price_seconds, "port": port}
    words = [f"--{name}={value}" for name, value in options.items()]
    with open(state / "cloud.log", "ab") as log:
        try:
            # By path and isolated: the cloud sees nothing of ours.
            subprocess.run(
                [python, "-I", str(_CLOUD), "--detach", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=seconds,
                check=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            fix = f"Look into {state / 'cloud.log'}; then try again."
            raise Trouble("The simulated cloud could not be started.", why=f"{error}.", fix=fix) from error
    return _await(state, seconds)


def stop_cloud(state: Path, seconds: float = STOP_SECONDS) -> None:
    """Kill every machine of this cloud, then stop it. Fine when none runs.

    Raises TimedOut when a machine resists or the cloud does not end, Trouble when it stops answering.
    """
    address = _answering(state)
    if address is None:
        return
    until = time.monotonic() + seconds
    try:
        while _kill_machines(Connection(state)):
            _pause(until, "A machine of the simulated cloud does not end.", state)
    except CallFailed as error:
        raise _silent(state, error) from error
    _end(state, address, until)


def stop_idle_cloud(state: Path, seconds: float = STOP_SECONDS) -> bool:
    """Stop this cloud unless a machine lives there; whether none runs now.

    Raises TimedOut when it does not end, Trouble when it stops answering.
    """
    address = _answering(state)
    if address is None:
        return True
    try:
        if _alive(Connection(state)):
            return False
    except CallFailed as error:
        raise _silent(state, error) from error
    _end(state, address, time.monotonic() + seconds)
    return True


def _end(state: Path, address: Address, until: float) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(address.pid, signal.SIGTERM)
    while _answering(state) is not None:
        _pause(until, "The simulated cloud does not stop.", state)


def _kill_machines(connection: Connection) -> int:
    """How many were alive."""
    alive = _alive(connection)
    for id in alive:
        connection.call("POST", f"/admin/instances/{id}/kill")
    return len(alive)


def _alive(connection: Connection) -> list[object]:
    found = documents(connection.call("GET", "/admin/instances"), "instances")
    return [instance["id"] for instance in found if instance["state"] != "terminated"]


def _await(state: Path, seconds: float) -> Address:
    until = time.monotonic() + seconds
    while (found := _answering(state)) is None:
        _pause(until, "The simulated cloud does not answer.", state)
    return found


def _pause(until: float, what: str, state: Path) -> None:
    if time.monotonic() > until:
        raise TimedOut(what, fix=f"Look into {state / 'cloud.log'}.")
    time.sleep(_LOOK_SECONDS)


def _answering(state: Path) -> Address | None:
    """The cloud that answers at the address in its folder, if that is itself."""
    address = Address.read(state)
    with contextlib.suppress(CallFailed):
        if address is not None and Connection(state).call("GET", "/health").get("pid") == address.pid:
            return address
    return None


def _silent(state: Path, error: CallFailed) -> Trouble:
    fix = f"Try again; if it stays, look into {state / 'cloud.log'}."
    return Trouble("The simulated cloud stopped answering.", why=f"{error}.", fix=fix)
