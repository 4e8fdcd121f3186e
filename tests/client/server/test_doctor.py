from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crucible.client.server.doctor import Check, CheckStatus, SystemInfo, check_machine, filesystem_of, is_network
from crucible.core.compute.resources import GiB, MiB

MOUNTS = """\
22 1 8:1 / / rw - ext4 /dev/sda1 rw
30 22 0:40 / /mnt/share\\040one rw - nfs4 host:/x rw
31 22 0:41 / /mnt/fuse rw - fuse.sshfs host: rw
"""


def checks(tmp_path: Path, home: Path | None = None, **changes: Any) -> dict[str, Check]:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(changes.pop("mounts", MOUNTS))
    defaults: dict[str, Any] = {"free": lambda _path: 50 * GiB, "can_listen": lambda: None, "mounts": mounts}
    machine = SystemInfo({"PATH": str(tmp_path)}, **{**defaults, **changes})
    return {check.name: check for check in check_machine(machine, home or tmp_path / "home")}


def test_a_sound_machine_has_nothing_broken(tmp_path: Path) -> None:
    found = checks(tmp_path)
    assert {check.state for check in found.values()} <= {CheckStatus.OK, CheckStatus.INFO, CheckStatus.WARNING}
    assert found["state folder"].state is CheckStatus.OK
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    ("free", "state"), [(50 * MiB, CheckStatus.BROKEN), (500 * MiB, CheckStatus.WARNING), (2 * GiB, CheckStatus.OK)]
)
def test_disk(tmp_path: Path, free: int, state: CheckStatus) -> None:
    found = checks(tmp_path, free=lambda _path: free)["disk"]
    assert found.state is state
    assert bool(found.fix) == (state is not CheckStatus.OK)


def test_an_old_python_a_wrong_clock_and_no_ports_are_broken(tmp_path: Path) -> None:
    assert checks(tmp_path, version=(3, 9, 1))["python"].state is CheckStatus.BROKEN
    assert checks(tmp_path, now=lambda: 0.0)["clock"].state is CheckStatus.BROKEN
    assert checks(tmp_path, can_listen=lambda: "no loopback")["ports"].state is CheckStatus.BROKEN


def test_a_home_that_is_no_folder_is_broken(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = checks(tmp_path, tmp_path / "file" / "home")["state folder"]
    assert found.state is CheckStatus.BROKEN
    assert "CRUCIBLE_HOME" in found.fix


def test_a_home_that_cannot_be_written_is_broken_and_says_why(tmp_path: Path) -> None:
    found = checks(tmp_path, cannot_write=lambda _folder: "Read-only file system")["state folder"]
    assert found.state is CheckStatus.BROKEN
    assert found.detail.endswith("cannot be written: Read-only file system")
    assert not [path for path in tmp_path.iterdir() if path.name != "mountinfo"], "looking leaves nothing"


def test_a_home_on_a_network_file_system_is_broken(tmp_path: Path) -> None:
    mounts = f"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 22 0:4 / {tmp_path.resolve()} rw - nfs4 host:/x rw\n"
    found = checks(tmp_path, mounts=mounts)["state folder"]
    assert found.state is CheckStatus.BROKEN
    assert "nfs4" in found.detail


def test_a_missing_tool_is_a_warning_with_the_way_to_get_it(tmp_path: Path) -> None:
    found = checks(tmp_path, executable=str(tmp_path / "python"))["git"]
    assert found.state is CheckStatus.WARNING
    assert "apt install git" in found.fix


def test_file_systems(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    assert filesystem_of(Path("/home/me"), mounts) == "ext4"
    assert filesystem_of(Path("/mnt/share one/x"), mounts) == "nfs4"
    assert filesystem_of(Path("/x"), tmp_path / "nosuch") is None
    assert is_network("nfs4")
    assert is_network("fuse.sshfs")
    assert not is_network("ext4")
    assert not is_network("fuse.fuse-overlayfs")
