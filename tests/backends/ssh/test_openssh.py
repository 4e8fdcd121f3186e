from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from crucible.backends.ssh.openssh import OpenSsh, socket_folder
from crucible.backends.ssh.settings import SshHost

KEY = "AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
HOST = SshHost.model_validate("ann@gpu1:2222")
ECHO = '#!/bin/sh\nfor word in "$@"; do printf \'%s\\n\' "$word"; done\n'


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with an `ssh` that prints its arguments."""
    folder = tmp_path / "bin"
    folder.mkdir()
    write_program(folder / "ssh", ECHO)
    return folder


@pytest.fixture
def ssh(tmp_path: Path, programs: Path) -> OpenSsh:
    return OpenSsh(tmp_path / "known_hosts", tmp_path / "sockets", environ={"PATH": f"{programs}:/usr/bin:/bin"})


def write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def words(ssh: OpenSsh, host: SshHost = HOST) -> list[str]:
    return ssh.run(host, ["true"], b"", 10).stdout.decode().splitlines()


class TestCommandLine:
    def test_the_host_follows_the_end_of_options(self, ssh: OpenSsh) -> None:
        assert words(ssh)[-7:] == ["-l", "ann", "-p", "2222", "--", "gpu1", "true"]

    @pytest.mark.parametrize(
        "option",
        ["BatchMode=yes", "ForwardAgent=no", "ClearAllForwardings=yes", "ControlMaster=no", "PermitLocalCommand=no"],
    )
    def test_it_asks_and_forwards_nothing(self, ssh: OpenSsh, option: str) -> None:
        assert option in words(ssh)

    def test_a_new_key_is_accepted_once(self, ssh: OpenSsh) -> None:
        assert "StrictHostKeyChecking=accept-new" in words(ssh)
        ssh.pins.mkdir()
        ssh.pin_file(HOST).write_text(f"pinned ssh-ed25519 {KEY}\n")
        assert "StrictHostKeyChecking=yes" in words(ssh)

    def test_ssh_gets_no_secret_of_the_server(self, tmp_path: Path, programs: Path, ssh: OpenSsh) -> None:
        write_program(programs / "ssh", "#!/bin/sh\nenv\n")
        given = {
            "PATH": f"{programs}:/usr/bin:/bin",
            "SSH_AUTH_SOCK": "/agent",
            "AWS_SECRET_ACCESS_KEY": "x",
            "CRUCIBLE_TOKEN": "x",
        }
        lines = words(OpenSsh(ssh.pins, ssh.sockets, environ=given))
        assert "SSH_AUTH_SOCK=/agent" in lines
        assert not [line for line in lines if line.endswith("=x")]


class TestKeys:
    def test_keys_that_the_user_accepted_are_taken_over(self, ssh: OpenSsh, programs: Path, tmp_path: Path) -> None:
        known = tmp_path / "mine"
        known.write_text(f"[10.0.0.7]:2222 ssh-ed25519 {KEY}\nother ssh-rsa AAAA\n")
        config = f"hostname 10.0.0.7\nport 2222\nuserknownhostsfile {known} /no/such/file\n"
        write_program(programs / "ssh", f"#!/bin/sh\ncat <<'E'\n{config}E\n")
        ssh.import_known_keys(HOST)
        assert ssh.pin_file(HOST).read_text() == f"pinned ssh-ed25519 {KEY}\n"
        assert ssh.pinned_key(HOST) == f"ssh-ed25519 {KEY}"
        (shown,) = ssh.fingerprints(HOST)
        assert shown.startswith("ED25519 SHA256:")

    def test_without_one_nothing_is_pinned_yet(self, ssh: OpenSsh, programs: Path) -> None:
        write_program(programs / "ssh", "#!/bin/sh\necho hostname gpu1\n")
        ssh.import_known_keys(HOST)
        assert not ssh.pin_file(HOST).exists()
        assert (ssh.fingerprints(HOST), ssh.pinned_key(HOST)) == ([], "")


@pytest.mark.parametrize(
    ("said", "what", "fix", "sent"),
    [
        (
            "ann@gpu1: Permission denied (publickey,password).",
            "asks for a password",
            "ssh-copy-id -p 2222 ann@gpu1",
            False,
        ),
        ("ann@gpu1: Permission denied (publickey).", "accepts none of the server's keys", "authorized_keys", False),
        (
            "@@@@@@@@@\n@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\n@@@@@@@@@\nHost key verification failed.",
            "host key of gpu1 has changed",
            "rm ",
            False,
        ),
        ("No ED25519 host key is known.\nHost key verification failed.", "not the one that is known", "by hand", False),
        ("ssh: Could not resolve hostname gpu1: Name or service not known", "no host gpu1", "ssh config", False),
        ("ssh: connect to host gpu1 port 22: Connection refused", "does not answer", "ssh -p 2222 ann@gpu1", False),
        ("ssh: connect to host gpu1 port 22: Connection timed out", "does not answer", "ssh -p 2222 ann@gpu1", False),
        (
            "kex_exchange_identification: read: Connection reset by peer",
            "does not answer",
            "ssh -p 2222 ann@gpu1",
            False,
        ),
        ("Connection to gpu1 closed by remote host.", "does not answer", "ssh -p 2222 ann@gpu1", True),
        ("client_loop: send disconnect: Broken pipe", "does not answer", "ssh -p 2222 ann@gpu1", True),
        ("/root/.ssh/config: line 3: Bad configuration option: foo", "has an error", "ssh -G", False),
        ("Can't open user config file /no: No such file or directory", "cannot be read", "--config FILE", False),
    ],
)
def test_errors_say_what_to_do(ssh: OpenSsh, said: str, what: str, fix: str, sent: bool) -> None:
    error = ssh.explain(HOST, said)
    assert what in error.what
    assert fix in error.fix
    assert error.sent is sent
    assert "@@@" not in error.why
    assert error.why.endswith(".")


def test_a_changed_key_is_shown_beside_the_pinned_one(ssh: OpenSsh) -> None:
    ssh.pins.mkdir(parents=True)
    ssh.pin_file(HOST).write_text("pinned ssh-ed25519 AAAA\n")
    error = ssh.explain(
        HOST,
        "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nSomeone could be eavesdropping on you right now!\n"
        "The fingerprint for the ED25519 key sent by the remote host is\nSHA256:9cmqDY/t+Q.\nPlease contact your "
        "system administrator.\nHost key for pinned has changed and you have requested strict checking.\n",
    )
    assert error.why == f"It shows ED25519 SHA256:9cmqDY/t+Q, and {ssh.fingerprints(HOST)[0]} is pinned."
    assert f"rm {ssh.pin_file(HOST)}" in error.fix


def test_the_command_of_a_fix_reaches_the_host_as_the_backend_does(ssh: OpenSsh) -> None:
    assert ssh.login(HOST) == "-p 2222 ann@gpu1"
    assert ssh.login(SshHost(target="box")) == "box"
    assert replace(ssh, config="/etc/my config").login(HOST) == "-F '/etc/my config' -p 2222 ann@gpu1"


class TestSockets:
    def test_their_folder_is_short_private_and_of_one_state_folder(self, tmp_path: Path) -> None:
        deep = tmp_path / ("long" * 30)
        folder = socket_folder(deep, {})
        assert folder.parent == Path("/tmp")
        assert len(str(OpenSsh(tmp_path, folder).control_path(HOST))) <= 90
        assert folder != socket_folder(tmp_path, {})

    def test_the_runtime_folder_is_preferred(self, tmp_path: Path) -> None:
        runtime = Path("/dev/shm")
        assert socket_folder(tmp_path, {"XDG_RUNTIME_DIR": str(runtime)}).parent == runtime
        assert socket_folder(tmp_path, {"XDG_RUNTIME_DIR": "/no/such/folder"}).parent == Path("/tmp")

    def test_a_folder_of_another_user_is_refused(self, ssh: OpenSsh) -> None:
        ssh.sockets.mkdir(mode=0o755)
        ssh.sockets.chmod(0o777)
        with pytest.raises(Exception, match="could be another user's"):
            ssh.lock_file(HOST)
        ssh.sockets.chmod(0o700)
        assert ssh.lock_file(HOST).parent == ssh.sockets
        assert stat.S_IMODE(ssh.sockets.stat().st_mode) == 0o700
