"""Limits by cgroup v2: one hierarchy for everything."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Optional

from crucible.agent.process.limits.base import Confinement, Limiter, check_name
from crucible.agent.process.limits.cgroups import FOLDER, PERIOD, CgroupConfinement, describe_limits, quota
from crucible.agent.process.limits.files import Files, field, number
from crucible.agent.process.sampling.mounts import UNIFIED, Mounts

_CONTROLLERS = ("memory", "cpu", "pids")


class Cgroup2Confinement(CgroupConfinement):
    def __init__(self, files: Files, folder: Path) -> None:
        super().__init__(files, [folder])
        self._folder = folder

    def oom_killed(self) -> bool:
        return field(self._files.read(self._folder / "memory.events"), "oom_kill") > 0

    def usage(self) -> tuple[float, int]:
        cached = field(self._files.read(self._folder / "memory.stat"), "inactive_file")
        used = number(self._files.read(self._folder / "memory.current"))
        microseconds = field(self._files.read(self._folder / "cpu.stat"), "usage_usec")
        return microseconds / 1e6, max(0, used - cached)

    def peak_memory(self) -> int:
        peak = number(self._files.read(self._folder / "memory.peak"))
        return peak or number(self._files.read(self._folder / "memory.current"))

    def limit(self, memory_bytes: Optional[int], cpus: Optional[float], pids: Optional[int]) -> None:
        if memory_bytes is not None:
            self._files.write(self._folder / "memory.max", str(memory_bytes))
            self._set_if_there("memory.swap.max", "0")
            self._set_if_there("memory.oom.group", "1")
        if cpus is not None:
            self._set_if_there("cpu.max", f"{quota(cpus)} {PERIOD}")
        if pids is not None:
            self._set_if_there("pids.max", str(pids))

    def _set_if_there(self, name: str, value: str) -> None:
        if self._files.exists(self._folder / name):
            self._files.write(self._folder / name, value)

    def _stop_forks(self) -> None:
        with contextlib.suppress(OSError):
            self._set_if_there("pids.max", "0")
            self._set_if_there("cgroup.kill", "1")


class Cgroup2Limiter(Limiter):
    def __init__(self, files: Files, folder: Path, root: Path) -> None:
        self._files = files
        self._folder = folder
        self._root = root
        self._usable = self._probe()

    @classmethod
    def open(cls, files: Files, mounts: Mounts) -> Optional[Cgroup2Limiter]:
        """Return a limiter in the nearest cgroup at or above our own that we may divide; None if there is none.

        The kernel does not let a cgroup that holds processes enable controllers for its children, and ours holds us.
        """
        folders = mounts.own_folders(UNIFIED)
        limiters = (cls(files, Path(base, FOLDER), Path(folders[-1])) for base in folders)
        return next((limiter for limiter in limiters if "memory" in limiter._usable), None)

    def describe(self) -> str:
        return describe_limits("v2", self._usable)

    def prepare(
        self,
        attempt_id: str,
        memory_bytes: Optional[int] = None,
        cpus: Optional[float] = None,
        pids: Optional[int] = None,
    ) -> Confinement:
        folder = self._folder / check_name(attempt_id)
        self._files.make(folder.parent)
        self._enable_controllers()
        self._files.make(folder)
        confinement = Cgroup2Confinement(self._files, folder)
        confinement.limit(memory_bytes, cpus, pids)
        return confinement

    def find_left(self, attempt_id: str) -> Optional[Confinement]:
        name = check_name(attempt_id)
        near = self._folder / name
        found = near if self._files.exists(near) else self._files.find(self._root, (FOLDER, name))
        return None if found is None else Cgroup2Confinement(self._files, found)

    def _probe(self) -> list[str]:
        """Return the controllers that work in a folder of ours, by creating one as a test."""
        probe = self._folder / "probe"
        try:
            self._files.make(self._folder)
            self._enable_controllers()
            self._files.make(probe)
            return [controller for controller in _CONTROLLERS if self._files.exists(probe / f"{controller}.max")]
        except OSError:
            return []
        finally:
            with contextlib.suppress(OSError):
                self._files.remove(probe)
                self._files.remove(self._folder)

    def _enable_controllers(self) -> None:
        for folder in (self._folder.parent, self._folder):
            for controller in _CONTROLLERS:
                # One at a time, so that a missing controller does not prevent the others.
                with contextlib.suppress(OSError):
                    if controller not in self._files.read(folder / "cgroup.subtree_control").split():
                        self._files.write(folder / "cgroup.subtree_control", f"+{controller}")
