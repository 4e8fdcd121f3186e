"""The server's state folder: its lock, secrets, ports and discovery file.

Only its owner may read it. Files that other processes read are replaced atomically.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from crucible.core.errors import Conflict, CrucibleError, DiskFull, Trouble
from crucible.core.secret import Secret

SECRET_BYTES = 32


class AlreadyRunning(Conflict):
    code = "already_running"


@dataclass(frozen=True)
class Discovery:
    """How to find the running server; the content of server.json."""

    url: str
    agents_url: str
    pid: int
    start_time: str
    version: str
    nonce: str
    deployment: str


@dataclass(frozen=True)
class Ports:
    """The ports of the last run, which the next run tries to reuse."""

    api: int | None = None
    agents: int | None = None


@dataclass(frozen=True)
class StateFolder:
    path: Path

    @property
    def database(self) -> Path:
        return self.path / "crucible.db"

    @property
    def store(self) -> Path:
        return self.path / "store"

    @property
    def log(self) -> Path:
        return self.path / "server.log"

    @property
    def agents_url_file(self) -> Path:
        return self.path / "agents.url"

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder for this process; the lock ends with the process. Raises AlreadyRunning."""
        with _file_errors(self.path):
            descriptor = os.open(self.path / "server.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            with _file_errors(self.path):
                _lock(descriptor, self.path)
            yield
        finally:
            os.close(descriptor)

    def load_key(self, elsewhere: Path | None = None) -> Secret:
        """The deployment's key, made on first use; or the one that `elsewhere` holds for several servers."""
        return self._load_secret("key") if elsewhere is None else _load_shared_key(elsewhere)

    def beside_key(self, name: str, elsewhere: Path | None = None) -> Path:
        """A file that goes where the deployment's key is."""
        return self.path / name if elsewhere is None else elsewhere.parent / name

    def load_token(self) -> Secret:
        """The token of the local API, made on first use."""
        return self._load_secret("token")

    def write_discovery(self, found: Discovery) -> None:
        self._write("server.json", json.dumps(asdict(found)))

    def remove_discovery(self) -> None:
        (self.path / "server.json").unlink(missing_ok=True)

    def write_agents_url(self, url: str) -> None:
        self._write("agents.url", url)

    def read_ports(self) -> Ports:
        """The ports of the last run; none if it is not known."""
        try:
            found = json.loads((self.path / "ports.json").read_text(encoding="utf-8"))
            return Ports(int(found["api"]), int(found["agents"]))
        except (OSError, ValueError, KeyError, TypeError):
            return Ports()

    def write_ports(self, ports: Ports) -> None:
        self._write("ports.json", json.dumps(asdict(ports)))

    def _load_secret(self, name: str) -> Secret:
        path = self.path / name
        with _file_errors(self.path):
            if not path.exists():
                self._write(name, secrets.token_hex(SECRET_BYTES))
            path.chmod(0o600)
            text = path.read_text(encoding="ascii").strip()
        return _check_secret(text, path, "Restore it from a backup, or remove it to get a new one.")

    def _write(self, name: str, text: str) -> None:
        """Replace a file as a whole, durably."""
        target, fresh = self.path / name, self.path / f".{name}.new"
        with _file_errors(self.path):
            with open(fresh, "w", encoding="utf-8", opener=_open_private) as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(target)
            _sync_folder(self.path)


def open_state_folder(path: Path) -> StateFolder:
    """Return the state folder; create it if it is missing, and close it to other users."""
    with _file_errors(path):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
    return StateFolder(path)


def _load_shared_key(path: Path) -> Secret:
    fix = "Let the setting `key_file` name a copy of the file `key` of the first server's state folder."
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Trouble(f"The deployment's key {path} cannot be read.", why=str(error), fix=fix) from error
    return _check_secret(text, path, fix)


def _check_secret(text: str, path: Path, fix: str) -> Secret:
    if len(text) < SECRET_BYTES:
        raise Trouble(f"The file {path} does not hold a secret.", why="It was changed or cut off.", fix=fix)
    return Secret(text)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise AlreadyRunning(
            f"Another server runs on the state folder {path}.",
            why="A state folder has one server at a time.",
            fix="Use that one; `crucible down` ends it. Set CRUCIBLE_HOME for a second one.",
            path=str(path),
        ) from error
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())


@contextlib.contextmanager
def _file_errors(path: Path) -> Iterator[None]:
    """Turn errors of the file system into Trouble or DiskFull with a fix."""
    try:
        yield
    except CrucibleError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            fix = "Make room, or set CRUCIBLE_HOME to a folder elsewhere."
            raise DiskFull(f"There is no room left in {path}.", why=str(error), fix=fix) from error
        raise Trouble(
            f"The state folder {path} cannot be used.",
            why=str(error),
            fix="Make it a folder you can write to, or set CRUCIBLE_HOME to another.",
        ) from error


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
