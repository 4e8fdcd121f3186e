"""The settings that a server passes to each of its backends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class BackendSettings:
    """`home`: the state folder. `agents_url_file`: a file that holds the current address of the agents' listener.

    `agent_file`: the agent as one file; `python`: the interpreter that runs it here; `uv`: the path of uv.
    `rehearsal_state`: the folder of a simulated cloud that others use too (default: its own one in `home`).
    `environ`: the server's own variables. A backend passes on only those it names, never secrets.
    """

    home: Path
    agents_url_file: Path
    agent_file: Path
    python: str
    uv: str | None = None
    rehearsal_state: Path | None = None
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
