"""What several end-to-end tests need: bundles, gates that hold a job, and a package to install."""

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
    """An archive of these files; `a__b` stands for `a/b` and `.py` is added."""
    out = io.BytesIO()
    pack([Entry.of_bytes(f"{n.replace('__', '/')}.py", text.encode()) for n, text in files.items()], out)
    return out.getvalue()


def upload(crucible: Deployment, archive: bytes) -> str:
    """Stores a bundle; its name."""
    sha256 = hashlib.sha256(archive).hexdigest()
    with crucible.client() as client:
        answer = client.put(f"/api/v1/bundles/{sha256}", content=archive)
    assert answer.status_code in (200, 201), answer.text
    return sha256


def printed(crucible: Deployment, spec: View) -> Any:
    """Runs a job to its end; the JSON that it printed."""
    job = crucible.submit(spec)
    view = crucible.wait(job)
    log = crucible.log(job).decode()
    assert view["status"] == "completed", (view["reason"], log)
    return json.loads(log)


def wait_for(path: Path) -> str:
    """A piece of shell that waits until the path is there, for half a minute at most."""
    return f"n=0; while [ ! -e '{path}' ] && [ $n -lt 300 ]; do sleep 0.1; n=$((n+1)); done; [ -e '{path}' ]"


def make_wheel(folder: Path, name: str, code: str) -> Path:
    """A package of one module, built by hand so that nothing is fetched for it."""
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
