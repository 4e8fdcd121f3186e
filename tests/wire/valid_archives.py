"""Valid archives."""

from __future__ import annotations

import io

from crucible.wire.files.archive import Entry, Folder, Link, pack

ENTRIES = [
    Entry.of_bytes("train.py", b"print('hello')\n"),
    Entry.of_bytes("bin/run.sh", b"#!/bin/sh\n", executable=True),
    Entry.of_bytes("data/" + "long" * 40 + "/数据.bin", bytes(range(256)) * 40),
    Entry("latest.py", Link("train.py")),
    Entry("data/tool", Link("../bin/run.sh")),
    Entry("logs/empty", Folder()),
    Entry.of_bytes("nothing", b""),
]


def packed(entries: list[Entry]) -> bytes:
    out = io.BytesIO()
    pack(entries, out)
    return out.getvalue()
