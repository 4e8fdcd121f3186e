"""Away to the provider, back, and in, or not."""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qsl, urlsplit

import pytest
from tests.control.people.openid.conftest import BACK, Gatehouse, answer_of
from tests.openid_provider import ADA, EVE

from crucible.control.db import schema as t
from crucible.control.people.openid.idtoken import KEEP_SECONDS, NotVouched
from crucible.control.people.openid.idtoken import REFETCH_SECONDS as KEYS_REFETCH_SECONDS
from crucible.control.people.openid.login import FETCH_SECONDS, SIGN_IN_SECONDS
from crucible.control.people.openid.transport import RETRY_SECONDS, ProviderTrouble
from crucible.core.errors import BadInput, Conflict, CrucibleError, Forbidden, NotAllowed
from crucible.core.people.identity import OWNER, LoginMethod, Role
from crucible.core.people.openid import ProviderResponse, WaitingCommand, make_challenge
from crucible.core.requests import UserChange

VERIFIER = "v" * 64
COMMAND = WaitingCommand(43210, make_challenge(VERIFIER), "echo-1")


async def test_a_user_whom_the_provider_vouches_for_gets_a_session(house: Gatehouse) -> None:
    landing = await house.sign_in("/jobs?all=1")
    assert (landing.user, landing.path, landing.handover) == ("ada", "/jobs?all=1", None)
    who = await house.who(landing)
    assert (who.name, who.via, who.admin) == ("ada", LoginMethod.BROWSER, False)


async def test_the_browser_is_sent_with_a_challenge_a_state_and_a_nonce(house: Gatehouse) -> None:
    begun = await house.login.begin(BACK)
    asked = dict(parse_qsl(urlsplit(begun.url).query))
    assert asked["redirect_uri"] == BACK
    assert asked["code_challenge_method"] == "S256"
    assert len({asked[name] for name in ("state", "nonce", "code_challenge")} | {begun.browser.reveal()}) == 4
    again = dict(parse_qsl(urlsplit((await house.login.begin(BACK)).url).query))
    assert all(again[name] != asked[name] for name in ("state", "nonce", "code_challenge"))


async def test_what_a_browser_shows_is_kept_as_a_digest(house: Gatehouse) -> None:
    begun = await house.login.begin(BACK)
    rows = str(await house.town.rig.rows(t.signins))
    assert begun.browser.reveal() not in rows
    assert dict(parse_qsl(urlsplit(begun.url).query))["state"] not in rows


async def test_the_providers_tokens_are_not_kept(house: Gatehouse) -> None:
    await house.sign_in()
    tables = (t.users, t.tokens, t.audit, t.signins, t.handovers)
    rows = str([await house.town.rig.rows(table) for table in tables])
    assert house.provider._access
    assert not any(token in rows for token in house.provider._access)
    assert "eyJ" not in rows


# who comes in


async def test_he_is_known_by_his_subject_from_then_on(house: Gatehouse) -> None:
    await house.sign_in()
    house.provider.person = {"sub": ADA["sub"], "email": "ada@elsewhere.example", "email_verified": False}
    assert (await house.sign_in()).user == "ada"


async def test_somebody_else_who_got_his_address_does_not_come_in(house: Gatehouse) -> None:
    await house.sign_in()
    house.provider.person = {**ADA, "sub": "another"}
    with pytest.raises(Forbidden, match="You are not a user of this server"):
        await house.sign_in()


async def test_a_new_address_ties_anew(house: Gatehouse) -> None:
    before = await house.sign_in()
    await house.town.control.people.change_user(OWNER, "ada", UserChange(email="ada@example.org"))
    assert before.session is not None
    assert await house.town.control.tokens.identify(str(before.session.token)) is None, "who was tied is out"
    house.provider.person = {**ADA, "sub": "another"}
    assert (await house.sign_in()).user == "ada"
    house.provider.person = ADA
    with pytest.raises(Forbidden):
        await house.sign_in()


async def test_another_provider_ties_anew_by_the_address(house: Gatehouse) -> None:
    await house.sign_in()
    moved = house.rebuilt(issuer="https://id.example.net")
    house.provider.issuer = "https://id.example.net"
    assert (await moved.sign_in()).user == "ada"
    house.provider.person = EVE
    with pytest.raises(Forbidden):
        await moved.sign_in()


async def test_the_same_subject_of_another_provider_is_somebody_else(house: Gatehouse) -> None:
    await house.sign_in()
    moved = house.rebuilt(issuer="https://id.example.net")
    house.provider.issuer = "https://id.example.net"
    house.provider.person = {**EVE, "sub": ADA["sub"]}
    with pytest.raises(Forbidden):
        await moved.sign_in()


@pytest.mark.parametrize("verified", [False, None, "false", 1, "yes", [True]])
async def test_an_address_that_is_not_confirmed_ties_nobody(house: Gatehouse, verified: object) -> None:
    house.provider.person = {**ADA, "email_verified": verified}
    with pytest.raises(Forbidden, match="has not verified your e-mail address") as caught:
        await house.sign_in()
    assert caught.value.http_status == 403
    assert caught.value.fix


@pytest.mark.parametrize("email", ["ADA@EXAMPLE.ORG", "Ada@example.org"])
async def test_capital_letters_do_not_matter(house: Gatehouse, email: str) -> None:
    house.provider.person = {**ADA, "email": email}
    assert (await house.sign_in()).user == "ada"


@pytest.mark.parametrize(
    "email", ["ada@example.org\n", "ada@example.org, eve@example.com", 7, "", "x" * 300 + "@a.org"]
)
async def test_addresses_that_are_none(house: Gatehouse, email: object) -> None:
    house.provider.person = {"sub": "5", "email": email, "email_verified": True}
    with pytest.raises(Forbidden):
        await house.sign_in()


async def test_a_letter_that_only_looks_like_his_is_not_his(house: Gatehouse) -> None:
    await house.town.control.people.add_user(OWNER, "kim", email="kim@example.org")
    house.provider.person = {"sub": "9", "email": "\N{KELVIN SIGN}im@example.org", "email_verified": True}
    with pytest.raises(Forbidden):
        await house.sign_in()


async def test_unknown_and_disabled_users_get_the_same_answer(house: Gatehouse) -> None:
    told = []
    for tied in (False, True):
        if tied:
            house.provider.person = ADA
            await house.sign_in()
        await house.town.control.people.change_user(OWNER, "ada", UserChange(disabled=True))
        for person in (ADA, EVE):
            house.provider.person = person
            with pytest.raises(Forbidden) as caught:
                await house.sign_in()
            told.append((caught.value.what, caught.value.why, caught.value.fix, caught.value.data))
        await house.town.control.people.change_user(OWNER, "ada", UserChange(disabled=False))
    assert all(words == told[0] for words in told)


async def test_a_foreign_domain_does_not_come_in_even_if_it_is_tied(house: Gatehouse) -> None:
    await house.sign_in()
    narrow = house.rebuilt(domains=("example.com",))
    with pytest.raises(Forbidden, match="of this domain"):
        await narrow.sign_in()
    house.provider.person = {**ADA, "email_verified": False}
    with pytest.raises(Forbidden, match="has not verified"):
        await narrow.sign_in()


@pytest.mark.parametrize("email", ["eve@sub.example.org", "eve@notexample.org", "eve@example.org.evil.example"])
async def test_domains_are_compared_whole(house: Gatehouse, email: str) -> None:
    house.provider.person = {"sub": "9", "email": email, "email_verified": True}
    with pytest.raises(Forbidden, match="of this domain"):
        await house.rebuilt(domains=("example.org",)).sign_in()


async def test_an_administrator_stays_one(house: Gatehouse) -> None:
    await house.town.control.people.change_user(OWNER, "ada", UserChange(admin=True))
    assert (await house.who(await house.sign_in())).admin


async def test_people_of_a_domain_become_members_of_a_project(house: Gatehouse) -> None:
    welcoming = house.rebuilt(domains=("example.com",), project="newcomers")
    house.provider.person = EVE
    for _ in range(2):
        who = await house.who(await welcoming.sign_in())
        assert (who.name, dict(who.roles), who.admin) == (EVE["email"], {"newcomers": Role.MEMBER}, False)
    actions = [deed.action for deed in await house.deeds()]
    assert [actions.count(name) for name in ("user.tie", "browser.create")] == [1, 2]
    assert {"user.create", "member.set"} <= set(actions)


async def test_a_newcomer_does_not_become_a_user_of_his_name_who_is_there(house: Gatehouse) -> None:
    await house.town.control.people.add_user(OWNER, str(EVE["email"]))
    house.provider.person = EVE
    with pytest.raises(Forbidden, match="You are not a user of this server"):
        await house.rebuilt(domains=("example.com",), project="newcomers").sign_in()


async def test_it_is_written_down_who_came_and_who_did_not(house: Gatehouse) -> None:
    await house.sign_in()
    house.provider.person = EVE
    with pytest.raises(Forbidden):
        await house.sign_in()
    newest, session, tied = (await house.deeds())[:3]
    assert (newest.action, newest.target, newest.data["why"]) == ("login.refuse", EVE["email"], "unknown")
    assert (session.action, session.user) == ("browser.create", "ada")
    assert (tied.action, tied.data["subject"]) == ("user.tie", ADA["sub"])


async def test_an_address_that_only_userinfo_tells(house: Gatehouse) -> None:
    house.provider.thin = True
    assert (await house.sign_in()).user == "ada"


async def test_userinfo_of_somebody_else_is_not_believed(house: Gatehouse) -> None:
    house.provider.thin = True
    house.provider.answers["/userinfo"] = (200, {**ADA, "sub": "another"})
    with pytest.raises(NotVouched, match="does not prove who you are"):
        await house.sign_in()


# the state


async def test_a_state_works_once(house: Gatehouse) -> None:
    answer = await house.away()
    await house.login.finish(answer)
    with pytest.raises(NotAllowed, match="was not started here, or it has ended"):
        await house.login.finish(answer)


async def test_of_two_at_once_one_comes_in(house: Gatehouse) -> None:
    answer = await house.away()
    both = await asyncio.gather(*(house.login.finish(answer) for _ in range(2)), return_exceptions=True)
    assert sorted(isinstance(one, NotAllowed) for one in both) == [False, True]


@pytest.mark.parametrize("browser", [None, "", "another browser's"])
async def test_another_browser_does_not_come_in_and_spoils_nothing(house: Gatehouse, browser: str | None) -> None:
    begun = await house.login.begin(BACK)
    url = house.provider.browse(begun.url)
    with pytest.raises(NotAllowed):
        await house.login.finish(answer_of(url, browser))
    assert (await house.login.finish(answer_of(url, begun.browser.reveal()))).user == "ada"


@pytest.mark.parametrize("state", [None, "", "made-up"])
async def test_a_state_that_nobody_gave_out(house: Gatehouse, state: str | None) -> None:
    answer = await house.away()
    with pytest.raises(NotAllowed):
        await house.login.finish(ProviderResponse(state, answer.code, None, None, answer.browser))


async def test_a_sign_in_that_took_too_long(house: Gatehouse) -> None:
    answer = await house.away()
    house.town.rig.clock.move(SIGN_IN_SECONDS + 1)
    with pytest.raises(NotAllowed, match="or it has ended"):
        await house.login.finish(answer)


async def test_what_was_never_finished_does_not_pile_up(house: Gatehouse) -> None:
    for _ in range(3):
        await house.login.begin(BACK)
    house.town.rig.clock.move(SIGN_IN_SECONDS + 1)
    await house.login.begin(BACK)
    assert len(await house.town.rig.rows(t.signins)) == 1


async def test_a_sign_in_at_the_provider_from_before_a_change_of_settings(house: Gatehouse) -> None:
    answer = await house.away()
    house.provider.issuer = "https://id.example.net"
    with pytest.raises(NotAllowed):
        await house.rebuilt(issuer="https://id.example.net").login.finish(answer)


@pytest.mark.parametrize(
    "path", ["//evil.example", "https://evil.example", "/\\evil.example", "jobs", "/\t/evil.example"]
)
async def test_it_ends_at_no_other_site(house: Gatehouse, path: str) -> None:
    with pytest.raises(BadInput, match="is not a path on this server"):
        await house.login.begin(BACK, path=path)


# the answer


async def test_what_the_provider_refused_is_told(house: Gatehouse) -> None:
    answer = await house.away()
    with pytest.raises(NotAllowed, match="did not sign you in") as caught:
        await house.login.finish(ProviderResponse(answer.state, None, "access_denied", None, answer.browser))
    assert "access_denied" in caught.value.why


async def test_an_answer_without_a_code(house: Gatehouse) -> None:
    answer = await house.away()
    with pytest.raises(BadInput, match="has no code"):
        await house.login.finish(ProviderResponse(answer.state, None, None, None, answer.browser))


async def test_a_code_that_was_used_before(house: Gatehouse) -> None:
    first = await house.away()
    await house.login.finish(first)
    second = await house.away()
    with pytest.raises(NotVouched):
        await house.login.finish(ProviderResponse(second.state, first.code, None, None, second.browser))


async def test_a_code_of_another_sign_in(house: Gatehouse) -> None:
    """Put into the victim's answer by whoever got it: the verifier does not fit."""
    stolen, own = await house.away(), await house.away()
    with pytest.raises(NotVouched):
        await house.login.finish(ProviderResponse(own.state, stolen.code, None, None, own.browser))


@pytest.mark.parametrize(
    "more",
    [
        {"nonce": "of another sign-in"},
        {"nonce": None},
        {"aud": "another client"},
        {"aud": ["another client"]},
        {"aud": ["crucible", "another client"]},
        {"aud": ["crucible", "another client"], "azp": "another client"},
        {"aud": "another client", "azp": "crucible"},
        {"aud": ["another client"], "azp": "crucible"},
        {"aud": None},
        {"azp": "another client"},
        {"iss": "https://evil.example"},
        {"iss": None},
        {"exp": 1_000},
        {"exp": None},
        {"exp": "tomorrow"},
        {"iat": 9_999_999_999},
        {"iat": None},
        {"nbf": 9_999_999_999},
        {"sub": None},
        {"sub": ""},
        {"sub": 4711},
        {"sub": "x" * 256},
        {"sub": "a\x00b"},
        {"sub": "a\nb"},
        {"at_hash": "of another token"},
    ],
)
async def test_tokens_that_are_not_for_this_sign_in(house: Gatehouse, more: dict[str, object]) -> None:
    house.provider.token_more = more
    with pytest.raises(NotVouched) as caught:
        await house.sign_in()
    assert (caught.value.http_status, bool(caught.value.why), bool(caught.value.fix)) == (401, True, True)


async def test_two_audiences_of_which_we_are_the_one_that_asked(house: Gatehouse) -> None:
    house.provider.token_more = {"aud": ["crucible", "another"], "azp": "crucible"}
    assert (await house.sign_in()).user == "ada"


@pytest.mark.parametrize("late", [30, -30])
async def test_clocks_may_differ_a_little(house: Gatehouse, late: int) -> None:
    now = int(house.town.rig.clock.now())
    house.provider.token_more = {"exp": now - 30} if late > 0 else {"iat": now + 30}
    assert (await house.sign_in()).user == "ada"


async def test_an_answer_that_names_another_provider(house: Gatehouse) -> None:
    begun = await house.login.begin(BACK)
    url = house.provider.browse(begun.url)
    with pytest.raises(NotVouched) as caught:
        await house.login.finish(answer_of(url, begun.browser.reveal(), iss="https://evil.example"))
    assert "another provider" in caught.value.why
    assert house.provider.sent == [], "the code is not handed to anybody"


@pytest.mark.parametrize(("iss", "comes_in"), [("https://id.example.org", True), (None, False)])
async def test_a_provider_that_says_it_names_itself(house: Gatehouse, iss: str | None, comes_in: bool) -> None:
    house.provider.metadata_more = {"authorization_response_iss_parameter_supported": True}
    begun = await house.login.begin(BACK)
    more = {} if iss is None else {"iss": iss}
    answer = answer_of(house.provider.browse(begun.url), begun.browser.reveal(), **more)
    if comes_in:
        assert (await house.login.finish(answer)).user == "ada"
    else:
        with pytest.raises(NotVouched):
            await house.login.finish(answer)


# the provider's fault


def steadily(house: Gatehouse) -> list[float]:
    """The seconds that the provider's documents grow old by, to be moved on."""
    steady = [100.0]
    house.login._provider._steady = house.login._provider._published._now = lambda: steady[0]
    return steady


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/.well-known/openid-configuration", (500, {})),
        ("/.well-known/openid-configuration", (200, [])),
        ("/.well-known/openid-configuration", (200, {"issuer": "https://id.example.org"})),
        ("/keys", (200, {})),
        ("/keys", (404, {"keys": []})),
        ("/token", (200, "tokens")),
        ("/token", (500, {})),
        ("/token", (401, {"error": "invalid_client"})),
        ("/token", (404, {"id_token": "a.b.c"})),
        ("/token", (200, {"id_token": "a.b.c", "expires_in": "soon"})),
    ],
)
async def test_what_the_provider_does_wrong_is_not_the_persons_fault(
    house: Gatehouse, path: str, answer: tuple[int, object]
) -> None:
    house.provider.answers[path] = answer
    with pytest.raises(ProviderTrouble) as caught:
        await house.sign_in()
    assert (caught.value.http_status, caught.value.code) == (503, "provider_trouble")
    assert "crucible login" in caught.value.fix


@pytest.mark.parametrize(
    "answer", [{}, {"id_token": 7}, {"id_token": ""}, {"id_token": "a.b.c"}, {"id_token": "é.é.é"}]
)
async def test_tokens_that_are_none(house: Gatehouse, answer: dict[str, object]) -> None:
    house.provider.answers["/token"] = (200, answer)
    with pytest.raises(NotVouched):
        await house.sign_in()


async def test_a_provider_that_comes_back_is_used_again_and_not_asked_by_everybody_until_then(
    house: Gatehouse,
) -> None:
    steady = steadily(house)
    house.provider.answers["/.well-known/openid-configuration"] = (503, {})
    for _ in range(5):
        with pytest.raises(ProviderTrouble):
            await house.sign_in()
    assert len(house.provider.asked) == 1
    house.provider.answers.clear()
    steady[0] += RETRY_SECONDS
    assert (await house.sign_in()).user == "ada"


async def test_a_provider_that_hangs(house: Gatehouse) -> None:
    house.town.rig.calls.hanging.add("openid")
    with pytest.raises(ProviderTrouble, match="sign-in provider failed"):
        await house.sign_in()


async def test_keys_that_moved_are_looked_for_where_they_are(house: Gatehouse) -> None:
    """Those of the old list are not believed for as long as they would have been kept."""
    steady = steadily(house)
    await house.login.begin(BACK)
    steady[0] += KEEP_SECONDS - 1
    await house.sign_in()
    house.provider.metadata_more = {"jwks_uri": "https://id.example.org/moved"}
    house.provider.answers["/moved"] = (200, {"keys": []})
    steady[0] += 2
    with pytest.raises(NotVouched):
        await house.sign_in()


async def test_a_new_key_of_the_provider_is_looked_for_and_not_at_once(house: Gatehouse) -> None:
    steady = steadily(house)
    house.provider.metadata_more = {"id_token_signing_alg_values_supported": ["RS256", "ES256"]}
    await house.sign_in()
    house.provider.alg = "ES256"
    with pytest.raises(NotVouched):
        await house.sign_in()
    steady[0] += KEYS_REFETCH_SECONDS
    assert (await house.sign_in()).user == "ada"
    assert house.provider.asked.count("/keys") == 2


async def test_a_provider_that_signs_with_an_algorithm_it_does_not_name(house: Gatehouse) -> None:
    house.provider.alg = "ES256"
    with pytest.raises(NotVouched):
        await house.sign_in()
    house.provider.metadata_more = {"id_token_signing_alg_values_supported": ["ES256"]}
    assert (await house.rebuilt().sign_in()).user == "ada"


# how we say who we are


async def test_the_secret_goes_in_the_form_where_the_provider_wants_it_there(house: Gatehouse) -> None:
    house.provider.methods = ("client_secret_post",)
    assert (await house.sign_in()).user == "ada"
    assert house.provider.sent[0]["client_secret"]


async def test_a_client_without_a_secret(house: Gatehouse) -> None:
    house.provider.secret, house.provider.methods = None, ("none",)
    assert (await house.rebuilt(secret=None).sign_in()).user == "ada"


# commands


async def test_a_command_fetches_its_session_with_the_verifier(house: Gatehouse) -> None:
    landing = await house.sign_in(command=COMMAND)
    assert (landing.user, landing.session) == ("ada", None)
    assert str(landing.handover).startswith("http://127.0.0.1:43210/?")
    given = dict(parse_qsl(urlsplit(str(landing.handover)).query))
    assert given["state"] == "echo-1"
    session = await house.login.fetch(given["code"], VERIFIER)
    assert session.user == "ada"
    with pytest.raises(NotAllowed):
        await house.login.fetch(given["code"], VERIFIER)


async def handed(house: Gatehouse) -> str:
    landing = await house.sign_in(command=COMMAND)
    return dict(parse_qsl(urlsplit(str(landing.handover)).query))["code"]


async def test_who_only_saw_the_code_gets_nothing_and_neither_does_anybody_after(house: Gatehouse) -> None:
    code = await handed(house)
    for verifier in ("w" * 64, VERIFIER):
        with pytest.raises(NotAllowed, match="This code is not valid"):
            await house.login.fetch(code, verifier)


async def test_a_code_is_good_for_minutes(house: Gatehouse) -> None:
    code = await handed(house)
    house.town.rig.clock.move(FETCH_SECONDS + 1)
    with pytest.raises(NotAllowed):
        await house.login.fetch(code, VERIFIER)


async def test_a_user_who_was_disabled_meanwhile(house: Gatehouse) -> None:
    code = await handed(house)
    await house.town.control.people.change_user(OWNER, "ada", UserChange(disabled=True))
    with pytest.raises(NotAllowed):
        await house.login.fetch(code, VERIFIER)


async def test_a_commands_code_is_no_login_link_and_no_token(house: Gatehouse) -> None:
    code = await handed(house)
    assert await house.town.control.tokens.identify(code) is None
    with pytest.raises(NotAllowed):
        await house.town.control.login.redeem(code)
    link = str((await house.town.control.login.create_link(OWNER)).token)
    with pytest.raises(CrucibleError):
        await house.login.fetch(link, VERIFIER)


# tied by an administrator


async def test_a_user_is_tied_by_the_providers_name_for_him(house: Gatehouse) -> None:
    people = house.town.control.people
    await people.change_user(OWNER, "viewer", UserChange(subject="0815"))
    house.provider.person = {"sub": "0815"}
    assert (await house.sign_in()).user == "viewer"
    with pytest.raises(Conflict, match="linked to the user 'viewer'"):
        await people.change_user(OWNER, "member", UserChange(subject="0815"))
    await people.change_user(OWNER, "viewer", UserChange(email=""))
    with pytest.raises(Forbidden):
        await house.sign_in()


@pytest.mark.parametrize("subject", ["", "ä", "\x00"])
async def test_subjects_that_are_none(house: Gatehouse, subject: str) -> None:
    with pytest.raises(BadInput, match="not a valid subject"):
        await house.town.control.people.change_user(OWNER, "viewer", UserChange(subject=subject))


async def test_nobody_ties_himself(house: Gatehouse) -> None:
    with pytest.raises(Forbidden):
        await house.town.control.people.change_user(
            await house.town.identity("viewer"), "viewer", UserChange(subject="0815")
        )
