"""The server's state folder: lock, secrets, ports and discovery file.

Only its owner may read it. Files that other processes read are replaced atomically.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from crucible.core.errors import CrucibleError, DiskFull, Trouble
from crucible.core.secret import Secret
from crucible.server.folder_lock import FolderLock, lock_folder
from crucible.wire.documents.bootstrap import AGENTS_ADDRESS_FILE, AGENTS_SOCKET_FILE

SECRET_BYTES = 32


@dataclass(frozen=True)
class Discovery:
    """Addresses and identity of the running server; the content of server.json.

    `folder` tells its state folder from a copy.
    """

    url: str
    agents_url: str
    pid: int
    start_time: str
    version: str
    nonce: str
    deployment: str
    folder: str


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

    @property
    def agents_address_file(self) -> Path:
        return self.path / AGENTS_ADDRESS_FILE

    @property
    def agents_socket_file(self) -> Path:
        return self.path / AGENTS_SOCKET_FILE

    @contextlib.contextmanager
    def lock(self) -> Iterator[FolderLock]:
        """Lock the folder for this process; the lock ends with the process. Raises AlreadyRunning."""
        with contextlib.ExitStack() as held:
            with _file_errors(self.path):
                lock = held.enter_context(lock_folder(self.path))
            yield lock

    def load_key(self, key_file: Path | None = None) -> Secret:
        """Return the deployment's key: from `key_file`, which several servers share, or one created on first use."""
        return self._load_secret("key") if key_file is None else _load_shared_key(key_file)

    def beside_key(self, name: str, key_file: Path | None = None) -> Path:
        """Return the path of a file in the folder of the deployment's key."""
        return self.path / name if key_file is None else key_file.parent / name

    def load_token(self) -> Secret:
        """Return the token of the local API, created on first use."""
        return self._load_secret("token")

    def write_discovery(self, discovery: Discovery) -> None:
        self._write("server.json", json.dumps(asdict(discovery)))

    def remove_discovery(self) -> None:
        (self.path / "server.json").unlink(missing_ok=True)

    def write_agents_url(self, url: str, address: str, socket: str) -> None:
        """Write where agents find the server: `address` on this computer, `url` elsewhere and for version 0.1.0.

        Tunnels of backends end at `socket`.
        """
        self._write(AGENTS_SOCKET_FILE, socket)
        self._write(AGENTS_ADDRESS_FILE, address)
        self._write("agents.url", url)

    def read_ports(self) -> Ports:
        """Return the ports of the last run; both None if they are not known."""
        try:
            ports = json.loads((self.path / "ports.json").read_text(encoding="utf-8"))
            return Ports(int(ports["api"]), int(ports["agents"]))
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
        """Replace a file atomically and durably."""
        target, new = self.path / name, self.path / f".{name}.new"
        with _file_errors(self.path):
            with open(new, "w", encoding="utf-8", opener=_open_private) as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            new.replace(target)
            _sync_folder(self.path)


def open_state_folder(path: Path) -> StateFolder:
    """Return the state folder, created if it is missing. Only its owner can read it."""
    with _file_errors(path):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
    return StateFolder(path)


def _load_shared_key(path: Path) -> Secret:
    fix = "Set `key_file` to a copy of the file `key` in the first server's state folder."
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


@contextlib.contextmanager
def _file_errors(path: Path) -> Iterator[None]:
    """Translate errors of the file system to Trouble or DiskFull, with a fix."""
    try:
        yield
    except CrucibleError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            fix = "Free some space, or set CRUCIBLE_HOME to a folder on another disk."
            raise DiskFull(f"There is no space left in {path}.", why=str(error), fix=fix) from error
        raise Trouble(
            f"The state folder {path} cannot be used.",
            why=str(error),
            fix="Make it a folder that you can write to, or set CRUCIBLE_HOME to another folder.",
        ) from error


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
