"""The settings of the backend `rehearsal`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from crucible.backends.settings import BackendSettings, setting


class RehearsalSettings(BackendSettings):
    """Which simulated cloud it rents from."""

    state: Annotated[Path, AfterValidator(lambda path: path.expanduser().absolute())] | None = setting(
        None, description="Folder of a simulated cloud that several deployments share (default: one of its own)."
    )
