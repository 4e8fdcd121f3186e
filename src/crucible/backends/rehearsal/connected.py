"""The backend as a server uses it: its cloud is started where it does not run, and stopped when nobody needs it."""

from __future__ import annotations

from functools import partial

from crucible.backends.rehearsal.backend import RehearsalBackend
from crucible.backends.rehearsal.start_cloud import start_cloud, stop_idle_cloud
from crucible.backends.settings import BackendSettings

STATE = "rehearsal"
LEAVE_SECONDS = 1.0


def connected(settings: BackendSettings) -> RehearsalBackend:
    """Starts nothing yet. A cloud that others use too is started for all, and is not ours to stop."""
    state = settings.rehearsal_state or settings.home / STATE
    keep_up = partial(start_cloud, state, python=settings.python)
    if settings.rehearsal_state is not None:
        return RehearsalBackend(settings, state, keep_up=keep_up)
    return RehearsalBackend(settings, state, keep_up=keep_up, leave=partial(stop_idle_cloud, state, LEAVE_SECONDS))
