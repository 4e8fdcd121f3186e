"""The settings of a backend as one source has them: a table of a file, the environment, the database or a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class SettingsSource:
    """The raw values of one source, by field. `origin`: its name; `origins`: more exact names, by field."""

    origin: str
    values: Mapping[str, object] = field(repr=False)
    origins: Mapping[str, str] = field(default_factory=dict)
