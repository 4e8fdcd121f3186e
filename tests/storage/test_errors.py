from __future__ import annotations

import errno

import pytest
from obstore.exceptions import GenericError, PermissionDeniedError

from crucible.core import errors as core_errors
from crucible.storage.errors import (
    NoSuchStore,
    NotFound,
    StorageError,
    StoreDenied,
    StoreFull,
    StoreUnreachable,
    translate_errors,
)

PUT = "Generic S3 error: Error performing PUT http://host:9/bucket/k?x=hunter2 in 1ms"
DENIED = PermissionDeniedError("No privileges.")


def answered(status: str, code: str = "") -> GenericError:
    body = f"<Error><Code>{code}</Code><Message>Said so.</Message></Error>" if code else ""
    return GenericError(f"{PUT} - Server returned non-2xx status code: {status}: {body}\n\nDebug source:\nGeneric")


def silent(kind: str) -> GenericError:
    return GenericError(f"{PUT} - HTTP error: error sending request\n\nDebug source:\nHttpError {{ kind: {kind},")


@pytest.mark.parametrize(
    ("raised", "becomes"),
    [
        (FileNotFoundError("gone"), NotFound),
        (FileNotFoundError("404 <Code>NoSuchBucket</Code>"), NoSuchStore),
        (answered("404 Not Found", "ContainerNotFound"), NoSuchStore),
        (OSError(errno.ENOSPC, "No space left on device"), StoreFull),
        (GenericError("Generic LocalFileSystem error: no (os error 28)"), StoreFull),
        (answered("507 Insufficient Storage"), StoreFull),
        (answered("403 Forbidden", "QuotaExceeded"), StoreFull),
        (answered("401 Unauthorized"), StoreDenied),
        (answered("403 Forbidden", "AccessDenied"), StoreDenied),
        (DENIED, StoreDenied),
        (GenericError("Error performing PUT http://169.254.169.254/latest/api/token - HTTP error: x"), StoreDenied),
        (answered("500 Internal Server Error"), StoreUnreachable),
        (answered("503 Service Unavailable", "SlowDown"), StoreUnreachable),
        (answered("429 Too Many Requests"), StoreUnreachable),
        (silent("Connect"), StoreUnreachable),
        (silent("Timeout"), StoreUnreachable),
        (silent("Decode"), StoreUnreachable),
        (answered("400 Bad Request"), StorageError),
        (OSError(errno.EIO, "Input/output error"), StorageError),
        (GenericError(""), StorageError),
    ],
)
def test_what_a_store_raises_has_one_kind(raised: Exception, becomes: type[StorageError]) -> None:
    with pytest.raises(StorageError) as caught, translate_errors("some/key", "s3://bucket"):
        raise raised
    assert type(caught.value) is becomes
    assert caught.value.data["key"] == "some/key"
    assert "\n" not in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert caught.value.fix or becomes in (NotFound, StorageError)


def test_the_cause_is_told_in_words() -> None:
    for raised, why in (
        (silent("Connect"), "No server responds at http://host:9."),
        (silent("Timeout"), "The server at http://host:9 did not respond in time."),
        (silent("Request"), "The connection to the server at http://host:9 was lost."),
        (
            answered("503 Service Unavailable", "SlowDown"),
            "It responded with 503 Service Unavailable: SlowDown: Said so.",
        ),
    ):
        with pytest.raises(StoreUnreachable) as caught, translate_errors("k", "s3://bucket"):
            raise raised
        assert caught.value.why == why
        assert caught.value.what == "The store s3://bucket cannot be reached."


def test_callers_tell_by_the_kind_what_to_do() -> None:
    assert issubclass(StoreUnreachable, core_errors.Unreachable)
    assert issubclass(StoreFull, core_errors.DiskFull)
    # A store that refuses the server says nothing about who asks the server.
    assert not issubclass(StoreDenied, core_errors.NotAllowed)


def test_a_signature_in_a_url_does_not_reach_a_traceback() -> None:
    with pytest.raises(StorageError) as caught, translate_errors("k", "az://container"):
        raise GenericError("Error performing GET https://a.blob/c/k?sig=hunter2 - HTTP error: x")
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_an_error_names_the_key_and_one_line_of_the_cause() -> None:
    with pytest.raises(StorageError) as caught, translate_errors("some/key"):
        raise OSError(errno.EIO, "Input/output error")
    assert caught.value.data["key"] == "some/key"
    assert "Input/output error" in caught.value.why
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("number", "fix"),
    [(errno.EMFILE, "ulimit -n"), (errno.EROFS, "read-only"), (errno.EIO, "has errors"), (errno.EBUSY, "'store'")],
)
def test_every_failure_says_what_to_do(number: int, fix: str) -> None:
    with pytest.raises(StorageError) as caught, translate_errors("k"):
        raise OSError(number, "no")
    assert fix in caught.value.fix
