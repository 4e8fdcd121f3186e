"""Read the facts of a host: identity, devices, GPUs that others use, and settings that could disturb jobs."""

from __future__ import annotations

import csv
import os
import platform
import pwd
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from crucible.agent.process.sampling.devices import GpuLister, Probe, detect_devices
from crucible.wire.machines.processes import variable

SMI_SECONDS = 10.0
MiB = 1024**2
FOREIGN_BYTES = 1024 * MiB
"""GPU memory that no visible process explains, from which on the GPU counts as used by others."""
NETWORK_FILESYSTEMS = frozenset({
    "nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "fuse.glusterfs", "fuse.sshfs",
    "afs", "9p", "virtiofs", "panfs", "wekafs",
})  # fmt: skip


@dataclass(frozen=True)
class GpuFacts:
    """A GPU. `used_by`: who else uses it now; empty if nobody does."""

    index: int
    name: str
    memory_bytes: int
    used_by: str = ""


@dataclass(frozen=True)
class HostFacts:
    """`home_filesystem` is set if other hosts may share the home; `ends_with_session`: processes end with the login."""

    hostname: str
    user: str
    system: str
    python: str
    machine_id: str
    boot_id: str
    host_key: str
    cpus: float
    memory_bytes: int
    gpus: tuple[GpuFacts, ...]
    free_bytes: int
    home_filesystem: str
    tmp_noexec: bool
    ends_with_session: bool


class _WithoutGpus(Probe):
    """Reads CPUs and memory of this machine; the GPUs come from nvidia-smi, which also knows who uses them."""

    def gpus(self) -> Optional[GpuLister]:
        return None


def read_facts(host_keys: Iterable[str], machines: Sequence[Path], root: Path = Path("/")) -> HostFacts:
    """Return the facts of this host.

    `host_keys`: public ssh host keys below `root`, the preferred one first. `machines`: the folders of our machines,
    whose jobs are not the load of others.
    """
    devices = detect_devices(_WithoutGpus())
    home, keys = os.path.expanduser("~"), (_read(root / path) for path in host_keys)
    user = pwd.getpwuid(os.geteuid()).pw_name
    mounts = _read(root / "proc/self/mounts")
    return HostFacts(
        hostname=platform.node(),
        user=user,
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        machine_id=_read(root / "etc/machine-id"),
        boot_id=_read(root / "proc/sys/kernel/random/boot_id"),
        host_key=next((" ".join(key.split()[:2]) for key in keys if key), ""),
        cpus=round(devices.cpus, 2),
        memory_bytes=devices.memory_bytes,
        gpus=tuple(read_gpus(machines)),
        free_bytes=shutil.disk_usage(home).free,
        home_filesystem=_network_filesystem(mounts, home),
        tmp_noexec="noexec" in _mount_of(mounts, "/tmp").options,  # noqa: S108 - the folder that jobs will use
        ends_with_session=_ends_with_session(root, user),
    )


# GPUs


def read_gpus(machines: Sequence[Path]) -> list[GpuFacts]:
    """Return the GPUs that nvidia-smi lists; none without it."""
    rows = _query("gpu=index,uuid,name,memory.total,memory.used")
    users = _users(_query("compute-apps=gpu_uuid,pid,used_memory"), _attempts(machines))
    return [_gpu(row, users.get(row[1], ((), 0))) for row in rows if len(row) == 5 and row[0].isdigit()]


def _gpu(row: Sequence[str], users: tuple[Sequence[str], int]) -> GpuFacts:
    index, _, name, total, used = row
    others, ours = users
    unexplained = _mebibytes(used) - ours
    used_by = ""
    if others:
        used_by = f"{', '.join(others)} of others"
    elif unexplained >= FOREIGN_BYTES:
        used_by = f"others, with {unexplained // MiB} MiB of its memory"
    return GpuFacts(int(index), name, _mebibytes(total), used_by)


def _users(rows: Iterable[Sequence[str]], attempts: frozenset[str]) -> dict[str, tuple[tuple[str, ...], int]]:
    """Return, for each GPU's uuid, the processes of others, and how much memory ours use."""
    found: dict[str, tuple[tuple[str, ...], int]] = {}
    for row in rows:
        if len(row) != 3 or not row[1].isdigit():
            continue
        uuid, pid, used = row[0], int(row[1]), _mebibytes(row[2])
        others, ours = found.get(uuid, ((), 0))
        if variable(pid, "CRUCIBLE_ATTEMPT_ID") in attempts:
            found[uuid] = others, ours + used
        else:
            found[uuid] = (*others, f"process {pid}"), ours
    return found


def _attempts(machines: Sequence[Path]) -> frozenset[str]:
    """Return the ids of the attempts on our machines here."""
    return frozenset(path.name.rpartition("-")[0] for folder in machines for path in folder.glob("*/attempts/*"))


def _query(what: str) -> list[list[str]]:
    command = ["nvidia-smi", f"--query-{what}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SMI_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [[cell.strip() for cell in row] for row in csv.reader(done.stdout.splitlines())]


def _mebibytes(text: str) -> int:
    return int(text) * MiB if text.isdigit() else 0  # [N/A], on GPUs that share the host's memory


# Files and sessions


@dataclass(frozen=True)
class _Mount:
    kind: str = ""
    options: frozenset[str] = frozenset()


def _mount_of(mounts: str, path: str) -> _Mount:
    """Return the mount that holds the path: the longest one that contains it, and of several the last."""
    best, found = "", _Mount()
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 4:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[1])
        if len(point) >= len(best) and (path + "/").startswith(point.rstrip("/") + "/"):
            best, found = point, _Mount(fields[2], frozenset(fields[3].split(",")))
    return found


def _network_filesystem(mounts: str, home: str) -> str:
    kind = _mount_of(mounts, os.path.realpath(home)).kind
    return kind if kind in NETWORK_FILESYSTEMS else ""


def _ends_with_session(root: Path, user: str) -> bool:
    """Return whether systemd ends the user's processes with their last session."""
    files = [root / "etc/systemd/logind.conf", *sorted((root / "etc/systemd/logind.conf.d").glob("*.conf"))]
    values = [value for file in files for value in _settings(_read(file), "KillUserProcesses")]
    lingers = (root / "var/lib/systemd/linger" / user).exists()
    return bool(values) and values[-1] in ("yes", "true", "1", "on") and not lingers


def _settings(text: str, name: str) -> list[str]:
    parts: Iterable[tuple[str, str, str]] = (line.strip().partition("=") for line in text.splitlines())
    return [value.strip().lower() for key, _, value in parts if key.strip() == name]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
