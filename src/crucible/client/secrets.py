"""Secrets of projects, over the API: set, listed by name, removed. Values go there and never come back."""

from urllib.parse import quote

from crucible.client.answers import read
from crucible.client.transport import Transport
from crucible.core.views.people import RotationView, SecretPage, SecretView

ROTATE_SECONDS = 600.0


class Secrets:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def listed(self, project: str) -> tuple[SecretView, ...]:
        return read(SecretPage, self._transport.request("GET", _path(project))).items

    def set(self, project: str, name: str, value: str) -> SecretView:
        """Again is harmless: the last value stays."""
        response = self._transport.request("PUT", _path(project, name), body={"value": value}, repeat=True)
        return read(SecretView, response)

    def remove(self, project: str, name: str) -> None:
        self._transport.request("DELETE", _path(project, name))

    def rotate(self) -> RotationView:
        response = self._transport.request("POST", "/api/v1/secrets/rotate", seconds=ROTATE_SECONDS)
        return read(RotationView, response)


def _path(project: str, name: str | None = None) -> str:
    below = "" if name is None else f"/{quote(name, safe='')}"
    return f"/api/v1/projects/{quote(project, safe='')}/secrets{below}"
