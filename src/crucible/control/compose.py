"""One process's control plane over a state folder: the default that needs no set-up."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from crucible.backends.registry import get_backend, names
from crucible.backends.settings import BackendSettings
from crucible.control.agentfile import build_agent
from crucible.control.db import open_database
from crucible.control.ports import Ports
from crucible.control.service import Control, Deployment
from crucible.control.system import LocalWakeups, SystemClock, SystemIds, SystemRandom, ThreadCalls
from crucible.core.ids import Prefix, make_id
from crucible.core.secret import Secret
from crucible.storage import open_store

WORKER = "embedded"
"""The holder of the state folder's lock is the only process of this name."""


@dataclass(frozen=True)
class Embedded:
    """What the composition root knows."""

    home: Path
    database: Path
    store: Path
    agents_url_file: Path
    key: Secret
    python: str
    uv: str | None
    bundle_limit: int
    environ: dict[str, str]


def embedded_control(given: Embedded) -> Control:
    """Opens database and store; starts nothing."""
    ports = Ports(
        clock=SystemClock(),
        ids=SystemIds(),
        random=SystemRandom(),
        db=open_database(given.database),
        store=open_store(str(given.store)),
        calls=ThreadCalls(),
        wakeups=LocalWakeups(),
        worker=WORKER,
    )
    settings = BackendSettings(
        home=given.home,
        agents_url_file=given.agents_url_file,
        agent_file=build_agent(given.home / "agent"),
        python=given.python,
        uv=given.uv,
        environ=given.environ,
    )
    deployment = Deployment(
        id=deployment_id(given.key),
        key=given.key.reveal().encode(),
        agents_url=given.agents_url_file.read_text(encoding="utf-8").strip(),
        scratch=given.home / "uploads",
        bundle_limit=given.bundle_limit,
    )
    return Control(ports, {name: get_backend(name, settings) for name in names()}, deployment)


def deployment_id(key: Secret) -> str:
    """Who holds the key is the deployment: its id on tags is derived from it, one way."""
    digest = hashlib.sha256(b"deployment:" + key.reveal().encode()).digest()
    return make_id(Prefix.DEPLOYMENT, int.from_bytes(digest[:6]), int.from_bytes(digest[6:16]))
