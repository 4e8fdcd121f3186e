"""Values and checks of the sign-in with an OpenID provider: requests, responses, and who is let in."""

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
_LOCAL = re.compile(r"/(?!/)[\x21-\x5b\x5d-\x7e]*")
"""A path on this server. Browsers read a backslash as a slash and drop tabs and newlines, so those are excluded."""
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True)
class OpenIdClient:
    """This deployment as a client of its provider. `name` is shown on the sign-in button.

    `domains`: e-mail domains that may sign in (None: any). `project`: where new users become members (None: only users
    that an administrator created can sign in).
    """

    issuer: str
    id: str
    secret: Secret | None = None
    name: str = "OpenID"
    domains: tuple[str, ...] | None = None
    project: str | None = None

    @property
    def is_local(self) -> bool:
        """Whether the provider is on this computer, so that it needs no TLS."""
        return is_loopback_url(self.issuer)


@dataclass(frozen=True)
class WaitingCommand:
    """A command that listens on a local port for the login; `challenge` proves that it is the one that started it."""

    port: int
    challenge: str
    echo: str


@dataclass(frozen=True)
class LoginRedirect:
    """Where to send the browser; `browser` is a cookie value that ties the response to it."""

    url: str
    browser: Secret


@dataclass(frozen=True)
class ProviderResponse:
    """The provider's response, delivered by the browser; `issuer` is the issuer named in it (RFC 9207)."""

    state: str | None
    code: str | None
    error: str | None
    issuer: str | None
    browser: str | None = field(repr=False, default=None)


@dataclass(frozen=True)
class LoginResult:
    """A completed login: the `session` for a browser, or `handover`, the URL where a waiting command gets a code."""

    user: str
    session: TokenView | None = field(repr=False, default=None)
    path: str | None = None
    handover: str | None = field(repr=False, default=None)


@dataclass(frozen=True)
class ProviderIdentity:
    """The identity that the provider confirms. `email` is lower case, and None unless the provider verified it."""

    subject: str
    email: str | None = None

    def subject_hash(self, issuer: str) -> str:
        """Return the stored form of the identity: a hash of fixed length, unique per issuer and subject."""
        return hashlib.sha256(f"{issuer} {self.subject}".encode()).hexdigest()


class LoginRefusal(enum.StrEnum):
    """Why an identity that the provider confirms is refused."""

    UNVERIFIED = "unverified"
    DOMAIN = "domain"
    UNKNOWN = "unknown"
    DISABLED = "disabled"
    TIED = "tied"
    """The user with this address is tied to another identity of the same provider."""

    @property
    def error(self) -> Forbidden:
        """The error to show. It does not reveal whether the address belongs to a disabled user or to nobody."""
        if self is LoginRefusal.UNVERIFIED:
            return Forbidden(
                "Your provider has not verified your e-mail address.",
                why="Anyone who can enter an unverified address at the provider could sign in as another user.",
                fix="Confirm the address at your provider and sign in again.",
            )
        if self is LoginRefusal.DOMAIN:
            return Forbidden(
                "E-mail addresses of this domain may not sign in.",
                why="This server admits only other domains.",
                fix="Sign in at your provider with the account of your organisation; the setting is oidc_domains.",
            )
        return Forbidden(
            "You are not a user of this server.",
            why="Only users that an administrator created can sign in.",
            fix="Ask an administrator: crucible users add NAME --email YOUR-ADDRESS",
        )


def read_claims(claims: Mapping[str, object]) -> ProviderIdentity:
    """Return the identity in the claims of a token that has already been verified."""
    email, verified = claims.get("email"), claims.get("email_verified")
    if not (verified is True or verified == "true") or not isinstance(email, str):
        return ProviderIdentity(str(claims["sub"]))
    try:
        return ProviderIdentity(str(claims["sub"]), validate_email(email))
    except BadInput:
        return ProviderIdentity(str(claims["sub"]))


def check_domain(client: OpenIdClient, person: ProviderIdentity) -> LoginRefusal | None:
    """Return why the identity's e-mail domain is refused, or None."""
    if client.domains is None:
        return None
    if person.email is None:
        return LoginRefusal.UNVERIFIED
    return None if person.email.rpartition("@")[2] in client.domains else LoginRefusal.DOMAIN


def validate_client(client: OpenIdClient) -> OpenIdClient:
    """Return the client if it is safe to sign in with. Raises BadInput."""
    parts = _split(client.issuer)
    if parts.scheme != "https" and not client.is_local:
        raise BadInput(
            f"The provider {client.issuer!r} is not encrypted.",
            why="Anyone on the network path could sign in as any user.",
            fix="Set oidc_issuer to its https:// address.",
        )
    if not parts.hostname or parts.query or parts.fragment or len(client.issuer) > MAX_ISSUER:
        raise BadInput(
            f"{client.issuer[:80]!r} is not a valid issuer.",
            fix="Set oidc_issuer to the address before /.well-known/openid-configuration of your provider.",
        )
    if client.project is not None and client.domains is None:
        raise BadInput(
            "New users can be created only with a list of e-mail domains.",
            why="Everyone with an account at the provider could sign in.",
            fix="Set oidc_domains along with oidc_create_users, such as example.org",
        )
    return client


def validate_subject(subject: str) -> str:
    """Return the provider's subject (`sub`) of a user if it is valid. Raises BadInput."""
    if not 1 <= len(subject) <= MAX_SUBJECT or not (subject.isascii() and subject.isprintable()):
        raise BadInput(
            "This is not a valid subject.",
            why=f"A subject has 1 to {MAX_SUBJECT} printable ASCII characters.",
            fix="`crucible audit --json` shows the subjects of everyone who was refused.",
            field="subject",
        )
    return subject


def validate_local_path(path: str) -> str:
    """Return the path if it stays on this server. Raises BadInput."""
    if len(path) > MAX_PATH or not _LOCAL.fullmatch(path):
        raise BadInput(
            "`next` is not a path on this server.",
            why="A login that redirects to another site could be phishing.",
            fix="Give a path such as /jobs, without the server's name.",
            field="next",
        )
    return path


def make_challenge(verifier: str) -> str:
    """Return the S256 challenge (RFC 7636) of a verifier."""
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def is_loopback_url(url: str) -> bool:
    """Return whether the host of a URL is this computer."""
    return _split(url).hostname in _LOOPBACK


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return urlsplit("")
    return parts
