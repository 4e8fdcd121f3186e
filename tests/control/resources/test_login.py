"""Logging in."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pytest
from tests.authorisation.populated_app import PopulatedApp, token_of
from tests.control.harness import ControlHarness, service
from tests.fast_passwords import quick_passwords
from tests.openid_provider import CLIENT, ISSUER

from crucible.control.control_plane import ControlPlane
from crucible.control.db import schema as t
from crucible.control.people import passwords
from crucible.control.resources.login import QUIET_SECONDS, Login
from crucible.core.errors import BadInput, Forbidden, NotAllowed, NotFound, TooManyAttempts
from crucible.core.people.identity import OWNER, Identity, LoginMethod, Permission
from crucible.core.people.openid import OpenIdClient
from crucible.core.requests import UserChange

__all__ = ["quick_passwords"]

PASSWORD = "a long sentence that nobody guesses"
T = TypeVar("T")


async def test_name_and_password_give_a_session(populated_app: PopulatedApp) -> None:
    await populated_app.control.people.change_user(OWNER, "viewer", UserChange(password=PASSWORD))
    session = await populated_app.control.login.login("viewer", PASSWORD)
    who = await populated_app.control.tokens.identify(str(session.token))
    assert who is not None
    assert (who.name, who.via) == ("viewer", LoginMethod.SESSION)
    await populated_app.control.login.logout(who)
    assert await populated_app.control.tokens.identify(str(session.token)) is None


@pytest.mark.parametrize(("name", "password"), [("viewer", "wrong"), ("nobody", PASSWORD), ("member", PASSWORD)])
async def test_wrong_ones_all_get_the_same_answer(populated_app: PopulatedApp, name: str, password: str) -> None:
    """Also for a user who is not there, or has no password."""
    await populated_app.control.people.change_user(OWNER, "viewer", UserChange(password=PASSWORD))
    with pytest.raises(NotAllowed, match="The name or the password is wrong"):
        await populated_app.control.login.login(name, password)


class HeldCalls:
    """Calls that all wait until they may go on, as in a pool whose threads are busy."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def run(self, lane: str, work: Callable[[], T], deadline: float) -> T:
        await self.go.wait()
        return work()

    async def close(self) -> None: ...


async def test_guesses_that_come_all_at_once_are_no_way_round(populated_app: PopulatedApp) -> None:
    held = HeldCalls()
    login = Login(replace(populated_app.harness.ports, calls=held))
    guesses = [asyncio.ensure_future(login.login("viewer", f"wrong {n}")) for n in range(30)]
    refused, _ = await asyncio.wait(guesses, timeout=5, return_when=asyncio.FIRST_COMPLETED)
    assert refused
    held.go.set()
    tried = await asyncio.gather(*guesses, return_exceptions=True)
    assert sum(isinstance(error, NotAllowed) for error in tried) == passwords.FREE_ATTEMPTS
    assert sum(isinstance(error, TooManyAttempts) for error in tried) == 30 - passwords.FREE_ATTEMPTS


def test_those_under_way_count_as_wrong_and_are_forgotten_when_they_are_over() -> None:
    throttle = passwords.Throttle(lambda: 0.0)
    throttle.record_failure("ada")
    with contextlib.ExitStack() as under_way:
        for _ in range(passwords.FREE_ATTEMPTS - 1):
            under_way.enter_context(throttle.attempt("ada"))
        with pytest.raises(TooManyAttempts, match="at once"):
            under_way.enter_context(throttle.attempt("ada"))
        under_way.enter_context(throttle.attempt("bob"))
    with throttle.attempt("ada"):
        pass
    assert not throttle._running


async def test_guessing_gets_slower_for_that_name_alone(populated_app: PopulatedApp) -> None:
    login = populated_app.control.login
    await populated_app.control.people.change_user(OWNER, "viewer", UserChange(password=PASSWORD))
    for _ in range(passwords.FREE_ATTEMPTS):
        with pytest.raises(NotAllowed):
            await login.login("viewer", "wrong")
    with pytest.raises(TooManyAttempts) as caught:
        await login.login("viewer", PASSWORD)
    assert caught.value.http_status == 429
    with pytest.raises(NotAllowed):
        await login.login("member", "wrong")
    populated_app.harness.clock.time += 2
    assert await login.login("viewer", PASSWORD)


async def test_wrong_passwords_are_written_down_and_do_not_fill_the_record(populated_app: PopulatedApp) -> None:
    login = populated_app.control.login
    await populated_app.control.people.change_user(OWNER, "viewer", UserChange(password=PASSWORD))

    async def guess(name: str, times: int) -> None:
        for n in range(times):
            populated_app.harness.clock.time += 600 if name == "viewer" else 0
            with pytest.raises(NotAllowed):
                await login.login(name.format(n), f"wrong {n}")
            await login.flush_audit()  # or the next may be written before

    async def refused() -> list[tuple[str, object]]:
        found = await populated_app.control.people.audit(OWNER, project=None, before=None, limit=500)
        return [(item.target, item.data) for item in reversed(found.items) if item.action == "login.refuse"]

    await guess("viewer", 12)
    await guess("s3cret-{}", 100)
    wrong = [("viewer", {"count": n, "why": "wrong password"}) for n in (1, 10)]
    unknown = [("", {"count": n, "why": "no such user"}) for n in (1, 10, 100)]
    assert await refused() == [*wrong, *unknown], "and nothing of what was typed as a name"
    populated_app.harness.clock.time += QUIET_SECONDS + 1
    await guess("s3cret-{}", 3)
    assert await refused() == [*wrong, *unknown, unknown[0]]


async def test_a_disabled_user_does_not_come_in(populated_app: PopulatedApp) -> None:
    await populated_app.control.people.change_user(OWNER, "viewer", UserChange(password=PASSWORD))
    await populated_app.control.people.change_user(OWNER, "viewer", UserChange(disabled=True))
    with pytest.raises(NotAllowed):
        await populated_app.control.login.login("viewer", PASSWORD)


async def test_a_new_password_ends_what_was_open(populated_app: PopulatedApp) -> None:
    await populated_app.control.people.change_user(OWNER, "viewer", UserChange(password=PASSWORD))
    assert await populated_app.control.tokens.identify(populated_app.tokens["viewer"]) is None


@pytest.mark.parametrize("password", ["", "short", " " * 20])
async def test_passwords_that_cannot_be_used(populated_app: PopulatedApp, password: str) -> None:
    with pytest.raises(BadInput):
        await populated_app.control.people.change_user(OWNER, "viewer", UserChange(password=password))


async def test_the_password_is_not_in_the_database(populated_app: PopulatedApp) -> None:
    await populated_app.control.people.change_user(OWNER, "viewer", UserChange(password=PASSWORD))
    rows = str([await populated_app.harness.rows(table) for table in (t.users, t.audit, t.tokens)])
    assert PASSWORD not in rows
    assert "$argon2id$" in rows


async def test_a_login_link_works_once(populated_app: PopulatedApp) -> None:
    login = populated_app.control.login
    code = str((await login.create_link(OWNER)).token)
    assert await populated_app.control.tokens.identify(code) is None
    session = await login.redeem(code)
    who = await populated_app.control.tokens.identify(str(session.token))
    assert who is not None
    assert (who.name, who.admin) == ("owner", True)
    with pytest.raises(NotAllowed):
        await login.redeem(code)


async def test_a_login_link_is_good_for_minutes(populated_app: PopulatedApp) -> None:
    code = str((await populated_app.control.login.create_link(OWNER)).token)
    populated_app.harness.clock.time += 301
    with pytest.raises(NotAllowed):
        await populated_app.control.login.redeem(code)


@pytest.mark.parametrize("code", ["", "nothing", "crt_x"])
async def test_a_code_nobody_made(populated_app: PopulatedApp, code: str) -> None:
    with pytest.raises(NotAllowed):
        await populated_app.control.login.redeem(code)


async def test_a_token_is_no_login_code(populated_app: PopulatedApp) -> None:
    with pytest.raises(NotAllowed):
        await populated_app.control.login.redeem(populated_app.tokens["member"])


async def test_a_share_link_opens_as_often_as_it_is_asked_for_and_shows_one_job(populated_app: PopulatedApp) -> None:
    login = populated_app.control.login
    for _ in range(2):
        opened = await login.redeem(populated_app.tokens["share"])
        assert (opened.job, opened.via, opened.token) == (populated_app.job, "share", populated_app.tokens["share"])
    await populated_app.control.tokens.revoke(OWNER, opened.id)
    with pytest.raises(NotAllowed, match="is not valid"):
        await login.redeem(populated_app.tokens["share"])


async def test_a_narrow_token_gets_no_session(populated_app: PopulatedApp) -> None:
    narrow = await populated_app.control.tokens.identify(
        await token_of(populated_app.control, "member", scopes=frozenset({Permission.READ}))
    )
    assert narrow is not None
    for who in (narrow, await populated_app.identity("share")):
        with pytest.raises(Forbidden):
            await populated_app.control.login.create_link(who)


async def session_of(populated_app: PopulatedApp, name: str) -> Identity:
    """The user after logging in with the password."""
    await populated_app.control.people.change_user(OWNER, name, UserChange(password=PASSWORD))
    session = await populated_app.control.login.login(name, PASSWORD)
    who = await populated_app.control.tokens.identify(str(session.token))
    assert who is not None
    return who


@pytest.mark.parametrize("name", ["viewer", "admin"])
async def test_ones_own_password_changes_with_the_old_one(populated_app: PopulatedApp, name: str) -> None:
    who = await session_of(populated_app, name)
    await populated_app.control.people.change_user(
        who, name, UserChange(password=f"{PASSWORD} indeed", old_password=PASSWORD)
    )
    assert await populated_app.control.login.login(name, f"{PASSWORD} indeed")


@pytest.mark.parametrize("name", ["viewer", "admin"])
@pytest.mark.parametrize("old", [None, "", "a wrong one"])
async def test_ones_own_password_does_not_change_without_it(
    populated_app: PopulatedApp, name: str, old: str | None
) -> None:
    """Whoever finds a browser open cannot lock its user out; administrators are no exception."""
    who = await session_of(populated_app, name)
    with pytest.raises(Forbidden, match="old password is missing or wrong") as caught:
        await populated_app.control.people.change_user(
            who, name, UserChange(password=f"{PASSWORD} indeed", old_password=old)
        )
    assert caught.value.fix
    assert await populated_app.control.login.login(name, PASSWORD)


async def test_the_old_password_is_not_for_guessing_either(populated_app: PopulatedApp) -> None:
    who = await session_of(populated_app, "viewer")
    for _ in range(passwords.FREE_ATTEMPTS):
        with pytest.raises(Forbidden):
            await populated_app.control.people.change_user(
                who, "viewer", UserChange(password=PASSWORD, old_password="wrong")
            )
    with pytest.raises(TooManyAttempts):
        await populated_app.control.people.change_user(
            who, "viewer", UserChange(password=PASSWORD, old_password=PASSWORD)
        )


async def test_administrators_set_others_passwords_without_the_old_ones(populated_app: PopulatedApp) -> None:
    admin = await session_of(populated_app, "admin")
    await populated_app.control.people.change_user(admin, "viewer", UserChange(password=PASSWORD))
    assert await populated_app.control.login.login("viewer", PASSWORD)


async def test_a_session_plants_no_first_password(populated_app: PopulatedApp) -> None:
    login = populated_app.control.login
    code = str((await login.create_link(await populated_app.identity("viewer"))).token)
    who = await populated_app.control.tokens.identify(str((await login.redeem(code)).token))
    assert who is not None
    with pytest.raises(Forbidden):
        await populated_app.control.people.change_user(who, "viewer", UserChange(password=PASSWORD))


async def test_without_a_provider_there_is_no_openid_login(harness: ControlHarness) -> None:
    login = service(harness).login
    assert (login.provider, await login.anyone_can_log_in()) == (None, False)
    with pytest.raises(NotFound, match="no OpenID provider"):
        _ = login.openid


@pytest.mark.parametrize("project", [None, "newcomers"])
async def test_a_provider_whose_people_become_users_counts_as_users(
    harness: ControlHarness, project: str | None
) -> None:
    client = OpenIdClient(ISSUER, CLIENT, domains=("example.org",), project=project)
    login = ControlPlane(harness.ports, harness.backends, replace(harness.deployment, openid=client)).login
    assert (login.provider, await login.anyone_can_log_in()) == ("OpenID", project is not None)
