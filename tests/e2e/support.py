"""Helpers of end-to-end tests: bundles, files that jobs wait for, and a package to install."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import zipfile
from pathlib import Path
from typing import Any

from tests.harness import Deployment, View

from crucible.wire.files.archive import Entry, pack

MiB = 1024 * 1024


def packed(**files: str) -> bytes:
    """Pack an archive of these files; `a__b` is `a/b.py`."""
    out = io.BytesIO()
    pack([Entry.of_bytes(f"{n.replace('__', '/')}.py", text.encode()) for n, text in files.items()], out)
    return out.getvalue()


def upload(crucible: Deployment, archive: bytes) -> str:
    """Upload a bundle; return its hash."""
    sha256 = hashlib.sha256(archive).hexdigest()
    with crucible.client() as client:
        answer = client.put(f"/api/v1/bundles/{sha256}", content=archive)
    assert answer.status_code in (200, 201), answer.text
    return sha256


def printed(crucible: Deployment, spec: View) -> Any:
    """Run a job to its end; return the JSON that it printed."""
    job = crucible.submit(spec)
    view = crucible.wait(job)
    log = crucible.log(job).decode()
    assert view["status"] == "completed", (view["reason"], log)
    return json.loads(log)


def wait_for(path: Path) -> str:
    """Return shell code that waits until the path exists, for at most half a minute."""
    return f"n=0; while [ ! -e '{path}' ] && [ $n -lt 300 ]; do sleep 0.1; n=$((n+1)); done; [ -e '{path}' ]"


def make_wheel(folder: Path, name: str, code: str) -> Path:
    """Build a wheel of one module by hand, so that nothing is downloaded."""
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": code,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: by hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},{_record_hash(text)},{len(text)}\n" for path, text in files.items())
    wheel = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            archive.writestr(path, text)
    return wheel


def _record_hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
