"""Users, projects, tokens, secrets and the audit log."""

from pydantic import Field

from crucible.core.views.base import PartialView, View, sometimes


class MeView(View):
    user: str
    via: str = ""
    admin: bool = False
    scopes: tuple[str, ...] = ()
    projects: dict[str, str] = Field(default_factory=dict)
    token: str | None = None
    """The id of the token in use."""
    job: str | None = None


class UserView(View):
    id: str = ""
    name: str
    admin: bool = False
    password: bool = False
    email: str | None = None
    tied: bool = False
    disabled: bool = False
    projects: dict[str, str] = Field(default_factory=dict)
    created_at: str | None = None


class ProjectView(View):
    name: str
    about: str = ""
    members: int = 0
    created_at: str | None = None


class MemberView(PartialView):
    name: str
    role: str
    since: str | None = sometimes(None)
    project: str = sometimes("")


class RevokedView(View):
    id: str
    name: str = ""
    state: str = "revoked"


class TokenView(RevokedView, PartialView):
    """A token. `token` is its value, only in the response that creates it; `url` signs a browser in with it."""

    state: str = sometimes("good")
    user: str = ""
    via: str = "token"
    scopes: tuple[str, ...] = ()
    project: str | None = None
    job: str | None = None
    created_at: str | None = sometimes(None)
    expires_at: str | None = None
    used_at: str | None = sometimes(None)
    token: str | None = sometimes(None, repr=False)
    url: str | None = sometimes(None, repr=False)


class WaysView(View):
    """How users can log in: by password, and with an OpenID provider of this name."""

    password: bool = True
    oidc: str | None = None


class LinkView(View):
    url: str
    expires_at: str | None = None


class AuditEntryView(View):
    """One action, and who performed it."""

    cursor: int
    at: str
    user: str
    via: str = ""
    action: str
    target: str = ""
    project: str | None = None
    token: str | None = None
    """The id of the token that was used."""
    data: dict[str, object] = Field(default_factory=dict)


class UserPage(View):
    items: tuple[UserView, ...]


class ProjectPage(View):
    items: tuple[ProjectView, ...]


class MemberPage(View):
    items: tuple[MemberView, ...]


class TokenPage(View):
    items: tuple[TokenView, ...]


class AuditPage(View):
    items: tuple[AuditEntryView, ...]
    next: int | None = None


class SecretView(View):
    name: str
    updated_at: str | None = None
    updated_by: str = ""


class SecretPage(View):
    items: tuple[SecretView, ...]


class RotationView(View):
    """How many secrets were encrypted again."""

    secrets: int
    keys: int = 1
