"""The identity of a caller and its permissions. Everything that is not granted here is refused.

A user has a role in each project of which they are a member; an administrator may do everything everywhere. A token
acts for its user, and can be restricted to fewer permissions, to one project, or to one job (a share link).
"""

from __future__ import annotations

import enum
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from crucible.core.errors import BadInput, Forbidden

DEFAULT_PROJECT = "default"
"""The project of a single-user installation; it always exists."""

MOST_LISTED = 5
"""Maximum number of projects that an error names."""
MAX_PROJECT, MAX_USER, MAX_EMAIL = 63, 100, 254
SHORTEST_PASSWORD, LONGEST_PASSWORD = 12, 1000
SESSION_SECONDS = 7 * 86400
PROJECT_PATTERN = rf"^[a-z0-9][a-z0-9_-]{{0,{MAX_PROJECT - 1}}}$"
_PROJECT = re.compile(PROJECT_PATTERN.strip("^$"))
_USER = re.compile(rf"[a-z0-9][a-z0-9._@+-]{{0,{MAX_USER - 1}}}")
_EMAIL = re.compile(r"[a-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})+")


class Permission(enum.StrEnum):
    READ = "read"
    """See jobs and their outputs."""
    WRITE = "write"
    """Submit, change, cancel and resume jobs."""
    MANAGE = "manage"
    """Manage the members of a project."""
    OPERATE = "operate"
    """Everything that belongs to the deployment, not to a project: machines, upkeep, users, the server itself."""


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
    """A login whose token was handed to a program."""
    BROWSER = "browser"
    """A login whose token is only in a browser's cookie, and is no bearer token."""
    SHARE = "share"


@dataclass(frozen=True)
class Identity:
    """The caller. `scopes`, `project` and `job` restrict what a token may do; they never extend it."""

    user: str
    name: str
    via: LoginMethod
    admin: bool = False
    roles: Mapping[str, Role] = field(default_factory=lambda: MappingProxyType({}))
    scopes: frozenset[Permission] = EVERY_PERMISSION
    project: str | None = None
    job: str | None = None
    token: str | None = None
    """The id of the token, if one was used."""
    expires_at: float | None = None
    """When that token ends; None: not by itself."""
    makes_until: float | None = None
    """When everything ends that the caller creates with it: no token outlives the one that made it."""

    @property
    def authority(self) -> Hashable:
        """Everything that decides what the caller may see; callers with equal authority get the same responses."""
        own = {
            name: value
            for name, value in vars(self).items()
            if name not in ("roles", "token", "expires_at", "makes_until")
        }
        return (*own.items(), frozenset(self.roles.items()))

    def covers(self, scopes: Iterable[Permission], project: str | None) -> bool:
        """Return whether a token with these restrictions reaches no further than the caller."""
        return self.job is None and self.scopes >= frozenset(scopes) and self.project in (None, project)

    def may(self, permission: Permission, project: str | None = None) -> bool:
        """Return whether the caller has the permission in a project, or, with None, outside all projects."""
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
        """Return the error for a token or share link that is too restricted."""
        if self.via is LoginMethod.SHARE:
            why, fix = "A share link shows one job and nothing else.", "Ask the person who gave it to you for access."
            return _refused(permission, project, why, fix)
        why = f"The {self.via} in use does not have this permission."
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
            why = f"{self.name} may only view {_join_names(seen)}."
            fix = f"Ask an admin of {_join_names(seen, 'or')} to make you a member; `crucible projects members "
            fix += f"{seen[0]}` lists them."
        return Forbidden("You may not submit jobs.", why=why, fix=fix, permission=Permission.WRITE.value)

    @property
    def _narrowed(self) -> bool:
        return self.project is not None or self.job is not None

    def _user_may(self, permission: Permission, project: str | None) -> bool:
        """Return whether the user has the permission, without the restrictions of the token."""
        return self.admin or (project is not None and permission in self._role(project))

    def _suggest_access(self, permission: Permission, project: str | None) -> str:
        role = next((role for role in Role if permission in role.grants), None)
        if project is None or role is None:
            return "Ask an administrator: this belongs to the whole server, not to a project."
        return f"Ask an administrator, or an admin of the project: crucible projects grant {project} {self.name} {role}"

    def _role(self, project: str) -> frozenset[Permission]:
        role = self.roles.get(project)
        return frozenset() if role is None else role.grants

    def _describe_role(self, project: str | None) -> str:
        if project is None:
            return "not an administrator"
        role = self.roles.get(project)
        return "not a member" if role is None else f"a {role.value}" if role is not Role.ADMIN else "an admin"


def _where(project: str | None) -> str:
    return f" in the project {project!r}" if project is not None else ""


def _refused(permission: Permission, project: str | None, why: str, fix: str) -> Forbidden:
    where = _where(project) or (" this server" if permission is Permission.OPERATE else "")
    return Forbidden(f"You may not {permission}{where}.", why=why, fix=fix, permission=permission.value)


def _ambiguous_project(names: Sequence[str]) -> BadInput:
    return BadInput(
        "The job names no project.",
        why=f"You may submit to {_join_names(names)}, so one has to be chosen.",
        fix=f"Choose one: --project {names[0]}, or the field `project`.",
        field="project",
    )


def _join_names(names: Sequence[str], word: str = "and") -> str:
    """Join names in words, up to MOST_LISTED of them."""
    parts = [repr(name) for name in names[:MOST_LISTED]]
    more = len(names) - len(parts)
    parts += [f"{more} more"] if more else []
    return f"{', '.join(parts[:-1])} {word} {parts[-1]}" if len(parts) > 1 else parts[0]


NOBODY = Identity("", "nobody", LoginMethod.SESSION, scopes=frozenset())
OWNER = Identity("usr-owner", "owner", LoginMethod.OWNER, admin=True)
"""The user with access to the state folder."""


def validate_project_name(name: str) -> str:
    """Return the name if it is valid for a project. Raises BadInput."""
    if not _PROJECT.fullmatch(name):
        raise BadInput(
            f"{name[:80]!r} is not a valid project name.",
            why=f"A name has 1 to {MAX_PROJECT} of a-z, 0-9, - and _, and starts with a letter or a digit.",
            fix="Choose another name, for example `vision-team`.",
            field="project",
        )
    return name


def validate_user_name(name: str) -> str:
    """Return the name if it is valid for a user. Raises BadInput."""
    if not _USER.fullmatch(name):
        raise BadInput(
            f"{name[:120]!r} is not a valid user name.",
            why=f"A name has 1 to {MAX_USER} of a-z, 0-9 and . _ @ + -, and starts with a letter or a digit.",
            fix="Choose another name, for example `ada` or `ada@example.org`.",
            field="user",
        )
    return name


def validate_email(address: str) -> str:
    """Return the e-mail address in lower case if it is valid. Raises BadInput.

    Some other characters have an ASCII lower case (the Kelvin sign becomes `k`), so all of them are refused first.
    """
    small = address.lower()
    if not address.isascii() or len(small) > MAX_EMAIL or not _EMAIL.fullmatch(small):
        raise BadInput(
            f"{address[:80]!r} is not a valid e-mail address.",
            fix="Give an address such as ada@example.org",
            field="email",
        )
    return small
