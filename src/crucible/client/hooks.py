"""Hooks of projects, over the API: addresses that are told what becomes of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from crucible.client.answers import read
from crucible.client.transport import Transport
from crucible.core.hooks import ENDS, HookEvent, HookFormat
from crucible.core.views.hooks import DeliveryPage, DeliveryView, HookPage, HookView

TEST_SECONDS = 60.0
"""A receiver has ten seconds; looking up its name may take as long."""


class Hooks:
    """A hook is named by its id, or an ending of it of three or more characters."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def listed(self, project: str) -> tuple[HookView, ...]:
        return read(HookPage, self._transport.request("GET", _path(project))).items

    def one(self, project: str, hook: str) -> HookView:
        return read(HookView, self._transport.request("GET", _path(project, hook)))

    def add(
        self,
        project: str,
        url: str,
        *,
        events: Sequence[HookEvent | str] = ENDS,
        format: HookFormat | str = HookFormat.JSON,
    ) -> HookView:
        """Its `secret` is what messages are signed with; it is not shown again."""
        body = {"url": url, "events": [str(event) for event in events], "format": str(format)}
        return read(HookView, self._transport.request("POST", _path(project), body=body))

    def change(
        self,
        project: str,
        hook: str,
        *,
        url: str | None = None,
        events: Sequence[HookEvent | str] | None = None,
        enabled: bool | None = None,
    ) -> HookView:
        """What is None stays as it is."""
        told = None if events is None else [str(event) for event in events]
        given = {"url": url, "events": told, "enabled": enabled}
        body = {name: value for name, value in given.items() if value is not None}
        return read(HookView, self._transport.request("PATCH", _path(project, hook), body=body))

    def rotate(self, project: str, hook: str) -> HookView:
        """With its new `secret`."""
        return read(HookView, self._transport.request("POST", _path(project, hook, "rotate")))

    def remove(self, project: str, hook: str) -> None:
        self._transport.request("DELETE", _path(project, hook))

    def test(self, project: str, hook: str) -> DeliveryView:
        """Sends a ping now; what the receiver answered."""
        response = self._transport.request("POST", _path(project, hook, "test"), seconds=TEST_SECONDS)
        return read(DeliveryView, response)

    def deliveries(self, project: str, hook: str, *, limit: int = 50) -> tuple[DeliveryView, ...]:
        """The last tries, newest first."""
        response = self._transport.request("GET", _path(project, hook, "deliveries"), query={"limit": limit})
        return read(DeliveryPage, response).items


def _path(project: str, *below: str) -> str:
    return "/".join(["/api/v1/projects", quote(project, safe=""), "hooks", *(quote(part, safe="") for part in below)])
