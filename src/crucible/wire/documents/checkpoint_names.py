"""Interpret names of checkpoints: whether one is unfinished, and its step."""

from __future__ import annotations

import re
from typing import Optional

UNFINISHED = (".tmp", ".part", ".partial")
MAX_STEP = 2**53

_WORDS = ("global_?step|steps?", "iter(?:ation)?s?", "ckpt|checkpoint", "epochs?")
_PATTERNS = tuple(re.compile(rf"(?:{word})[-_=.]?(\d{{1,16}})(?!\d)", re.IGNORECASE) for word in _WORDS)
_NUMBER = re.compile(r"(\d{1,16})(?:\.[A-Za-z]\w*)?")


def is_unfinished(name: str) -> bool:
    """Return whether the name marks unfinished work, which is never a checkpoint."""
    return name.startswith(".") or name.endswith(UNFINISHED)


def step_in_name(name: str) -> Optional[int]:
    """Return the step in `step-00000005.pt`, `ckpt_1200.pt`, `checkpoint-500`, `epoch_3.pth`, `500`; else None.

    If a name has several numbers, a step takes precedence over an epoch.
    """
    found = next(filter(None, (pattern.search(name) for pattern in _PATTERNS)), None) or _NUMBER.fullmatch(name)
    step = int(found.group(1)) if found is not None else None
    return step if step is not None and step < MAX_STEP else None
