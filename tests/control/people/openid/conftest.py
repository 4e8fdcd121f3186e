from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from tests.authorisation.populated_app import PopulatedApp
from tests.control.conftest import harness, populated_app
from tests.openid_provider import CLIENT, ISSUER, SECRET, OpenIdProvider, transport

from crucible.control.people.openid import OpenIdLogin
from crucible.core.people.identity import OWNER, Identity
from crucible.core.people.openid import LoginResult, OpenIdClient, ProviderResponse, WaitingCommand
from crucible.core.secret import Secret
from crucible.core.views.people import AuditEntryView

__all__ = ["harness", "populated_app"]

BACK = "https://crucible.example.org/api/v1/login/oidc/callback"


def answer_of(url: str, browser: str | None, **more: str) -> ProviderResponse:
    """Return the response that a browser brings after a redirect to `url`."""
    brought = {**dict(parse_qsl(urlsplit(url).query)), **more}
    return ProviderResponse(
        brought.get("state"), brought.get("code"), brought.get("error"), brought.get("iss"), browser
    )


@dataclass
class OpenIdHarness:
    """Signs users in to a populated app through an OpenID provider."""

    populated_app: PopulatedApp
    provider: OpenIdProvider
    client: OpenIdClient

    def __post_init__(self) -> None:
        self.login = OpenIdLogin(self.populated_app.harness.ports, self.client, transport(self.provider))

    def rebuilt(self, **more: Any) -> OpenIdHarness:
        """Return the same with other settings, as after a restart."""
        return OpenIdHarness(self.populated_app, self.provider, replace(self.client, **more))

    async def away(self, path: str | None = None, command: WaitingCommand | None = None) -> ProviderResponse:
        """Go to the provider and back; return its response before it is checked."""
        begun = await self.login.begin(BACK, path=path, command=command)
        return answer_of(self.provider.browse(begun.url), begun.browser.reveal())

    async def sign_in(self, path: str | None = None, command: WaitingCommand | None = None) -> LoginResult:
        return await self.login.finish(await self.away(path, command))

    async def who(self, landing: LoginResult) -> Identity:
        assert landing.session is not None
        found = await self.populated_app.control.tokens.identify(str(landing.session.token))
        assert found is not None
        return found

    async def deeds(self) -> tuple[AuditEntryView, ...]:
        return (await self.populated_app.control.people.audit(OWNER, project=None, before=None, limit=20)).items


@pytest.fixture
async def openid_harness(populated_app: PopulatedApp) -> OpenIdHarness:
    """With a user with ada's e-mail address who has never signed in."""
    await populated_app.control.people.add_user(OWNER, "ada", email="Ada@Example.org")
    provider = OpenIdProvider(now=populated_app.harness.clock.now)
    return OpenIdHarness(populated_app, provider, OpenIdClient(ISSUER, CLIENT, Secret(SECRET)))
