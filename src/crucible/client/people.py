"""People, over the API: who I am, users, projects, tokens, logins and the record of what was done."""

from collections.abc import Iterable, Mapping
from typing import TypeVar
from urllib.parse import quote

from crucible.client.answers import read
from crucible.client.transport import Query, Transport
from crucible.core.views.base import View
from crucible.core.views.people import (
    DeedPage,
    LinkView,
    MemberPage,
    MemberView,
    MeView,
    ProjectPage,
    ProjectView,
    RevokedView,
    TokenPage,
    TokenView,
    UserPage,
    UserView,
    WaysView,
)

V = TypeVar("V", bound=View)


class People:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def me(self) -> MeView:
        return self._get(MeView, "me")

    def users(self) -> tuple[UserView, ...]:
        return self._get(UserPage, "users").items

    def add_user(
        self, name: str, *, admin: bool = False, password: str | None = None, email: str | None = None
    ) -> UserView:
        """With `email` he signs in with the OpenID provider, if it says that the address is his."""
        wish = {"name": name, "admin": admin, "password": password, "email": email}
        return self._send(UserView, "POST", "users", wish)

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
        """What is given changes. Your own password needs the old one; an empty e-mail address takes it away.

        `subject` is the OpenID provider's own name for the user.
        """
        wish = {
            "admin": admin,
            "disabled": disabled,
            "password": password,
            "old_password": old_password,
            "email": email,
            "subject": subject,
        }
        body = {key: value for key, value in wish.items() if value is not None}
        return self._send(UserView, "PATCH", f"users/{_part(name)}", body)

    def projects(self) -> tuple[ProjectView, ...]:
        return self._get(ProjectPage, "projects").items

    def add_project(self, name: str, about: str = "") -> ProjectView:
        return self._send(ProjectView, "POST", "projects", {"name": name, "about": about})

    def members(self, project: str) -> tuple[MemberView, ...]:
        return self._get(MemberPage, f"projects/{_part(project)}/members").items

    def set_member(self, project: str, user: str, role: str) -> MemberView:
        path = f"projects/{_part(project)}/members/{_part(user)}"
        return self._send(MemberView, "PUT", path, {"role": role})

    def remove_member(self, project: str, user: str) -> None:
        self._transport.request("DELETE", _path(f"projects/{_part(project)}/members/{_part(user)}"))

    def tokens(self, *, all: bool = False) -> tuple[TokenView, ...]:
        return self._get(TokenPage, "tokens", {"all": "true" if all else None}).items

    def make_token(
        self,
        name: str,
        *,
        scopes: Iterable[str] = ("read", "write"),
        days: float | None = 90.0,
        project: str | None = None,
        user: str | None = None,
    ) -> TokenView:
        """A new token; it stands in this answer and nowhere else."""
        wish = {"name": name, "scopes": sorted(scopes), "days": days, "project": project, "user": user}
        return self._send(TokenView, "POST", "tokens", wish)

    def revoke_token(self, ref: str) -> RevokedView:
        return read(RevokedView, self._transport.request("DELETE", _path(f"tokens/{_part(ref)}"), repeat=True))

    def share(self, job: str, *, name: str = "share link", hours: float = 24.0) -> TokenView:
        """A token that shows one job, to whoever has it."""
        return self._send(TokenView, "POST", f"jobs/{_part(job)}/share", {"name": name, "hours": hours})

    def login(self, name: str, password: str) -> TokenView:
        return self._send(TokenView, "POST", "login", {"name": name, "password": password})

    def login_ways(self) -> WaysView:
        """How people log in there."""
        return self._get(WaysView, "login")

    def fetch_session(self, code: str, verifier: str) -> TokenView:
        """The session for a code that a browser handed over (see handover.py)."""
        return self._send(TokenView, "POST", "login", {"code": code, "verifier": verifier})

    def login_link(self) -> LinkView:
        return self._send(LinkView, "POST", "login/links", {})

    def logout(self) -> None:
        self._transport.request("POST", _path("logout"), repeat=True)

    def audit(self, *, project: str | None = None, before: int | None = None, limit: int = 50) -> DeedPage:
        query: Query = {"project": project, "before": before, "limit": limit}
        return self._get(DeedPage, "audit", query)

    def _get(self, kind: type[V], path: str, query: Query | None = None) -> V:
        return read(kind, self._transport.request("GET", _path(path), query=query or {}))

    def _send(self, kind: type[V], method: str, path: str, body: Mapping[str, object]) -> V:
        return read(kind, self._transport.request(method, _path(path), body=dict(body)))


def _path(rest: str) -> str:
    return f"/api/v1/{rest}"


def _part(name: str) -> str:
    return quote(name, safe="")
