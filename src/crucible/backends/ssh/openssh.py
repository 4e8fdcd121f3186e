"""Run the system's OpenSSH: its options, the pinned host keys, and what its errors mean.

A host's key is pinned at the first contact, in a file of our own: a key that the server's user has already accepted,
else the one that the host shows then. From then on no other key is accepted.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from crucible.backends.base import NotInstalled
from crucible.backends.ssh.settings import SshHost
from crucible.core.errors import Trouble, Unreachable
from crucible.wire.files.private import make_private

CONNECT_SECONDS = 8
ALIVE_SECONDS = 5
"""After three times as long without a sign of life, a connection counts as cut."""
LOOKUP_SECONDS = 5.0
SOCKET_PATH_BYTES = 90
"""ssh adds 17 bytes while it makes a socket, and the system allows about 104."""
_PASSED = frozenset({"PATH", "HOME", "USER", "LOGNAME", "SSH_AUTH_SOCK", "KRB5CCNAME", "TMPDIR"})
_OPTIONS = {
    "BatchMode": "yes",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "ClearAllForwardings": "yes",
    "PermitLocalCommand": "no",
    "RemoteCommand": "none",
    "RequestTTY": "no",
    "Tunnel": "no",
    "UpdateHostKeys": "no",
    "VerifyHostKeyDNS": "no",
    "CheckHostIP": "no",
    "EscapeChar": "none",
    "ControlPersist": "no",
    "StreamLocalBindMask": "0177",
    "StreamLocalBindUnlink": "yes",
    "ConnectTimeout": str(CONNECT_SECONDS),
    "ServerAliveInterval": str(ALIVE_SECONDS),
    "ServerAliveCountMax": "3",
    "LogLevel": "ERROR",
    "HashKnownHosts": "no",
}


_ALIAS = "pinned"
"""The name of every host in its own file of keys."""
_NO_CONNECTION = re.compile("ssh: connect to|kex_exchange|banner exchange|Connection (closed|reset|timed out) by")
_CHANGED_KEY = re.compile(r"The fingerprint for the (\S+) key sent by the remote host is (SHA256:[A-Za-z0-9+/]+)")
_ERRORS: Sequence[tuple[re.Pattern[str], str, str]] = [
    (re.compile(pattern), what, fix)
    for pattern, what, fix in (
        (
            "REMOTE HOST IDENTIFICATION HAS CHANGED|Host key for pinned has changed",
            "The host key of {name} has changed: another computer may answer in its place.",
            "If you know why, for example because it was installed anew: rm {pin}. The key that it has then is pinned"
            " at the next contact. If your own known_hosts has the old one: ssh-keygen -R {name}",
        ),
        (
            "Host key verification failed",
            "The host key of {name}, or of a host on the way to it, is not the one that is known.",
            "Log in by hand once, to see and accept it: ssh {login}",
        ),
        (
            r"Permission denied \([^)]*(password|keyboard-interactive)[^)]*\)",
            "The host {name} asks for a password; a key is needed.",
            "Give it yours: ssh-copy-id {login}. A key with a passphrase must be in the server's ssh agent.",
        ),
        (
            "Permission denied|Too many authentication failures",
            "The host {name} accepts none of the server's keys.",
            "Add your public key to its ~/.ssh/authorized_keys, or name the key in your ssh config (IdentityFile).",
        ),
        (
            "Could not resolve hostname|Name or service not known",
            "There is no host {name}.",
            "Check its name, or add it to the ssh config of the server's user.",
        ),
        (
            "Bad configuration option|Bad owner or permissions|terminating, .* bad configuration",
            "The ssh config of the server's user has an error, so {name} cannot be reached.",
            "Correct it: ssh -G {login} shows where it is.",
        ),
        (
            "Can't open user config file",
            "The ssh config of the setting `config` cannot be read, so {name} cannot be reached.",
            "Name another one: crucible backends connect ssh --config FILE. Empty: that of the server's user.",
        ),
    )
]
"""Patterns of what ssh prints, with what happened and the fix; the first match counts."""


class HostUnreachable(Unreachable):
    """The host does not answer, or does not let us in. `sent`: whether it may have got the request."""

    code = "host_unreachable"

    def __init__(self, what: str, *, why: str = "", fix: str = "", sent: bool = False) -> None:
        super().__init__(what, why=why, fix=fix)
        self.sent = sent


@dataclass(frozen=True)
class Output:
    code: int
    stdout: bytes
    stderr: str


@dataclass(frozen=True)
class OpenSsh:
    """`pins`: the folder of pinned host keys. `sockets`: the private folder of control sockets."""

    pins: Path
    sockets: Path
    config: str | None = None
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)

    def run(self, host: SshHost, command: Sequence[str], stdin: bytes, seconds: float) -> Output:
        """Run a command on the host, through its master if there is one, and return its output.

        Raises HostUnreachable. The options allow no command line that depends on the host's name or on a user's text.
        """
        output = self._ssh([*self._options(host), "-T", *self._destination(host), *command], stdin, seconds, host)
        if output.code == 255:
            raise self.explain(host, output.stderr)
        return output

    # The master, which holds the connection and the tunnel

    def control_path(self, host: SshHost) -> Path:
        return self.sockets / _digest(host.target)[:12]

    def start_master(self, host: SshHost) -> subprocess.Popen[bytes]:
        """Start the process that holds the connection. It opens no session, of which a host may allow only one."""
        arguments = [*self._options(host, master=True), "-N", "-T", *self._destination(host)]
        with open(self.master_log(host), "wb") as log:
            return self._popen(arguments, subprocess.DEVNULL, subprocess.DEVNULL, log)

    def lock_file(self, host: SshHost) -> Path:
        """Return the file whose lock a server holds while it makes a request to the host. Raises Trouble."""
        try:
            return make_private(self.sockets) / f"{self.control_path(host).name}.lock"
        except OSError as error:
            fix = "Remove it, or set XDG_RUNTIME_DIR where the server starts."
            raise Trouble("The folder for ssh's sockets could be another user's.", why=f"{error}.", fix=fix) from error

    def master_log(self, host: SshHost) -> Path:
        return self.control_path(host).with_suffix(".log")

    def control(self, host: SshHost, action: str, *arguments: str) -> Output:
        """Ask the master: `check`, `exit`, or `forward` and `cancel` with `-R`. Code 0 if it did so."""
        if not self.control_path(host).exists():
            return Output(255, b"", "there is no connection")
        command = [*self._control_options(host), "-O", action, *arguments, *self._destination(host)]
        try:
            return self._ssh(command, b"", LOOKUP_SECONDS, host)
        except HostUnreachable as error:
            return Output(255, b"", str(error))

    # Host keys

    def fingerprints(self, host: SshHost) -> list[str]:
        """Return the pinned keys of the host as `ED25519 SHA256:…`; none before the first contact."""
        return [f"{_key_name(kind)} {_fingerprint(key)}" for kind, key in self._pinned(host)]

    def pinned_key(self, host: SshHost) -> str:
        """Return the first pinned key, as in a .pub file; empty before the first contact."""
        return next((f"{kind} {key}" for kind, key in self._pinned(host)), "")

    def _pinned(self, host: SshHost) -> list[tuple[str, str]]:
        lines = [line.split() for line in _read(self.pin_file(host)).splitlines() if not line.startswith("@")]
        return [(words[1], words[2]) for words in lines if len(words) >= 3]

    def pin_file(self, host: SshHost) -> Path:
        return self.pins / f"{host.name.replace(':', '_')}-{_digest(host.target)[:8]}"

    def forget(self, host: SshHost) -> None:
        """Remove the pinned key, and what is left of the master."""
        for path in (self.pin_file(host), self.control_path(host), self.master_log(host), self.lock_file(host)):
            path.unlink(missing_ok=True)

    def remove_folders(self) -> None:
        """Remove the folders of keys and control sockets if they are empty."""
        for folder in (self.pins, self.sockets):
            with contextlib.suppress(OSError):
                folder.rmdir()

    def import_known_keys(self, host: SshHost) -> None:
        """Pin the keys that the server's user has accepted for this host, unless one is pinned."""
        if self.pin_file(host).exists():
            return
        names, files = self._known_as(host)
        lines = [line for file in files for name in names for line in self._known_keys(name, file)]
        self.pins.mkdir(mode=0o700, parents=True, exist_ok=True)
        if lines:
            text = "".join(f"{line}\n" for line in dict.fromkeys(lines))
            part = self.pin_file(host).with_suffix(f".{os.getpid()}")
            part.write_text(text, encoding="utf-8")
            part.replace(self.pin_file(host))

    def _known_as(self, host: SshHost) -> tuple[list[str], list[str]]:
        """Return the host's names in known_hosts files, and those files, by the user's own configuration."""
        output = self._ssh([*self._config(), "-G", *self._destination(host)], b"", LOOKUP_SECONDS, host)
        if output.code:
            raise self.explain(host, output.stderr)
        found: dict[str, list[str]] = {}
        for line in output.stdout.decode(errors="replace").splitlines():
            name, _, value = line.partition(" ")
            found.setdefault(name, value.split())
        (address, port) = (found.get("hostname") or [host.name])[0], (found.get("port") or ["22"])[0]
        names = found.get("hostkeyalias") or [address if port == "22" else f"[{address}]:{port}"]
        return names, [*found.get("userknownhostsfile", ()), *found.get("globalknownhostsfile", ())]

    def _known_keys(self, name: str, file: str) -> list[str]:
        path = os.path.expanduser(file)
        if not os.path.isfile(path):
            return []
        command = ["ssh-keygen", "-F", name, "-f", path]
        try:
            found = subprocess.run(command, capture_output=True, text=True, timeout=LOOKUP_SECONDS, check=False)
        except (OSError, subprocess.SubprocessError):
            return []
        return [_renamed(line, _ALIAS) for line in found.stdout.splitlines() if line and not line.startswith("#")]

    # Command lines

    def _config(self) -> list[str]:
        return ["-F", self.config] if self.config else []

    def _control_options(self, host: SshHost) -> list[str]:
        return [*self._config(), "-o", f"ControlPath={self.control_path(host)}"]

    def _options(self, host: SshHost, *, master: bool = False) -> list[str]:
        pinned = self.pin_file(host).exists()
        more = {
            **_OPTIONS,
            "ControlMaster": "yes" if master else "no",
            "StrictHostKeyChecking": "yes" if pinned else "accept-new",
            "UserKnownHostsFile": f'"{self.pin_file(host)}"',
            "GlobalKnownHostsFile": "/dev/null",
            "HostKeyAlias": _ALIAS,
        }
        return [*self._control_options(host), *(word for item in more.items() for word in ("-o", "=".join(item)))]

    def _destination(self, host: SshHost) -> list[str]:
        """Return the host as arguments. After `--` nothing is an option, and settings.py allows no other characters."""
        user = ["-l", host.user] if host.user else []
        port = ["-p", host.port] if host.port else []
        return [*user, *port, "--", host.name]

    def _environ(self) -> dict[str, str]:
        passed = {name: value for name, value in self.environ.items() if name in _PASSED}
        return {"PATH": os.defpath, "LC_ALL": "C", "SSH_ASKPASS_REQUIRE": "never", **passed}

    def _popen(
        self, arguments: Sequence[str], stdin: int, stdout: int, stderr: int | IO[bytes]
    ) -> subprocess.Popen[bytes]:
        """Start ssh in a session of its own: without a terminal it can ask for nothing."""
        try:
            return subprocess.Popen(
                ["ssh", *arguments],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                env=self._environ(),
                start_new_session=True,
            )
        except FileNotFoundError as error:
            fix = "Install it, for example: sudo apt-get install openssh-client"
            raise NotInstalled("The program ssh is not installed.", why=f"{error}.", fix=fix) from error
        except OSError as error:
            fix = "Install OpenSSH's client on the server's computer."
            raise Trouble("The program ssh cannot be started.", why=f"{error}.", fix=fix) from error

    def _ssh(self, arguments: Sequence[str], stdin: bytes, seconds: float, host: SshHost) -> Output:
        process = self._popen(arguments, subprocess.PIPE, subprocess.PIPE, subprocess.PIPE)
        try:
            stdout, stderr = process.communicate(stdin, timeout=seconds)
        except subprocess.TimeoutExpired as error:
            what = f"The host {host.name} did not answer within {seconds:g} seconds."
            raise HostUnreachable(what, fix=self.try_fix(host), sent=True) from error
        finally:
            if process.poll() is None:
                kill_session(process)
                process.communicate()
        return Output(process.returncode, stdout, stderr.decode(errors="replace"))

    # Errors

    def explain(self, host: SshHost, stderr: str) -> HostUnreachable:
        """Return the error for what ssh printed."""
        printed = " ".join(stderr.replace("\r", "").split())
        for pattern, what, fix in _ERRORS:
            if pattern.search(printed):
                words = {"name": host.name, "login": self.login(host), "pin": self.pin_file(host)}
                why = self._which_keys(host, printed) or _without_banner(printed)
                return HostUnreachable(what.format(**words), why=why, fix=fix.format(**words))
        what, sent = f"The host {host.name} does not answer.", not _NO_CONNECTION.search(printed)
        return HostUnreachable(what, why=_without_banner(printed), fix=self.try_fix(host), sent=sent)

    def login(self, host: SshHost) -> str:
        """Return the arguments with which the user reaches the host by hand, of ssh and ssh-copy-id."""
        port = ["-p", host.port] if host.port else []
        return shlex.join([*self._config(), *port, f"{host.user}@{host.name}" if host.user else host.name])

    def try_fix(self, host: SshHost) -> str:
        """Return the fix for a host that does not answer."""
        return f"Check whether this works: ssh {self.login(host)}"

    def _which_keys(self, host: SshHost, printed: str) -> str:
        """Return the key that a host shows and the pinned one; empty if ssh complains about something else."""
        shown = _CHANGED_KEY.search(printed)
        if shown is None:
            return ""
        return f"It shows {shown[1]} {shown[2]}, and {', '.join(self.fingerprints(host)) or 'another'} is pinned."


def kill_session(process: subprocess.Popen[bytes]) -> None:
    """Kill ssh and what it started: a proxy command, or the ssh of a jump."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def socket_folder(state: Path, environ: Mapping[str, str]) -> Path:
    """Return the folder of control sockets for this state folder. Its path is short, and it may not exist yet."""
    name = f"crucible-{os.geteuid()}-ssh-{_digest(str(state.resolve()))[:12]}"
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    usable = runtime.startswith("/") and os.path.isdir(runtime) and len(runtime) + len(name) < SOCKET_PATH_BYTES - 20
    return Path(runtime if usable else "/tmp", name)  # noqa: S108 - make_private refuses another user's folder


def _renamed(line: str, name: str) -> str:
    """Return a line of a known_hosts file with another name for the host."""
    marker = f"{line.split()[0]} " if line.startswith("@") else ""
    return f"{marker}{name} {' '.join(line[len(marker) :].split()[1:3])}"


def _fingerprint(key: str) -> str:
    try:
        digest = hashlib.sha256(base64.b64decode(key)).digest()
    except ValueError:
        return "unreadable"
    return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"


def _key_name(kind: str) -> str:
    return kind.removeprefix("ssh-").removeprefix("ecdsa-sha2-").upper()


def _without_banner(text: str) -> str:
    """Return the end of what ssh printed, as a sentence, without the banner that it draws around a warning."""
    printed = re.sub(r"@{3,}|\s@\s", "", text[-400:]).strip()
    return f"{printed}." if printed and printed[-1] not in ".!?" else printed


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()
