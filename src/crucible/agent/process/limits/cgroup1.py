"""Limits by cgroup v1: a hierarchy each for memory, cpu and pids, and cpuacct to measure."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Optional

from crucible.agent.process.limits.base import Confinement, Limiter, check_name
from crucible.agent.process.limits.cgroups import FOLDER, PERIOD, CgroupConfinement, describe_limits, quota
from crucible.agent.process.limits.files import Files, field, number
from crucible.agent.process.sampling.mounts import Mount, Mounts

_PROOF = {
    "memory": "memory.limit_in_bytes",
    "cpu": "cpu.cfs_quota_us",
    "pids": "pids.max",
    "cpuacct": "cpuacct.usage",
}
"""A file whose presence shows that the controller works in a folder."""


class Cgroup1Confinement(CgroupConfinement):
    def __init__(self, files: Files, folders: Mapping[str, Path]) -> None:
        super().__init__(files, list(dict.fromkeys(folders.values())))
        self._folder_of = dict(folders)

    def oom_killed(self) -> bool:
        folders = self._files.subtree(self._folder_of["memory"])
        return any(field(self._files.read(folder / "memory.oom_control"), "oom_kill") for folder in folders)

    def usage(self) -> tuple[float, int]:
        memory = self._folder_of["memory"]
        cached = field(self._files.read(memory / "memory.stat"), "total_inactive_file")
        used = number(self._files.read(memory / "memory.usage_in_bytes"))
        seconds = (
            number(self._files.read(self._folder_of["cpuacct"] / "cpuacct.usage")) / 1e9
            if "cpuacct" in self._folder_of
            else 0
        )
        return seconds, max(0, used - cached)

    def peak_memory(self) -> int:
        return number(self._files.read(self._folder_of["memory"] / "memory.max_usage_in_bytes"))

    def limit(self, memory_bytes: Optional[int], cpus: Optional[float], pids: Optional[int]) -> None:
        if memory_bytes is not None:
            self._limit_memory(self._folder_of["memory"], memory_bytes)
        if cpus is not None and "cpu" in self._folder_of:
            self._files.write(self._folder_of["cpu"] / "cpu.cfs_period_us", str(PERIOD))
            self._files.write(self._folder_of["cpu"] / "cpu.cfs_quota_us", str(quota(cpus)))
        if pids is not None and "pids" in self._folder_of:
            self._files.write(self._folder_of["pids"] / "pids.max", str(pids))

    def _limit_memory(self, folder: Path, limit: int) -> None:
        both = folder / "memory.memsw.limit_in_bytes"
        swap_counts = self._files.exists(both)
        if swap_counts:
            # The kernel refuses a memory limit above the one for memory with swap, so lift that one first.
            self._files.write(both, "-1")
        self._files.write(folder / "memory.limit_in_bytes", str(limit))
        if swap_counts:
            self._files.write(both, str(limit))

    def _stop_forks(self) -> None:
        if "pids" in self._folder_of:
            with contextlib.suppress(OSError):
                self._files.write(self._folder_of["pids"] / "pids.max", "0")


class Cgroup1Limiter(Limiter):
    def __init__(self, files: Files, folders: Mapping[str, Path], mounts: Mounts) -> None:
        self._files = files
        self._folders = dict(folders)
        self._mounts = mounts

    @classmethod
    def open(cls, files: Files, mounts: Mounts) -> Optional[Cgroup1Limiter]:
        """Return the limiter, or None if memory cannot be limited this way."""
        found = {
            controller: _usable_folder(files, mounts.get(controller), proof) for controller, proof in _PROOF.items()
        }
        folders = {controller: folder for controller, folder in found.items() if folder is not None}
        return cls(files, folders, mounts) if "memory" in folders else None

    def describe(self) -> str:
        return describe_limits("v1", self._folders)

    def prepare(
        self,
        attempt_id: str,
        memory_bytes: Optional[int] = None,
        cpus: Optional[float] = None,
        pids: Optional[int] = None,
    ) -> Confinement:
        name = check_name(attempt_id)
        folders = {controller: top / name for controller, top in self._folders.items()}
        for folder in folders.values():
            self._files.make(folder)
        confinement = Cgroup1Confinement(self._files, folders)
        confinement.limit(memory_bytes, cpus, pids)
        return confinement

    def find_left(self, attempt_id: str) -> Optional[Confinement]:
        name = check_name(attempt_id)
        found = {controller: self._find(controller, name) for controller in self._folders}
        folders = {controller: folder for controller, folder in found.items() if folder is not None}
        if not folders:
            return None
        folders.setdefault("memory", self._folders["memory"] / name)
        return Cgroup1Confinement(self._files, folders)

    def _find(self, controller: str, name: str) -> Optional[Path]:
        near = self._folders[controller] / name
        if self._files.exists(near):
            return near
        # An earlier host, in another cgroup than ours, may have prepared it.
        mount = self._mounts.get(controller)
        return None if mount is None else self._files.find(Path(mount.root), (FOLDER, name))


def _usable_folder(files: Files, mount: Optional[Mount], proof: str) -> Optional[Path]:
    """Return our folder below our own cgroup, so that limits on us hold for jobs too; else below the root."""
    for base in [] if mount is None else list(dict.fromkeys([mount.own, mount.root])):
        folder = Path(base, FOLDER)
        probe = folder / "probe"
        with contextlib.suppress(OSError):
            files.make(probe)
            usable = files.exists(probe / proof)
            files.remove(probe)
            with contextlib.suppress(OSError):
                files.remove(folder)
            if usable:
                return folder
    return None
