"""People as the server sees them: what routes for users, projects, tokens and logins may ask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from crucible.core.hooks import HookEvent, HookFormat
from crucible.core.openid import Answer, Begun, Command, Landing
from crucible.core.people import Identity, Permission, Role
from crucible.core.secret import Secret

View = dict[str, Any]


class KeysPort(Protocol):
    async def listed(self, who: Identity, *, everyones: bool = False) -> list[View]: ...
    async def make(
        self,
        who: Identity,
        name: str,
        *,
        scopes: frozenset[Permission],
        seconds: float | None,
        project: str | None = None,
        user: str | None = None,
    ) -> View:
        """The token itself stands in the answer, as `token`, and nowhere else. It reaches no further than `who`."""
        ...

    async def revoke(self, who: Identity, ref: str) -> View:
        """Again is harmless."""
        ...


class EntrancePort(Protocol):
    """Raises NotAllowed, Forbidden for who does not come in, Unreachable if the provider is at fault."""

    async def begin(self, redirect_uri: str, *, path: str | None = None, command: Command | None = None) -> Begun: ...
    async def finish(self, answer: Answer) -> Landing: ...
    async def fetch(self, code: str, verifier: str) -> View: ...


class DoorPort(Protocol):
    @property
    def provider(self) -> str | None:
        """What people call the OpenID provider; None if there is none."""
        ...

    @property
    def entrance(self) -> EntrancePort:
        """Raises NotFound where no OpenID provider is set up."""
        ...

    async def link(self, who: Identity) -> View:
        """A code, as `token`, that is good for one login within a few minutes."""
        ...

    async def redeem(self, code: str) -> View:
        """A session for such a code; raises NotAllowed."""
        ...

    async def login(self, name: str, password: str) -> View:
        """A session for a name and its password; raises NotAllowed, TooManyTries."""
        ...

    async def anybody(self) -> bool:
        """Whether there is somebody, besides the owner, who can log in."""
        ...

    async def logout(self, who: Identity) -> None: ...


class SecretsPort(Protocol):
    """Raises as PeoplePort does; Trouble when the keys of secrets are not there."""

    async def listed(self, who: Identity, project: str) -> list[View]: ...
    async def set(self, who: Identity, project: str, name: str, value: Secret) -> tuple[View, bool]:
        """The secret as it is listed, and whether it is new."""
        ...

    async def remove(self, who: Identity, project: str, name: str) -> None: ...
    async def rotate(self, who: Identity) -> View: ...


class HooksPort(Protocol):
    """Raises as PeoplePort does; RefusedByPolicy for an address that may not be called."""

    async def listed(self, who: Identity, project: str) -> list[View]: ...
    async def one(self, who: Identity, project: str, ref: str) -> View: ...
    async def add(
        self,
        who: Identity,
        project: str,
        url: str,
        *,
        events: Sequence[HookEvent],
        format: HookFormat,
        secret: Secret,
    ) -> View:
        """The secret stands in the answer, as `secret`, and nowhere else."""
        ...

    async def change(
        self,
        who: Identity,
        project: str,
        ref: str,
        *,
        url: str | None = None,
        events: Sequence[HookEvent] | None = None,
        enabled: bool | None = None,
    ) -> View: ...
    async def rotate(self, who: Identity, project: str, ref: str, secret: Secret) -> View: ...
    async def remove(self, who: Identity, project: str, ref: str) -> None: ...
    async def test(self, who: Identity, project: str, ref: str) -> View:
        """What the receiver answered to a ping."""
        ...

    async def deliveries(self, who: Identity, project: str, ref: str, *, limit: int) -> list[View]: ...


class PeoplePort(Protocol):
    """Raises Forbidden for what `who` may not do, NotFound for what he may not know of."""

    @property
    def keys(self) -> KeysPort: ...
    @property
    def door(self) -> DoorPort: ...

    async def me(self, who: Identity) -> View: ...
    async def users(self, who: Identity) -> list[View]: ...
    async def add_user(
        self,
        who: Identity,
        name: str,
        *,
        admin: bool = False,
        password: str | None = None,
        email: str | None = None,
    ) -> View: ...
    async def change_user(
        self,
        who: Identity,
        name: str,
        *,
        admin: bool | None = None,
        disabled: bool | None = None,
        password: str | None = None,
        old_password: str | None = None,
        email: str | None = None,
        subject: str | None = None,
    ) -> View: ...
    async def projects(self, who: Identity) -> list[View]: ...
    async def add_project(self, who: Identity, name: str, about: str = "") -> View: ...
    async def members(self, who: Identity, project: str) -> list[View]: ...
    async def set_member(self, who: Identity, project: str, user: str, role: Role) -> View: ...
    async def remove_member(self, who: Identity, project: str, user: str) -> None: ...
    async def audit(self, who: Identity, *, project: str | None, before: int | None, limit: int) -> View: ...
