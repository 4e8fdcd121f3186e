from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.storage.addresses import BadAddress, BucketAddress, FolderAddress, Provider, parse_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("/var/store", FolderAddress(Path("/var/store"))),
        ("sto re", FolderAddress(Path.cwd() / "sto re")),
        ("file:///var/sto%20re", FolderAddress(Path("/var/sto re"))),
        ("file://localhost/var/store", FolderAddress(Path("/var/store"))),
        ("s3://bucket", BucketAddress(Provider.S3, "bucket")),
        ("s3://bucket/", BucketAddress(Provider.S3, "bucket")),
        ("s3://my.bucket-1/a/b/", BucketAddress(Provider.S3, "my.bucket-1", "a/b")),
        ("S3://bucket/a", BucketAddress(Provider.S3, "bucket", "a")),
        ("gs://my_bucket/a%20b", BucketAddress(Provider.GCS, "my_bucket", "a%20b")),
        ("az://container/a", BucketAddress(Provider.AZURE, "container", "a")),
        ("azure://container", BucketAddress(Provider.AZURE, "container")),
        ("abfs://container/a", BucketAddress(Provider.AZURE, "container", "a")),
    ],
)
def test_addresses(text: str, address: object) -> None:
    assert parse_address(text) == address


def test_the_home_folder_is_known() -> None:
    assert parse_address("~/store") == FolderAddress(Path.home() / "store")


@given(
    st.sampled_from(Provider), st.from_regex(r"[a-z0-9][a-z0-9.-]{0,20}", fullmatch=True), st.sampled_from(["", "a/b"])
)
def test_a_bucket_address_is_read_back_as_it_is_written(provider: Provider, bucket: str, prefix: str) -> None:
    address = BucketAddress(provider, bucket, prefix)
    assert parse_address(str(address)) == address


@pytest.mark.parametrize("text", ["memory://", "https://host/x", "ftp://host", "file://host/x", "s4://bucket"])
def test_an_unknown_scheme_is_told_with_those_that_work(text: str) -> None:
    with pytest.raises(BadAddress) as caught:
        parse_address(text)
    for form in ("file:///path", "s3://", "gs://", "az://"):
        assert form in caught.value.fix
    assert caught.value.http_status == 422


@pytest.mark.parametrize("text", ["s3://", "s3:///a", "gs:bucket", "az://"])
def test_a_bucket_is_needed(text: str) -> None:
    with pytest.raises(BadAddress, match=r"names no bucket.*://bucket/prefix"):
        parse_address(text)


@pytest.mark.parametrize(
    "text",
    [
        "s3://key:hunter2@bucket/a",
        "s3://hunter2@bucket",
        "az://container/a?sig=hunter2",
        "gs://bucket#hunter2",
        "abfss://c:hunter2@account.dfs.core.windows.net/a",
        "https://u:hunter2@host/?x=hunter2",
        "s3://[hunter2",
    ],
)
def test_credentials_in_an_address_are_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(BadAddress) as caught:
        parse_address(text)
    assert "hunter2" not in f"{caught.value} {caught.value.data} {caught.value.__cause__}"


def test_credentials_have_another_place() -> None:
    with pytest.raises(BadAddress, match="store_secret_key"):
        parse_address("s3://key:secret@bucket")


@pytest.mark.parametrize("text", ["s3://localhost:9000/bucket", "s3://-bucket", "s3://b cket", "gs://b%20"])
def test_only_a_bucket_stands_where_the_bucket_stands(text: str) -> None:
    with pytest.raises(BadAddress, match="store_endpoint"):
        parse_address(text)


@pytest.mark.parametrize("prefix", ["../a", "a//b", "a/./b", "a\\b"])
def test_a_prefix_is_a_plain_name(prefix: str) -> None:
    with pytest.raises(BadAddress, match="another prefix"):
        parse_address(f"s3://bucket/{prefix}")
