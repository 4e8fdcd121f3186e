"""Responses to agents. Those of version 0.1.0 read them too."""

from pydantic import Field

from crucible.core.views.base import PartialView, View, sometimes


class ClaimedView(View):
    """The machine's secret, for the host that claimed it."""

    secret: str = Field(repr=False)


class SessionCallView(View):
    """A session that the runner should dial; `at` is the address if it is not that of its own server."""

    id: str
    at: str | None = None


class DesiredAttemptView(PartialView):
    """The desired state of one attempt. `settled`: it has ended for the server; `checkpoint` counts requested ones."""

    stop: bool = False
    settled: bool = False
    checkpoint: int = 0
    sessions: tuple[SessionCallView, ...] = sometimes(())


class SecretsView(View):
    """The secret variables of an attempt, in clear text."""

    secrets: dict[str, str] = Field(repr=False)


class AckedView(View):
    """`acked` is the highest number stored."""

    acked: int
