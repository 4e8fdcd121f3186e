"""The keys of the store, each made from checked names."""

from __future__ import annotations

import re

from crucible.wire.files.paths import UnsafePath, safe_name

_SHA256 = re.compile(r"[0-9a-f]{64}")


def bundle_key(sha256: str) -> str:
    return f"bundles/{checked_sha256(sha256)[:2]}/{sha256}.tar.gz"


def log_segment_key(job: str, attempt: str, rank: int, n: int) -> str:
    """Return the key of segment `n` (from 0) of the output of one rank."""
    return f"{attempt_prefix(job, attempt)}/logs/{_count(rank)}/{_count(n):08d}.log"


def artifact_key(job: str, attempt: str, path: str) -> str:
    """Return the key of the artifact that the job wrote as `path`.

    `#` and `%` are written as `%23` and `%25`, because a local store cannot hold names that end in `#` and
    digits; a colon at the end as `%3A`, because none that end like a drive. Different paths have different keys.
    """
    written = safe_name(path).replace("%", "%25").replace("#", "%23")
    written = f"{written[:-1]}%3A" if written.endswith(":") else written
    return safe_name(f"{attempt_prefix(job, attempt)}/artifacts/{written}")


def checkpoint_key(job: str, sha256: str) -> str:
    """Return the key of a checkpoint. It belongs to the job, not to an attempt; the same bytes are kept once."""
    return f"{job_prefix(job)}/checkpoints/{checked_sha256(sha256)}"


def job_prefix(job: str) -> str:
    """Return the folder of everything that is kept for one job, except its bundle."""
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
