"""Who may have hooks, what is written down of it, and how their secrets are kept."""

from __future__ import annotations

import json

import pytest
from tests.authorisation.populated_app import PopulatedApp
from tests.control.fakes import FakePost
from tests.control.hooks.harness import DOWN, SECRET, URL, HookHarness

from crucible.control.db import schema as t
from crucible.control.hooks import Hooks
from crucible.core.errors import BadInput, Conflict, Forbidden, NotFound, RefusedByPolicy, Trouble
from crucible.core.hooks import ENDS, MOST_HOOKS, OVERLAP, HookEvent, HookFormat
from crucible.core.people.identity import OWNER, Identity
from crucible.core.secret import Secret
from crucible.core.signing import signing_secret, verify_message

OTHER = signing_secret(b"o" * 32)


async def add(hooks: Hooks, who: Identity = OWNER, project: str = "default", url: str = URL) -> str:
    made = await hooks.add(who, project, url, events=ENDS, format=HookFormat.JSON, secret=SECRET)
    return made.id


async def test_a_new_hook_shows_its_secret_once(hook_harness: HookHarness) -> None:
    hooks = hook_harness.harness.services.hooks
    made = await hooks.add(OWNER, "default", URL, events=ENDS, format=HookFormat.JSON, secret=SECRET)
    assert made.secret == SECRET.reveal()
    assert (made.url, made.events, made.state) == (URL, ("completed", "failed", "cancelled"), "enabled")
    (listed,) = (await hooks.list_hooks(OWNER, "default")).items
    for view in listed, await hooks.get(OWNER, "default", made.id[-6:]):
        assert "secret" not in view.as_json()
        assert view.id == made.id


async def test_a_secret_lies_encrypted_and_is_nothing_that_jobs_or_people_can_name(hook_harness: HookHarness) -> None:
    hook = await hook_harness.hook()
    (row,) = await hook_harness.harness.rows(t.secrets)
    assert row["name"] == f"hook:{hook}"
    assert SECRET.reveal() not in json.dumps(row)
    assert (await hook_harness.harness.services.vault.list_secrets(OWNER, "default")).items == ()
    with pytest.raises(NotFound):
        await hook_harness.harness.services.vault.remove(OWNER, "default", f"hook:{hook}")
    with pytest.raises(BadInput):
        await hook_harness.harness.services.vault.set(OWNER, "default", f"hook:{hook}", Secret("another value"))
    with pytest.raises(ValueError, match="secrets"):
        await hook_harness.harness.submit(secrets={"X": f"hook:{hook}"})


async def test_new_keys_of_secrets_change_nothing_for_receivers(hook_harness: HookHarness) -> None:
    hook = await hook_harness.hook()
    await hook_harness.harness.services.vault.rotate(OWNER)
    await hook_harness.harness.services.hooks.test(OWNER, "default", hook)
    (sent,) = hook_harness.sent()
    verify_message(SECRET, sent.headers, sent.body, hook_harness.harness.clock.now())


async def test_after_a_rotation_the_old_secret_is_good_for_a_day(hook_harness: HookHarness) -> None:
    hook, hooks = await hook_harness.hook(), hook_harness.harness.services.hooks
    assert (await hooks.rotate(OWNER, "default", hook, OTHER)).secret == OTHER.reveal()
    await hooks.test(OWNER, "default", hook)
    hook_harness.harness.clock.move(OVERLAP)
    await hooks.test(OWNER, "default", hook)
    during, after = hook_harness.sent()
    for secret in (SECRET, OTHER):
        verify_message(secret, during.headers, during.body, hook_harness.harness.clock.now() - OVERLAP)
    assert during.headers["webhook-signature"].count("v1,") == 2
    assert after.headers["webhook-signature"].count("v1,") == 1
    verify_message(OTHER, after.headers, after.body, hook_harness.harness.clock.now())


async def test_rotating_twice_forgets_the_first(hook_harness: HookHarness) -> None:
    hook, hooks = await hook_harness.hook(), hook_harness.harness.services.hooks
    await hooks.rotate(OWNER, "default", hook, OTHER)
    await hooks.rotate(OWNER, "default", hook, signing_secret(b"3" * 32))
    await hooks.test(OWNER, "default", hook)
    (sent,) = hook_harness.sent()
    verify_message(OTHER, sent.headers, sent.body, hook_harness.harness.clock.now())
    assert sent.headers["webhook-signature"].count("v1,") == 2


async def test_who_may_what(populated_app: PopulatedApp) -> None:
    hooks = populated_app.control.hooks
    who = {name: await populated_app.identity(name) for name in ("stranger", "viewer", "member", "manager", "share")}
    hook = await add(hooks, who["manager"], "alpha")
    for name in ("viewer", "member", "share"):
        for attempt in (
            hooks.list_hooks(who[name], "alpha"),
            hooks.get(who[name], "alpha", hook),
            add(hooks, who[name], "alpha"),
            hooks.change(who[name], "alpha", hook, enabled=False),
            hooks.rotate(who[name], "alpha", hook, OTHER),
            hooks.test(who[name], "alpha", hook),
            hooks.list_deliveries(who[name], "alpha", hook, limit=5),
            hooks.remove(who[name], "alpha", hook),
        ):
            with pytest.raises(Forbidden):
                await attempt
    with pytest.raises(NotFound, match="no project"):
        await hooks.list_hooks(who["stranger"], "alpha")
    with pytest.raises(NotFound, match="no hook"):
        await hooks.get(OWNER, "beta", hook)


async def test_what_was_done_is_recorded_with_the_host_alone(populated_app: PopulatedApp) -> None:
    hooks, manager = populated_app.control.hooks, await populated_app.identity("manager")
    hook = await add(hooks, manager, "alpha", "https://hooks.example/services/T0/B0/token-in-the-path")
    await hooks.change(manager, "alpha", hook, events=[HookEvent.FAILED], enabled=False)
    await hooks.test(manager, "alpha", hook)
    await hooks.rotate(manager, "alpha", hook, OTHER)
    await hooks.remove(manager, "alpha", hook)
    rows = [row for row in await populated_app.harness.rows(t.audit) if row["action"].startswith("hook.")]
    assert [row["action"].removeprefix("hook.") for row in rows] == ["create", "change", "test", "rotate", "remove"]
    assert {(row["name"], row["project"], row["target"]) for row in rows} == {("manager", "alpha", hook)}
    assert "token-in-the-path" not in json.dumps(rows)
    assert "whsec_" not in json.dumps(rows)
    assert json.loads(rows[1]["data"]) == {"enabled": False, "events": ["failed"]}


async def test_addresses_that_may_not_be_called_are_refused_when_they_are_given(hook_harness: HookHarness) -> None:
    hooks = hook_harness.harness.services.hooks
    hook = await hook_harness.hook()
    for url, error in (("http://10.0.0.1/", RefusedByPolicy), ("ftp://x", BadInput), ("https://unknown/", BadInput)):
        with pytest.raises(error):
            await add(hooks, url=url)
        with pytest.raises(error):
            await hooks.change(OWNER, "default", hook, url=url)
    assert (await hook_harness.view(hook)).url == URL


async def test_a_change_keeps_what_it_does_not_name(hook_harness: HookHarness) -> None:
    hook, hooks = await hook_harness.hook(), hook_harness.harness.services.hooks
    await hooks.change(OWNER, "default", hook, url="https://other.example/")
    view = await hooks.change(OWNER, "default", hook, events=[HookEvent.FAILED, HookEvent.STARTED])
    assert (view.url, view.events, view.enabled) == ("https://other.example/", ("started", "failed"), True)
    assert (await hooks.change(OWNER, "default", hook, enabled=False)).state == "disabled"


async def test_a_test_says_what_the_receiver_said_also_of_one_that_is_disabled(hook_harness: HookHarness) -> None:
    hook, hooks = await hook_harness.hook(), hook_harness.harness.services.hooks
    await hooks.change(OWNER, "default", hook, enabled=False)
    good = await hooks.test(OWNER, "default", hook)
    hook_harness.post.replies[URL] = [DOWN]
    bad = await hooks.test(OWNER, "default", hook)
    assert (good.outcome, good.status, good.answer, good.type) == ("delivered", 200, "thanks", "ping")
    assert (bad.outcome, bad.status, bad.answer) == ("failed", None, "nobody answers")
    view = await hook_harness.view(hook)
    assert (view.state, view.failures) == ("disabled", 0), "a test is no delivery"
    assert len(await hook_harness.tries(hook)) == 2


async def test_what_is_removed_leaves_nothing(hook_harness: HookHarness) -> None:
    hook = await hook_harness.hook()
    await hook_harness.harness.services.hooks.test(OWNER, "default", hook)
    await hook_harness.harness.services.hooks.remove(OWNER, "default", hook[-8:])
    for table in (t.hooks, t.deliveries, t.secrets):
        assert await hook_harness.harness.count(table) == 0
    with pytest.raises(NotFound, match="no hook"):
        await hook_harness.view(hook)


async def test_references_are_endings_that_fit_one(hook_harness: HookHarness) -> None:
    hooks = hook_harness.harness.services.hooks
    hook = await hook_harness.hook()
    for ref in (hook, hook.upper(), hook[-3:], f"hook-{hook[-6:]}"):
        assert (await hooks.get(OWNER, "default", ref)).id == hook
    for ref in ("", "x", hook[-2:], "hook-", "%", hook + "0"):
        with pytest.raises(NotFound):
            await hooks.get(OWNER, "default", ref)


async def test_a_reference_that_fits_several_is_a_conflict(hook_harness: HookHarness) -> None:
    first = await hook_harness.hook()
    twin = "hook-" + "1" * 10 + first[-16:]

    def copy(conn) -> None:  # type: ignore[no-untyped-def]
        row = dict(conn.execute(t.hooks.select()).mappings().one())
        conn.execute(t.hooks.insert().values({**row, "id": twin}))

    await hook_harness.harness.sql(copy)
    with pytest.raises(Conflict):
        await hook_harness.harness.services.hooks.get(OWNER, "default", first[-6:])


async def test_a_project_has_so_many_and_no_more(hook_harness: HookHarness) -> None:
    for _ in range(MOST_HOOKS):
        await hook_harness.hook()
    with pytest.raises(RefusedByPolicy, match="the most it may have"):
        await hook_harness.hook()


async def test_a_server_without_a_way_out_says_so(hook_harness: HookHarness) -> None:
    from crucible.control.hooks import Sender

    hooks = Hooks(
        hook_harness.harness.ports,
        hook_harness.harness.services.access,
        Sender(hook_harness.harness.ports, hook_harness.harness.services.vault, None),
    )
    with pytest.raises(Trouble, match="sends no notifications"):
        await add(hooks)


def test_the_fake_way_out_is_one(hook_harness: HookHarness) -> None:
    assert isinstance(hook_harness.post, FakePost)
