"""Who asks, and what they may do. Whatever is not granted here is refused.

A user has a role in each project that they are a member of; an administrator may do everything everywhere. A token
stands for its user, and can be held to fewer permissions, to one project, or to one job (a share link).
"""

from __future__ import annotations

import enum
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from crucible.core.errors import BadInput, Forbidden

DEFAULT_PROJECT = "default"
"""The project of a single-user installation; it always exists."""

MOST_LISTED = 5
"""Projects that a refusal names."""
MAX_PROJECT, MAX_USER, MAX_EMAIL = 63, 100, 254
SHORTEST_PASSWORD, LONGEST_PASSWORD = 12, 1000
SESSION_SECONDS = 7 * 86400
PROJECT_PATTERN = rf"^[a-z0-9][a-z0-9_-]{{0,{MAX_PROJECT - 1}}}$"
_PROJECT = re.compile(PROJECT_PATTERN.strip("^$"))
_USER = re.compile(rf"[a-z0-9][a-z0-9._@+-]{{0,{MAX_USER - 1}}}")
_EMAIL = re.compile(r"[a-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})+")


class Permission(enum.StrEnum):
    READ = "read"
    """See jobs and what they made."""
    WRITE = "write"
    """Submit, change, cancel and resume jobs."""
    MANAGE = "manage"
    """Decide who belongs to a project."""
    OPERATE = "operate"
    """Everything that is the deployment's and no project's: machines, upkeep, users, the server itself."""


class Role(enum.StrEnum):
    VIEWER = "viewer"
    MEMBER = "member"
    ADMIN = "admin"

    @property
    def grants(self) -> frozenset[Permission]:
        return _GRANTS[self]


_GRANTS = {
    Role.VIEWER: frozenset({Permission.READ}),
    Role.MEMBER: frozenset({Permission.READ, Permission.WRITE}),
    Role.ADMIN: frozenset({Permission.READ, Permission.WRITE, Permission.MANAGE}),
}

EVERY_PERMISSION = frozenset(Permission)


class LoginMethod(enum.StrEnum):
    """How the caller proved their identity."""

    OWNER = "owner"
    """The token in the state folder: anyone who can read that file owns the server."""
    TOKEN = "token"
    SESSION = "session"
    SHARE = "share"


@dataclass(frozen=True)
class Identity:
    """`scopes`, `project` and `job` narrow what a token may do; they never widen it."""

    user: str
    name: str
    via: LoginMethod
    admin: bool = False
    roles: Mapping[str, Role] = field(default_factory=lambda: MappingProxyType({}))
    scopes: frozenset[Permission] = EVERY_PERMISSION
    project: str | None = None
    job: str | None = None
    token: str | None = None
    """The id of the token, where one was used."""

    @property
    def authority(self) -> Hashable:
        """All that decides what the caller may see; callers with equal authority get the same answers."""
        own = {name: value for name, value in vars(self).items() if name not in ("roles", "token")}
        return (*own.items(), frozenset(self.roles.items()))

    def may(self, permission: Permission, project: str | None = None) -> bool:
        """In a project, or with None what belongs to no project."""
        if permission not in self.scopes:
            return False
        if project is None:
            return self.admin and not self._narrowed
        if self.project not in (None, project):
            return False
        return self.admin or permission in self._role(project)

    def projects(self, permission: Permission) -> frozenset[str] | None:
        """Return the projects in which the caller has the permission; None for all."""
        if self.admin and self.project is None and permission in self.scopes:
            return None
        known = {*self.roles, *((self.project,) if self.project else ())}
        return frozenset(name for name in known if self.may(permission, name))

    @property
    def default_project(self) -> str:
        """Return the project of jobs that name none.

        Raises Forbidden if the user can submit to no project, BadInput if to several and none is the default.
        """
        if self.project is not None:
            return self.project
        known = self.projects(Permission.WRITE)
        if known is None or DEFAULT_PROJECT in known:
            return DEFAULT_PROJECT
        if not known:
            raise self.no_project_error()
        if len(known) > 1:
            raise _ambiguous_project(sorted(known))
        return next(iter(known))

    def require(self, permission: Permission, project: str | None = None) -> None:
        """Raise Forbidden unless the caller has the permission."""
        if not self.may(permission, project):
            raise self.permission_error(permission, project)

    def permission_error(self, permission: Permission, project: str | None) -> Forbidden:
        """Return the error for a missing permission; it blames the token if the user has the permission themselves."""
        if self.job is not None or self._user_may(permission, project):
            return self.token_error(permission, project)
        why = f"{self.name} is {self._describe_role(project)}{_where(project)}."
        return _refused(permission, project, why, self._suggest_access(permission, project))

    def token_error(self, permission: Permission, project: str | None) -> Forbidden:
        if self.via is LoginMethod.SHARE:
            why, fix = "A share link shows one job and nothing else.", "Ask the person who gave it to you for access."
            return _refused(permission, project, why, fix)
        why = f"The {self.via} in use does not reach that far."
        return _refused(permission, project, why, "Use a token with more scopes: `crucible tokens create --help`.")

    def require_submitter(self) -> None:
        """Raise Forbidden for a caller who may submit to no project at all."""
        if self.projects(Permission.WRITE) == frozenset():
            raise self.no_project_error()

    def no_project_error(self) -> Forbidden:
        """Return the error for a user who may submit to no project at all."""
        if Permission.WRITE not in self.scopes:
            return self.token_error(Permission.WRITE, self.project)
        if self._narrowed:
            return self.permission_error(Permission.WRITE, self.project)
        seen = sorted(self.projects(Permission.READ) or ())
        if not seen:
            why, fix = f"{self.name} is in no project.", "Ask an administrator to make you a member of one."
        else:
            why = f"{self.name} may only look on in {_join_names(seen)}."
            fix = f"Ask an admin of {_join_names(seen, 'or')} to make you a member; `crucible projects members "
            fix += f"{seen[0]}` says who that is."
        return Forbidden("You may not submit jobs.", why=why, fix=fix, permission=Permission.WRITE.value)

    @property
    def _narrowed(self) -> bool:
        return self.project is not None or self.job is not None

    def _user_may(self, permission: Permission, project: str | None) -> bool:
        """With a token that is held to nothing."""
        return self.admin or (project is not None and permission in self._role(project))

    def _suggest_access(self, permission: Permission, project: str | None) -> str:
        role = next((role for role in Role if permission in role.grants), None)
        if project is None or role is None:
            return "Ask an administrator: this is no project's but the whole server's."
        return f"Ask an administrator, or an admin of the project: crucible projects grant {project} {self.name} {role}"

    def _role(self, project: str) -> frozenset[Permission]:
        role = self.roles.get(project)
        return frozenset() if role is None else role.grants

    def _describe_role(self, project: str | None) -> str:
        if project is None:
            return "no administrator"
        role = self.roles.get(project)
        return "no member" if role is None else f"a {role.value}" if role is not Role.ADMIN else "an admin"


def _where(project: str | None) -> str:
    return f" in the project {project!r}" if project is not None else ""


def _refused(permission: Permission, project: str | None, why: str, fix: str) -> Forbidden:
    where = _where(project) or (" this server" if permission is Permission.OPERATE else "")
    return Forbidden(f"You may not {permission}{where}.", why=why, fix=fix, permission=permission.value)


def _ambiguous_project(names: Sequence[str]) -> BadInput:
    return BadInput(
        "The job does not say in which project it belongs.",
        why=f"You may submit in {_join_names(names)}, and none of them is the usual one.",
        fix=f"Name one: --project {names[0]}, or the field `project`.",
        field="project",
    )


def _join_names(names: Sequence[str], word: str = "and") -> str:
    """In words, and not more of them than one reads."""
    shown = [repr(name) for name in names[:MOST_LISTED]]
    more = len(names) - len(shown)
    shown += [f"{more} more"] if more else []
    return f"{', '.join(shown[:-1])} {word} {shown[-1]}" if len(shown) > 1 else shown[0]


NOBODY = Identity("", "nobody", LoginMethod.SESSION, scopes=frozenset())
OWNER = Identity("usr-owner", "owner", LoginMethod.OWNER, admin=True)
"""Who holds the state folder."""


def validate_project_name(name: str) -> str:
    """The name, if a project can have it."""
    if not _PROJECT.fullmatch(name):
        raise BadInput(
            f"{name[:80]!r} cannot be the name of a project.",
            why=f"It has 1 to {MAX_PROJECT} of a-z, 0-9, - and _, and begins with a letter or a digit.",
            fix="Choose such a name, for example `vision-team`.",
            field="project",
        )
    return name


def validate_user_name(name: str) -> str:
    """The name, if a user can have it."""
    if not _USER.fullmatch(name):
        raise BadInput(
            f"{name[:120]!r} cannot be the name of a user.",
            why=f"It has 1 to {MAX_USER} of a-z, 0-9 and . _ @ + -, and begins with a letter or a digit.",
            fix="Choose such a name, for example `ada` or `ada@example.org`.",
            field="user",
        )
    return name


def validate_email(address: str) -> str:
    """The address in small letters, if it is one. Some letters beyond ASCII have an ASCII one as their small form."""
    small = address.lower()
    if not address.isascii() or len(small) > MAX_EMAIL or not _EMAIL.fullmatch(small):
        raise BadInput(
            f"{address[:80]!r} is no e-mail address.",
            fix="Give one such as ada@example.org",
            field="email",
        )
    return small
