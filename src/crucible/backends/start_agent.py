"""Become the agent host of this machine: get the agent file, check its hash, write the bootstrap, start the host.

Runs on the machine, with the standard library of Python 3.9. `bootstrap.py` reads it as text and hands it to the
Python there on its command line, so it holds no secret. Standard input is the bootstrap.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import http.client
import json
import os
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any, NoReturn
from urllib.parse import unquote_to_bytes, urlsplit

# bootstrap.py: BootFailure
NO_DOWNLOAD, WRONG_HASH, NO_SPACE, BAD_FOLDER, BAD_BOOTSTRAP = 72, 73, 74, 75, 76
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
CALL_SECONDS = 20.0
MAX_BYTES = 64 * 1024 * 1024
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0


def fail(code: int, message: str) -> NoReturn:
    sys.stderr.write(f"crucible: {message}\n")
    sys.exit(code)


def make_private(path: str) -> str:
    """Make a folder that only this user can open, and return its absolute path."""
    path = os.path.abspath(os.path.expanduser(path))
    try:
        os.makedirs(path, 0o700, exist_ok=True)
        found = os.lstat(path)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            fail(BAD_FOLDER, f"{path} is a link, or belongs to another user; remove it")
        os.chmod(path, 0o700)
    except OSError as error:
        fail(NO_SPACE if error.errno in FULL else BAD_FOLDER, f"the folder {path} cannot be made: {error.strerror}")
    return path


def write_private(path: str, data: bytes) -> None:
    """Replace the file, which only this user can read."""
    unfinished = ""
    try:
        descriptor, unfinished = tempfile.mkstemp(dir=os.path.dirname(path))
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(unfinished, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)
        fail(NO_SPACE if error.errno in FULL else BAD_FOLDER, f"{path} cannot be written: {error.strerror}")


def read_file(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(MAX_BYTES)


def download(base: str, target: str) -> bytes:
    """Return what a server sends. `base` is an http: or https: URL, or unix: with the path of a socket."""
    parts = urlsplit(base)
    host, port = parts.hostname or "localhost", parts.port
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(host, port, timeout=CALL_SECONDS)
    path = parts.path.rstrip("/")
    with contextlib.closing(connection):
        if parts.scheme == "unix":
            connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.sock.settimeout(CALL_SECONDS)
            connection.sock.connect(os.fsdecode(unquote_to_bytes(parts.path)))
            path = ""
        elif parts.scheme not in ("http", "https"):
            raise ValueError("it is no http:, https: or unix: URL")
        connection.request("GET", path + target)
        answer = connection.getresponse()
        if answer.status != 200:
            raise OSError(f"it answered {answer.status} {answer.reason}")
        data = answer.read(MAX_BYTES)
        if answer.length:
            raise OSError("the download ended early")
    return data


def sources(bootstrap: dict[str, Any], plan: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield where the agent file may be, as base and target: paths have no target. First those that cost least."""
    for path in plan["paths"]:
        yield os.path.expanduser(path), ""
    store = bootstrap.get("store")
    if store:  # such a machine never calls the server
        parts = urlsplit(str(store.get("agent_file") or ""))
        if parts.scheme:
            yield f"{parts.scheme}://{parts.netloc}", f"{parts.path}?{parts.query}"
        elif parts.path:
            yield str(store["agent_file"]), ""
        return
    address = ""
    with contextlib.suppress(OSError, KeyError, TypeError, ValueError):
        address = read_file(bootstrap["agents_url_file"]).decode().strip()
    address = address or bootstrap.get("agents_url") or ""
    if address:
        yield address, plan["target"]


def fetch(bootstrap: dict[str, Any], plan: dict[str, Any]) -> bytes:
    """Return the agent file from the first source that has it, trying again for a while."""
    sha256, until = plan["sha256"], time.monotonic() + plan["seconds"]
    pause, why = FIRST_PAUSE, "the bootstrap names no source"
    while True:
        wrong = ""
        for base, target in sources(bootstrap, plan):
            try:
                data = download(base, target) if target else read_file(base)
            except (OSError, ValueError, http.client.HTTPException) as error:
                why = f"{base}: {error}"
                continue
            if hashlib.sha256(data).hexdigest() == sha256:
                return data
            wrong = base
        if wrong:
            fail(WRONG_HASH, f"the agent file from {wrong} is refused: its SHA-256 is not {sha256}")
        if time.monotonic() + pause > until:
            fail(NO_DOWNLOAD, f"the agent file cannot be downloaded; the last error: {why}")
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def keep_agent(cache: str, bootstrap: dict[str, Any], plan: dict[str, Any]) -> str:
    """Return the path of the agent file in the cache, after getting it if it is missing or damaged."""
    path = os.path.join(make_private(cache), "agent-" + plan["sha256"] + ".pyz")
    with contextlib.suppress(OSError):
        if hashlib.sha256(read_file(path)).hexdigest() == plan["sha256"]:
            return path
    write_private(path, fetch(bootstrap, plan))
    return path


def read_bootstrap(facts: list[str]) -> dict[str, Any]:
    """Return the bootstrap with the facts that only the machine knows, each `name=value`."""
    try:
        bootstrap = json.load(sys.stdin)
    except ValueError:
        bootstrap = None
    if not isinstance(bootstrap, dict):
        fail(BAD_BOOTSTRAP, "the bootstrap is not a JSON object; was the script filled in?")
    for fact in facts:
        name, _, value = fact.partition("=")
        if not value:
            fail(BAD_BOOTSTRAP, f"this machine does not know its {name}; is it a machine of this provider?")
        bootstrap[name] = value
    return bootstrap


def main() -> None:
    plan = json.loads(sys.argv[1])
    bootstrap = read_bootstrap(sys.argv[2:])
    work = make_private(plan["folder"])
    envs = os.path.expanduser(str(bootstrap.get("envs") or "."))
    bootstrap.update(work=work, envs=os.path.join(work, "envs" if envs == "." else envs))
    agent = keep_agent(plan["cache"], bootstrap, plan)
    path = os.path.join(work, "bootstrap.json")
    write_private(path, json.dumps(bootstrap).encode())
    os.chdir(work)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)  # a shell may have forked to write a long here-document; the host must not have it
    if plan["detach"]:
        log = os.open("host.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        pid = os.fork()
        if pid:
            sys.stdout.write(f"crucible-host {pid}\n")
            return
        os.setsid()
        os.dup2(log, 1)
        os.dup2(log, 2)
    os.execv(sys.executable, [sys.executable, "-I", agent, "host", "--bootstrap", path])


if __name__ == "__main__":
    main()
