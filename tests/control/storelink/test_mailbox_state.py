"""What a party may ask URLs for: its own batches and blobs, and what its assignment lets it read."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.control.harness import ControlHarness
from tests.control.storelink.test_invitations import Signing

from crucible.control.storelink.mailbox_state import MailboxParty, MailboxState
from crucible.control.storelink.mailboxes import Mailboxes
from crucible.wire.documents.mailbox import Heartbeat, checkpoint_blob, log_blob, segment_name

LIFE = "a" * 24
ME = MailboxParty("att-1.0", b"key")


@pytest.fixture
def store(harness: ControlHarness) -> Signing:
    return Signing(harness.ports.store)


@pytest.fixture
def box(harness: ControlHarness, store: Signing) -> MailboxState:
    return MailboxState(Mailboxes(replace(harness.ports, store=store)), "mch-1")  # type: ignore[arg-type]


async def _granted(box: MailboxState, *wants: str, keys: dict[str, str] | None = None) -> set[str]:
    urls = await box.urls(ME, Heartbeat(LIFE, 1, wants), keys or {})
    return set(urls) - {"PUT parties/att-1.0/alive", "GET parties/att-1.0/down"}


async def test_its_own(box: MailboxState) -> None:
    wants = {
        f"PUT {segment_name(ME.name, LIFE, 3)}",
        f"PUT {log_blob(ME.name, 1, '0' * 64)}",
        f"PUT {checkpoint_blob(ME.name, '0' * 64)}",
    }
    assert await _granted(box, *wants) == wants


async def test_what_it_is_to_read(box: MailboxState) -> None:
    keys = {"bundles/abc": "bundles/ab/abc.tar.gz"}
    assert await _granted(box, "GET bundles/abc", keys=keys) == {"GET bundles/abc"}
    assert await _granted(box, "GET bundles/other", "PUT bundles/abc", keys=keys) == set()


async def test_only_what_it_needs_while_the_control_plane_is_away_lasts_beyond_the_attempt(
    box: MailboxState, store: Signing
) -> None:
    keys = {"bundles/abc": "bundles/ab/abc.tar.gz", "checkpoints/def": "jobs/job-1/checkpoints/def"}
    segment, blob = segment_name(ME.name, LIFE, 3), log_blob(ME.name, 1, "0" * 64)
    await _granted(box, "GET bundles/abc", "GET checkpoints/def", f"PUT {segment}", f"PUT {blob}", keys=keys)
    brief = {want for want, seconds in store.seconds.items() if seconds <= 3600}
    assert brief == {f"GET {key}" for key in keys.values()} | {f"PUT mailboxes/mch-1/{blob}"}


@pytest.mark.parametrize(
    "want",
    [
        "PUT parties/att-1.0/down",
        "GET parties/att-1.0/alive",
        "PUT parties/att-2.0/alive",
        f"PUT {segment_name('att-2.0', LIFE, 1)}",
        "PUT parties/att-1.0/up/../down",
        f"PUT parties/att-1.0/up/../../att-2.0/up/{LIFE}-00000001",
        "PUT parties/att-1.0/blobs/../../host/down",
        "PUT claim",
        "PUT ../mch-2/claim",
        "DELETE claim",
        "PUT",
        "",
    ],
)
async def test_nothing_else(box: MailboxState, want: str) -> None:
    assert await _granted(box, want) == set()


async def test_the_same_is_not_said_twice(box: MailboxState, harness: ControlHarness) -> None:
    alive = Heartbeat(LIFE, 1)
    await box.write_down(ME, alive, {"ends_in": 10.0, "stop": False}, 5.0, {})
    first = harness.ports.store.get("mailboxes/mch-1/parties/att-1.0/down")
    await box.write_down(ME, alive, {"ends_in": 9.0, "stop": False}, 6.0, {})
    assert harness.ports.store.get("mailboxes/mch-1/parties/att-1.0/down") == first
    await box.write_down(ME, alive, {"ends_in": 9.0, "stop": True}, 6.0, {})
    assert harness.ports.store.get("mailboxes/mch-1/parties/att-1.0/down") != first
