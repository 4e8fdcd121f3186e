"""The key file that secrets are encrypted with: one key per line, newest first, readable by its owner only.

It lies beside the deployment's key, not in the database, so that a copy of the database reveals no secret.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from crucible.core.errors import Conflict, Trouble

FILE = "secrets.keys"


@dataclass(frozen=True)
class Key:
    """A Fernet key, and the fingerprint that names it where the key itself must not be shown."""

    text: str = field(repr=False)

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(b"secrets:" + self.text.encode()).hexdigest()[:32]


def new_key() -> Key:
    from cryptography.fernet import Fernet

    return Key(Fernet.generate_key().decode())


@dataclass(frozen=True)
class Keyring:
    path: Path

    def read(self) -> tuple[Key, ...]:
        """Return the keys, newest first; empty if there is no file. Raises Trouble if the file cannot be used."""
        try:
            text = self.path.read_text(encoding="ascii")
        except FileNotFoundError:
            return ()
        except (OSError, UnicodeDecodeError) as error:
            raise self._unusable(str(error)) from error
        keys = tuple(Key(line.strip()) for line in text.splitlines() if line.strip())
        if not keys or not all(map(_is_key, keys)):
            raise self._unusable("It was changed or cut off.")
        return keys

    def write(self, keys: tuple[Key, ...]) -> None:
        """Replace the file as a whole, durably."""
        fresh = self.path.with_name(f".{self.path.name}.new")
        try:
            with open(fresh, "w", encoding="ascii", opener=_private) as file:
                file.write("".join(f"{key.text}\n" for key in keys))
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self.path)
            _sync_folder(self.path.parent)
        except OSError as error:
            raise self._unwritable(error) from error

    def make(self) -> tuple[Key, ...]:
        """Create the first key, unless another process just did; return the keys. Raises Conflict, Trouble."""
        with self.locked():
            keys = self.read()
            if not keys:
                keys = (new_key(),)
                self.write(keys)
            return keys

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock on the file. Raises Conflict if another process holds it. Not reentrant."""
        try:
            lock = os.open(self.path.with_name(f".{self.path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            _lock(lock)
            yield
        finally:
            os.close(lock)

    def _unwritable(self, error: OSError) -> Trouble:
        fix = "Make sure that the server can write to its folder and that the disk is not full."
        return Trouble(f"The keys of secrets cannot be written to {self.path}.", why=str(error), fix=fix)

    def _unusable(self, why: str) -> Trouble:
        fix = f"Restore the file {self.path} from a backup, or copy it from another server of this deployment."
        return Trouble(f"The keys of secrets in {self.path} cannot be read.", why=why, fix=fix)


def _lock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise Conflict("The keys of secrets are being changed already.", fix="Try again in a moment.") from error


def _is_key(key: Key) -> bool:
    from cryptography.fernet import Fernet

    try:
        Fernet(key.text)
    except ValueError:
        return False
    return True


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
