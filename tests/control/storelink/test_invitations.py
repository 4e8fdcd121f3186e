"""Who is told to talk through the store, and with what."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.control.fakes import FakeBackend
from tests.control.harness import ControlHarness
from tests.control.storelink.harness import MailboxHarness

from crucible.backends.base import Reach
from crucible.control.storelink import Invitations, Mailboxes, store_folder
from crucible.control.storelink.mailboxes import URL_SECONDS
from crucible.core.channels import Channel
from crucible.storage import Store

HERE = "http://127.0.0.1:1"
AGENT = "ab" * 32


class TunnellingBackend(FakeBackend):
    def leave(self) -> None:
        pass


class Signing:
    """A store that signs, over another one."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.signed: list[tuple[str, str]] = []
        self.seconds: dict[str, int] = {}

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def signed_url(self, key: str, method: str, seconds: int) -> str:
        self.signed.append((key, method))
        self.seconds[f"{method} {key}"] = seconds
        return f"https://bucket/{key}?{method}&{len(self.signed)}"


def _place(reach: Reach) -> FakeBackend:
    backend = FakeBackend()
    backend.capabilities = replace(backend.capabilities, reach=reach)
    return backend


async def test_by_default_agents_call(mailbox_harness: MailboxHarness) -> None:
    postroom = Mailboxes(mailbox_harness.harness.ports, mailbox_harness.folder)
    invitations = Invitations(postroom, HERE, str(mailbox_harness.folder))
    assert await invitations.make_invitation(_place(Reach.SAME_COMPUTER), "mch-1") is None


async def test_a_folder_is_named(mailbox_harness: MailboxHarness) -> None:
    postroom = Mailboxes(mailbox_harness.harness.ports, mailbox_harness.folder)
    invitations = Invitations(postroom, HERE, str(mailbox_harness.folder), Channel.STORE)
    folder = str(mailbox_harness.folder)
    assert await invitations.make_invitation(_place(Reach.SAME_COMPUTER), "mch-1") == {"folder": folder}
    with_agent = await invitations.make_invitation(_place(Reach.SHARED_DIR), "mch-1", AGENT)
    assert with_agent == {"folder": folder, "agent_file": f"{folder}/agents/agent-{AGENT}.pyz"}


async def test_a_bucket_comes_with_urls_for_one_mailbox(harness: ControlHarness) -> None:
    store = Signing(harness.ports.store)
    postroom = Mailboxes(replace(harness.ports, store=store))  # type: ignore[arg-type]
    invited = await Invitations(postroom, HERE, "s3://bucket").make_invitation(_place(Reach.INTERNET), "mch-1")
    assert invited is not None
    urls = invited["urls"]
    assert isinstance(urls, dict)
    assert {"PUT claim", "PUT parties/host/alive", "GET parties/host/down"} <= set(urls)
    assert {key for key, _ in store.signed} == {
        "mailboxes/mch-1/claim",
        "mailboxes/mch-1/parties/host/alive",
        "mailboxes/mch-1/parties/host/down",
    }


async def test_a_machine_that_boots_by_the_script_gets_a_url_of_its_agent_file(harness: ControlHarness) -> None:
    postroom = Mailboxes(replace(harness.ports, store=Signing(harness.ports.store)))  # type: ignore[arg-type]
    invited = await Invitations(postroom, HERE, "s3://bucket").make_invitation(_place(Reach.INTERNET), "mch-1", AGENT)
    assert invited is not None
    assert str(invited["agent_file"]).startswith(f"https://bucket/agents/agent-{AGENT}.pyz?GET")


async def test_a_url_is_signed_again_before_it_runs_out(harness: ControlHarness) -> None:
    store = Signing(harness.ports.store)
    postroom = Mailboxes(replace(harness.ports, store=store))  # type: ignore[arg-type]
    first = await postroom.sign_urls({"PUT x": "mailboxes/m/x"})
    assert await postroom.sign_urls({"PUT x": "mailboxes/m/x"}) == first
    harness.clock.move(0.51 * URL_SECONDS)
    assert await postroom.sign_urls({"PUT x": "mailboxes/m/x"}) != first


def test_which_stores_are_folders(tmp_path: Path) -> None:
    assert store_folder(str(tmp_path)) == tmp_path
    assert store_folder(f"file://{tmp_path}") == tmp_path
    assert store_folder("s3://bucket/prefix") is None
    assert store_folder("") is None


async def test_a_tunnel_counts_only_where_the_backend_builds_one(mailbox_harness: MailboxHarness) -> None:
    invitations = Invitations(Mailboxes(mailbox_harness.harness.ports), HERE)
    without, building = _place(Reach.TUNNEL), TunnellingBackend()
    building.capabilities = without.capabilities
    assert invitations.channel(building).channel is Channel.TUNNEL
    rejected = invitations.rejection(without, secrets=False)
    assert rejected is not None
    assert "s3://" in rejected.fix
