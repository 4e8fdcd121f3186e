"""No address that a user names leads into our own network."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.core.errors import BadInput, CrucibleError, RefusedByPolicy, Unreachable
from crucible.integrations.addresses import Exceptions, Guard, Target, is_public, look_up, parse


class FakeResolver:
    """A resolver: what each name leads to, call by call; how often it was asked."""

    def __init__(self, **known: list[str] | str) -> None:
        self._known = {name.replace("_", "."): value for name, value in known.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        try:
            return [str(ipaddress.ip_address(host))]
        except ValueError:
            found = self._known.get(host, [])
            return [found] if isinstance(found, str) else found


OURS = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200", "100.127.255.255",
    "127.0.0.1", "127.9.9.9", "168.63.129.16", "169.254.0.1", "169.254.169.254", "169.254.170.2", "172.16.0.1",
    "172.31.255.255", "192.0.0.1", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.0.1", "192.168.255.255",
    "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.1.1", "240.0.0.1",
    "255.255.255.255", "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:8.8.8.8",
    "::ffff:0:127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b::808:808", "64:ff9b:1::1", "100::1",
    "2001::1", "2001:2::1", "2001:db8::1", "2002:7f00:1::", "2002:a9fe:a9fe::", "3fff::1", "5f00::1", "fc00::1",
    "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1",
]  # fmt: skip
FORMS = [
    "2130706433", "017700000001", "0x7f000001", "0x7f.1", "0x7f.0.0.1", "127.1", "127.0.1", "0177.0.0.1",
    "127.000.000.001", "0", "1", "127.0.0.1.nip.0x1", "256.0.0.1", "1.2.3.4.5", "0x", "0xA9FEA9FE", "2852039166",
    "[::1%25lo]", "[fe80::1%eth0]", "[::g]", "[127.0.0.1]",
]  # fmt: skip
NO_URLS = [
    "", "hooks.example", "//hooks.example", "ftp://hooks.example", "file:///etc/passwd", "gopher://x", "javascript:1",
    "HTTPX://a", "https://", "https:///path", "https://?x", "https://:443", "https://user@hooks.example",
    "https://user:password@hooks.example", "https://hooks.example:password@10.0.0.1", "https://@hooks.example",
    "https://hooks.example:99999", "https://hooks.example:0", "https://hooks.example:x", "https://hooks.example:-1",
    "https://[::1", "https://::1/", "https://hooks.example/a b", "https://hooks.example/\r\nHost: evil", "http://\x00",
    "https://hooks.example\\@evil.example", "https:\\\\hooks.example", "https://a..b", "https://-a-/",
    "https://" + "x" * 3000, "https://" + "a." * 130 + "b", "https://exa mple", "https://ex\tample", "https://ex%61mple",
    "https://hooks.example,10.0.0.1", "https://hooks;x", "https://*", "https://a/\x7f", "https://a/\ud800",
]  # fmt: skip


@pytest.mark.parametrize("address", OURS)
async def test_what_is_ours_or_nobodys_is_refused_however_it_is_named(address: str) -> None:
    assert not is_public(address)
    written = f"[{address}]" if ":" in address else address
    for url in (f"http://{written}/x", "https://hooks.example/x"):
        with pytest.raises(RefusedByPolicy) as caught:
            await Guard(FakeResolver(hooks_example=address)).target(url)
        assert "webhook_hosts" in caught.value.fix
        assert "crucible down, then crucible up" in caught.value.fix, "a server reads it when it starts"
        assert caught.value.http_status == 403


@pytest.mark.parametrize("form", FORMS)
async def test_other_ways_to_write_an_address_are_refused(form: str) -> None:
    names = FakeResolver()
    with pytest.raises(BadInput):
        await Guard(names).target(f"http://{form}/")
    assert names.asked == [], "nobody was asked what it might mean"


@pytest.mark.parametrize("url", NO_URLS)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse(url)
    assert "password" not in caught.value.what


@pytest.mark.enable_socket
@pytest.mark.parametrize("name", ["localhost", "localhost.", "LOCALHOST", "localhost.localdomain", "ip6-localhost"])
async def test_names_of_this_computer_lead_home_and_are_refused(name: str) -> None:
    async def here(host: str, port: int) -> list[str]:
        return look_up("localhost", port)

    with pytest.raises(RefusedByPolicy):
        await Guard(here).target(f"http://{name}:8080/")


async def test_one_bad_address_among_good_ones_is_enough() -> None:
    with pytest.raises(RefusedByPolicy, match=r"10\.0\.0\.1"):
        await Guard(FakeResolver(hooks_example=["1.1.1.1", "10.0.0.1"])).target("https://hooks.example/x")


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.216.34", "8.8.8.8", "172.32.0.1", "2606:4700:4700::1111"])
async def test_the_open_internet_is_open(address: str) -> None:
    assert is_public(address)
    target = await Guard(FakeResolver(hooks_example=address)).target("https://Hooks.Example.:8443/a?b=c#d")
    assert target == Target("https", "hooks.example", 8443, "/a?b=c", (address,))
    assert target.named == "hooks.example:8443"


async def test_a_name_is_looked_up_once_and_what_was_checked_is_what_is_called() -> None:
    class Rebinding(FakeResolver):
        async def __call__(self, host: str, port: int) -> list[str]:
            self.asked.append(host)
            return ["1.1.1.1"] if len(self.asked) == 1 else ["127.0.0.1"]

    names = Rebinding()
    assert (await Guard(names).target("http://rebind.example/")).addresses == ("1.1.1.1",)
    assert names.asked == ["rebind.example"]
    with pytest.raises(RefusedByPolicy):
        await Guard(names).target("http://rebind.example/")


async def test_an_administrator_may_allow_hosts_and_networks_of_his_own() -> None:
    allowed = Exceptions.parse(["Hooks.Internal.", "10.1.0.0/16", "[::1]", "127.0.0.1"])
    names = FakeResolver(
        hooks_internal="192.168.1.1", near="10.1.2.3", far="10.2.0.1", hooks_internal_evil="192.168.1.1"
    )
    guard = Guard(names, allowed)
    for url in ("http://hooks.internal", "http://near", "http://[::1]:99", "http://127.0.0.1"):
        assert (await guard.target(url)).addresses
    for url in ("http://far", "http://hooks.internal.evil", "http://127.0.0.2", "http://192.168.1.1"):
        with pytest.raises(RefusedByPolicy):
            await guard.target(url)


@pytest.mark.parametrize("name", ["", " ", "a b", "10.0.0.0/99", "http://x", "10.0.0.1/8", "*", "0x7f000001"])
def test_exceptions_that_nobody_can_mean_are_told(name: str) -> None:
    with pytest.raises(BadInput, match="webhook_hosts"):
        Exceptions.parse([name])


async def test_a_name_nobody_knows() -> None:
    with pytest.raises(Unreachable):
        await Guard(FakeResolver()).target("https://nothing.example")


@pytest.mark.enable_socket
def test_this_computer_says_when_it_does_not_know_a_name() -> None:
    with pytest.raises(Unreachable) as caught:
        look_up("a" * 64 + ".invalid", 80)
    assert "Check the name" in caught.value.fix


def test_names_of_other_letters_become_those_of_the_network() -> None:
    assert parse("https://bücher.example/ü").host == "xn--bcher-kva.example"


async def test_digits_of_other_letters_are_those_of_the_address_they_become() -> None:
    with pytest.raises(RefusedByPolicy):
        await Guard(FakeResolver()).target("http://①②⑦.0.0.1/")


@given(st.text(max_size=60) | st.from_regex(r"https?://[^/]{0,30}/.{0,10}"))
async def test_whatever_is_sent_is_parsed_or_refused(url: str) -> None:
    try:
        target = parse(url)
    except BadInput:
        return
    assert target.scheme in ("http", "https")
    assert target.host.isascii()
    assert not set(target.named) - set("abcdefghijklmnopqrstuvwxyz0123456789._-:[]")
    assert 0 < target.port < 65536
    assert target.path.startswith("/")


@given(st.ip_addresses(v=4) | st.ip_addresses(v=6))
def test_python_never_calls_private_what_we_call_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    if is_public(str(address)):
        known = (address.is_private, address.is_loopback, address.is_link_local, address.is_multicast)
        assert not any((*known, address.is_reserved, address.is_unspecified))


@given(st.ip_addresses(v=4))
async def test_an_address_inside_another_is_never_called(address: ipaddress.IPv4Address) -> None:
    number = int(address)
    high, low = f"{number >> 16:x}", f"{number & 0xFFFF:x}"
    for outer in (f"::ffff:{address}", f"64:ff9b::{high}:{low}", f"2002:{high}:{low}::1", f"::{high}:{low}"):
        with pytest.raises(CrucibleError):
            await Guard(FakeResolver()).target(f"http://[{outer}]/")
