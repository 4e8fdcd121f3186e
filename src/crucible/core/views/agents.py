"""What agents are answered. Those of 0.1.0 read it too."""

from pydantic import Field

from crucible.core.views.base import PartialView, View, sometimes


class ClaimedView(View):
    """The machine's secret, for the host that claimed it."""

    secret: str = Field(repr=False)


class SessionCallView(View):
    """A session that the runner is to dial, `at` another address than its server's where that is not None."""

    id: str
    at: str | None = None


class DesiredAttemptView(PartialView):
    """What is wanted of one attempt. `settled`: it is over for us; `checkpoint` counts those asked for."""

    stop: bool = False
    settled: bool = False
    checkpoint: int = 0
    sessions: tuple[SessionCallView, ...] = sometimes(())


class SecretsView(View):
    """The variables of an attempt that are secrets, in the clear."""

    secrets: dict[str, str] = Field(repr=False)


class AckedView(View):
    """`acked` is the highest number stored."""

    acked: int
