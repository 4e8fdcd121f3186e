from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from crucible.control.db import NetworkFileSystem
from crucible.control.db.sqlite.filesystem import filesystem_of, is_network, mount_table, refuse_network

TABLE = r"""
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 27 0:40 / /home rw,relatime shared:2 master:3 - nfs4 server:/export/home rw,vers=4.2
31 30 8:1 / /home/ada/scratch rw,relatime - xfs /dev/sda1 rw
32 27 0:41 / /mnt/my\040disk rw,relatime - fuse.sshfs ada@host:/ rw
33 27 0:42 / /over rw,relatime - ext4 /dev/vdb rw
34 27 0:43 / /over rw,relatime - cifs //host/share rw
35 27 0:44 / /broken
"""


@pytest.mark.parametrize(
    ("path", "filesystem"),
    [
        ("/var/lib/crucible", "ext4"),
        ("/home/ada/.crucible", "nfs4"),
        ("/homestead/ada", "ext4"),
        ("/home/ada/scratch/crucible", "xfs"),
        ("/mnt/my disk/crucible", "fuse.sshfs"),
        ("/over/x", "cifs"),
        ("/proc", "proc"),
    ],
)
def test_the_deepest_and_latest_mount_counts(path: str, filesystem: str) -> None:
    assert filesystem_of(PurePosixPath(path), TABLE) == filesystem


def test_where_there_is_no_table_nothing_is_known_and_nothing_refused() -> None:
    assert filesystem_of(PurePosixPath("/x"), "") is None
    refuse_network(PurePosixPath("/x"), "")


@pytest.mark.parametrize(
    "filesystem",
    [
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "9p",
        "glusterfs",
        "lustre",
        "ceph",
        "afs",
        "fuse.sshfs",
        "fuse.s3fs",
        "fuse.rclone",
        "fuse.gcsfuse",
    ],
)
def test_network_file_systems_are_refused(filesystem: str) -> None:
    assert is_network(filesystem)
    table = f"27 1 254:0 / / rw - ext4 /dev/vda rw\n30 27 0:40 / /net rw - {filesystem} somewhere rw"
    with pytest.raises(NetworkFileSystem) as refusal:
        refuse_network(PurePosixPath("/net/home/crucible.db"), table)
    assert "CRUCIBLE_HOME" in refusal.value.fix
    assert filesystem in str(refusal.value)
    refuse_network(PurePosixPath("/local/crucible.db"), table)


@pytest.mark.parametrize(
    "filesystem",
    ["ext4", "xfs", "btrfs", "zfs", "overlay", "tmpfs", "apfs", "virtiofs", "fuseblk", "fuse.ntfs-3g"],
)
def test_local_file_systems_are_fine(filesystem: str) -> None:
    assert not is_network(filesystem)


def test_the_kernel_s_own_table_is_understood() -> None:
    table = mount_table()
    assert not table or filesystem_of(PurePosixPath("/"), table) is not None
