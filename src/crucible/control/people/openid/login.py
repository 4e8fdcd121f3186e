"""Signing in with a provider: away to it, back from it, and a session in the end."""

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
from crucible.core.people.identity import Identity
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
AWAY_SECONDS = 600.0
"""Seconds that a user may take at the provider."""
FETCH_SECONDS = 120.0
CALL_SECONDS = 30.0
"""More than the provider is asked at most for one sign-in: for its tokens, its keys, and an address."""
T = TypeVar("T")


class OpenIdLogin:
    def __init__(self, ports: Ports, client: OpenIdClient, transport: httpx2.BaseTransport) -> None:
        self._ports = ports
        self._client = client
        self._provider = Provider(client, transport)

    @property
    def name(self) -> str:
        """The provider's name for people."""
        return self._client.name

    @property
    def makes_users(self) -> bool:
        """Whether people come in whom no administrator made."""
        return self._client.project is not None

    @property
    def issuer(self) -> str:
        return self._client.issuer

    async def begin(
        self, redirect_uri: str, *, path: str | None = None, command: WaitingCommand | None = None
    ) -> LoginRedirect:
        """Where to send the browser. It comes back to `redirect_uri`, and ends at `path` or at `command`."""
        if path is not None:
            validate_local_path(path)
        new = SignIn(self._client.issuer, redirect_uri, path, command)
        url = await self._asked(lambda: self._provider.way(new))
        await self._ports.write(lambda conn, now: signins.begin(conn, new, now, AWAY_SECONDS))
        return LoginRedirect(url, Secret(new.browser))

    async def finish(self, answer: ProviderResponse) -> LoginResult:
        """Somebody is back. Raises NotAllowed, Forbidden, BadInput, and ProviderTrouble if the provider is at fault."""
        going = await self._taken(answer)
        code = _brought(answer)
        now = self._ports.clock.now()
        person = await self._asked(lambda: self._provider.vouched(going, code, answer.issuer, now))
        who = await self._admitted(person)
        if going.command is not None:
            return LoginResult(who.name, handover=await self._handed_over(who, going.command))
        return LoginResult(who.name, await self._session(who), going.path)

    async def fetch(self, code: str, verifier: str) -> TokenView:
        """The session of a command for the code that its listener was given; raises NotAllowed."""
        challenge = make_challenge(verifier)
        who = await self._ports.write(lambda conn, now: _fetched(conn, code, challenge, now))
        if who is None:
            raise NotAllowed(
                "This code is not good.",
                why="It works once, for two minutes, and only for the command that asked for it.",
                fix="Run `crucible login` again.",
            )
        return await self._session(who)

    async def _session(self, who: Identity) -> TokenView:
        session = self._ports.ids.new(Prefix.TOKEN)
        return await self._ports.write(lambda conn, now: tokens.start_session(conn, who, session, now))

    async def _asked(self, work: Callable[[], T]) -> T:
        """The provider has a lane of its own: one that hangs holds up those who sign in, and nobody else."""
        try:
            return await self._ports.calls.run(LANE, work, CALL_SECONDS)
        except TimedOut as error:
            raise trouble(self._client.issuer, f"It did not answer within {CALL_SECONDS:g} s.") from error

    async def _taken(self, answer: ProviderResponse) -> SignIn:
        state, browser = answer.state or "", answer.browser or ""
        going = await self._ports.write(lambda conn, now: signins.take(conn, state, browser, now))
        if going is None or going.issuer != self._client.issuer:
            raise NotAllowed(
                "This sign-in was not begun here, or is over.",
                why="It works once, within ten minutes, in the browser that began it.",
                fix="Begin again at /login of this server, or with `crucible login`.",
            )
        return going

    async def _admitted(self, person: ProviderIdentity) -> Identity:
        new_user = self._ports.ids.new(Prefix.USER)
        found = await self._ports.write(lambda conn, now: admit(conn, self._client, person, new_user, now))
        if isinstance(found, LoginRefusal):
            raise found.error
        return found

    async def _handed_over(self, who: Identity, command: WaitingCommand) -> str:
        code, user, challenge = signins.random_text(), who.user, command.challenge
        await self._ports.write(lambda conn, now: signins.hand_over(conn, code, user, challenge, now, FETCH_SECONDS))
        return f"http://127.0.0.1:{command.port}/?{urlencode({'code': code, 'state': command.echo})}"


def _brought(answer: ProviderResponse) -> str:
    """The code; raises for an answer without one."""
    if answer.error is not None:
        raise NotAllowed(
            "The provider did not sign you in.",
            why=f"It says {answer.error[:100]!r}.",
            fix="Sign in again, and agree to it there; else ask whoever runs the provider.",
        )
    if not answer.code:
        raise BadInput("The provider's answer lacks its code.", fix="Sign in again.", field="code")
    return answer.code


def _fetched(conn: Connection, code: str, challenge: str, now: float) -> Identity | None:
    user = signins.fetch(conn, code, challenge, now)
    row = None if user is None else users.get_user(conn, user)
    if row is None or row["disabled_at"] is not None:
        return None
    return users.session_identity(row)
