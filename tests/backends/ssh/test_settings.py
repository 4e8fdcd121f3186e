from __future__ import annotations

import subprocess
import sys

import pytest
from pydantic import ValidationError

from crucible.backends.ssh.settings import SshHost, SshSettings


@pytest.mark.parametrize(
    ("target", "user", "name", "port"),
    [
        ("gpu1", "", "gpu1", ""),
        ("ann@gpu1", "ann", "gpu1", ""),
        ("ann@gpu1.lab.example.org:2222", "ann", "gpu1.lab.example.org", "2222"),
        ("10.0.0.7:22", "", "10.0.0.7", "22"),
        ("ann@[2001:db8::7]:22", "ann", "2001:db8::7", "22"),
        ("my_box-2", "", "my_box-2", ""),
    ],
)
def test_a_target_is_a_host_with_user_and_port(target: str, user: str, name: str, port: str) -> None:
    host = SshHost.model_validate(target)
    assert (host.user, host.name, host.port) == (user, name, port)


@pytest.mark.parametrize(
    "target",
    [
        "-oProxyCommand=touch /tmp/x",
        "--",
        "-v",
        "ann@-oProxyCommand=x",
        "-l@gpu1",
        "gpu1 -oProxyCommand=x",
        "gpu1;reboot",
        "$(reboot)",
        "`reboot`",
        "gpu1\nHost *",
        "gpu1:0",
        "gpu1:99999",
        "gpu1:22:22",
        "ann@ben@gpu1",
        "%h",
        "gpu1/",
        "*",
        "!gpu1",
        "",
        "gpü1",
        "[::1",
        "ssh://gpu1",
        "a" * 300,
    ],
)
def test_what_could_be_an_option_or_shell_is_refused(target: str) -> None:
    with pytest.raises(ValidationError, match="not the name of a host"):
        SshHost.model_validate(target)


def test_hosts_are_texts_tables_or_one_text_with_commas() -> None:
    settings = SshSettings.model_validate({"hosts": ["gpu1", {"target": "gpu2", "max_attempts": 2, "node": "rack-7"}]})
    assert [(host.target, host.max_attempts, host.node) for host in settings.hosts] == [
        ("gpu1", None, None),
        ("gpu2", 2, "rack-7"),
    ]
    assert [host.target for host in SshSettings.model_validate({"hosts": "gpu1, ann@gpu2"}).hosts] == [
        "gpu1",
        "ann@gpu2",
    ]


def test_they_are_stored_as_they_are_written() -> None:
    given = ["gpu1", {"target": "gpu2", "node": "rack-7"}]
    settings = SshSettings.model_validate({"hosts": given})
    assert settings.model_dump(mode="json")["hosts"] == given
    assert SshSettings.model_validate(settings.model_dump(mode="json")) == settings


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"hosts": ["gpu1", "gpu1"]}, "listed twice"),
        ({"hosts": [{"target": "gpu1", "node": "a/b"}]}, "cannot name a node"),
        ({"hosts": [{"target": "gpu1", "max_attempts": 0}]}, "greater than or equal to 1"),
        ({"host": ["gpu1"]}, "Extra inputs are not permitted"),
        ({"cache_bytes": -1}, "greater than or equal to 0"),
    ],
)
def test_bad_settings_are_refused(given: dict[str, object], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        SshSettings.model_validate(given)


def test_settings_are_read_without_the_backend() -> None:
    code = "import crucible.backends.ssh.settings, sys; print('crucible.backends.ssh.backend' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
