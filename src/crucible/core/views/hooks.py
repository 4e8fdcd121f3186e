"""Hooks and their deliveries."""

from crucible.core.views.base import PartialView, View, sometimes


class DeliveryView(PartialView):
    """One delivery attempt. `status` is the receiver's; null if there was no response, and `answer` says why."""

    id: str
    type: str
    job: str | None = None
    at: str | None = None
    seconds: float = 0.0
    outcome: str
    status: int | None = None
    answer: str | None = None
    hook: str = sometimes("")

    @property
    def delivered(self) -> bool:
        return self.outcome == "delivered"


class HookView(PartialView):
    """A hook. `secret` is only in the response that creates or rotates it."""

    id: str
    project: str
    url: str
    events: tuple[str, ...] = ()
    format: str = "json"
    state: str
    enabled: bool
    disabled_why: str | None = None
    failures: int = 0
    failing_since: str | None = None
    given_up: int = 0
    next_try_at: str | None = None
    last: DeliveryView | None = None
    created_at: str | None = None
    made_by: str = ""
    rotated_at: str | None = None
    secret: str | None = sometimes(None, repr=False)


class HookPage(View):
    items: tuple[HookView, ...]


class DeliveryPage(View):
    items: tuple[DeliveryView, ...]
