"""Parse failures of a store's client from their text, because the client has no types for most of them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

_OS_ERROR = re.compile(r"\(os error (\d+)\)")
_STATUS = re.compile(r"status code: (\d{3})([A-Za-z ]*)")
_CODE = re.compile(r"<Code>([^<]+)</Code>")
_MESSAGE = re.compile(r"<Message>([^<\n]+)")
_SERVER = re.compile(r"Error performing [A-Z]+ (\w+://[^/\s?]+)")
_QUERY = re.compile(r"\?\S+")
_INSTANCE = re.compile(r"://(169\.254\.169\.254|169\.254\.170\.2|metadata[./:])|/latest/api/token|/computeMetadata/")

_NO_BUCKET = {"NoSuchBucket", "ContainerNotFound"}
_NO_ROOM = {"InsufficientStorage", "QuotaExceeded", "StorageFull", "XMinioStorageFull", "AccountIsFull"}
_DENIED = {401, 403}
_BUSY = {408, 429}
_FULL = 507
_LONGEST = 300


@dataclass(frozen=True)
class ClientError:
    """A failure of the client.

    `text` is its message, `detail` its debugging text; `status` and `code` come from the server's response.
    """

    text: str
    detail: str = ""
    errno: int | None = None
    status: int | None = None
    code: str = ""
    refused: bool = False

    @classmethod
    def from_exception(cls, error: Exception) -> ClientError:
        text, _, detail = str(error).partition("\n\nDebug source:")
        if isinstance(error, OSError) and error.errno is not None:
            return cls(text, errno=error.errno)
        number, status, code = _OS_ERROR.search(text), _STATUS.search(text), _CODE.search(text)
        return cls(
            text or type(error).__name__,
            detail,
            int(number.group(1)) if number else None,
            int(status.group(1)) if status else None,
            code.group(1) if code else "",
            isinstance(error, PermissionDeniedError | UnauthenticatedError),
        )

    @property
    def no_bucket(self) -> bool:
        return self.code in _NO_BUCKET

    @property
    def full(self) -> bool:
        return self.status == _FULL or self.code in _NO_ROOM

    @property
    def no_credentials(self) -> bool:
        """Whether the client found no credentials and asked this machine's metadata service, which has none either."""
        return bool(_INSTANCE.search(self.text))

    @property
    def denied(self) -> bool:
        return self.refused or self.status in _DENIED

    @property
    def unreachable(self) -> bool:
        if self.status is not None:
            return self.status >= 500 or self.status in _BUSY
        return "HTTP error" in self.text and "BadScheme" not in self.detail

    @property
    def shows_secrets(self) -> bool:
        """Whether the text contains a URL with a signature, as those of Azure have."""
        return "sig=" in self.text or "sig=" in self.detail

    @property
    def why(self) -> str:
        """Return the reason in one line, without the query of any URL."""
        if self.no_credentials:
            return "None are set, and this machine has none of its own."
        if self.status is not None:
            return _sentence(f"It responded with {self._response()}")
        if self.unreachable:
            return self._no_response()
        if "BadScheme" in self.detail:
            return "Its endpoint begins with http://, which is allowed only if store_endpoint does too."
        return _QUERY.sub("?...", self.text.splitlines()[0])[:_LONGEST]

    def _response(self) -> str:
        status, message = _STATUS.search(self.text), _MESSAGE.search(self.text)
        name = (status.group(1) + status.group(2)).strip() if status else ""
        return ": ".join(part for part in (name, self.code, message.group(1).strip() if message else "") if part)

    def _no_response(self) -> str:
        server = _SERVER.search(self.text)
        at = f" at {server.group(1)}" if server else ""
        if "kind: Timeout" in self.detail:
            return f"The server{at} did not respond in time."
        if "kind: Connect" in self.detail:
            return f"No server responds{at}."
        return f"The connection to the server{at} was lost."


def _sentence(text: str) -> str:
    return text[:_LONGEST].rstrip(". ") + "."
