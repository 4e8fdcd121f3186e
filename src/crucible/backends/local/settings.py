"""The settings of the backend `local`."""

from __future__ import annotations

from crucible.backends.settings import BackendSettings


class LocalSettings(BackendSettings):
    """This computer needs no settings of its own."""
