from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from crucible.storage.bundles import BundleStore
from crucible.storage.errors import HashMismatch, NotFound
from crucible.storage.open_store import open_store
from crucible.wire.files.bundle import collect, make_bundle
from crucible.wire.files.paths import UnsafePath

DATA = b"an archive" * 1000
SHA = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def bundles(tmp_path: Path) -> BundleStore:
    return BundleStore(open_store(str(tmp_path / "store")))


def pieces() -> Iterator[bytes]:
    for start in range(0, len(DATA), 777):
        yield DATA[start : start + 777]


def test_a_bundle_is_stored_once(bundles: BundleStore) -> None:
    assert not bundles.has(SHA)
    assert bundles.size(SHA) is None
    assert bundles.put(pieces(), SHA) is True
    assert bundles.put(pieces(), SHA) is False
    assert bundles.has(SHA)
    assert bundles.size(SHA) == len(DATA)


def test_reading_can_begin_anywhere(bundles: BundleStore) -> None:
    bundles.put(pieces(), SHA)
    assert b"".join(bundles.open(SHA)) == DATA
    assert b"".join(bundles.open(SHA, 1234)) == DATA[1234:]
    assert b"".join(bundles.open(SHA, 10, 20)) == DATA[10:20]
    with pytest.raises(NotFound):
        bundles.open("0" * 64)


def test_what_does_not_have_its_hash_is_not_stored(bundles: BundleStore) -> None:
    with pytest.raises(HashMismatch) as caught:
        bundles.put(iter([DATA, b"more"]), SHA)
    assert caught.value.http_status == 422
    assert not bundles.has(SHA)


def test_an_upload_that_breaks_off_is_not_stored(bundles: BundleStore) -> None:
    def breaks_off() -> Iterator[bytes]:
        yield DATA[:100]
        raise TimeoutError("the client went away")

    with pytest.raises(Exception, match="went away"):
        bundles.put(breaks_off(), SHA)
    assert not bundles.has(SHA)
    assert bundles.put(pieces(), SHA) is True


def test_a_hash_that_is_none_is_refused(bundles: BundleStore) -> None:
    for sha in ("", "../../x", SHA.upper()):
        with pytest.raises(UnsafePath):
            bundles.put(pieces(), sha)
        with pytest.raises(UnsafePath):
            bundles.has(sha)


def test_a_packed_bundle_goes_in_by_its_path(bundles: BundleStore, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("print(1)")
    bundle = make_bundle(collect(tmp_path / "code"), tmp_path / "packed")
    assert bundles.put(bundle.path, bundle.sha256) is True
    assert b"".join(bundles.open(bundle.sha256)) == bundle.path.read_bytes()
