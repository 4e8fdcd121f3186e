"""Compare the secrets in the vault with the values that were written to it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from crucible.control.secrets import Vault
from crucible.core.errors import CrucibleError
from crucible.core.people.identity import DEFAULT_PROJECT
from crucible.simulation.faults.checks.event_order import InvariantBroken
from crucible.simulation.faults.world.ports import WatchedDb

_ROWS = "SELECT name, ciphertext FROM secrets ORDER BY name"


@dataclass
class SecretHistory:
    """One secret, and the values that it may have. A write without a response may take effect late, or never."""

    possible: set[str] = field(default_factory=set)
    sure: bool = False
    _in_flight: set[str] = field(default_factory=set)
    _before: dict[str, set[str]] = field(default_factory=dict)

    def begin(self, value: str) -> None:
        self._before[value] = self.possible - self._in_flight
        self.possible.add(value)
        self._in_flight.add(value)

    def end(self, value: str) -> None:
        """Record that the writer has ended: a value that it has not written will not appear any more."""
        self._in_flight.discard(value)

    def acknowledge(self, value: str) -> None:
        """Record that the write succeeded: values from before it are no longer possible."""
        self.possible -= self._before.pop(value)
        self.sure = True


@dataclass
class SecretsCheck:
    """Checks the vault. `keys` is the file of its keys."""

    db: WatchedDb
    keys: Path
    entries: defaultdict[str, SecretHistory] = field(default_factory=lambda: defaultdict(SecretHistory))
    _values: dict[str, str] = field(default_factory=dict)
    _seen: object = None

    def check(self) -> None:
        """Raise InvariantBroken unless every secret can be decrypted and has a possible value."""
        rows = self.db.query(_ROWS)
        seen = (rows, self.keys.read_bytes() if rows and self.keys.exists() else b"")
        if seen != self._seen:
            self._seen, self._values = seen, self._decrypt([str(name) for name, _ in rows])
        for name, entry in self.entries.items():
            found = self._values.get(name)
            if found not in entry.possible and (entry.sure or found is not None):
                raise InvariantBroken(
                    f"the secret {name} is {found!r}, and was last set to {' or '.join(sorted(entry.possible))}"
                )

    def _decrypt(self, names: list[str]) -> dict[str, str]:
        vault = Vault(None, None, self.keys)  # type: ignore[arg-type]  # reading values uses no port
        wanted = {name: name for name in names}
        try:
            found = self.db.read_sync(lambda conn: vault.values(conn, DEFAULT_PROJECT, wanted))
        except CrucibleError as error:
            raise InvariantBroken(f"secrets cannot be read: {error.code}") from error
        return {name: value.reveal() for name, value in found.items()}
