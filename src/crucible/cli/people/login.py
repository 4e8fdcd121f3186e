"""`crucible login`, `logout`, `whoami`: which server, and who we are to it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from crucible.cli.session import Session
from crucible.core.errors import BadInput, NotAllowed, TimedOut, Unreachable
from crucible.core.secret import Secret
from crucible.settings import default_logins, load_settings

if TYPE_CHECKING:
    from crucible.client.api import Api
    from crucible.client.server.logins import Login

SIGN_IN_SECONDS = 300.0

Server = Annotated[
    str | None, typer.Argument(metavar="[URL]", help="The server's address; the one in use unless given.")
]


def login(
    ctx: typer.Context,
    url: Server = None,
    name: Annotated[str | None, typer.Option("--name", help="User; asked for unless given.")] = None,
    token_stdin: Annotated[bool, typer.Option("--token-stdin", help="Read a token from standard input.")] = False,
    link: Annotated[bool, typer.Option("--link", help="Print a link that logs a browser in, once.")] = False,
    oidc: Annotated[bool, typer.Option("--oidc", help="Sign in by the browser, with the server's provider.")] = False,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address instead of opening it.")] = False,
    insecure: Annotated[bool, typer.Option("--insecure", help="Also without encryption.")] = False,
) -> None:
    """Log in to a server: commands talk to it from then on. --link makes a login link for a browser instead.

    Where the server has an OpenID provider, the browser signs you in; with --name a password does.
    """
    session = Session.of(ctx)
    if link:
        with session.api() as api:
            made = api.people.login_link()
        session.out.json(made.as_json()) if session.out.as_json else session.out.data(made.url)
        session.out.say("It works once, for five minutes.")
        return
    if url is None:
        raise BadInput("No server is named.", fix="crucible login https://crucible.example.org")
    if sum((token_stdin, name is not None, oidc or no_browser)) > 1:
        raise BadInput("These ways exclude each other.", fix="Give one of --name, --token-stdin and --oidc.")
    way = _Way(name, token_stdin, oidc or no_browser, no_browser)
    _log_in(session, url.rstrip("/"), way, insecure)


def logout(ctx: typer.Context, url: Server = None) -> None:
    """Forget a server, and end the session there.

    One that is gone, or lets you in no more, is forgotten all the same.
    """
    from crucible.client.server import logins

    session = Session.of(ctx)
    path = default_logins(session.environ)
    known = logins.load(path)
    meant = (url or known.current or "").rstrip("/")
    if meant not in known.servers:
        fix = "crucible login URL first." if not known.servers else f"Known: {', '.join(sorted(known.servers))}."
        raise BadInput(f"You are not logged in to {meant or 'any server'}.", fix=fix)
    with _at(session, meant, known.servers[meant].token) as api:
        left = _end_session(api)
    logins.save(path, known.without(meant))
    session.out.say(f"Logged out of {meant}.")
    if left:
        session.out.warn(f"  The session could not be ended there: {left}")


def _end_session(api: Api) -> str:
    """Why a session may still be open; empty when it is not, or was none."""
    try:
        api.people.logout()
    except NotAllowed:
        return ""
    except (Unreachable, TimedOut) as error:
        return error.what
    return ""


def whoami(ctx: typer.Context) -> None:
    """Show who you are to the server, your projects, and what your token allows."""
    session = Session.of(ctx)
    with session.api() as api:
        me, where = api.people.me(), api.endpoint.url
    if session.out.as_json:
        session.out.json({**me.as_json(), "server": where})
    elif session.out.quiet:
        session.out.data(me.user)
    elif me.job is not None:
        session.out.data(f"whoever has a share link of {me.user}'s, at {where}; it shows {me.job} and nothing else")
    else:
        what = "administrator" if me.admin else "user"
        session.out.data(f"{me.user}, {what} at {where} (by {me.via}, with the scopes {', '.join(me.scopes)})")
        if me.projects:
            session.out.table(("PROJECT", "ROLE"), sorted(me.projects.items()))
        else:
            way = f"crucible projects grant PROJECT {me.user} member"
            session.out.say(f"You belong to no project yet; an administrator lets you into one: {way}")


@dataclass(frozen=True)
class _Way:
    """How somebody wants to log in; with nothing said, as the server offers it."""

    name: str | None
    token_stdin: bool
    oidc: bool
    no_browser: bool


def _log_in(session: Session, url: str, way: _Way, insecure: bool) -> None:
    from crucible.client.server import logins

    load_settings({"server": url})  # says what is wrong with an address that is none
    logins.check_encrypted(url, insecure=insecure)
    made = _logged_in(session, url, way)
    path = default_logins(session.environ)
    logins.save(path, logins.load(path).with_login(url, made))
    if session.out.as_json:
        session.out.json({"server": url, "user": made.user, "expires_at": made.expires_at})
    session.out.say(f"Logged in to {url} as {made.user}. `crucible logout` ends it.")


def _logged_in(session: Session, url: str, way: _Way) -> Login:
    if way.token_stdin:
        return _by_token(session, url)
    if way.name is not None:
        return _by_password(session, url, way.name)
    if not way.oidc and not sys.stdin.isatty():
        raise BadInput(
            "Nobody can be asked here: this is no terminal.",
            fix="Use a token: crucible login URL --token-stdin < token.txt; or --oidc, if somebody has a browser.",
        )
    with _at(session, url, None) as api:
        provider = api.people.login_ways().oidc
    if provider is not None:
        return _by_browser(session, url, provider, way.no_browser)
    if way.oidc:
        raise BadInput(f"{url} has no OpenID provider.", fix="Use a password (--name USER) or a token (--token-stdin).")
    return _by_password(session, url, None)


def _by_browser(session: Session, url: str, provider: str, no_browser: bool) -> Login:
    """The browser signs in at the provider, and hands what it gets to us, at a port of this computer."""
    from crucible.client.server.logins import Login
    from crucible.client.server.oauth_callback import BrowserLogin

    with BrowserLogin(url) as handover, _at(session, url, None) as api:
        # Whatever else is to be kept quiet: without it nobody can sign in.
        typer.echo(f"Sign in with {provider} in your browser, at:\n  {handover.url}", err=True)
        if no_browser:
            port = handover.port
            session.out.say(f"A browser on another computer reaches this one with: ssh -L {port}:127.0.0.1:{port} HOST")
        else:
            _open_browser(handover.url)
        made = api.people.fetch_session(handover.code(SIGN_IN_SECONDS), handover.verifier)
    return Login(made.user, str(made.token), made.expires_at)


def _open_browser(url: str) -> None:
    """Beside us: a browser in the terminal runs until it is closed."""
    import threading
    import webbrowser

    threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()


def _by_token(session: Session, url: str) -> Login:
    from crucible.client.server.logins import Login

    token = sys.stdin.readline().strip()
    if not token:
        raise BadInput("Standard input holds no token.", fix="crucible login URL --token-stdin < token.txt")
    with _at(session, url, token) as api:
        return Login(api.people.me().user, token)


def _by_password(session: Session, url: str, name: str | None) -> Login:
    from crucible.client.server.logins import Login

    if not sys.stdin.isatty():
        raise BadInput(
            "Nobody can be asked for a password here: this is no terminal.",
            fix="Use a token: crucible login URL --token-stdin < token.txt",
        )
    user = name or typer.prompt("User", err=True)
    password = typer.prompt("Password", hide_input=True, err=True)
    with _at(session, url, None) as api:
        made = api.people.login(user, password)
    return Login(user, str(made.token), made.expires_at)


@contextmanager
def _at(session: Session, url: str, token: str | None) -> Iterator[Api]:
    from crucible.client.api import Api
    from crucible.client.transport.http import Endpoint

    secret = None if token is None else Secret(token)
    api = Api(Endpoint(url, secret), seconds=session.settings.request_seconds.value)
    try:
        yield api
    finally:
        api.close()
