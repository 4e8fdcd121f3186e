"""What a server's API says of everything in its state folder, as one JSON document.

`record.py` takes it of version 0.1.0, and tests compare it with what the present version says of the same folder. It
imports nothing but the standard library, because both versions run it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

Fetch = Callable[[str], bytes]
"""Returns the body of a GET with the owner's token, for a path below /api/v1."""

PARTS = ("events?limit=1000", "metrics?points=10000", "artifacts", "checkpoints", "notes", "tags")
"""Of each job, beside the job itself."""
REST = (
    "machines?all=true",
    "users",
    "projects",
    "projects/vision/members",
    "projects/default/secrets",
    "projects/default/hooks",
    "tokens?all=true",
    "predictions",
)


def take_snapshot(fetch: Fetch, jobs: list[str]) -> dict[str, Any]:
    """Return what the API says of these jobs and of the rest; of files it keeps the SHA-256."""
    return {
        "jobs": {job: _job(fetch, job) for job in jobs},
        "rest": {path: json.loads(fetch(f"/{path}")) for path in REST},
    }


def _job(fetch: Fetch, job: str) -> dict[str, Any]:
    found = {"job": json.loads(fetch(f"/jobs/{job}"))}
    found.update({path.partition("?")[0]: json.loads(fetch(f"/jobs/{job}/{path}")) for path in PARTS})
    attempts = [attempt["number"] for attempt in found["job"]["attempts"]]
    found["logs"] = {
        str(number): fetch(f"/jobs/{job}/logs?attempt={number}&limit=8388608").decode() for number in attempts
    }
    contents = {f"artifacts/{quote(item['path'])}" for item in found["artifacts"]["items"]}
    contents |= {f"checkpoints/{item['id']}/content" for item in found["checkpoints"]["items"] if item["kept"]}
    found["contents"] = {path: _sha256(fetch(f"/jobs/{job}/{path}")) for path in sorted(contents)}
    return found


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
