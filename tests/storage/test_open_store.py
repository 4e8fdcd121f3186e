from __future__ import annotations

from pathlib import Path

import pytest

from crucible.core.errors import BadInput
from crucible.core.secret import Secret
from crucible.storage.addresses import BadAddress
from crucible.storage.buckets import BucketStore
from crucible.storage.errors import StorageError
from crucible.storage.open_store import open_store
from crucible.storage.options import StoreOptions

HALF = StoreOptions(secret_key=Secret("hunter2"))


def test_a_folder_is_opened_by_path_or_url(tmp_path: Path) -> None:
    open_store(str(tmp_path / "new/sto re")).put("k", b"1")
    assert open_store((tmp_path / "new/sto re").as_uri()).get("k") == b"1"
    assert open_store(f"file://localhost{tmp_path}/new/sto%20re").get("k") == b"1"


def test_a_store_where_a_file_is_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError):
        open_store(str(tmp_path / "file"))


def test_a_bad_address_is_told() -> None:
    with pytest.raises(BadAddress, match="file:///path"):
        open_store("memory://")


def test_a_bucket_is_opened_without_reaching_it() -> None:
    account = StoreOptions(access_key=Secret("account"), secret_key=Secret("c2VjcmV0"))
    for url, options in (("s3://bucket/a", None), ("gs://bucket", None), ("az://container", account)):
        store = open_store(url, options)
        assert isinstance(store, BucketStore)
        assert str(store.address) == url
        assert store.free_bytes() is None


@pytest.mark.parametrize(
    ("url", "options", "fix"),
    [
        ("s3://bucket", HALF, "both store_access_key and store_secret_key"),
        ("s3://bucket", StoreOptions(access_key=Secret("hunter2")), "both store_access_key and store_secret_key"),
        ("az://container", HALF, "store_access_key to the name of the storage account"),
        ("gs://bucket", StoreOptions(access_key=Secret("hunter2")), "JSON text of a service account's key"),
    ],
)
def test_options_that_do_not_fit_are_told_with_the_fix(url: str, options: StoreOptions, fix: str) -> None:
    with pytest.raises(BadInput) as caught:
        open_store(url, options)
    assert fix in caught.value.fix
    assert "hunter2" not in str(caught.value)


def test_a_key_the_client_cannot_read_is_not_repeated() -> None:
    with pytest.raises(StorageError) as caught:
        open_store("gs://bucket", StoreOptions(secret_key=Secret('{"private_key": "hunter2"')))
    assert "hunter2" not in f"{caught.value} {caught.value.__cause__}"


def test_an_azure_store_needs_its_account(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(StorageError, match="Account"):
        open_store("az://container")


def test_options_show_no_secrets() -> None:
    assert "hunter2" not in f"{HALF!r} {HALF}"


def test_plain_http_has_to_be_said() -> None:
    assert not StoreOptions().plain_http
    assert not StoreOptions("https://host").plain_http
    assert StoreOptions("http://host").plain_http
    assert StoreOptions(allow_http=True).plain_http
