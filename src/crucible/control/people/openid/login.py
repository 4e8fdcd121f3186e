"""The sign-in with an OpenID provider: redirect the browser to it, check its response, and start a session."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar
from urllib.parse import urlencode

import httpx2
from sqlalchemy import Connection

from crucible.control.people import tokens, users
from crucible.control.people.openid import signins
from crucible.control.people.openid.admission import admit
from crucible.control.people.openid.provider import Provider
from crucible.control.people.openid.signins import SignIn
from crucible.control.people.openid.transport import trouble
from crucible.control.runtime.ports import Ports
from crucible.core.errors import BadInput, NotAllowed, TimedOut
from crucible.core.ids import Prefix
from crucible.core.people.identity import Identity, LoginMethod
from crucible.core.people.openid import (
    LoginRedirect,
    LoginRefusal,
    LoginResult,
    OpenIdClient,
    ProviderIdentity,
    ProviderResponse,
    WaitingCommand,
    make_challenge,
    validate_local_path,
)
from crucible.core.secret import Secret
from crucible.core.views.people import TokenView

LANE = "openid"
SIGN_IN_SECONDS = 600.0
"""Time that a user has at the provider."""
FETCH_SECONDS = 120.0
"""Time in which a command has to fetch its session."""
CALL_SECONDS = 30.0
"""Longer than all requests of one sign-in together: for tokens, keys and the e-mail address."""
T = TypeVar("T")


class OpenIdLogin:
    def __init__(self, ports: Ports, client: OpenIdClient, transport: httpx2.BaseTransport) -> None:
        self._ports = ports
        self._client = client
        self._provider = Provider(client, transport)

    @property
    def name(self) -> str:
        """Display name of the provider."""
        return self._client.name

    @property
    def creates_users(self) -> bool:
        """Whether a first login creates a user that no administrator has added."""
        return self._client.project is not None

    @property
    def issuer(self) -> str:
        return self._client.issuer

    async def begin(
        self, redirect_uri: str, *, path: str | None = None, command: WaitingCommand | None = None
    ) -> LoginRedirect:
        """Return where to redirect the browser.

        The provider sends it back to `redirect_uri`. Then it goes to `path`, or hands a code over to `command`.
        """
        if path is not None:
            validate_local_path(path)
        new = SignIn(self._client.issuer, redirect_uri, path, command)
        url = await self._call_provider(lambda: self._provider.authorization_url(new))
        await self._ports.write(lambda conn, now: signins.begin(conn, new, now, SIGN_IN_SECONDS))
        return LoginRedirect(url, Secret(new.browser))

    async def finish(self, response: ProviderResponse) -> LoginResult:
        """Complete a sign-in with the response that the browser brings from the provider.

        Raises NotAllowed, Forbidden or BadInput, and ProviderTrouble for a failure of the provider.
        """
        signin = await self._take_signin(response)
        code = _code_of(response)
        now = self._ports.clock.now()
        person = await self._call_provider(lambda: self._provider.identify(signin, code, response.issuer, now))
        who = await self._admit(person)
        if signin.command is not None:
            return LoginResult(who.name, handover=await self._hand_over(who, signin.command))
        return LoginResult(who.name, await self._start_session(who, LoginMethod.BROWSER), signin.path)

    async def fetch(self, code: str, verifier: str) -> TokenView:
        """Start the session of a command, with the code that its listener got. Raises NotAllowed."""
        challenge = make_challenge(verifier)
        who = await self._ports.write(lambda conn, now: _take_code(conn, code, challenge, now))
        if who is None:
            raise NotAllowed(
                "This code is not valid.",
                why="It works once, within two minutes, and only for the command that requested it.",
                fix="Run `crucible login` again.",
            )
        return await self._start_session(who, LoginMethod.SESSION)

    async def _start_session(self, who: Identity, via: LoginMethod) -> TokenView:
        id = self._ports.ids.new(Prefix.TOKEN)
        return await self._ports.write(lambda conn, now: tokens.start_session(conn, who, id, now, via))

    async def _call_provider(self, work: Callable[[], T]) -> T:
        """Run `work` in the provider's own lane, so that a provider that hangs delays only sign-ins."""
        try:
            return await self._ports.calls.run(LANE, work, CALL_SECONDS)
        except TimedOut as error:
            raise trouble(self._client.issuer, f"It did not respond within {CALL_SECONDS:g} s.") from error

    async def _take_signin(self, response: ProviderResponse) -> SignIn:
        """Return the sign-in that the response belongs to, and remove it. Raises NotAllowed."""
        state, browser = response.state or "", response.browser or ""
        signin = await self._ports.write(lambda conn, now: signins.take(conn, state, browser, now))
        if signin is None or signin.issuer != self._client.issuer:
            raise NotAllowed(
                "This sign-in was not started here, or it has ended.",
                why="It works once, within ten minutes, in the browser that started it.",
                fix="Start again at /login of this server, or with `crucible login`.",
            )
        return signin

    async def _admit(self, person: ProviderIdentity) -> Identity:
        new_user = self._ports.ids.new(Prefix.USER)
        result = await self._ports.write(lambda conn, now: admit(conn, self._client, person, new_user, now))
        if isinstance(result, LoginRefusal):
            raise result.error
        return result

    async def _hand_over(self, who: Identity, command: WaitingCommand) -> str:
        """Return the URL that brings a code for a session to the waiting command."""
        code, user, challenge = signins.random_text(), who.user, command.challenge
        await self._ports.write(lambda conn, now: signins.hand_over(conn, code, user, challenge, now, FETCH_SECONDS))
        return f"http://127.0.0.1:{command.port}/?{urlencode({'code': code, 'state': command.echo})}"


def _code_of(response: ProviderResponse) -> str:
    """Return the code of the response. Raises NotAllowed or BadInput if it has none."""
    if response.error is not None:
        raise NotAllowed(
            "The provider did not sign you in.",
            why=f"Its error is {response.error[:100]!r}.",
            fix="Sign in again and give your consent there, or ask the provider's administrators.",
        )
    if not response.code:
        raise BadInput("The provider's response has no code.", fix="Sign in again.", field="code")
    return response.code


def _take_code(conn: Connection, code: str, challenge: str, now: float) -> Identity | None:
    user = signins.fetch(conn, code, challenge, now)
    row = None if user is None else users.get_user(conn, user)
    if row is None or row["disabled_at"] is not None:
        return None
    return users.session_identity(row)
