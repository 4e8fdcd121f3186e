"""Versions of Crucible itself that meet: a command, a server and agents may each be of another one.

Releases with the same first two numbers work together and say nothing. Others work together as long as the
API's number is the same, and say so; agents of any version go on, because what they do not know is passed over.
"""

from __future__ import annotations

import re

API = 1
"""The number of the API: it rises when an older command could misunderstand an answer."""

VERSION_HEADER = "X-Crucible-Version"
API_HEADER = "X-Crucible-Api"

_LINE = re.compile(r"(\d+)\.(\d+)")


def versions_differ(one: str, other: str) -> bool:
    """Whether two versions are of different lines (their first two numbers). What is no version is passed over."""
    lines = _LINE.match(one), _LINE.match(other)
    if lines[0] is None or lines[1] is None:
        return False
    return lines[0].groups() != lines[1].groups()


def agent_note(agent: str, server: str) -> str | None:
    """What a person should see of an agent of another line; None when there is nothing to say."""
    if not versions_differ(agent, server):
        return None
    return (
        f"the agent here is version {agent}, the server {server}: the job goes on; machines that are made from now on "
        "get the server's version"
    )
