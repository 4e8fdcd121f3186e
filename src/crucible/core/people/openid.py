"""Signing in with an OpenID provider: what is asked, what comes back, and whom it may stand for."""

from __future__ import annotations

import base64
import enum
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit

from crucible.core.errors import BadInput, Forbidden
from crucible.core.people.identity import validate_email
from crucible.core.secret import Secret
from crucible.core.views.people import TokenView

MAX_PATH, MAX_ISSUER, MAX_SUBJECT = 2000, 300, 255
VERIFIER_PATTERN = r"^[A-Za-z0-9._~-]{43,128}$"
CHALLENGE_PATTERN = r"^[A-Za-z0-9_-]{43}$"
ECHO_PATTERN = r"^[A-Za-z0-9_-]{1,128}$"
_LOCAL = re.compile(r"/(?!/)[\x21-\x5b\x5d-\x7e]*")
"""A path of this server: browsers read a backslash as a slash, and drop tabs and line ends."""
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True)
class OpenIdClient:
    """This deployment at its provider. `name` is the word on the button.

    `domains`: those of the e-mail addresses that may come in (None: any). `project`: where people who are new here
    become members (None: only users that an administrator made come in).
    """

    issuer: str
    id: str
    secret: Secret | None = None
    name: str = "OpenID"
    domains: tuple[str, ...] | None = None
    project: str | None = None

    @property
    def is_local(self) -> bool:
        """Whether the provider is on this computer, and needs no encryption."""
        return is_loopback_url(self.issuer)


@dataclass(frozen=True)
class WaitingCommand:
    """A command that waits at a port of its own computer, and shows by `challenge` that it is the one that asked."""

    port: int
    challenge: str
    echo: str


@dataclass(frozen=True)
class LoginRedirect:
    """`browser` ties what comes back to the browser that went away."""

    url: str
    browser: Secret


@dataclass(frozen=True)
class ProviderResponse:
    """What a browser brings back from the provider; `issuer` as it names itself there (RFC 9207)."""

    state: str | None
    code: str | None
    error: str | None
    issuer: str | None
    browser: str | None = field(repr=False, default=None)


@dataclass(frozen=True)
class LoginResult:
    """Somebody signed in. `session` for his browser; or `handover`, the address at which his command gets a code."""

    user: str
    session: TokenView | None = field(repr=False, default=None)
    path: str | None = None
    handover: str | None = field(repr=False, default=None)


@dataclass(frozen=True)
class ProviderIdentity:
    """Whom the provider vouches for. `email` only if the provider says that it is his; in small letters."""

    subject: str
    email: str | None = None

    def subject_hash(self, issuer: str) -> str:
        """What is kept of him: as long for every provider, and the same for nobody else."""
        return hashlib.sha256(f"{issuer} {self.subject}".encode()).hexdigest()


class LoginRefusal(enum.StrEnum):
    """Why somebody whom the provider knows does not come in here."""

    UNVERIFIED = "unverified"
    DOMAIN = "domain"
    UNKNOWN = "unknown"
    DISABLED = "disabled"
    TIED = "tied"
    """The user of that address is tied to somebody else of the same provider."""

    @property
    def error(self) -> Forbidden:
        """What he is told. Who is a user here, and who is kept out, is not told apart."""
        if self is LoginRefusal.UNVERIFIED:
            return Forbidden(
                "Your provider does not say that your e-mail address is yours.",
                why="Whoever can write any address into his account could come in as somebody else.",
                fix="Confirm the address at your provider and sign in again.",
            )
        if self is LoginRefusal.DOMAIN:
            return Forbidden(
                "E-mail addresses of this domain may not come in.",
                why="This server is for people of other domains.",
                fix="Sign in at your provider with the account of your organisation; the setting is oidc_domains.",
            )
        return Forbidden(
            "Nobody has let you in here.",
            why="Only users that an administrator made come in.",
            fix="Ask an administrator: crucible users add NAME --email YOUR-ADDRESS",
        )


def read_claims(claims: Mapping[str, object]) -> ProviderIdentity:
    """The person in a token whose signature and terms are checked."""
    email, verified = claims.get("email"), claims.get("email_verified")
    if not (verified is True or verified == "true") or not isinstance(email, str):
        return ProviderIdentity(str(claims["sub"]))
    try:
        return ProviderIdentity(str(claims["sub"]), validate_email(email))
    except BadInput:
        return ProviderIdentity(str(claims["sub"]))


def check_domain(client: OpenIdClient, person: ProviderIdentity) -> LoginRefusal | None:
    """What speaks against him whoever he is here."""
    if client.domains is None:
        return None
    if person.email is None:
        return LoginRefusal.UNVERIFIED
    return None if person.email.rpartition("@")[2] in client.domains else LoginRefusal.DOMAIN


def validate_client(client: OpenIdClient) -> OpenIdClient:
    """The client, if people can sign in with it."""
    parts = _split(client.issuer)
    if parts.scheme != "https" and not client.is_local:
        raise BadInput(
            f"The provider {client.issuer!r} is not encrypted.",
            why="Whoever is on the way could sign in as anybody.",
            fix="Set oidc_issuer to its https:// address.",
        )
    if not parts.hostname or parts.query or parts.fragment or len(client.issuer) > MAX_ISSUER:
        raise BadInput(
            f"{client.issuer[:80]!r} is no issuer.",
            fix="Set oidc_issuer to the address before /.well-known/openid-configuration of your provider.",
        )
    if client.project is not None and client.domains is None:
        raise BadInput(
            "New users are made for the e-mail addresses of some domains only.",
            why="Everybody who has an account at the provider could come in.",
            fix="Set oidc_domains along with oidc_create_users, such as example.org",
        )
    return client


def validate_subject(subject: str) -> str:
    """The provider's name for a person, if it can be one."""
    if not 1 <= len(subject) <= MAX_SUBJECT or not (subject.isascii() and subject.isprintable()):
        raise BadInput(
            "This is no subject of a provider.",
            why=f"It has 1 to {MAX_SUBJECT} ASCII characters that can be seen.",
            fix="`crucible audit --json` shows that of everybody who was refused.",
            field="subject",
        )
    return subject


def validate_local_path(path: str) -> str:
    """The path, if it leads to this server and nowhere else."""
    if len(path) > MAX_PATH or not _LOCAL.fullmatch(path):
        raise BadInput(
            "`next` is no path of this server.",
            why="A login that ends at another site could be somebody's trap.",
            fix="Give a path such as /jobs, without the server's name.",
            field="next",
        )
    return path


def make_challenge(verifier: str) -> str:
    """The S256 challenge (RFC 7636) that a verifier answers."""
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def is_loopback_url(url: str) -> bool:
    """Whether an address is on this computer."""
    return _split(url).hostname in _LOOPBACK


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return urlsplit("")
    return parts
