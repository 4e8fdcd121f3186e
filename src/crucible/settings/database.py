"""The address of a database server, with its password hidden."""

from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass(frozen=True)
class DatabaseUrl:
    """Prints without its password; `reveal()` is the one way out."""

    _url: str = field(repr=False)

    def reveal(self) -> str:
        return self._url

    def __str__(self) -> str:
        hidden = re.sub(r"(//[^:/?@]*):.*@", r"\1:***@", self._url, count=1)
        return re.sub(r"([?&](?:ssl)?password=)[^&]*", r"\1***", hidden)

    def __repr__(self) -> str:
        return f"DatabaseUrl({str(self)!r})"
