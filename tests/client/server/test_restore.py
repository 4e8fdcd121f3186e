from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from crucible.client.server.restore import restore
from crucible.core.errors import Conflict, TimedOut, Trouble

SAYS = "import json, sys; print('note'); print(json.dumps({'argv': sys.argv[1:]}))"


def program(code: str) -> tuple[str, ...]:
    return sys.executable, "-c", code


def test_it_is_told_what_and_where(tmp_path: Path) -> None:
    told = restore(tmp_path / "copy.db", tmp_path / "home", os.environ, command=program(SAYS))
    assert told == {"argv": [str(tmp_path / "copy.db"), "--home", str(tmp_path / "home")]}


def test_nothing_said_is_fine(tmp_path: Path) -> None:
    assert restore(tmp_path / "copy.db", tmp_path, os.environ, command=program("print('done')")) == {}


def test_its_own_error_is_told(tmp_path: Path) -> None:
    error = {"error": {"code": "conflict", "what": "Another server runs.", "why": "It holds it.", "fix": "End it."}}
    code = f"import sys; sys.stderr.write('a line\\n' + {json.dumps(error)!r} + '\\n'); sys.exit(5)"
    with pytest.raises(Conflict) as caught:
        restore(tmp_path / "copy.db", tmp_path, os.environ, command=program(code))
    assert (caught.value.what, caught.value.fix) == ("Another server runs.", "End it.")


def test_a_crash_is_told_with_its_last_lines(tmp_path: Path) -> None:
    with pytest.raises(Trouble, match="code 1") as caught:
        restore(tmp_path / "copy.db", tmp_path, os.environ, command=program("raise ValueError('torn')"))
    assert "ValueError: torn" in caught.value.why


def test_it_does_not_wait_for_ever(tmp_path: Path) -> None:
    code = "import time; time.sleep(600)"
    with pytest.raises(TimedOut):
        restore(tmp_path / "copy.db", tmp_path, os.environ, command=program(code), seconds=0.2)
