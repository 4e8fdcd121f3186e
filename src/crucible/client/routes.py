"""Where the server has things."""

from __future__ import annotations

from urllib.parse import quote


def job_path(ref: str, rest: str = "") -> str:
    path = f"/api/v1/jobs/{quote(ref, safe='')}"
    return f"{path}/{rest}" if rest else path
