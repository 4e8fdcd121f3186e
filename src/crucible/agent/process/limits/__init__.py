"""Memory, CPU and process limits for the processes of one attempt.

`choose_limiter` returns the best mechanism that the machine allows: cgroup v2, cgroup v1, or checks by the runner.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from crucible.agent.process.limits.base import Confinement, Limiter, ProcessesRemain
from crucible.agent.process.limits.cgroup1 import Cgroup1Limiter
from crucible.agent.process.limits.cgroup2 import Cgroup2Limiter
from crucible.agent.process.limits.files import Files
from crucible.agent.process.limits.rlimit import RlimitLimiter
from crucible.agent.process.sampling.mounts import Mounts

__all__ = ["Confinement", "Limiter", "LimitsProbe", "ProcessesRemain", "RlimitLimiter", "choose_limiter"]


@dataclass(frozen=True)
class LimitsProbe:
    """What `choose_limiter` checks. `folder` is for the fallback and must survive a restart of the host."""

    proc: str = "/proc"
    files: Files = field(default_factory=Files)
    folder: Optional[Path] = None

    def mounts(self) -> Mounts:
        own = Path(self.proc, "self")
        return Mounts.parse(self.files.read(own / "mountinfo"), self.files.read(own / "cgroup"))

    def state(self) -> Path:
        return self.folder or Path(tempfile.gettempdir(), "crucible-limits")


def choose_limiter(probe: LimitsProbe) -> Limiter:
    """Return the best limiter that works here. Never fails; `describe()` says what it does not enforce."""
    mounts = probe.mounts()
    by_cgroup = Cgroup2Limiter.open(probe.files, mounts) or Cgroup1Limiter.open(probe.files, mounts)
    return by_cgroup or RlimitLimiter(probe.state(), probe.proc)
