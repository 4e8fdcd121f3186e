"""Users, projects and tokens; secrets and webhooks of projects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from crucible.client.api import routes
from crucible.client.api.resource import Resource
from crucible.core.hooks import ENDS, HookEvent, HookFormat
from crucible.core.views.hooks import DeliveryView, HookView
from crucible.core.views.people import (
    AuditPage,
    LinkView,
    MemberView,
    MeView,
    ProjectView,
    RevokedView,
    RotationView,
    SecretView,
    TokenView,
    UserView,
    WaysView,
)


class People(Resource):
    def me(self) -> MeView:
        return self._call(routes.ME)

    def users(self) -> tuple[UserView, ...]:
        return self._call(routes.USERS).items

    def add_user(
        self, name: str, *, admin: bool = False, password: str | None = None, email: str | None = None
    ) -> UserView:
        """Add a user. With `email` they log in with the OpenID provider, if it has verified that address."""
        body = {"name": name, "admin": admin, "password": password, "email": email}
        return self._call(routes.ADD_USER, body=body)

    def change_user(
        self,
        name: str,
        *,
        admin: bool | None = None,
        disabled: bool | None = None,
        password: str | None = None,
        old_password: str | None = None,
        email: str | None = None,
        subject: str | None = None,
    ) -> UserView:
        """Change what is not None. Changing your own password takes the old one; an empty `email` removes the address.

        `subject` is the OpenID provider's own name for the user.
        """
        fields = {
            "admin": admin,
            "disabled": disabled,
            "password": password,
            "old_password": old_password,
            "email": email,
            "subject": subject,
        }
        return self._call(routes.CHANGE_USER, body=without_none(fields), name=name)

    def projects(self) -> tuple[ProjectView, ...]:
        return self._call(routes.PROJECTS).items

    def add_project(self, name: str, about: str = "") -> ProjectView:
        return self._call(routes.ADD_PROJECT, body={"name": name, "about": about})

    def members(self, project: str) -> tuple[MemberView, ...]:
        return self._call(routes.MEMBERS, project=project).items

    def set_member(self, project: str, user: str, role: str) -> MemberView:
        return self._call(routes.SET_MEMBER, body={"role": role}, project=project, name=user)

    def remove_member(self, project: str, user: str) -> None:
        self._send(routes.REMOVE_MEMBER, project=project, name=user)

    def tokens(self, *, all: bool = False) -> tuple[TokenView, ...]:
        return self._call(routes.TOKENS, query={"all": "true" if all else None}).items

    def make_token(
        self,
        name: str,
        *,
        scopes: Iterable[str] = ("read", "write"),
        days: float | None = 90.0,
        project: str | None = None,
        user: str | None = None,
    ) -> TokenView:
        """Create a token; only this response contains it."""
        body = {"name": name, "scopes": sorted(scopes), "days": days, "project": project, "user": user}
        return self._call(routes.MAKE_TOKEN, body=body)

    def revoke_token(self, ref: str) -> RevokedView:
        return self._call(routes.REVOKE_TOKEN, token=ref)

    def share(self, job: str, *, name: str = "share link", hours: float = 24.0) -> TokenView:
        """Create a token that allows anyone who has it to see one job."""
        return self._call(routes.SHARE, body={"name": name, "hours": hours}, job=job)

    def login(self, name: str, password: str) -> TokenView:
        return self._call(routes.LOGIN, body={"name": name, "password": password})

    def login_ways(self) -> WaysView:
        """Return the ways to log in to the server."""
        return self._call(routes.LOGIN_WAYS)

    def fetch_session(self, code: str, verifier: str) -> TokenView:
        """Return the session token for an authorization code (see oauth_callback.py)."""
        return self._call(routes.LOGIN, body={"code": code, "verifier": verifier})

    def login_link(self) -> LinkView:
        return self._call(routes.LOGIN_LINK, body={})

    def logout(self) -> None:
        self._send(routes.LOGOUT)

    def audit(self, *, project: str | None = None, before: int | None = None, limit: int = 50) -> AuditPage:
        return self._call(routes.AUDIT, query={"project": project, "before": before, "limit": limit})


class Secrets(Resource):
    """Secrets of projects; the server never returns their values."""

    def list_secrets(self, project: str) -> tuple[SecretView, ...]:
        return self._call(routes.SECRETS, project=project).items

    def set(self, project: str, name: str, value: str) -> SecretView:
        """Set a secret; the last value wins."""
        return self._call(routes.SET_SECRET, body={"value": value}, project=project, name=name)

    def remove(self, project: str, name: str) -> None:
        self._send(routes.REMOVE_SECRET, project=project, name=name)

    def rotate(self) -> RotationView:
        return self._call(routes.ROTATE_SECRETS)


class Hooks(Resource):
    """Webhooks of projects. A hook is named by its id, or a suffix of it of three or more characters."""

    def list_hooks(self, project: str) -> tuple[HookView, ...]:
        return self._call(routes.HOOKS, project=project).items

    def get(self, project: str, hook: str) -> HookView:
        return self._call(routes.HOOK, project=project, hook=hook)

    def add(
        self,
        project: str,
        url: str,
        *,
        events: Sequence[HookEvent | str] = ENDS,
        format: HookFormat | str = HookFormat.JSON,
    ) -> HookView:
        """Add a hook. Its `secret` signs messages; only this response contains it."""
        body = {"url": url, "events": [str(event) for event in events], "format": str(format)}
        return self._call(routes.ADD_HOOK, body=body, project=project)

    def change(
        self,
        project: str,
        hook: str,
        *,
        url: str | None = None,
        events: Sequence[HookEvent | str] | None = None,
        enabled: bool | None = None,
    ) -> HookView:
        """Change what is not None."""
        names = None if events is None else [str(event) for event in events]
        body = without_none({"url": url, "events": names, "enabled": enabled})
        return self._call(routes.CHANGE_HOOK, body=body, project=project, hook=hook)

    def rotate(self, project: str, hook: str) -> HookView:
        """Return the hook with its new `secret`."""
        return self._call(routes.ROTATE_HOOK, project=project, hook=hook)

    def remove(self, project: str, hook: str) -> None:
        self._send(routes.REMOVE_HOOK, project=project, hook=hook)

    def test(self, project: str, hook: str) -> DeliveryView:
        """Send a ping now and return the receiver's response."""
        return self._call(routes.TEST_HOOK, project=project, hook=hook)

    def deliveries(self, project: str, hook: str, *, limit: int = 50) -> tuple[DeliveryView, ...]:
        """Return the latest delivery attempts, newest first."""
        return self._call(routes.DELIVERIES, query={"limit": limit}, project=project, hook=hook).items


def without_none(fields: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}
