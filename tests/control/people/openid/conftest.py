from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from tests.authorisation.town import Town
from tests.control.conftest import rig, town
from tests.openid_provider import CLIENT, ISSUER, SECRET, OpenIdProvider, transport

from crucible.control.people.openid import OpenIdLogin
from crucible.core.people.identity import OWNER, Identity
from crucible.core.people.openid import LoginResult, OpenIdClient, ProviderResponse, WaitingCommand
from crucible.core.secret import Secret
from crucible.core.views.people import AuditEntryView

__all__ = ["rig", "town"]

BACK = "https://crucible.example.org/api/v1/login/oidc/callback"


def answer_of(url: str, browser: str | None, **more: str) -> ProviderResponse:
    """What a browser brings that was sent to `url`."""
    brought = {**dict(parse_qsl(urlsplit(url).query)), **more}
    return ProviderResponse(
        brought.get("state"), brought.get("code"), brought.get("error"), brought.get("iss"), browser
    )


@dataclass
class Gatehouse:
    """Signing in to a town, its provider, and a person who comes and goes."""

    town: Town
    provider: OpenIdProvider
    client: OpenIdClient

    def __post_init__(self) -> None:
        self.login = OpenIdLogin(self.town.rig.ports, self.client, transport(self.provider))

    def rebuilt(self, **more: Any) -> Gatehouse:
        """The same with other settings, as after a restart."""
        return Gatehouse(self.town, self.provider, replace(self.client, **more))

    async def away(self, path: str | None = None, command: WaitingCommand | None = None) -> ProviderResponse:
        """To the provider and back, as far as the door."""
        begun = await self.login.begin(BACK, path=path, command=command)
        return answer_of(self.provider.browse(begun.url), begun.browser.reveal())

    async def sign_in(self, path: str | None = None, command: WaitingCommand | None = None) -> LoginResult:
        return await self.login.finish(await self.away(path, command))

    async def who(self, landing: LoginResult) -> Identity:
        assert landing.session is not None
        found = await self.town.control.tokens.identify(str(landing.session.token))
        assert found is not None
        return found

    async def deeds(self) -> tuple[AuditEntryView, ...]:
        return (await self.town.control.people.audit(OWNER, project=None, before=None, limit=20)).items


@pytest.fixture
async def house(town: Town) -> Gatehouse:
    """With a user whose address is ada's, who has never signed in."""
    await town.control.people.add_user(OWNER, "ada", email="Ada@Example.org")
    provider = OpenIdProvider(now=town.rig.clock.now)
    return Gatehouse(town, provider, OpenIdClient(ISSUER, CLIENT, Secret(SECRET)))
