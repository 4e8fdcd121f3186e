"""Compatibility of Crucible versions: the command, the server and agents may differ.

Releases with the same first two numbers work together silently. Others work together as long as the API number is the
same, with a notice. Agents of any version keep working: they ignore what they do not know.
"""

from __future__ import annotations

import re

API = 1
"""The API number: it rises when an older command could misunderstand a response."""

VERSION_HEADER = "X-Crucible-Version"
API_HEADER = "X-Crucible-Api"

_LINE = re.compile(r"(\d+)\.(\d+)")


def versions_differ(one: str, other: str) -> bool:
    """Return whether the first two numbers of two versions differ; False if either is not a version."""
    lines = _LINE.match(one), _LINE.match(other)
    if lines[0] is None or lines[1] is None:
        return False
    return lines[0].groups() != lines[1].groups()


def agent_note(agent: str, server: str) -> str | None:
    """Return a note for the user about an agent of another version line; None if there is nothing to say."""
    if not versions_differ(agent, server):
        return None
    return (
        f"the agent is version {agent}, the server {server}: the job continues; new machines get the server's version"
    )
