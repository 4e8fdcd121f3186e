"""What is told: the event and the job in short, and nothing that is nobody's business."""

from __future__ import annotations

import json

from tests.control.hooks.harness import URL, HookHarness

from crucible.control.hooks import messages, rows
from crucible.core.hooks import HookEvent, HookFormat


async def test_a_message_says_what_happened_to_which_job(hook_harness: HookHarness) -> None:
    await hook_harness.hook()
    job = await hook_harness.end_a_job(code=3, name="nightly", tags=("team=vision",))
    await hook_harness.notify()
    (told,) = hook_harness.messages()
    assert set(told) == {"type", "timestamp", "data"}
    assert told["timestamp"] == told["data"]["event"]["at"]
    assert told["data"]["event"]["type"] == "failed"
    about = told["data"]["job"]
    assert (about["id"], about["name"], about["project"], about["status"]) == (job, "nightly", "default", "failed")
    assert (about["exit_code"], about["tags"], about["cost"]["micros"]) == (3, ["team=vision"], 0)
    assert about["reason"]["message"]


async def test_neither_commands_nor_variables_nor_secrets_are_told(hook_harness: HookHarness) -> None:
    await hook_harness.hook(events=list(HookEvent))
    await hook_harness.end_a_job(command=("sh", "-c", "echo canary-1"), env={"KEY": "canary-2"})
    await hook_harness.notify()
    assert hook_harness.sent()
    assert not [one for one in hook_harness.sent() if b"canary" in one.body]


async def test_slack_is_told_in_a_line_that_cannot_hold_markup(hook_harness: HookHarness) -> None:
    await hook_harness.hook(format=HookFormat.SLACK)
    await hook_harness.end_a_job(code=1, name="<!channel> & co")
    await hook_harness.notify()
    (told,) = hook_harness.messages()
    assert set(told) == {"text"}
    assert told["text"].startswith("&lt;!channel&gt; &amp; co (job-")
    assert ": failed" in told["text"]


async def test_ids_are_the_same_each_time_and_others_for_other_hooks_and_events(hook_harness: HookHarness) -> None:
    one, other = await hook_harness.hook(), await hook_harness.hook(URL + "2")
    await hook_harness.end_a_job()
    await hook_harness.end_a_job()

    def made(conn) -> list[str]:  # type: ignore[no-untyped-def]
        found = []
        for hook in rows.list_hooks(conn, "default"):
            after = hook.cursor
            while event := messages.next_event(conn, hook, after, rows.newest_cursor(conn)):
                found.append(messages.event_message(conn, hook, event, 5.0).id)
                after = int(event["cursor"])
        return found

    first, second = await hook_harness.harness.read(made), await hook_harness.harness.read(made)
    assert first == second
    assert len(set(first)) == 4
    assert one != other


async def test_a_ping_says_whose_it_is(hook_harness: HookHarness) -> None:
    hook = await hook_harness.hook()
    message = messages.ping_message(await hook_harness.row(hook), hook_harness.harness.clock.now())
    assert json.loads(message.body)["data"] == {"hook": hook, "project": "default"}
    slack = messages.ping_message(await hook_harness.row(await hook_harness.hook(format=HookFormat.SLACK)), 5.0)
    assert set(json.loads(slack.body)) == {"text"}


async def test_the_next_event_is_found_by_index(hook_harness: HookHarness) -> None:
    """The place in the feed decides where reading begins, however long the feed is."""
    if hook_harness.harness.ports.db.__class__.__name__ != "InlineDb":
        return
    from sqlalchemy import text

    hook = await hook_harness.row(await hook_harness.hook())
    clause = messages._NEXT._clause
    values = {"after": 1, "upto": 5, "types": ["completed"], "in_project": hook.project}

    def plan(conn) -> str:  # type: ignore[no-untyped-def]
        sql = str(clause.params(**values).compile(dialect=conn.dialect, compile_kwargs={"literal_binds": True}))
        return " ".join(str(row) for row in conn.execute(text(f"EXPLAIN QUERY PLAN {sql}")))

    found = await hook_harness.harness.read(plan)
    assert "SCAN" not in found
    assert "SEARCH events USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)" in found
