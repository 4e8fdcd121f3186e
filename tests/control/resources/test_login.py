"""Logging in."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pytest
from tests.authorisation.town import Town, token_of
from tests.control.world import Rig, service
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


async def test_name_and_password_give_a_session(town: Town) -> None:
    await town.control.people.change_user(OWNER, "viewer", UserChange(password=PASSWORD))
    session = await town.control.login.login("viewer", PASSWORD)
    who = await town.control.tokens.identify(str(session.token))
    assert who is not None
    assert (who.name, who.via) == ("viewer", LoginMethod.SESSION)
    await town.control.login.logout(who)
    assert await town.control.tokens.identify(str(session.token)) is None


@pytest.mark.parametrize(("name", "password"), [("viewer", "wrong"), ("nobody", PASSWORD), ("member", PASSWORD)])
async def test_wrong_ones_all_get_the_same_answer(town: Town, name: str, password: str) -> None:
    """Also for a user who is not there, or has no password."""
    await town.control.people.change_user(OWNER, "viewer", UserChange(password=PASSWORD))
    with pytest.raises(NotAllowed, match="The name or the password is wrong"):
        await town.control.login.login(name, password)


class Held:
    """Calls that all wait until they may go on, as in a pool whose threads are busy."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def run(self, lane: str, work: Callable[[], T], deadline: float) -> T:
        await self.go.wait()
        return work()

    async def close(self) -> None: ...


async def test_guesses_that_come_all_at_once_are_no_way_round(town: Town) -> None:
    held = Held()
    login = Login(replace(town.rig.ports, calls=held))
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


async def test_guessing_gets_slower_for_that_name_alone(town: Town) -> None:
    login = town.control.login
    await town.control.people.change_user(OWNER, "viewer", UserChange(password=PASSWORD))
    for _ in range(passwords.FREE_ATTEMPTS):
        with pytest.raises(NotAllowed):
            await login.login("viewer", "wrong")
    with pytest.raises(TooManyAttempts) as caught:
        await login.login("viewer", PASSWORD)
    assert caught.value.http_status == 429
    with pytest.raises(NotAllowed):
        await login.login("member", "wrong")
    town.rig.clock.time += 2
    assert await login.login("viewer", PASSWORD)


async def test_wrong_passwords_are_written_down_and_do_not_fill_the_record(town: Town) -> None:
    login = town.control.login
    await town.control.people.change_user(OWNER, "viewer", UserChange(password=PASSWORD))

    async def guess(name: str, times: int) -> None:
        for n in range(times):
            town.rig.clock.time += 600 if name == "viewer" else 0
            with pytest.raises(NotAllowed):
                await login.login(name.format(n), f"wrong {n}")
            await login.flush_audit()  # or the next may be written before

    async def refused() -> list[tuple[str, object]]:
        found = await town.control.people.audit(OWNER, project=None, before=None, limit=500)
        return [(item.target, item.data) for item in reversed(found.items) if item.action == "login.refuse"]

    await guess("viewer", 12)
    await guess("s3cret-{}", 100)
    wrong = [("viewer", {"count": n, "why": "wrong password"}) for n in (1, 10)]
    unknown = [("", {"count": n, "why": "no such user"}) for n in (1, 10, 100)]
    assert await refused() == [*wrong, *unknown], "and nothing of what was typed as a name"
    town.rig.clock.time += QUIET_SECONDS + 1
    await guess("s3cret-{}", 3)
    assert await refused() == [*wrong, *unknown, unknown[0]]


async def test_a_disabled_user_does_not_come_in(town: Town) -> None:
    await town.control.people.change_user(OWNER, "viewer", UserChange(password=PASSWORD))
    await town.control.people.change_user(OWNER, "viewer", UserChange(disabled=True))
    with pytest.raises(NotAllowed):
        await town.control.login.login("viewer", PASSWORD)


async def test_a_new_password_ends_what_was_open(town: Town) -> None:
    await town.control.people.change_user(OWNER, "viewer", UserChange(password=PASSWORD))
    assert await town.control.tokens.identify(town.tokens["viewer"]) is None


@pytest.mark.parametrize("password", ["", "short", " " * 20])
async def test_passwords_that_cannot_be_used(town: Town, password: str) -> None:
    with pytest.raises(BadInput):
        await town.control.people.change_user(OWNER, "viewer", UserChange(password=password))


async def test_the_password_is_not_in_the_database(town: Town) -> None:
    await town.control.people.change_user(OWNER, "viewer", UserChange(password=PASSWORD))
    rows = str([await town.rig.rows(table) for table in (t.users, t.audit, t.tokens)])
    assert PASSWORD not in rows
    assert "$argon2id$" in rows


async def test_a_login_link_works_once(town: Town) -> None:
    login = town.control.login
    code = str((await login.create_link(OWNER)).token)
    assert await town.control.tokens.identify(code) is None
    session = await login.redeem(code)
    who = await town.control.tokens.identify(str(session.token))
    assert who is not None
    assert (who.name, who.admin) == ("owner", True)
    with pytest.raises(NotAllowed):
        await login.redeem(code)


async def test_a_login_link_is_good_for_minutes(town: Town) -> None:
    code = str((await town.control.login.create_link(OWNER)).token)
    town.rig.clock.time += 301
    with pytest.raises(NotAllowed):
        await town.control.login.redeem(code)


@pytest.mark.parametrize("code", ["", "nothing", "crt_x"])
async def test_a_code_nobody_made(town: Town, code: str) -> None:
    with pytest.raises(NotAllowed):
        await town.control.login.redeem(code)


async def test_a_token_is_no_login_code(town: Town) -> None:
    with pytest.raises(NotAllowed):
        await town.control.login.redeem(town.tokens["member"])


async def test_a_share_link_opens_as_often_as_it_is_asked_for_and_shows_one_job(town: Town) -> None:
    login = town.control.login
    for _ in range(2):
        opened = await login.redeem(town.tokens["share"])
        assert (opened.job, opened.via, opened.token) == (town.job, "share", town.tokens["share"])
    await town.control.tokens.revoke(OWNER, opened.id)
    with pytest.raises(NotAllowed, match="is not valid"):
        await login.redeem(town.tokens["share"])


async def test_a_narrow_token_gets_no_session(town: Town) -> None:
    narrow = await town.control.tokens.identify(
        await token_of(town.control, "member", scopes=frozenset({Permission.READ}))
    )
    assert narrow is not None
    for who in (narrow, await town.identity("share")):
        with pytest.raises(Forbidden):
            await town.control.login.create_link(who)


async def session_of(town: Town, name: str) -> Identity:
    """The user after logging in with the password."""
    await town.control.people.change_user(OWNER, name, UserChange(password=PASSWORD))
    session = await town.control.login.login(name, PASSWORD)
    who = await town.control.tokens.identify(str(session.token))
    assert who is not None
    return who


@pytest.mark.parametrize("name", ["viewer", "admin"])
async def test_ones_own_password_changes_with_the_old_one(town: Town, name: str) -> None:
    who = await session_of(town, name)
    await town.control.people.change_user(who, name, UserChange(password=f"{PASSWORD} indeed", old_password=PASSWORD))
    assert await town.control.login.login(name, f"{PASSWORD} indeed")


@pytest.mark.parametrize("name", ["viewer", "admin"])
@pytest.mark.parametrize("old", [None, "", "a wrong one"])
async def test_ones_own_password_does_not_change_without_it(town: Town, name: str, old: str | None) -> None:
    """Whoever finds a browser open cannot lock its user out; administrators are no exception."""
    who = await session_of(town, name)
    with pytest.raises(Forbidden, match="old password is missing or wrong") as caught:
        await town.control.people.change_user(who, name, UserChange(password=f"{PASSWORD} indeed", old_password=old))
    assert caught.value.fix
    assert await town.control.login.login(name, PASSWORD)


async def test_the_old_password_is_not_for_guessing_either(town: Town) -> None:
    who = await session_of(town, "viewer")
    for _ in range(passwords.FREE_ATTEMPTS):
        with pytest.raises(Forbidden):
            await town.control.people.change_user(who, "viewer", UserChange(password=PASSWORD, old_password="wrong"))
    with pytest.raises(TooManyAttempts):
        await town.control.people.change_user(who, "viewer", UserChange(password=PASSWORD, old_password=PASSWORD))


async def test_administrators_set_others_passwords_without_the_old_ones(town: Town) -> None:
    admin = await session_of(town, "admin")
    await town.control.people.change_user(admin, "viewer", UserChange(password=PASSWORD))
    assert await town.control.login.login("viewer", PASSWORD)


async def test_a_session_plants_no_first_password(town: Town) -> None:
    login = town.control.login
    code = str((await login.create_link(await town.identity("viewer"))).token)
    who = await town.control.tokens.identify(str((await login.redeem(code)).token))
    assert who is not None
    with pytest.raises(Forbidden):
        await town.control.people.change_user(who, "viewer", UserChange(password=PASSWORD))


async def test_without_a_provider_there_is_no_openid_login(rig: Rig) -> None:
    login = service(rig).login
    assert (login.provider, await login.anyone_can_log_in()) == (None, False)
    with pytest.raises(NotFound, match="no OpenID provider"):
        _ = login.openid


@pytest.mark.parametrize("project", [None, "newcomers"])
async def test_a_provider_whose_people_become_users_counts_as_users(rig: Rig, project: str | None) -> None:
    client = OpenIdClient(ISSUER, CLIENT, domains=("example.org",), project=project)
    login = ControlPlane(rig.ports, rig.backends, replace(rig.deployment, openid=client)).login
    assert (login.provider, await login.anyone_can_log_in()) == ("OpenID", project is not None)
