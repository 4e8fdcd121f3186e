"""`crucible login`, `logout`, `whoami`: the server in use and the user logged in."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from crucible.cli.context import CommandContext
from crucible.core.errors import BadInput, NotAllowed, TimedOut, Unreachable
from crucible.core.secret import Secret
from crucible.settings import default_logins, load_settings

if TYPE_CHECKING:
    from crucible.client.api import Api
    from crucible.client.server.logins import Login

SIGN_IN_SECONDS = 300.0

Server = Annotated[str | None, typer.Argument(metavar="[URL]", help="Server address (default: the one in use).")]


def login(
    ctx: typer.Context,
    url: Server = None,
    name: Annotated[str | None, typer.Option("--name", help="User name, to log in with a password.")] = None,
    token_stdin: Annotated[bool, typer.Option("--token-stdin", help="Read a token from standard input.")] = False,
    link: Annotated[bool, typer.Option("--link", help="Print a link that logs a browser in once.")] = False,
    oidc: Annotated[
        bool, typer.Option("--oidc", help="Sign in in the browser, with the server's OpenID provider.")
    ] = False,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address instead of opening it.")] = False,
    insecure: Annotated[bool, typer.Option("--insecure", help="Allow an unencrypted connection.")] = False,
) -> None:
    """Log in to a server; later commands use it. --link creates a login link for a browser instead.

    Signs in through the browser if the server has an OpenID provider, with a password if --name is given.
    """
    cli = CommandContext.from_typer(ctx)
    if link:
        with cli.api() as api:
            made = api.people.login_link()
        cli.out.json(made.as_json()) if cli.out.as_json else cli.out.data(made.url)
        cli.out.say("The link works once, within five minutes.")
        return
    if url is None:
        raise BadInput("No server is named.", fix="crucible login https://crucible.example.org")
    if sum((token_stdin, name is not None, oidc or no_browser)) > 1:
        raise BadInput("--name, --token-stdin and --oidc exclude each other.", fix="Give one of them.")
    way = _LoginMethod(name, token_stdin, oidc or no_browser, no_browser)
    _log_in(cli, url.rstrip("/"), way, insecure)


def logout(ctx: typer.Context, url: Server = None) -> None:
    """Log out of a server: end the session there and forget its token, even if the server cannot be reached."""
    from crucible.client.server import logins

    cli = CommandContext.from_typer(ctx)
    path = default_logins(cli.environ)
    known = logins.load(path)
    meant = (url or known.current or "").rstrip("/")
    if meant not in known.servers:
        fix = "crucible login URL first." if not known.servers else f"Known: {', '.join(sorted(known.servers))}."
        raise BadInput(f"You are not logged in to {meant or 'any server'}.", fix=fix)
    with _connect(cli, meant, known.servers[meant].token) as api:
        left = _end_session(api)
    logins.save(path, known.without(meant))
    cli.out.say(f"Logged out of {meant}.")
    if left:
        cli.out.warn(f"  The session on the server could not be ended: {left}")


def _end_session(api: Api) -> str:
    """End the session; return why it may still be open, or an empty string."""
    try:
        api.people.logout()
    except NotAllowed:
        return ""
    except (Unreachable, TimedOut) as error:
        return error.what
    return ""


def whoami(ctx: typer.Context) -> None:
    """Show the user you are logged in as, your projects, and what your token allows."""
    cli = CommandContext.from_typer(ctx)
    with cli.api() as api:
        me, where = api.people.me(), api.endpoint.url
    if cli.out.as_json:
        cli.out.json({**me.as_json(), "server": where})
    elif cli.out.quiet:
        cli.out.data(me.user)
    elif me.job is not None:
        cli.out.data(f"a share link of {me.user} at {where}; it shows {me.job} and nothing else")
    else:
        what = "administrator" if me.admin else "user"
        cli.out.data(f"{me.user}, {what} at {where} (by {me.via}, with the scopes {', '.join(me.scopes)})")
        if me.projects:
            cli.out.table(("PROJECT", "ROLE"), sorted(me.projects.items()))
        else:
            way = f"crucible projects grant PROJECT {me.user} member"
            cli.out.say(f"You are not in a project yet; an administrator can add you: {way}")


@dataclass(frozen=True)
class _LoginMethod:
    """How the user wants to log in; by default, the method the server offers."""

    name: str | None
    token_stdin: bool
    oidc: bool
    no_browser: bool


def _log_in(cli: CommandContext, url: str, way: _LoginMethod, insecure: bool) -> None:
    from crucible.client.server import logins

    load_settings({"server": url})  # rejects an invalid address
    logins.check_encrypted(url, insecure=insecure)
    made = _request_login(cli, url, way)
    path = default_logins(cli.environ)
    logins.save(path, logins.load(path).with_login(url, made))
    if cli.out.as_json:
        cli.out.json({"server": url, "user": made.user, "expires_at": made.expires_at})
    cli.out.say(f"Logged in to {url} as {made.user}. `crucible logout` ends it.")


def _request_login(cli: CommandContext, url: str, way: _LoginMethod) -> Login:
    if way.token_stdin:
        return _by_token(cli, url)
    if way.name is not None:
        return _by_password(cli, url, way.name)
    if not way.oidc and not sys.stdin.isatty():
        raise BadInput(
            "There is no terminal to log in on.",
            fix="Use a token: crucible login URL --token-stdin < token.txt; or --oidc, if a browser is available.",
        )
    with _connect(cli, url, None) as api:
        provider = api.people.login_ways().oidc
    if provider is not None:
        return _by_browser(cli, url, provider, way.no_browser)
    if way.oidc:
        raise BadInput(f"{url} has no OpenID provider.", fix="Use a password (--name USER) or a token (--token-stdin).")
    return _by_password(cli, url, None)


def _by_browser(cli: CommandContext, url: str, provider: str, no_browser: bool) -> Login:
    """Sign in through the browser, which returns a code to a local port."""
    from crucible.client.server.logins import Login
    from crucible.client.server.oauth_callback import BrowserLogin

    with BrowserLogin(url) as handover, _connect(cli, url, None) as api:
        # printed even with --quiet: without the address nobody can sign in
        cli.out.instruct(f"Sign in with {provider} in your browser, at:\n  {handover.url}")
        if no_browser:
            port = handover.port
            cli.out.say(f"To use a browser on another computer: ssh -L {port}:127.0.0.1:{port} HOST")
        else:
            _open_browser(handover.url)
        made = api.people.fetch_session(handover.code(SIGN_IN_SECONDS), handover.verifier)
    return Login(made.user, str(made.token), made.expires_at)


def _open_browser(url: str) -> None:
    """Open the address in a thread: a text browser in the terminal runs until it is closed."""
    import threading
    import webbrowser

    threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()


def _by_token(cli: CommandContext, url: str) -> Login:
    from crucible.client.server.logins import Login

    token = sys.stdin.readline().strip()
    if not token:
        raise BadInput("Standard input holds no token.", fix="crucible login URL --token-stdin < token.txt")
    with _connect(cli, url, token) as api:
        return Login(api.people.me().user, token)


def _by_password(cli: CommandContext, url: str, name: str | None) -> Login:
    from crucible.client.server.logins import Login

    if not sys.stdin.isatty():
        raise BadInput(
            "There is no terminal to enter a password on.",
            fix="Use a token: crucible login URL --token-stdin < token.txt",
        )
    user = name or typer.prompt("User", err=True)
    password = typer.prompt("Password", hide_input=True, err=True)
    with _connect(cli, url, None) as api:
        made = api.people.login(user, password)
    return Login(user, str(made.token), made.expires_at)


@contextmanager
def _connect(cli: CommandContext, url: str, token: str | None) -> Iterator[Api]:
    from crucible.client.api import Api
    from crucible.client.transport.http import Endpoint

    secret = None if token is None else Secret(token)
    api = Api(Endpoint(url, secret), seconds=cli.settings.request_seconds.value)
    try:
        yield api
    finally:
        api.close()
