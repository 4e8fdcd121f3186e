"""A server that calls a job unreachable sooner than others: `python impatient_server.py SECONDS python -m MODULE …`."""

from __future__ import annotations

import runpy
import sys

from crucible.core.lifecycle import advance, silence

if __name__ == "__main__":
    for place in (sys.modules[advance.__module__], silence):
        place.NOTICE_AFTER = float(sys.argv[1])  # type: ignore[attr-defined]
    module = sys.argv[4]
    sys.argv = [module, *sys.argv[5:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
