"""Test cgroup v2 on a fake kernel of plain files."""

from __future__ import annotations

import errno
from pathlib import Path

from crucible.agent.process.limits.cgroup2 import Cgroup2Limiter
from crucible.agent.process.limits.files import Files
from crucible.agent.process.sampling.mounts import Mounts

MB = 2**20


class Kernel(Files):
    """Folders that behave like cgroup v2: a new folder has the files that its parent enables."""

    COMMON = ("cgroup.procs", "cgroup.subtree_control", "cgroup.kill", "cpu.stat")

    def __init__(self, root: Path, busy: set[Path], controllers: str = "cpu memory pids") -> None:
        self._root, self._busy = root, busy
        root.mkdir()
        self._fill(root, controllers.split())

    def _fill(self, folder: Path, controllers: list[str]) -> None:
        for name in self.COMMON:
            (folder / name).touch()
        (folder / "cgroup.controllers").write_text(" ".join(controllers))
        for controller in controllers if folder != self._root else []:
            (folder / f"{controller}.max").touch()
        if "memory" in controllers and folder != self._root:
            for name in (
                "memory.events",
                "memory.current",
                "memory.stat",
                "memory.swap.max",
                "memory.oom.group",
            ):
                (folder / name).touch()

    def make(self, path: Path) -> None:
        for folder in (path.parent, path):
            if not folder.exists():
                folder.mkdir()
                self._fill(folder, self.read(folder.parent / "cgroup.subtree_control").split())

    def remove(self, path: Path) -> None:
        if not path.exists():
            return
        if any(child.is_dir() for child in path.iterdir()) or self.read(path / "cgroup.procs"):
            raise OSError(errno.EBUSY, "busy")
        for child in path.iterdir():
            child.unlink()
        path.rmdir()

    def write(self, path: Path, text: str) -> None:
        if path.name == "cgroup.subtree_control":
            if path.parent in self._busy:
                raise OSError(errno.EBUSY, "no internal processes")
            if text.lstrip("+") not in self.read(path.parent / "cgroup.controllers").split():
                raise OSError(errno.ENOENT, "no such controller")
            text = f"{self.read(path)} {text.lstrip('+')}".strip()
            for child in path.parent.iterdir():
                if child.is_dir():
                    self._fill(child, text.split())
        super().write(path, text)


def v2_mounts(root: Path, own: str) -> Mounts:
    return Mounts.parse(f"30 23 0:26 / {root} rw - cgroup2 cgroup2 rw", f"0::{own}")


def test_v2_goes_up_to_a_group_that_may_be_divided(tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    session = root / "user.slice" / "session.scope"
    kernel = Kernel(root, busy={session})
    kernel.write(root / "cgroup.subtree_control", "+memory")
    kernel.write(root / "cgroup.subtree_control", "+cpu")
    kernel.make(session)
    limiter = Cgroup2Limiter.open(kernel, v2_mounts(root, "/user.slice/session.scope"))
    assert limiter is not None
    assert limiter.describe() == "cgroup v2: enforced: memory, CPU; not enforced: number of processes"
    confinement = limiter.prepare("a1", memory_bytes=100 * MB, cpus=0.5, pids=5)
    folder = root / "user.slice" / "crucible" / "a1"
    assert folder.is_dir()
    assert (folder / "memory.max").read_text() == str(100 * MB)
    assert (folder / "memory.swap.max").read_text() == "0"
    assert (folder / "memory.oom.group").read_text() == "1"
    assert (folder / "cpu.max").read_text() == "25000 50000"
    confinement.remove()
    assert not (root / "user.slice" / "crucible").exists()


def test_v2_reads_what_the_kernel_says(tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    kernel = Kernel(root, busy=set())
    limiter = Cgroup2Limiter.open(kernel, v2_mounts(root, "/"))
    assert limiter is not None
    confinement = limiter.prepare("a1")
    folder = root / "crucible" / "a1"
    (folder / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    (folder / "memory.current").write_text("1000\n")
    (folder / "memory.stat").write_text("anon 5\ninactive_file 300\n")
    assert confinement.usage() == (2.5, 700)
    assert not confinement.oom_killed()
    (folder / "memory.events").write_text("oom 1\noom_kill 1\n")
    assert confinement.oom_killed()
    (folder / "cgroup.procs").write_text("12\n34\n")
    left = limiter.find_left("a1")
    assert left is not None
    assert left.pids() == [12, 34]
    confinement.enter()
    assert (folder / "cgroup.procs").read_text() == "0"


def test_v2_prepared_from_another_group_is_found(tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    kernel = Kernel(root, busy=set())
    kernel.make(root / "a" / "crucible")
    kernel.make(root / "a" / "crucible" / "a1")
    limiter = Cgroup2Limiter.open(kernel, v2_mounts(root, "/"))
    assert limiter is not None
    assert limiter.find_left("a1") is not None
    assert limiter.find_left("a2") is None


def test_v2_without_the_memory_controller_is_not_taken(tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    assert Cgroup2Limiter.open(Kernel(root, set(), "cpu pids"), v2_mounts(root, "/")) is None
    assert not (root / "crucible").exists()
