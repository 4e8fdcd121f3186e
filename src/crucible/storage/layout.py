"""The keys of objects in the store, made from validated names."""

from __future__ import annotations

import re

from crucible.wire.documents.mailbox import ROOT
from crucible.wire.files.paths import UnsafePath, safe_name

FOLDERS = ("bundles", "jobs", ROOT)
"""The top folders that a deployment uses. A bucket may hold more, which is not ours."""
AGENTS = "agents"
"""The folder of agent files. They are the program's, not the deployment's: they say nothing about jobs."""
_SHA256 = re.compile(r"[0-9a-f]{64}")


def agent_key(sha256: str) -> str:
    """Return the key of an agent file, which new machines download."""
    return f"{AGENTS}/agent-{checked_sha256(sha256)}.pyz"


def bundle_key(sha256: str) -> str:
    return f"bundles/{checked_sha256(sha256)[:2]}/{sha256}.tar.gz"


def log_segment_key(job: str, attempt: str, rank: int, n: int, sha256: str | None = None) -> str:
    """Return the key of segment `n` (from 0) of the output of one rank. `sha256`: None as version 0.1.0 named it."""
    content = "" if sha256 is None else f"-{checked_sha256(sha256)}"
    return f"{attempt_prefix(job, attempt)}/logs/{_count(rank)}/{_count(n):08d}{content}.log"


def output_key(job: str, attempt: str, sha256: str) -> str:
    """Return the key of the bytes of an artifact; the same bytes are kept once for each attempt."""
    return f"{attempt_prefix(job, attempt)}/outputs/{checked_sha256(sha256)}"


def artifact_key(job: str, attempt: str, path: str) -> str:
    """Return the key under which version 0.1.0 stored the artifact that the job wrote as `path`.

    `#` and `%` are escaped as `%23` and `%25`, because a local store cannot hold names that end in `#` and digits. A
    final colon is escaped as `%3A`, because it cannot hold names that end like a drive. Different paths have
    different keys.
    """
    escaped = safe_name(path).replace("%", "%25").replace("#", "%23")
    escaped = f"{escaped[:-1]}%3A" if escaped.endswith(":") else escaped
    return safe_name(f"{attempt_prefix(job, attempt)}/artifacts/{escaped}")


def checkpoint_key(job: str, sha256: str) -> str:
    """Return the key of a checkpoint. It belongs to the job, not to an attempt, so equal content is stored once."""
    return f"{job_prefix(job)}/checkpoints/{checked_sha256(sha256)}"


def job_prefix(job: str) -> str:
    """Return the folder of all objects of one job, except its bundle."""
    return f"jobs/{_part(job)}"


def attempt_prefix(job: str, attempt: str) -> str:
    """Return the folder of the logs and artifacts of one attempt."""
    return f"{job_prefix(job)}/attempts/{_part(attempt)}"


def checked_sha256(text: str) -> str:
    """Return the text if it is a SHA-256 in lower-case hex. Raises UnsafePath."""
    if not _SHA256.fullmatch(text):
        raise UnsafePath(text, "is not a SHA-256 in lower-case hex")
    return text


def _part(name: str) -> str:
    if "/" in name or "#" in name:
        raise UnsafePath(name, "is not a single plain name")
    return safe_name(name)


def _count(number: int) -> int:
    if number < 0:
        raise ValueError(f"{number} is negative")
    return number
