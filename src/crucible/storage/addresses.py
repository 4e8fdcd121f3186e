"""Parse the addresses of stores."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from crucible.core.errors import BadInput
from crucible.storage.errors import StorageError
from crucible.wire.files.paths import UnsafePath, safe_name

FORMS = "Use a path, file:///path, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix."
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class BadAddress(BadInput, StorageError):
    """The text is not the address of a store. Its message never repeats credentials found in it."""

    code = "bad_address"


class Provider(StrEnum):
    """The provider of a bucket; the value is the scheme of its addresses."""

    S3 = "s3"
    GCS = "gs"
    AZURE = "az"


_SCHEMES = {
    "s3": Provider.S3,
    "gs": Provider.GCS,
    "az": Provider.AZURE,
    "azure": Provider.AZURE,
    "abfs": Provider.AZURE,
}


@dataclass(frozen=True)
class FolderAddress:
    path: Path

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True)
class BucketAddress:
    """A bucket. Everything is stored below `prefix`, which is "" or a safe name."""

    provider: Provider
    bucket: str
    prefix: str = ""

    def __str__(self) -> str:
        return f"{self.provider}://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")


Address = FolderAddress | BucketAddress


def parse_address(text: str) -> Address:
    """Parse a folder (a path or `file:///path`) or a bucket. Raises BadAddress."""
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise _bad("This text", str(error).capitalize() + ".", FORMS) from error
    if not parts.scheme:
        return FolderAddress(_folder(text))
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return FolderAddress(_folder(unquote(parts.path)))
    if parts.scheme not in _SCHEMES:
        raise _bad(_redacted(parts), "Its scheme is not supported.", FORMS)
    _refuse_credentials(parts)
    return BucketAddress(_SCHEMES[parts.scheme], _bucket(parts), _prefix(parts))


def _folder(path: str) -> Path:
    return Path(path).expanduser().absolute()


def _refuse_credentials(parts: SplitResult) -> None:
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise _bad(
            _redacted(parts),
            "Addresses appear in logs, so they must not contain credentials or options.",
            "Remove the part before '@' and everything from '?' or '#' on. "
            "Set store_access_key and store_secret_key for credentials.",
        )


def _bucket(parts: SplitResult) -> str:
    if not parts.netloc:
        raise _bad(
            _redacted(parts), "It names no bucket.", f"Write {parts.scheme}://bucket or {parts.scheme}://bucket/prefix."
        )
    if not _BUCKET.fullmatch(parts.netloc):
        raise _bad(
            _redacted(parts),
            f"{parts.netloc!r} is not the name of a bucket.",
            "Use the name of the bucket alone, and set store_endpoint for a server of your own.",
        )
    return parts.netloc


def _prefix(parts: SplitResult) -> str:
    prefix = parts.path.strip("/")
    try:
        return safe_name(prefix) if prefix else ""
    except UnsafePath as error:
        raise _bad(_redacted(parts), f"{error}.", "Choose another prefix.") from error


def _redacted(parts: SplitResult) -> str:
    """Return the address without parts that may be secret."""
    return repr(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}")


def _bad(text: str, why: str, fix: str) -> BadAddress:
    return BadAddress(f"{text} is not the address of a store.", why=why, fix=fix)
