"""Which way agents can talk with the control plane."""

from __future__ import annotations

import pytest

from crucible.core.channels import Channel, Reach, check_channel, choose_channel, is_loopback

HERE = "http://127.0.0.1:4000"
OPEN = "https://crucible.example.org"
FOLDER = "/srv/crucible"
BUCKET = "s3://bucket/prefix"


@pytest.mark.parametrize(
    ("reach", "server", "store", "wanted", "channel"),
    [
        (Reach.SAME_COMPUTER, HERE, FOLDER, Channel.HTTPS, Channel.HTTPS),
        (Reach.SAME_COMPUTER, HERE, FOLDER, Channel.STORE, Channel.STORE),
        (Reach.SAME_COMPUTER, HERE, BUCKET, Channel.STORE, Channel.STORE),
        (Reach.SAME_COMPUTER, "", "", Channel.HTTPS, None),
        (Reach.LOOPBACK, HERE, FOLDER, Channel.HTTPS, Channel.HTTPS),
        (Reach.LOOPBACK, HERE, FOLDER, Channel.STORE, Channel.HTTPS),
        (Reach.LOOPBACK, "", FOLDER, Channel.STORE, None),
        (Reach.LOOPBACK, HERE, BUCKET, Channel.STORE, Channel.STORE),
        (Reach.SHARED_DIR, HERE, FOLDER, Channel.HTTPS, Channel.STORE),
        (Reach.SHARED_DIR, HERE, "file:///srv/crucible", Channel.HTTPS, Channel.STORE),
        (Reach.SHARED_DIR, OPEN, FOLDER, Channel.HTTPS, Channel.HTTPS),
        (Reach.MOUNT, HERE, FOLDER, Channel.HTTPS, Channel.STORE),
        (Reach.INTERNET, OPEN, FOLDER, Channel.HTTPS, Channel.HTTPS),
        (Reach.INTERNET, OPEN, FOLDER, Channel.STORE, Channel.HTTPS),
        (Reach.INTERNET, HERE, BUCKET, Channel.HTTPS, Channel.STORE),
        (Reach.INTERNET, HERE, "az://container", Channel.HTTPS, Channel.STORE),
        (Reach.INTERNET, HERE, FOLDER, Channel.HTTPS, None),
        (Reach.INTERNET, "", "", Channel.HTTPS, None),
        (Reach.LOOPBACK, "", "", Channel.HTTPS, None),
        (Reach.TUNNEL, HERE, FOLDER, Channel.HTTPS, None),
        (Reach.TUNNEL, HERE, BUCKET, Channel.HTTPS, Channel.STORE),
        (Reach.TUNNEL, OPEN, FOLDER, Channel.HTTPS, Channel.HTTPS),
    ],
)
def test_choice(reach: Reach, server: str, store: str, wanted: Channel, channel: Channel | None) -> None:
    choice = choose_channel(reach, server, store, wanted)
    assert choice.channel is channel
    assert choice.why


@pytest.mark.parametrize(
    ("server", "store", "wanted", "channel"),
    [
        (HERE, FOLDER, Channel.HTTPS, Channel.TUNNEL),
        (OPEN, FOLDER, Channel.STORE, Channel.TUNNEL),
        (HERE, BUCKET, Channel.STORE, Channel.STORE),
        ("", FOLDER, Channel.HTTPS, None),
    ],
)
def test_a_tunnel_is_chosen_where_the_backend_builds_one(
    server: str, store: str, wanted: Channel, channel: Channel | None
) -> None:
    assert choose_channel(Reach.TUNNEL, server, store, wanted, tunnels=True).channel is channel


@pytest.mark.parametrize("reach", list(Reach))
def test_where_there_is_none_the_setting_is_named(reach: Reach) -> None:
    choice = choose_channel(reach, "", "")
    assert (choice.channel is None) == ("store" in choice.fix)


def test_a_place_on_the_internet_needs_a_bucket() -> None:
    assert "s3://" in choose_channel(Reach.INTERNET, HERE, FOLDER).fix


@pytest.mark.parametrize(
    ("store", "private", "secrets", "lacking", "rejected"),
    [
        (BUCKET, False, False, "", False),
        (BUCKET, False, False, "/usr/bin/python3", True),
        (FOLDER, False, False, "/usr/bin/python3", True),
        (FOLDER, True, False, "/usr/bin/python3", False),
        (FOLDER, True, True, "/usr/bin/python3", True),
        (FOLDER, True, True, "", False),
    ],
)
def test_what_has_to_be_encrypted_needs_a_package(
    store: str, private: bool, secrets: bool, lacking: str, rejected: bool
) -> None:
    choice = choose_channel(Reach.SAME_COMPUTER, HERE, store, Channel.STORE)
    found = check_channel(choice, private=private, secrets=secrets, lacking=lacking)
    assert (found is not None) is rejected
    assert found is None or found.fix == "Install it there: /usr/bin/python3 -m pip install cryptography."
    https = choose_channel(Reach.SAME_COMPUTER, HERE, store)
    assert check_channel(https, private=private, secrets=secrets, lacking=lacking) is None


def test_without_a_channel_nothing_can_run() -> None:
    found = check_channel(choose_channel(Reach.INTERNET, HERE, FOLDER), private=True, secrets=False, lacking="")
    assert found is not None
    assert "s3://" in found.fix


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (HERE, True),
        ("http://[::1]:80", True),
        ("http://localhost:80", True),
        ("http://0.0.0.0:80", True),
        (OPEN, False),
        ("http://10.0.0.1:80", False),
    ],
)
def test_loopback(url: str, expected: bool) -> None:
    assert is_loopback(url) is expected
