"""Test the mailbox in a shared folder: writes are atomic, and never outside the mailbox."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from crucible.agent.link.channel import NoRoom
from crucible.agent.link.connection import Unreachable
from crucible.agent.storelink.mailbox import FolderMailbox
from crucible.storage import open_store


@pytest.fixture
def mail(tmp_path: Path) -> FolderMailbox:
    return FolderMailbox(tmp_path, "mch-1")


def test_what_is_put_can_be_read(mail: FolderMailbox, tmp_path: Path) -> None:
    mail.put("parties/host/alive", b"one", 3)
    mail.put("parties/host/alive", io.BytesIO(b"two"), 3)
    assert mail.get("parties/host/alive", 10) == b"two"
    assert dict(open_store(str(tmp_path)).list("mailboxes")) == {"mailboxes/mch-1/parties/host/alive": 3}


def test_what_is_not_there_is_none(mail: FolderMailbox) -> None:
    assert mail.get("claim", 10) is None
    mail.put("a/b", b"x", 1)
    assert mail.get("a", 10) is None
    assert mail.get("a/b/c", 10) is None


def test_what_is_too_large_is_none(mail: FolderMailbox) -> None:
    mail.put("claim", b"x" * 11, 11)
    assert mail.get("claim", 10) is None
    assert mail.get("claim", 11) == b"x" * 11


def test_create_only(mail: FolderMailbox) -> None:
    assert mail.put_new("claim", b"first")
    assert not mail.put_new("claim", b"second")
    assert mail.get("claim", 10) == b"first"


def test_nothing_unfinished_is_left_or_listed(mail: FolderMailbox, tmp_path: Path) -> None:
    class Torn(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise OSError(5, "the source cannot be read")

    with pytest.raises(OSError, match="source"):
        mail.put("blobs/x", Torn(), 3)
    assert list(open_store(str(tmp_path)).list("mailboxes")) == []
    assert [path for path in (tmp_path / "mailboxes").rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../../x", ""])
def test_names_stay_inside(mail: FolderMailbox, name: str) -> None:
    with pytest.raises(Unreachable):
        mail.get(name, 10)
    with pytest.raises(Unreachable):
        mail.put(name, b"x", 1)


def test_links_do_not_lead_out(mail: FolderMailbox, tmp_path: Path) -> None:
    mail.put("parties/host/alive", b"x", 1)
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    os.symlink(outside, tmp_path / "mailboxes/mch-1/parties/evil")
    with pytest.raises(Unreachable):
        mail.put("parties/evil/down", b"x", 1)
    assert list(outside.iterdir()) == []


def test_fetching_goes_on_in_the_middle(mail: FolderMailbox, tmp_path: Path) -> None:
    (tmp_path / "bundles").mkdir()
    (tmp_path / "bundles/x").write_bytes(b"0123456789")
    assert b"".join(mail.fetch("bundles/abc", "bundles/x", 4)) == b"456789"
    with pytest.raises(Unreachable, match="yet"):
        list(mail.fetch("bundles/abc", None, 0))
    with pytest.raises(Unreachable):
        list(mail.fetch("bundles/abc", "bundles/y", 0))


def test_a_full_store_is_told_apart(mail: FolderMailbox, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(NoRoom):
        mail.put("blobs/x", b"x", 1)
