"""Several servers on one PostgreSQL database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from tests.harness import Deployment
from tests.postgres import Server, server


@dataclass
class Fleet:
    """Servers that share database, key, store and this computer. Each has its own state folder."""

    folder: Path
    postgres: Server
    url: str
    servers: list[Deployment] = field(default_factory=list)

    @property
    def env(self) -> dict[str, str]:
        return {
            "CRUCIBLE_DATABASE": self.url,
            "CRUCIBLE_KEY_FILE": str(self.folder / "key"),
            "CRUCIBLE_STORE": str(self.folder / "store"),
            "CRUCIBLE_LOCAL_FOLDER": str(self.places.home),
        }

    @property
    def places(self) -> Deployment:
        """Return the processes of this computer's machines, which belong to no single server."""
        return Deployment(self.folder / "places")

    def add(self, **env: str) -> Deployment:
        made = Deployment(self.folder / f"server-{len(self.servers)}", {**self.env, **env})
        self.servers.append(made)
        return made

    @property
    def living(self) -> list[Deployment]:
        return [s for s in self.servers if s.server is not None and s.server.poll() is None]

    def holder(self) -> Deployment | None:
        """Return the server that has the scheduler's duty; None if it is unknown."""
        query = "SELECT holder FROM roles WHERE name LIKE 'scheduler%' AND until > extract(epoch FROM now())"
        try:
            with psycopg.connect(self.url, connect_timeout=5) as connection:
                row = connection.execute(query).fetchone()
        except psycopg.OperationalError:
            return None
        pid = int(row[0].split(":")[1]) if row else None
        return next((s for s in self.living if s.server is not None and s.server.pid == pid), None)


@contextmanager
def fleet(folder: Path, count: int, *, fsync: bool = False) -> Iterator[Fleet]:
    """`fsync` for tests after which it matters what had reached the disk."""
    with server(f"fsync={'on' if fsync else 'off'}", "synchronous_commit=on") as postgres, postgres.database() as url:
        made = Fleet(folder, postgres, url)
        (folder / "key").write_text("5e" * 32)
        try:
            for _ in range(count):
                made.add().start()
            yield made
        finally:
            for one in made.servers:
                one.close()
            made.places.close()
