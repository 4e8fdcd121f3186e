"""Away to the provider, back, and in, or not."""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qsl, urlsplit

import pytest
from tests.control.people.openid.conftest import BACK, OpenIdHarness, answer_of
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


async def test_a_user_whom_the_provider_vouches_for_gets_a_session(openid_harness: OpenIdHarness) -> None:
    landing = await openid_harness.sign_in("/jobs?all=1")
    assert (landing.user, landing.path, landing.handover) == ("ada", "/jobs?all=1", None)
    who = await openid_harness.who(landing)
    assert (who.name, who.via, who.admin) == ("ada", LoginMethod.BROWSER, False)


async def test_the_browser_is_sent_with_a_challenge_a_state_and_a_nonce(openid_harness: OpenIdHarness) -> None:
    begun = await openid_harness.login.begin(BACK)
    asked = dict(parse_qsl(urlsplit(begun.url).query))
    assert asked["redirect_uri"] == BACK
    assert asked["code_challenge_method"] == "S256"
    assert len({asked[name] for name in ("state", "nonce", "code_challenge")} | {begun.browser.reveal()}) == 4
    again = dict(parse_qsl(urlsplit((await openid_harness.login.begin(BACK)).url).query))
    assert all(again[name] != asked[name] for name in ("state", "nonce", "code_challenge"))


async def test_what_a_browser_shows_is_kept_as_a_digest(openid_harness: OpenIdHarness) -> None:
    begun = await openid_harness.login.begin(BACK)
    rows = str(await openid_harness.populated_app.harness.rows(t.signins))
    assert begun.browser.reveal() not in rows
    assert dict(parse_qsl(urlsplit(begun.url).query))["state"] not in rows


async def test_the_providers_tokens_are_not_kept(openid_harness: OpenIdHarness) -> None:
    await openid_harness.sign_in()
    tables = (t.users, t.tokens, t.audit, t.signins, t.handovers)
    rows = str([await openid_harness.populated_app.harness.rows(table) for table in tables])
    assert openid_harness.provider._access
    assert not any(token in rows for token in openid_harness.provider._access)
    assert "eyJ" not in rows


# who comes in


async def test_he_is_known_by_his_subject_from_then_on(openid_harness: OpenIdHarness) -> None:
    await openid_harness.sign_in()
    openid_harness.provider.person = {"sub": ADA["sub"], "email": "ada@elsewhere.example", "email_verified": False}
    assert (await openid_harness.sign_in()).user == "ada"


async def test_somebody_else_who_got_his_address_does_not_come_in(openid_harness: OpenIdHarness) -> None:
    await openid_harness.sign_in()
    openid_harness.provider.person = {**ADA, "sub": "another"}
    with pytest.raises(Forbidden, match="You are not a user of this server"):
        await openid_harness.sign_in()


async def test_a_new_address_ties_anew(openid_harness: OpenIdHarness) -> None:
    before = await openid_harness.sign_in()
    await openid_harness.populated_app.control.people.change_user(OWNER, "ada", UserChange(email="ada@example.org"))
    assert before.session is not None
    assert await openid_harness.populated_app.control.tokens.identify(str(before.session.token)) is None, (
        "who was tied is out"
    )
    openid_harness.provider.person = {**ADA, "sub": "another"}
    assert (await openid_harness.sign_in()).user == "ada"
    openid_harness.provider.person = ADA
    with pytest.raises(Forbidden):
        await openid_harness.sign_in()


async def test_another_provider_ties_anew_by_the_address(openid_harness: OpenIdHarness) -> None:
    await openid_harness.sign_in()
    moved = openid_harness.rebuilt(issuer="https://id.example.net")
    openid_harness.provider.issuer = "https://id.example.net"
    assert (await moved.sign_in()).user == "ada"
    openid_harness.provider.person = EVE
    with pytest.raises(Forbidden):
        await moved.sign_in()


async def test_the_same_subject_of_another_provider_is_somebody_else(openid_harness: OpenIdHarness) -> None:
    await openid_harness.sign_in()
    moved = openid_harness.rebuilt(issuer="https://id.example.net")
    openid_harness.provider.issuer = "https://id.example.net"
    openid_harness.provider.person = {**EVE, "sub": ADA["sub"]}
    with pytest.raises(Forbidden):
        await moved.sign_in()


@pytest.mark.parametrize("verified", [False, None, "false", 1, "yes", [True]])
async def test_an_address_that_is_not_confirmed_ties_nobody(openid_harness: OpenIdHarness, verified: object) -> None:
    openid_harness.provider.person = {**ADA, "email_verified": verified}
    with pytest.raises(Forbidden, match="has not verified your e-mail address") as caught:
        await openid_harness.sign_in()
    assert caught.value.http_status == 403
    assert caught.value.fix


@pytest.mark.parametrize("email", ["ADA@EXAMPLE.ORG", "Ada@example.org"])
async def test_capital_letters_do_not_matter(openid_harness: OpenIdHarness, email: str) -> None:
    openid_harness.provider.person = {**ADA, "email": email}
    assert (await openid_harness.sign_in()).user == "ada"


@pytest.mark.parametrize(
    "email", ["ada@example.org\n", "ada@example.org, eve@example.com", 7, "", "x" * 300 + "@a.org"]
)
async def test_addresses_that_are_none(openid_harness: OpenIdHarness, email: object) -> None:
    openid_harness.provider.person = {"sub": "5", "email": email, "email_verified": True}
    with pytest.raises(Forbidden):
        await openid_harness.sign_in()


async def test_a_letter_that_only_looks_like_his_is_not_his(openid_harness: OpenIdHarness) -> None:
    await openid_harness.populated_app.control.people.add_user(OWNER, "kim", email="kim@example.org")
    openid_harness.provider.person = {"sub": "9", "email": "\N{KELVIN SIGN}im@example.org", "email_verified": True}
    with pytest.raises(Forbidden):
        await openid_harness.sign_in()


async def test_unknown_and_disabled_users_get_the_same_answer(openid_harness: OpenIdHarness) -> None:
    told = []
    for tied in (False, True):
        if tied:
            openid_harness.provider.person = ADA
            await openid_harness.sign_in()
        await openid_harness.populated_app.control.people.change_user(OWNER, "ada", UserChange(disabled=True))
        for person in (ADA, EVE):
            openid_harness.provider.person = person
            with pytest.raises(Forbidden) as caught:
                await openid_harness.sign_in()
            told.append((caught.value.what, caught.value.why, caught.value.fix, caught.value.data))
        await openid_harness.populated_app.control.people.change_user(OWNER, "ada", UserChange(disabled=False))
    assert all(words == told[0] for words in told)


async def test_a_foreign_domain_does_not_come_in_even_if_it_is_tied(openid_harness: OpenIdHarness) -> None:
    await openid_harness.sign_in()
    narrow = openid_harness.rebuilt(domains=("example.com",))
    with pytest.raises(Forbidden, match="of this domain"):
        await narrow.sign_in()
    openid_harness.provider.person = {**ADA, "email_verified": False}
    with pytest.raises(Forbidden, match="has not verified"):
        await narrow.sign_in()


@pytest.mark.parametrize("email", ["eve@sub.example.org", "eve@notexample.org", "eve@example.org.evil.example"])
async def test_domains_are_compared_whole(openid_harness: OpenIdHarness, email: str) -> None:
    openid_harness.provider.person = {"sub": "9", "email": email, "email_verified": True}
    with pytest.raises(Forbidden, match="of this domain"):
        await openid_harness.rebuilt(domains=("example.org",)).sign_in()


async def test_an_administrator_stays_one(openid_harness: OpenIdHarness) -> None:
    await openid_harness.populated_app.control.people.change_user(OWNER, "ada", UserChange(admin=True))
    assert (await openid_harness.who(await openid_harness.sign_in())).admin


async def test_people_of_a_domain_become_members_of_a_project(openid_harness: OpenIdHarness) -> None:
    welcoming = openid_harness.rebuilt(domains=("example.com",), project="newcomers")
    openid_harness.provider.person = EVE
    for _ in range(2):
        who = await openid_harness.who(await welcoming.sign_in())
        assert (who.name, dict(who.roles), who.admin) == (EVE["email"], {"newcomers": Role.MEMBER}, False)
    actions = [deed.action for deed in await openid_harness.deeds()]
    assert [actions.count(name) for name in ("user.tie", "browser.create")] == [1, 2]
    assert {"user.create", "member.set"} <= set(actions)


async def test_a_newcomer_does_not_become_a_user_of_his_name_who_is_there(openid_harness: OpenIdHarness) -> None:
    await openid_harness.populated_app.control.people.add_user(OWNER, str(EVE["email"]))
    openid_harness.provider.person = EVE
    with pytest.raises(Forbidden, match="You are not a user of this server"):
        await openid_harness.rebuilt(domains=("example.com",), project="newcomers").sign_in()


async def test_it_is_written_down_who_came_and_who_did_not(openid_harness: OpenIdHarness) -> None:
    await openid_harness.sign_in()
    openid_harness.provider.person = EVE
    with pytest.raises(Forbidden):
        await openid_harness.sign_in()
    newest, session, tied = (await openid_harness.deeds())[:3]
    assert (newest.action, newest.target, newest.data["why"]) == ("login.refuse", EVE["email"], "unknown")
    assert (session.action, session.user) == ("browser.create", "ada")
    assert (tied.action, tied.data["subject"]) == ("user.tie", ADA["sub"])


async def test_an_address_that_only_userinfo_tells(openid_harness: OpenIdHarness) -> None:
    openid_harness.provider.thin = True
    assert (await openid_harness.sign_in()).user == "ada"


async def test_userinfo_of_somebody_else_is_not_believed(openid_harness: OpenIdHarness) -> None:
    openid_harness.provider.thin = True
    openid_harness.provider.answers["/userinfo"] = (200, {**ADA, "sub": "another"})
    with pytest.raises(NotVouched, match="does not prove who you are"):
        await openid_harness.sign_in()


# the state


async def test_a_state_works_once(openid_harness: OpenIdHarness) -> None:
    answer = await openid_harness.away()
    await openid_harness.login.finish(answer)
    with pytest.raises(NotAllowed, match="was not started here, or it has ended"):
        await openid_harness.login.finish(answer)


async def test_of_two_at_once_one_comes_in(openid_harness: OpenIdHarness) -> None:
    answer = await openid_harness.away()
    both = await asyncio.gather(*(openid_harness.login.finish(answer) for _ in range(2)), return_exceptions=True)
    assert sorted(isinstance(one, NotAllowed) for one in both) == [False, True]


@pytest.mark.parametrize("browser", [None, "", "another browser's"])
async def test_another_browser_does_not_come_in_and_spoils_nothing(
    openid_harness: OpenIdHarness, browser: str | None
) -> None:
    begun = await openid_harness.login.begin(BACK)
    url = openid_harness.provider.browse(begun.url)
    with pytest.raises(NotAllowed):
        await openid_harness.login.finish(answer_of(url, browser))
    assert (await openid_harness.login.finish(answer_of(url, begun.browser.reveal()))).user == "ada"


@pytest.mark.parametrize("state", [None, "", "made-up"])
async def test_a_state_that_nobody_gave_out(openid_harness: OpenIdHarness, state: str | None) -> None:
    answer = await openid_harness.away()
    with pytest.raises(NotAllowed):
        await openid_harness.login.finish(ProviderResponse(state, answer.code, None, None, answer.browser))


async def test_a_sign_in_that_took_too_long(openid_harness: OpenIdHarness) -> None:
    answer = await openid_harness.away()
    openid_harness.populated_app.harness.clock.move(SIGN_IN_SECONDS + 1)
    with pytest.raises(NotAllowed, match="or it has ended"):
        await openid_harness.login.finish(answer)


async def test_what_was_never_finished_does_not_pile_up(openid_harness: OpenIdHarness) -> None:
    for _ in range(3):
        await openid_harness.login.begin(BACK)
    openid_harness.populated_app.harness.clock.move(SIGN_IN_SECONDS + 1)
    await openid_harness.login.begin(BACK)
    assert len(await openid_harness.populated_app.harness.rows(t.signins)) == 1


async def test_a_sign_in_at_the_provider_from_before_a_change_of_settings(openid_harness: OpenIdHarness) -> None:
    answer = await openid_harness.away()
    openid_harness.provider.issuer = "https://id.example.net"
    with pytest.raises(NotAllowed):
        await openid_harness.rebuilt(issuer="https://id.example.net").login.finish(answer)


@pytest.mark.parametrize(
    "path", ["//evil.example", "https://evil.example", "/\\evil.example", "jobs", "/\t/evil.example"]
)
async def test_it_ends_at_no_other_site(openid_harness: OpenIdHarness, path: str) -> None:
    with pytest.raises(BadInput, match="is not a path on this server"):
        await openid_harness.login.begin(BACK, path=path)


# the answer


async def test_what_the_provider_refused_is_told(openid_harness: OpenIdHarness) -> None:
    answer = await openid_harness.away()
    with pytest.raises(NotAllowed, match="did not sign you in") as caught:
        await openid_harness.login.finish(ProviderResponse(answer.state, None, "access_denied", None, answer.browser))
    assert "access_denied" in caught.value.why


async def test_an_answer_without_a_code(openid_harness: OpenIdHarness) -> None:
    answer = await openid_harness.away()
    with pytest.raises(BadInput, match="has no code"):
        await openid_harness.login.finish(ProviderResponse(answer.state, None, None, None, answer.browser))


async def test_a_code_that_was_used_before(openid_harness: OpenIdHarness) -> None:
    first = await openid_harness.away()
    await openid_harness.login.finish(first)
    second = await openid_harness.away()
    with pytest.raises(NotVouched):
        await openid_harness.login.finish(ProviderResponse(second.state, first.code, None, None, second.browser))


async def test_a_code_of_another_sign_in(openid_harness: OpenIdHarness) -> None:
    """Put into the victim's answer by whoever got it: the verifier does not fit."""
    stolen, own = await openid_harness.away(), await openid_harness.away()
    with pytest.raises(NotVouched):
        await openid_harness.login.finish(ProviderResponse(own.state, stolen.code, None, None, own.browser))


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
async def test_tokens_that_are_not_for_this_sign_in(openid_harness: OpenIdHarness, more: dict[str, object]) -> None:
    openid_harness.provider.token_more = more
    with pytest.raises(NotVouched) as caught:
        await openid_harness.sign_in()
    assert (caught.value.http_status, bool(caught.value.why), bool(caught.value.fix)) == (401, True, True)


async def test_two_audiences_of_which_we_are_the_one_that_asked(openid_harness: OpenIdHarness) -> None:
    openid_harness.provider.token_more = {"aud": ["crucible", "another"], "azp": "crucible"}
    assert (await openid_harness.sign_in()).user == "ada"


@pytest.mark.parametrize("late", [30, -30])
async def test_clocks_may_differ_a_little(openid_harness: OpenIdHarness, late: int) -> None:
    now = int(openid_harness.populated_app.harness.clock.now())
    openid_harness.provider.token_more = {"exp": now - 30} if late > 0 else {"iat": now + 30}
    assert (await openid_harness.sign_in()).user == "ada"


async def test_an_answer_that_names_another_provider(openid_harness: OpenIdHarness) -> None:
    begun = await openid_harness.login.begin(BACK)
    url = openid_harness.provider.browse(begun.url)
    with pytest.raises(NotVouched) as caught:
        await openid_harness.login.finish(answer_of(url, begun.browser.reveal(), iss="https://evil.example"))
    assert "another provider" in caught.value.why
    assert openid_harness.provider.sent == [], "the code is not handed to anybody"


@pytest.mark.parametrize(("iss", "comes_in"), [("https://id.example.org", True), (None, False)])
async def test_a_provider_that_says_it_names_itself(
    openid_harness: OpenIdHarness, iss: str | None, comes_in: bool
) -> None:
    openid_harness.provider.metadata_more = {"authorization_response_iss_parameter_supported": True}
    begun = await openid_harness.login.begin(BACK)
    more = {} if iss is None else {"iss": iss}
    answer = answer_of(openid_harness.provider.browse(begun.url), begun.browser.reveal(), **more)
    if comes_in:
        assert (await openid_harness.login.finish(answer)).user == "ada"
    else:
        with pytest.raises(NotVouched):
            await openid_harness.login.finish(answer)


# the provider's fault


def steadily(openid_harness: OpenIdHarness) -> list[float]:
    """The seconds that the provider's documents grow old by, to be moved on."""
    steady = [100.0]
    openid_harness.login._provider._steady = openid_harness.login._provider._published._now = lambda: steady[0]
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
    openid_harness: OpenIdHarness, path: str, answer: tuple[int, object]
) -> None:
    openid_harness.provider.answers[path] = answer
    with pytest.raises(ProviderTrouble) as caught:
        await openid_harness.sign_in()
    assert (caught.value.http_status, caught.value.code) == (503, "provider_trouble")
    assert "crucible login" in caught.value.fix


@pytest.mark.parametrize(
    "answer", [{}, {"id_token": 7}, {"id_token": ""}, {"id_token": "a.b.c"}, {"id_token": "é.é.é"}]
)
async def test_tokens_that_are_none(openid_harness: OpenIdHarness, answer: dict[str, object]) -> None:
    openid_harness.provider.answers["/token"] = (200, answer)
    with pytest.raises(NotVouched):
        await openid_harness.sign_in()


async def test_a_provider_that_comes_back_is_used_again_and_not_asked_by_everybody_until_then(
    openid_harness: OpenIdHarness,
) -> None:
    steady = steadily(openid_harness)
    openid_harness.provider.answers["/.well-known/openid-configuration"] = (503, {})
    for _ in range(5):
        with pytest.raises(ProviderTrouble):
            await openid_harness.sign_in()
    assert len(openid_harness.provider.asked) == 1
    openid_harness.provider.answers.clear()
    steady[0] += RETRY_SECONDS
    assert (await openid_harness.sign_in()).user == "ada"


async def test_a_provider_that_hangs(openid_harness: OpenIdHarness) -> None:
    openid_harness.populated_app.harness.calls.hanging.add("openid")
    with pytest.raises(ProviderTrouble, match="sign-in provider failed"):
        await openid_harness.sign_in()


async def test_keys_that_moved_are_looked_for_where_they_are(openid_harness: OpenIdHarness) -> None:
    """Those of the old list are not believed for as long as they would have been kept."""
    steady = steadily(openid_harness)
    await openid_harness.login.begin(BACK)
    steady[0] += KEEP_SECONDS - 1
    await openid_harness.sign_in()
    openid_harness.provider.metadata_more = {"jwks_uri": "https://id.example.org/moved"}
    openid_harness.provider.answers["/moved"] = (200, {"keys": []})
    steady[0] += 2
    with pytest.raises(NotVouched):
        await openid_harness.sign_in()


async def test_a_new_key_of_the_provider_is_looked_for_and_not_at_once(openid_harness: OpenIdHarness) -> None:
    steady = steadily(openid_harness)
    openid_harness.provider.metadata_more = {"id_token_signing_alg_values_supported": ["RS256", "ES256"]}
    await openid_harness.sign_in()
    openid_harness.provider.alg = "ES256"
    with pytest.raises(NotVouched):
        await openid_harness.sign_in()
    steady[0] += KEYS_REFETCH_SECONDS
    assert (await openid_harness.sign_in()).user == "ada"
    assert openid_harness.provider.asked.count("/keys") == 2


async def test_a_provider_that_signs_with_an_algorithm_it_does_not_name(openid_harness: OpenIdHarness) -> None:
    openid_harness.provider.alg = "ES256"
    with pytest.raises(NotVouched):
        await openid_harness.sign_in()
    openid_harness.provider.metadata_more = {"id_token_signing_alg_values_supported": ["ES256"]}
    assert (await openid_harness.rebuilt().sign_in()).user == "ada"


# how we say who we are


async def test_the_secret_goes_in_the_form_where_the_provider_wants_it_there(openid_harness: OpenIdHarness) -> None:
    openid_harness.provider.methods = ("client_secret_post",)
    assert (await openid_harness.sign_in()).user == "ada"
    assert openid_harness.provider.sent[0]["client_secret"]


async def test_a_client_without_a_secret(openid_harness: OpenIdHarness) -> None:
    openid_harness.provider.secret, openid_harness.provider.methods = None, ("none",)
    assert (await openid_harness.rebuilt(secret=None).sign_in()).user == "ada"


# commands


async def test_a_command_fetches_its_session_with_the_verifier(openid_harness: OpenIdHarness) -> None:
    landing = await openid_harness.sign_in(command=COMMAND)
    assert (landing.user, landing.session) == ("ada", None)
    assert str(landing.handover).startswith("http://127.0.0.1:43210/?")
    given = dict(parse_qsl(urlsplit(str(landing.handover)).query))
    assert given["state"] == "echo-1"
    session = await openid_harness.login.fetch(given["code"], VERIFIER)
    assert session.user == "ada"
    with pytest.raises(NotAllowed):
        await openid_harness.login.fetch(given["code"], VERIFIER)


async def handed(openid_harness: OpenIdHarness) -> str:
    landing = await openid_harness.sign_in(command=COMMAND)
    return dict(parse_qsl(urlsplit(str(landing.handover)).query))["code"]


async def test_who_only_saw_the_code_gets_nothing_and_neither_does_anybody_after(openid_harness: OpenIdHarness) -> None:
    code = await handed(openid_harness)
    for verifier in ("w" * 64, VERIFIER):
        with pytest.raises(NotAllowed, match="This code is not valid"):
            await openid_harness.login.fetch(code, verifier)


async def test_a_code_is_good_for_minutes(openid_harness: OpenIdHarness) -> None:
    code = await handed(openid_harness)
    openid_harness.populated_app.harness.clock.move(FETCH_SECONDS + 1)
    with pytest.raises(NotAllowed):
        await openid_harness.login.fetch(code, VERIFIER)


async def test_a_user_who_was_disabled_meanwhile(openid_harness: OpenIdHarness) -> None:
    code = await handed(openid_harness)
    await openid_harness.populated_app.control.people.change_user(OWNER, "ada", UserChange(disabled=True))
    with pytest.raises(NotAllowed):
        await openid_harness.login.fetch(code, VERIFIER)


async def test_a_commands_code_is_no_login_link_and_no_token(openid_harness: OpenIdHarness) -> None:
    code = await handed(openid_harness)
    assert await openid_harness.populated_app.control.tokens.identify(code) is None
    with pytest.raises(NotAllowed):
        await openid_harness.populated_app.control.login.redeem(code)
    link = str((await openid_harness.populated_app.control.login.create_link(OWNER)).token)
    with pytest.raises(CrucibleError):
        await openid_harness.login.fetch(link, VERIFIER)


# tied by an administrator


async def test_a_user_is_tied_by_the_providers_name_for_him(openid_harness: OpenIdHarness) -> None:
    people = openid_harness.populated_app.control.people
    await people.change_user(OWNER, "viewer", UserChange(subject="0815"))
    openid_harness.provider.person = {"sub": "0815"}
    assert (await openid_harness.sign_in()).user == "viewer"
    with pytest.raises(Conflict, match="linked to the user 'viewer'"):
        await people.change_user(OWNER, "member", UserChange(subject="0815"))
    await people.change_user(OWNER, "viewer", UserChange(email=""))
    with pytest.raises(Forbidden):
        await openid_harness.sign_in()


@pytest.mark.parametrize("subject", ["", "ä", "\x00"])
async def test_subjects_that_are_none(openid_harness: OpenIdHarness, subject: str) -> None:
    with pytest.raises(BadInput, match="not a valid subject"):
        await openid_harness.populated_app.control.people.change_user(OWNER, "viewer", UserChange(subject=subject))


async def test_nobody_ties_himself(openid_harness: OpenIdHarness) -> None:
    with pytest.raises(Forbidden):
        await openid_harness.populated_app.control.people.change_user(
            await openid_harness.populated_app.identity("viewer"), "viewer", UserChange(subject="0815")
        )
