from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from crucible.agent.machines.facts import read_facts, read_gpus

GiB = 1024**3


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The root of a file system, as far as facts are read from it."""
    files = {
        "etc/machine-id": "0123\n",
        "proc/sys/kernel/random/boot_id": "4567\n",
        "etc/ssh/ssh_host_ed25519_key.pub": "ssh-ed25519 AAAA root@box\n",
        "proc/self/mounts": "/dev/sda1 / ext4 rw 0 0\nserver:/home /home nfs4 rw 0 0\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two GPUs of 40 GiB; `apps` and `used` are files with their processes, and the memory used of the second one."""
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(
        f"""#!/bin/sh
case "$*" in
*query-gpu*) printf '0, GPU-a, A100, 40960, 3\\n1, GPU-b, A100, 40960, %s\\n' "$(cat {tmp_path}/used)";;
*) cat {tmp_path}/apps;;
esac
"""
    )
    program.chmod(0o755)
    (tmp_path / "used").write_text("3")
    (tmp_path / "apps").write_text("")
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return tmp_path


class TestFacts:
    def test_identity_and_size(self, root: Path) -> None:
        facts = read_facts(["etc/ssh/no_such_key.pub", "etc/ssh/ssh_host_ed25519_key.pub"], [], root)
        assert (facts.machine_id, facts.boot_id, facts.host_key) == ("0123", "4567", "ssh-ed25519 AAAA")
        assert facts.cpus > 0
        assert facts.memory_bytes > 0
        assert facts.free_bytes > 0
        assert facts.system.startswith(sys.platform.capitalize()[:5])

    def test_what_is_missing_is_empty(self, tmp_path: Path) -> None:
        facts = read_facts([], [], tmp_path / "empty")
        assert (facts.machine_id, facts.boot_id, facts.host_key, facts.tmp_noexec) == ("", "", "", False)

    @pytest.mark.parametrize(
        ("mounts", "noexec"),
        [
            ("/dev/sda1 / ext4 rw 0 0", False),
            ("/dev/sda1 / ext4 rw 0 0\ntmpfs /tmp tmpfs rw,noexec 0 0", True),
            ("/dev/sda1 / ext4 rw,noexec 0 0\ntmpfs /tmp tmpfs rw 0 0", False),
            ("tmpfs /tmp tmpfs rw,noexec 0 0\ntmpfs /tmpfoo tmpfs rw 0 0", True),
            ("tmpfs /tmp tmpfs rw,noexec 0 0\ntmpfs /tmp tmpfs rw 0 0", False),
        ],
    )
    def test_noexec_tmp(self, root: Path, mounts: str, noexec: bool) -> None:
        (root / "proc/self/mounts").write_text(mounts)
        assert read_facts([], [], root).tmp_noexec is noexec

    @pytest.mark.parametrize(
        ("config", "lingers", "ends"),
        [
            ("", False, False),
            ("[Login]\n#KillUserProcesses=yes\n", False, False),
            ("[Login]\nKillUserProcesses=yes\n", False, True),
            ("[Login]\nKillUserProcesses = yes\n", True, False),
            ("[Login]\nKillUserProcesses=yes\nKillUserProcesses=no\n", False, False),
        ],
    )
    def test_whether_systemd_ends_processes_at_logout(self, root: Path, config: str, lingers: bool, ends: bool) -> None:
        (root / "etc/systemd").mkdir()
        (root / "etc/systemd/logind.conf").write_text(config)
        user = read_facts([], [], root).user
        if lingers:
            (root / "var/lib/systemd/linger").mkdir(parents=True)
            (root / "var/lib/systemd/linger" / user).touch()
        assert read_facts([], [], root).ends_with_session is ends


class TestGpus:
    def test_without_the_program_there_are_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "/no/such/folder")
        assert read_gpus([]) == []

    def test_they_are_listed(self, smi: Path) -> None:
        assert [(gpu.index, gpu.name, gpu.memory_bytes, gpu.used_by) for gpu in read_gpus([])] == [
            (0, "A100", 40 * GiB, ""),
            (1, "A100", 40 * GiB, ""),
        ]

    def test_processes_of_others_use_one(self, smi: Path) -> None:
        (smi / "used").write_text("900")
        (smi / "apps").write_text("GPU-b, 1, 500\nGPU-b, 999999, [N/A]\n")
        assert [gpu.used_by for gpu in read_gpus([])] == ["", "process 1, process 999999 of others"]

    def test_our_own_jobs_do_not(self, smi: Path) -> None:
        machines = smi / "machines"
        (machines / "mch-1" / "attempts" / "att-1-0").mkdir(parents=True)
        env = {**os.environ, "CRUCIBLE_ATTEMPT_ID": "att-1"}
        code = "import sys; print(flush=True); sys.stdin.read()"
        job = subprocess.Popen([sys.executable, "-c", code], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            assert job.stdout is not None
            job.stdout.readline()
            (smi / "used").write_text("30000")
            (smi / "apps").write_text(f"GPU-b, {job.pid}, 29500\n")
            assert [gpu.used_by for gpu in read_gpus([machines])] == ["", ""]
            assert read_gpus([])[1].used_by == f"process {job.pid} of others", "a job of another deployment"
        finally:
            job.communicate()

    def test_memory_that_no_visible_process_explains_is_others(self, smi: Path) -> None:
        (smi / "used").write_text("5000")
        assert read_gpus([])[1].used_by == "others, with 5000 MiB of its memory"
