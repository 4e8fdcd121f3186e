"""Hosts with a real sshd, each in network, mount, process and host name spaces of its own.

Each has its own /etc/machine-id, boot id, host key, home, /tmp and address, so that it counts as a computer of its own.
A `Network` joins them by a bridge; its `config` is the ssh config of the server's user. Needs root on Linux.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

USER, UID = "ann", 20001
SSHD = "/usr/sbin/sshd"
_SUBNETS = range(20, 250)
_UNSHARE = ("unshare", "--net", "--mount", "--propagation", "slave", "--uts", "--pid", "--fork", "--mount-proc")
_NUMBERS = iter(range(1, 10**6))
_SSHD_CONFIG = """\
HostKey /etc/ssh/ssh_host_ed25519_key
AuthorizedKeysFile /etc/ssh/authorized_keys
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
UseDNS no
MaxStartups 100
"""
_SET_UP = """\
set -e
name=$2 missing=$3 tmp_options=$4 home=$5
cd "$1"
shift 5
mount --make-rslave /
hostname "$name"
for folder in "$@"; do
    mkdir -p "shared$folder"
    mount --bind "$folder" "shared$folder"
done
if [ -f machine-id ]; then mount --bind machine-id /etc/machine-id; fi
mount --bind boot_id /proc/sys/kernel/random/boot_id
mount --bind etc-ssh /etc/ssh
mount --bind passwd /etc/passwd
mount -t tmpfs tmpfs /run
mkdir -p /run/sshd /run/empty
mount -t tmpfs tmpfs /home
mkdir /home/ann
mount --bind "$home" /home/ann
for file in $missing; do mount --bind not-there "$file"; done
if [ -f fake-bin/nvidia-smi ]; then mount --bind fake-bin /usr/local/bin; fi
if [ -f uname ]; then mount --bind uname /usr/bin/uname; fi
ip link set lo up
mount --bind "$PWD/tmp" /tmp
if [ -n "$tmp_options" ]; then mount -o "remount,bind,$tmp_options" /tmp; fi
if [ $# != 0 ]; then mount -t tmpfs tmpfs /root; fi
for folder in "$@"; do
    mkdir -p "$folder"
    mount --bind "shared$folder" "$folder"
done
exec /usr/sbin/sshd -D -e -f /etc/ssh/sshd_config
"""


def why_not() -> str:
    """Return why no such hosts can be made here; empty if they can."""
    if os.geteuid() != 0:
        return "name spaces of the network need root"
    missing = [tool for tool in (SSHD, "ssh", "ip", "unshare") if not shutil.which(tool)]
    if missing:
        return f"missing: {', '.join(missing)} (apt-get install openssh-server iproute2 util-linux)"
    tried = subprocess.run([*_UNSHARE, "true"], capture_output=True, text=True, check=False)
    return f"no name spaces here: {tried.stderr.strip()}" if tried.returncode else ""


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout


def until(check: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, "this did not become true in time"
        time.sleep(0.02)


class Network:
    """A bridge of this computer to which hosts are attached. `folder`: where hosts keep their files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hosts: dict[str, SshHost] = {}
        self._subnet, self._lock = _claim_subnet()
        self.bridge = f"cru{os.getpid() % 100000}n{next(_NUMBERS)}"
        run("ip", "link", "add", self.bridge, "type", "bridge")
        run("ip", "addr", "add", f"{self._subnet}.1/24", "dev", self.bridge)
        run("ip", "link", "set", self.bridge, "up")
        self.key = folder / "id"
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key))
        self.known_hosts = folder / "known_hosts"
        self.config = folder / "ssh_config"
        self.more_config = ""
        self.write_config()

    @property
    def own_address(self) -> str:
        return f"{self._subnet}.1"

    def add(self, name: str, **changes: object) -> SshHost:
        """Start a host, and wait until its sshd answers."""
        address = f"{self._subnet}.{10 + len(self.hosts)}"
        host = SshHost(self, name, address, self.folder / name, **changes)  # type: ignore[arg-type]
        self.hosts[name] = host
        self.write_config()
        host.start()
        return host

    def write_config(self) -> None:
        """Write the ssh config of the server's user, in which each host has its name."""
        blocks = [f"Host {name}\n  HostName {host.address}\n" for name, host in self.hosts.items()]
        everywhere = f"Host *\n  User {USER}\n  IdentityFile {self.key}\n  IdentitiesOnly yes\n"
        accepted = f"  UserKnownHostsFile {self.known_hosts}\n"
        self.config.write_text(self.more_config + "".join(blocks) + everywhere + accepted)

    def close(self) -> None:
        for host in self.hosts.values():
            host.stop()
        run("ip", "link", "del", self.bridge)
        self._lock.close()


@dataclass
class SshHost:
    """One host. `sshd`: more lines for its sshd_config. `missing`: files that it does not have.

    `machine_id`: None for that of this computer. `tmp_options`: how /tmp is mounted there. `shell`: the login shell.
    `shared`: folders of this computer that it has at the same path, where its user can read them.
    """

    network: Network
    name: str
    address: str
    folder: Path
    sshd: str = ""
    machine_id: str | None = field(default_factory=lambda: uuid.uuid4().hex)
    boot_id: str | None = field(default_factory=lambda: str(uuid.uuid4()))
    missing: Sequence[str] = ()
    tmp_options: str = ""
    shell: str = "/bin/bash"
    home: Path | None = None
    gpus: str = ""
    system: str = ""
    shared: Sequence[Path] = ()
    process: subprocess.Popen[bytes] | None = None
    _interface: str = ""

    def start(self) -> None:
        self._write()
        arguments = [str(self.folder), self.name, " ".join(self.missing), self.tmp_options, str(self.disk)]
        with open(self.folder / "sshd.log", "ab") as log:
            self.process = subprocess.Popen(
                [*_UNSHARE, "--kill-child=KILL", "sh", "-c", _SET_UP, "sh", *arguments, *map(str, self.shared)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
            )
        until(lambda: self._namespace("net") != os.readlink("/proc/self/ns/net"))
        self._interface = f"cv{os.getpid() % 100000}n{next(_NUMBERS)}"
        inside = ["nsenter", "-t", str(self.process.pid), "--net", "ip"]
        pid = str(self.process.pid)
        run("ip", "link", "add", self._interface, "type", "veth", "peer", "name", "eth0", "netns", pid)
        run("ip", "link", "set", self._interface, "master", self.network.bridge, "up")
        run(*inside, "addr", "add", f"{self.address}/24", "dev", "eth0")
        run(*inside, "link", "set", "eth0", "up")
        until(self.answers)

    def answers(self) -> bool:
        """Return whether sshd sends its banner. Asked by a process of its own, as tests may open no sockets."""
        command = ["ssh-keyscan", "-T", "2", "-t", "ed25519", self.address]
        done = subprocess.run(command, capture_output=True, timeout=10, check=False)
        return b"ssh-ed25519" in done.stdout

    def kill(self) -> None:
        """End the host at once, with every process on it; its disk stays."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
            # The kernel removes it too, some time after the last process.
            subprocess.run(["ip", "link", "del", self._interface], capture_output=True, check=False)
            subprocess.run(["ip", "neigh", "flush", "dev", self.network.bridge], capture_output=True, check=False)

    stop = kill

    def restart(self) -> None:
        """Start the host again after `kill`: another boot of the same computer."""
        self.kill()
        self.boot_id = str(uuid.uuid4()) if self.boot_id else None
        self.start()

    def cut(self) -> None:
        """Cut the host off the network."""
        run("ip", "link", "set", self._interface, "down")

    def join(self) -> None:
        """Connect it again."""
        run("ip", "link", "set", self._interface, "up")

    def new_host_key(self) -> None:
        for name in ("ssh_host_ed25519_key", "ssh_host_ed25519_key.pub"):
            (self.folder / "etc-ssh" / name).unlink()
        self.restart()

    @property
    def disk(self) -> Path:
        """The home of the user there, as a path of this computer."""
        return self.home or self.folder / "home"

    @property
    def fingerprint(self) -> str:
        public = str(self.folder / "etc-ssh/ssh_host_ed25519_key.pub")
        return run("ssh-keygen", "-l", "-f", public).split()[1]

    def processes(self) -> dict[int, str]:
        """Return the command line of every process there except sshd, by its pid here."""
        found = {}
        space = self._namespace("pid_for_children")
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                inside = os.readlink(entry / "ns/pid") == space
                if inside and command and not command.startswith(("sshd:", SSHD)):
                    found[int(entry.name)] = command
        return found

    def mounts_left(self) -> list[str]:
        """Return mounts below the user's home."""
        mounts = self.run("cat", "/proc/self/mounts", user=False).splitlines()
        return [line for line in mounts if f"/home/{USER}/" in line.split()[1]]

    def run(self, *command: str, user: bool = True) -> str:
        """Run a command there, as the user or as root."""
        drop = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups"] if user else []
        return run("nsenter", "-t", str(self._init()), "--mount", "--pid", "--net", "--uts", *drop, *command)

    def files_left(self) -> list[str]:
        """Return files in the home, below .crucible, except caches; and what is ours in /tmp."""
        ours = self.disk / ".crucible"
        files = [path.relative_to(ours).parts for path in ours.rglob("*") if not path.is_dir()]
        left = ["/".join(parts) for parts in files if parts[3:4] not in (("agent",), ("cache",), ("envs",))]
        return left + [path.name for path in (self.folder / "tmp").iterdir() if path.name.startswith("crucible")]

    def _init(self) -> int:
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0])

    def _namespace(self, kind: str) -> str:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "sshd.log").read_text()
        with contextlib.suppress(OSError):
            return os.readlink(f"/proc/{self.process.pid}/ns/{kind}")
        return ""

    def _write(self) -> None:
        etc = self.folder / "etc-ssh"
        for path in (etc, self.folder / "home", self.folder / "tmp"):
            path.mkdir(parents=True, exist_ok=True)
        self.disk.mkdir(exist_ok=True)
        os.chown(self.disk, UID, UID)
        (self.folder / "tmp").chmod(0o1777)
        if not (etc / "ssh_host_ed25519_key").exists():
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(etc / "ssh_host_ed25519_key"))
        (etc / "sshd_config").write_text(self.sshd + _SSHD_CONFIG)
        if not (etc / "authorized_keys").exists():
            shutil.copy(f"{self.network.key}.pub", etc / "authorized_keys")
        if self.machine_id is not None:
            (self.folder / "machine-id").write_text(f"{self.machine_id}\n" if self.machine_id else "")
        own = Path("/proc/sys/kernel/random/boot_id").read_text()
        (self.folder / "boot_id").write_text(f"{self.boot_id}\n" if self.boot_id else own)
        lines = [
            "root:*:0:0:root:/root:/bin/bash",
            "sshd:*:105:65534::/run/sshd:/usr/sbin/nologin",
            f"{USER}:*:{UID}:{UID}::/home/{USER}:{self.shell}",
        ]
        (self.folder / "passwd").write_text("\n".join(lines) + "\n")
        (self.folder / "not-there").write_text("")
        if self.system:
            _write_program(self.folder / "uname", f"echo {self.system}")
        if self.gpus:
            (self.folder / "fake-bin").mkdir(exist_ok=True)
            _write_program(self.folder / "fake-bin" / "nvidia-smi", self.gpus)


def _write_program(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def _claim_subnet() -> tuple[str, IO[str]]:
    """Return the first three parts of the addresses of a network that no other test uses, and its lock."""
    for number in _SUBNETS:
        file = open(f"/tmp/crucible-ssh-tests-{number}.lock", "w")  # noqa: SIM115 - held until the network is closed
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            continue
        return f"10.213.{number}", file
    raise AssertionError("every network for tests is in use")


@contextlib.contextmanager
def network(folder: Path) -> Iterator[Network]:
    made = Network(folder)
    try:
        yield made
    finally:
        made.close()
