"""Tokens and share links: whom they stand for, how far they reach, and when they end."""

from __future__ import annotations

import pytest
from tests.authorisation.populated_app import PopulatedApp, token_of
from tests.control.harness import job_spec
from tests.control.scoped import ScopedControl

from crucible.control.db import schema as t
from crucible.core.errors import Forbidden, NotFound
from crucible.core.people.identity import OWNER, LoginMethod, Permission, Role
from crucible.core.requests import DAY, NewToken, UserChange

READ = frozenset({Permission.READ})


async def test_a_token_stands_for_its_user(populated_app: PopulatedApp) -> None:
    who = await populated_app.identity("viewer")
    assert (who.name, who.via, who.admin, dict(who.roles)) == (
        "viewer",
        LoginMethod.TOKEN,
        False,
        {"alpha": Role.VIEWER},
    )


@pytest.mark.parametrize("token", ["", "crt_", "crt_" + "x" * 43, "o" * 63])
async def test_what_was_never_issued_stands_for_nobody(populated_app: PopulatedApp, token: str) -> None:
    assert await populated_app.control.tokens.identify(token) is None


async def test_the_token_is_not_in_the_database(populated_app: PopulatedApp) -> None:
    rows = str([await populated_app.harness.rows(table) for table in (t.tokens, t.audit, t.users)])
    assert all(token not in rows for token in populated_app.tokens.values())


async def test_it_ends_when_its_time_is_over(populated_app: PopulatedApp) -> None:
    token = await token_of(populated_app.control, "member", days=60 / DAY)
    populated_app.harness.clock.time += 59
    assert await populated_app.control.tokens.identify(token)
    populated_app.harness.clock.time += 1
    assert await populated_app.control.tokens.identify(token) is None


async def test_it_ends_when_it_is_revoked_and_again_is_harmless(populated_app: PopulatedApp) -> None:
    who = await populated_app.identity("member")
    for _ in range(2):
        await populated_app.control.tokens.revoke(who, str(who.token))
    assert await populated_app.control.tokens.identify(populated_app.tokens["member"]) is None


async def test_it_ends_with_its_user(populated_app: PopulatedApp) -> None:
    await populated_app.control.people.change_user(OWNER, "member", UserChange(disabled=True))
    await populated_app.control.people.change_user(OWNER, "member", UserChange(disabled=False))
    assert await populated_app.control.tokens.identify(populated_app.tokens["member"]) is None


async def test_nobody_ends_anothers(populated_app: PopulatedApp) -> None:
    member, viewer = await populated_app.identity("member"), await populated_app.identity("viewer")
    with pytest.raises(NotFound):
        await populated_app.control.tokens.revoke(viewer, str(member.token))
    assert await populated_app.control.tokens.identify(populated_app.tokens["member"])


async def test_it_is_noted_once_a_minute_when_it_was_used(populated_app: PopulatedApp) -> None:
    async def used() -> float | None:
        (row,) = [
            r
            for r in await populated_app.harness.rows(t.tokens)
            if r["id"] == (await populated_app.identity("member")).token
        ]
        return row["used_at"]  # type: ignore[no-any-return]

    first = await used()
    populated_app.harness.clock.time += 30
    assert await used() == first
    populated_app.harness.clock.time += 61
    await populated_app.identity("member")
    assert await used() == populated_app.harness.clock.now()


async def test_a_token_makes_none_that_reaches_further(populated_app: PopulatedApp) -> None:
    tokens = populated_app.control.tokens
    narrow = await populated_app.control.tokens.identify(await token_of(populated_app.control, "member", scopes=READ))
    held = await populated_app.control.tokens.identify(await token_of(populated_app.control, "admin", project="alpha"))
    assert narrow
    assert held
    with pytest.raises(Forbidden):
        await tokens.create(narrow, NewToken(name="more", scopes=frozenset({Permission.WRITE}), days=None))
    with pytest.raises(Forbidden):
        await tokens.create(held, NewToken(name="more", scopes=READ, days=None))
    with pytest.raises(Forbidden):
        await tokens.create(narrow, NewToken(name="for another", scopes=READ, days=None, user="viewer"))
    with pytest.raises(NotFound):
        await tokens.create(narrow, NewToken(name="elsewhere", scopes=READ, days=None, project="beta"))


async def test_a_token_makes_none_that_outlives_it(populated_app: PopulatedApp) -> None:
    tokens = populated_app.control.tokens
    brief = await tokens.identify(await token_of(populated_app.control, "admin", days=9 / DAY))
    assert brief
    made = [
        await tokens.create(brief, NewToken(name="longer", scopes=READ, days=days)) for days in (None, 90.0, 1 / DAY)
    ]
    made.append(await tokens.share(brief, populated_app.job, "alpha", "link", 90 * DAY))
    populated_app.harness.clock.time += 5
    assert [bool(await tokens.identify(str(view.token))) for view in made] == [True, True, False, True]
    populated_app.harness.clock.time += 5
    assert [await tokens.identify(str(view.token)) for view in made] == [None] * 4


async def test_a_login_with_a_tokens_link_makes_none_that_outlives_the_token(populated_app: PopulatedApp) -> None:
    login, tokens = populated_app.control.login, populated_app.control.tokens
    brief = await tokens.identify(await token_of(populated_app.control, "member", days=2.0))
    assert brief
    session = await login.redeem(str((await login.create_link(brief)).token))
    who = await tokens.identify(str(session.token))
    assert who
    made = await tokens.create(who, NewToken(name="longer", scopes=READ, days=None))
    populated_app.harness.clock.time += 2 * DAY - 1
    assert await tokens.identify(str(session.token))
    assert await tokens.identify(str(made.token))
    populated_app.harness.clock.time += 2
    assert await tokens.identify(str(session.token)) is None
    assert await tokens.identify(str(made.token)) is None


async def test_a_token_sees_and_ends_none_that_reaches_further(populated_app: PopulatedApp) -> None:
    tokens = populated_app.control.tokens
    narrow = await tokens.identify(await token_of(populated_app.control, "member", scopes=READ, project="alpha"))
    same = await tokens.identify(await token_of(populated_app.control, "member", scopes=READ, project="alpha"))
    member = await populated_app.identity("member")
    assert narrow
    assert same
    listed = {view.id for view in (await tokens.list_tokens(narrow)).items}
    assert {narrow.token, same.token} <= listed
    assert member.token not in listed
    with pytest.raises(NotFound):
        await tokens.revoke(narrow, str(member.token))
    with pytest.raises(Forbidden):  # to read is not to change
        await tokens.revoke(narrow, str(same.token))
    await tokens.revoke(narrow, str(narrow.token))
    await tokens.revoke(member, str(same.token))
    assert await populated_app.identity("member") == member


async def test_lists_show_ones_own_and_everybodys_to_administrators(populated_app: PopulatedApp) -> None:
    tokens = populated_app.control.tokens
    own = await tokens.list_tokens(await populated_app.identity("member"))
    assert {item.user for item in own.items} == {"member"}
    assert {item.state for item in own.items} == {"good", "revoked"}
    everyones = await tokens.list_tokens(OWNER, all=True)
    assert {"viewer", "member", "admin"} <= {item.user for item in everyones.items}
    with pytest.raises(Forbidden):
        await tokens.list_tokens(await populated_app.identity("member"), all=True)


async def test_what_ended_long_ago_is_not_listed(populated_app: PopulatedApp) -> None:
    who, tokens = await populated_app.identity("member"), populated_app.control.tokens

    async def states() -> list[str]:
        page = await tokens.list_tokens(who)
        return sorted(item.state for item in page.items if item.name in ("short", "ended"))

    await tokens.create(who, NewToken(name="short", scopes=READ, days=60 / DAY))
    ended = await tokens.create(who, NewToken(name="ended", scopes=READ, days=None))
    await tokens.revoke(who, ended.id)
    populated_app.harness.clock.time += 29 * 86400
    assert await states() == ["expired", "revoked"]
    populated_app.harness.clock.time += 2 * 86400
    assert await states() == []


async def test_a_share_link_shows_its_job_and_no_other(populated_app: PopulatedApp) -> None:
    friend = ScopedControl(populated_app.control, await populated_app.identity("share"))
    other = (await populated_app.control.jobs.submit(OWNER, job_spec(project="alpha"), None)).view.id
    assert (await friend.jobs.view(populated_app.job)).id == populated_app.job
    assert (await friend.jobs.view("last")).id == populated_app.job
    assert [view.id for view in await populated_app.seen_by("share")] == [populated_app.job]
    assert {event.job for event in (await friend.outputs.events(None, after=0, limit=100)).items} == {populated_app.job}
    for ref in (other, other[-6:]):
        with pytest.raises(NotFound):
            await friend.jobs.view(ref)
    with pytest.raises(Forbidden):
        await friend.jobs.cancel(populated_app.job)


async def test_a_share_link_ends_with_the_membership_of_who_made_it(populated_app: PopulatedApp) -> None:
    await populated_app.control.people.remove_member(OWNER, "alpha", "member")
    friend = ScopedControl(populated_app.control, await populated_app.identity("share"))
    with pytest.raises(NotFound):
        await friend.jobs.view(populated_app.job)
