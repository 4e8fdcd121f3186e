"""An OpenID provider: the authorization code flow with PKCE, signing for real. It can be told to misbehave.

Asked in memory through `transport`, or over HTTP through `served`. `browse` is the person at the browser.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx2
from joserfc import jwt
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey

CLIENT, SECRET = "crucible", "a secret of the client"
ISSUER = "https://id.example.org"
ADA: Mapping[str, Any] = {"sub": "4711", "email": "ada@example.org", "email_verified": True, "name": "Ada"}
EVE: Mapping[str, Any] = {"sub": "0666", "email": "eve@example.com", "email_verified": True}


@cache
def key_of(alg: str) -> Key:
    """Return one key per algorithm, named after it."""
    options = {"kid": alg.lower(), "use": "sig"}
    if alg.startswith(("RS", "PS")):
        return RSAKey.generate_key(2048, options)
    if alg.startswith("ES"):
        return ECKey.generate_key("P-256", options)
    return OKPKey.generate_key("Ed25519", options)


@dataclass
class Grant:
    """An issued code, and what must be presented for it."""

    redirect_uri: str
    challenge: str
    nonce: str
    claims: Mapping[str, Any]


@dataclass
class OpenIdProvider:
    """`person` is whoever sits at the browser. `token_more` are claims in place of, or besides, the usual ones (None
    takes one away); `forge` makes the token altogether. `answers` replaces the answers of whole paths."""

    issuer: str = ISSUER
    person: Mapping[str, Any] = field(default_factory=lambda: ADA)
    alg: str = "RS256"
    now: Callable[[], float] = time.time
    redirect_uris: tuple[str, ...] | None = None
    secret: str | None = SECRET
    methods: tuple[str, ...] = ("client_secret_basic",)
    thin: bool = False
    """Whether only the userinfo endpoint returns the e-mail address."""
    token_more: dict[str, Any] = field(default_factory=dict)
    metadata_more: dict[str, Any] = field(default_factory=dict)
    forge: Callable[[dict[str, Any]], str] | None = None
    answers: dict[str, tuple[int, Any]] = field(default_factory=dict)
    listed: tuple[str, ...] | None = None
    """Algorithms whose keys are listed (default: the one in use)."""
    asked: list[str] = field(default_factory=list)
    sent: list[dict[str, str]] = field(default_factory=list)
    """The forms that the token endpoint received."""
    _codes: dict[str, Grant] = field(default_factory=dict)
    _access: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def metadata(self) -> dict[str, Any]:
        about = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "userinfo_endpoint": f"{self.issuer}/userinfo",
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "token_endpoint_auth_methods_supported": list(self.methods),
        }
        return _without_none({**about, **self.metadata_more})

    def browse(self, url: str) -> str:
        """Follow a link to the provider and sign in; return the URL that the browser is redirected to."""
        assert url.startswith(f"{self.issuer}/authorize?"), url
        asked = dict(parse_qsl(urlsplit(url).query))
        assert asked["client_id"] == CLIENT
        assert asked["response_type"] == "code"
        assert asked["code_challenge_method"] == "S256"
        assert "openid" in asked["scope"].split()
        assert self.redirect_uris is None or asked["redirect_uri"] in self.redirect_uris
        code = secrets.token_urlsafe(16)
        self._codes[code] = Grant(asked["redirect_uri"], asked["code_challenge"], asked["nonce"], self.person)
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}"

    def respond(self, path: str, form: str | None, headers: Mapping[str, str]) -> tuple[int, Any]:
        self.asked.append(path)
        if path in self.answers:
            return self.answers[path]
        if path.endswith("/.well-known/openid-configuration"):
            return 200, self.metadata()
        if path.endswith("/keys"):
            return 200, {"keys": [key_of(alg).as_dict(private=False) for alg in self.listed or (self.alg,)]}
        if path.endswith("/token"):
            return self._token(dict(parse_qsl(form or "")), headers)
        if path.endswith("/userinfo"):
            claims = self._access.get(headers.get("Authorization", "").removeprefix("Bearer "))
            return (401, {"error": "invalid_token"}) if claims is None else (200, dict(claims))
        return 404, {"error": "not_found"}

    def _token(self, form: dict[str, str], headers: Mapping[str, str]) -> tuple[int, Any]:
        self.sent.append(form)
        if not self._is_client(form, headers):
            return 401, {"error": "invalid_client"}
        grant = self._codes.pop(form.get("code", ""), None)
        shown = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(shown).rstrip(b"=").decode()
        if grant is None or grant.challenge != challenge or grant.redirect_uri != form.get("redirect_uri"):
            return 400, {"error": "invalid_grant"}
        access = secrets.token_urlsafe(16)
        self._access[access] = grant.claims
        tokens = {"access_token": access, "token_type": "Bearer", "id_token": self.id_token(grant)}
        return 200, _without_none(tokens)

    def _is_client(self, form: dict[str, str], headers: Mapping[str, str]) -> bool:
        if self.secret is None:
            return form.get("client_id") == CLIENT
        if "client_secret_basic" in self.methods:
            right = base64.b64encode(f"{CLIENT}:{self.secret}".encode()).decode()
            return headers.get("Authorization") == f"Basic {right}"
        return (form.get("client_id"), form.get("client_secret")) == (CLIENT, self.secret)

    def id_token(self, grant: Grant) -> str:
        now = int(self.now())
        claims = {"iss": self.issuer, "aud": CLIENT, "exp": now + 300, "iat": now, "nonce": grant.nonce}
        person = {"sub": grant.claims["sub"]} if self.thin else dict(grant.claims)
        told = _without_none({**claims, **person, **self.token_more})
        return self.forge(told) if self.forge is not None else signed(told, self.alg)


def signed(claims: dict[str, Any], alg: str = "RS256", kid: str | None = None) -> str:
    header = {"alg": alg, "kid": kid or alg.lower()}
    return jwt.encode(header, claims, key_of(alg), algorithms=[alg])


def _without_none(told: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in told.items() if value is not None}


def transport(provider: OpenIdProvider) -> httpx2.BaseTransport:
    """Return a transport to the provider without a network."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        form = request.content.decode() if request.method == "POST" else None
        status, told = provider.respond(request.url.path, form, request.headers)
        return httpx2.Response(status, content=json.dumps(told).encode())

    return httpx2.MockTransport(answer)


@contextmanager
def served(provider: OpenIdProvider) -> Iterator[OpenIdProvider]:
    """Serve the provider on this computer, with that address as its issuer. `/authorize` signs in any caller."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if urlsplit(self.path).path == "/authorize":
                self.send_response(302)
                self.send_header("Location", provider.browse(provider.issuer + self.path))
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self._answer(None)

        def do_POST(self) -> None:
            self._answer(self.rfile.read(int(self.headers["Content-Length"])).decode())

        def _answer(self, form: str | None) -> None:
            status, told = provider.respond(urlsplit(self.path).path, form, dict(self.headers))
            body = told if isinstance(told, bytes) else json.dumps(told).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        provider.issuer = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield provider
        finally:
            server.shutdown()
            thread.join(10)
