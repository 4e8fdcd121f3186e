"""A real PostgreSQL server for tests: on the loopback, in a temporary folder, gone with the tests."""

from __future__ import annotations

import atexit
import functools
import itertools
import os
import pwd
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import psycopg
import pytest
from psycopg.sql import SQL, Identifier

BINARIES = "/usr/lib/postgresql"
MISSING = "PostgreSQL's server programs are not installed. To fix it: apt-get install postgresql"
START_SECONDS = 60
PREFIX = "crucible-pg-"
_names = itertools.count(1)

GUARD = 'exec 3<&0; "$@" & child=$!; (read -r _ <&3; kill -QUIT $child) 2>/dev/null & wait $child'
"""Ends the server when whoever holds the other end of its standard input is gone, however that happened."""


@functools.cache
def binaries() -> Path | None:
    """The newest installed server's programs, on the PATH or where Debian puts them."""
    found = sorted(Path(BINARIES).glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


def need_postgres() -> Path:
    found = binaries()
    if found is None:
        pytest.skip(MISSING)
    return found


@dataclass
class Server:
    """One server process. Files survive `kill`; only `remove` deletes them."""

    folder: Path
    programs: Path
    options: tuple[str, ...] = ()
    port: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def near_url(self, database: str) -> str:
        """By its socket, which takes the kernel half the work; nothing can come between."""
        return f"postgresql://postgres@/{database}?host={self.folder}&port={self.port}"

    def create(self) -> None:
        """Copies what initdb made once for this process, which takes a tenth of the time."""
        os.chown(self.folder, *_owner())
        subprocess.run(["cp", "-a", str(_new_cluster(self.programs)), str(self.data)], check=True, timeout=120)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def start(self) -> None:
        """Keeps its port once it has one: clients come back to it."""
        while True:
            port = self.port or random.randint(20_000, 32_000)
            self.process = subprocess.Popen(
                [
                    *_as_postgres(),
                    *("sh", "-c", GUARD, "guard", str(self.programs / "postgres")),
                    *("-D", str(self.data), "-p", str(port), "-k", str(self.folder)),
                    *("-c", "listen_addresses=127.0.0.1", "-c", "max_connections=200"),
                    *itertools.chain.from_iterable(("-c", option) for option in self.options),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=(self.folder / "log").open("ab"),
                cwd="/",
            )
            if self._answers(port):
                self.port = port
                return
            assert not self.port, self.log()

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT ends every session and stops cleanly; SIGQUIT is a crash; SIGKILL ends every process of it at once."""
        if self.process is not None and self.process.stdin is not None:
            with suppress(FileNotFoundError, ProcessLookupError, psutil.NoSuchProcess):
                pid = int((self.data / "postmaster.pid").read_text().split()[0])
                if how == signal.SIGKILL:
                    _kill(psutil.Process(pid))
                else:
                    os.kill(pid, how)
            self.process.wait(START_SECONDS)
            self.process.stdin.close()
            self.process = None

    def restart(self, how: signal.Signals = signal.SIGINT) -> None:
        self.stop(how)
        self.start()

    def remove(self) -> None:
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    @contextmanager
    def database(self) -> Iterator[str]:
        """The URL of an empty database of its own."""
        name = self.new_database()
        yield self.url(name)
        with psycopg.connect(self.url(), autocommit=True) as admin:
            admin.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(name)))

    def new_database(self) -> str:
        """The name of an empty database, which lives as long as the server."""
        name = f"test_{os.getpid()}_{next(_names)}"
        with psycopg.connect(self.url(), autocommit=True) as admin:
            admin.execute(SQL("CREATE DATABASE {}").format(Identifier(name)))
        return name

    def _answers(self, port: int) -> bool:
        assert self.process is not None
        end = time.monotonic() + START_SECONDS
        while self.process.poll() is None and time.monotonic() < end:
            with suppress(psycopg.OperationalError):
                url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
                psycopg.connect(url, connect_timeout=5).close()
                return True
            time.sleep(0.02)
        return False


def _kill(postmaster: psutil.Process) -> None:
    """Nobody has time for a last word. Each session is a process group of its own, so they are taken by parent."""
    postmaster.suspend()  # it starts no more
    sessions = postmaster.children()
    for process in (*sessions, postmaster):
        process.kill()
    psutil.wait_procs(sessions, START_SECONDS)


@functools.cache
def _new_cluster(programs: Path) -> Path:
    """The files of a server that never ran."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.chown(folder, *_owner())
    data = folder / "data"
    command = [str(programs / "initdb"), "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"]
    done = subprocess.run(
        [*_as_postgres(), *command, "--locale=C.UTF-8"], capture_output=True, text=True, cwd="/", timeout=120
    )
    assert done.returncode == 0, done.stderr
    return data


@contextmanager
def server(*options: str) -> Iterator[Server]:
    """A new server with these settings. It dies with the process that started it."""
    programs = need_postgres()
    made = Server(Path(tempfile.mkdtemp(prefix=PREFIX)), programs, options)
    try:
        made.create()
        made.start()
        yield made
    finally:
        made.remove()


def _owner() -> tuple[int, int]:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return os.geteuid(), os.getegid()
    with suppress(KeyError):
        user = pwd.getpwnam("postgres")
        return user.pw_uid, user.pw_gid
    nobody = pwd.getpwnam("nobody")
    return nobody.pw_uid, nobody.pw_gid


def _as_postgres() -> list[str]:
    user, group = _owner()
    if os.geteuid() == user:
        return []
    return ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups"]


QUICK = ("fsync=off", "full_page_writes=off", "wal_level=minimal", "max_wal_senders=0", "autovacuum=off")
"""For databases that need not survive the computer, nor be copied elsewhere, nor grow old."""
_SHARED = pytest.StashKey[Server]()


@pytest.fixture(scope="session")
def postgres_server(request: pytest.FixtureRequest) -> Server:
    """One quick server for all tests of a session, whichever folder's conftest asks for it first."""
    config = request.config
    if _SHARED not in config.stash:
        stack = ExitStack()
        config.add_cleanup(stack.close)
        config.stash[_SHARED] = stack.enter_context(server(*QUICK))
    return config.stash[_SHARED]


@pytest.fixture
def postgres_url(postgres_server: Server) -> Iterator[str]:
    """An empty database."""
    with postgres_server.database() as url:
        yield url
