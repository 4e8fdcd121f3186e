"""A git address at a ref: fetched without history, then run like a directory."""

from __future__ import annotations

import errno
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from crucible.client.payload.base import CodeSource, Payload
from crucible.client.payload.directory import from_root
from crucible.client.payload.git_state import without_repository
from crucible.core.compute.resources import format_memory
from crucible.core.errors import BadInput, TimedOut, Unreachable
from crucible.core.job.spec import Source, SourceKind
from crucible.wire.files.bundle import DEFAULT_LIMIT

CLONE_SECONDS = 300.0

_URL = re.compile(r"^(?:git\+)?(?P<base>(?:https|ssh|file)://[^/]*/?)(?P<path>[^@]*)(?:@(?P<ref>.+))?$")
_SCP = re.compile(r"^(?P<base>[A-Za-z0-9_.-]+@[A-Za-z0-9_.-]+:)(?P<path>[^@]*)(?:@(?P<ref>.+))?$")
_REF = re.compile(r"^(?!-)(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9._/+-]*$")
_COMMIT = re.compile(r"^[0-9a-f]{7,40}$")


@dataclass(frozen=True)
class Address:
    """A repository that may be fetched: over https, ssh or from this computer only."""

    url: str
    ref: str | None

    @property
    def name(self) -> str:
        return self.url.rstrip("/").rpartition("/")[2].rpartition(":")[2].removesuffix(".git")


def looks_like_git(target: str) -> bool:
    return bool(_URL.match(target) or _SCP.match(target)) or ("://" in target) or ("::" in target)


def parse_address(target: str, ref: str | None = None) -> Address:
    match = _URL.match(target) or _SCP.match(target)
    if not match or not match["path"].strip("/") or match["base"].startswith("ssh://-"):
        raise BadInput(
            f"{target} is not a git address that may be fetched.",
            why="Only https://, ssh://, file:// and user@host:path are allowed.",
            fix="Write it like https://example.org/team/project.git@main.",
        )
    revision = ref or match["ref"]
    if revision is not None and not _REF.match(revision):
        raise BadInput(f"{revision!r} is not a branch, tag or commit.", fix="Check --ref.")
    return Address(match["base"] + match["path"], revision)


def from_git(target: str, code_source: CodeSource) -> Payload:
    if code_source.in_place:
        raise BadInput("A git address cannot run in place.", fix="Clone it yourself, or leave out --in-place.")
    address = parse_address(target, code_source.ref)
    assert code_source.scratch is not None, "a clone needs a folder"
    root = code_source.scratch / "clone" / (address.name or "repository")
    commit = fetch(address, root, code_source.host.environ, max_bytes=2 * code_source.limit)
    source = Source(kind=SourceKind.GIT, url=address.url, ref=address.ref, commit=commit)
    return from_root(root, address.url, source, code_source)


def fetch(address: Address, into: Path, environ: Mapping[str, str], *, max_bytes: int = 2 * DEFAULT_LIMIT) -> str:
    """Check the ref out in the new folder `into` and return the commit. No file grows larger than `max_bytes`."""
    into.mkdir(parents=True)
    git = _Git(address, into, environ, max_bytes)
    git("init", "--quiet")
    if address.ref is not None and _COMMIT.match(address.ref) and len(address.ref) < 40:
        # A remote does not resolve shortened commits, so the history is fetched to find it in.
        git("fetch", "--quiet", "--no-tags", "--", address.url, "+refs/heads/*:refs/remotes/o/*")
        git("checkout", "--quiet", "--detach", address.ref)
    else:
        git("fetch", "--quiet", "--no-tags", "--depth=1", "--", address.url, address.ref or "HEAD")
        git("checkout", "--quiet", "--detach", "FETCH_HEAD")
    return git("rev-parse", "HEAD").strip()


@dataclass(frozen=True)
class _Git:
    """Runs git in one folder: without prompts, without hooks, and with the allowed transports only."""

    address: Address
    folder: Path
    environ: Mapping[str, str]
    max_bytes: int

    def __call__(self, *arguments: str) -> str:
        try:
            # With SIGXFSZ ignored, git reports a file that is too large instead of being killed.
            bound = f"trap '' XFSZ; ulimit -f {max(self.max_bytes // 512, 1)} && exec \"$@\""
            process = self._run(["/bin/sh", "-c", bound, "sh", "git", "-c", "core.hooksPath=/dev/null", *arguments])
        except subprocess.TimeoutExpired as error:
            raise TimedOut(
                f"{self.address.url} was not fetched within {CLONE_SECONDS:g} seconds.",
                fix="Try again, or clone it yourself and run the folder.",
            ) from error
        except FileNotFoundError as error:
            raise BadInput("There is no /bin/sh to run git with.", fix="Clone it yourself, and run it.") from error
        if process.returncode != 0:
            raise self._failed(process.returncode, process.stderr.strip())
        return process.stdout

    def _failed(self, code: int, stderr: str) -> BadInput | Unreachable:
        if os.strerror(errno.EFBIG) in stderr:
            return BadInput(
                f"{self.address.url} is too large to be fetched.",
                why=f"One of its files is larger than {format_memory(self.max_bytes)}.",
                fix="Clone it yourself and run the folder with what it needs.",
            )
        if code == 127:
            return BadInput("git is not installed.", fix="Install git (Debian: apt install git).")
        return _fetch_error(self.address, stderr)

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        settings = {"GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "https:ssh:file", "LC_ALL": "C"}
        return subprocess.run(
            command,
            cwd=self.folder,
            env={**without_repository(self.environ), **settings},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=CLONE_SECONDS,
            check=False,
        )


def _fetch_error(address: Address, stderr: str) -> BadInput | Unreachable:
    ref = f" at {address.ref}" if address.ref else ""
    what = f"{address.url}{ref} cannot be fetched."
    why = stderr[-1000:] or "git gave no reason."
    if "resolve host" in stderr or "Connection" in stderr:
        return Unreachable(what, why=why, fix="Check the network and the address.")
    return BadInput(what, why=why, fix="Check the address, the ref, and that you have access (git ls-remote URL).")
