from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.control.harness import ControlHarness, job_spec, service

from crucible.control.db import schema as t
from crucible.control.telemetry.feed import Hint
from crucible.core.errors import BadInput, Conflict, NotFound
from crucible.core.job.job_filter import JobFilter
from crucible.core.job.tags import MAX_TAGS
from crucible.core.people.identity import OWNER
from crucible.wire.documents.messages import MessageKind


async def test_a_job_has_the_labels_it_was_submitted_with(harness: ControlHarness) -> None:
    view = (await service(harness).jobs.submit(OWNER, job_spec(name="mine", tags=("b", "a = 1 ", "a=2")), None)).view
    assert (view.name, view.tags) == ("mine", ("a=2", "b"))


@pytest.mark.parametrize("tag", ["=x", " ", " = "])
async def test_what_is_no_tag_refuses_the_job(harness: ControlHarness, tag: str) -> None:
    with pytest.raises(BadInput, match="is not a valid tag"):
        await service(harness).jobs.submit(OWNER, job_spec(tags=(tag,)), None)
    assert await harness.rows(t.jobs) == []
    assert await harness.rows(t.listings) == []


async def test_tags_are_added_replaced_and_removed(harness: ControlHarness) -> None:
    control, job = service(harness), await harness.submit(tags=("lr=1", "draft", "team=x"))

    async def change(add: list[str], remove: list[str]) -> tuple[str, ...]:
        return (await control.labels.change_tags(OWNER, job, add=add, remove=remove)).items

    assert await change(["lr=2", "best"], ["draft"]) == ("best", "lr=2", "team=x")
    assert await change([], ["lr=1", "nothing"]) == ("best", "lr=2", "team=x")
    assert await change([], ["lr=2", "team"]) == ("best",)
    assert await change(["best=of all"], ["best"]) == ("best=of all",)
    assert (await control.labels.tags(OWNER, job)).items == ("best=of all",)
    assert (await control.jobs.view(OWNER, job)).tags == ("best=of all",)


async def test_a_job_has_only_so_many_tags(harness: ControlHarness) -> None:
    control, job = service(harness), await harness.submit(tags=tuple(f"t{n}" for n in range(MAX_TAGS)))
    with pytest.raises(BadInput, match=f"at most {MAX_TAGS}"):
        await control.labels.change_tags(OWNER, job, add=["one more"], remove=[])
    changed = await control.labels.change_tags(OWNER, job, add=["one more"], remove=["t0"])
    assert "one more" in changed.items


async def test_a_job_is_renamed_and_found_by_its_new_name(harness: ControlHarness) -> None:
    control, job = service(harness), await harness.submit(name="old")
    assert (await control.labels.rename(OWNER, job, "New")).name == "New"

    async def found(**given: Any) -> object:
        page: Any = await control.jobs.list_jobs(OWNER, JobFilter(**given), limit=5, cursor=None)
        return [item.id for item in page.items]

    assert await found(name="new") == await found(named="New") == [job]
    assert await found(name="old") == []
    assert (await control.labels.rename(OWNER, job, None)).name is None
    assert await found(named="New") == []


async def test_labels_never_meet_a_step_of_the_jobs_life(harness: ControlHarness) -> None:
    """Neither the version nor the events of the job change, so whoever decides meanwhile need not decide again."""
    control = service(harness)
    job, runner = await harness.running()
    before = await harness.world(job)
    await control.labels.rename(OWNER, job, "other")
    await control.labels.change_tags(OWNER, job, add=["a"], remove=[])
    note = await control.labels.add_note(OWNER, job, text="looks good")
    await control.labels.delete_note(OWNER, job, note.id)
    assert await harness.world(job) == before
    await runner.say(MessageKind.PROGRESS, fraction=0.5)


async def test_who_watches_is_told(harness: ControlHarness) -> None:
    control = service(harness)
    job = await harness.submit()
    async with control.jobs.watch(job) as watch:
        await control.labels.change_tags(OWNER, job, add=["a"], remove=[])
        assert await watch.changed(1.0) == {Hint.EVENT}


async def test_notes_are_appended_and_deleted(harness: ControlHarness) -> None:
    control, job = service(harness), await harness.submit()
    first = await control.labels.add_note(OWNER, job, text="diverges after 3k steps")
    harness.clock.move(60)
    second = await control.labels.add_note(OWNER, job, text="lower the rate")
    assert [note.author for note in (await control.labels.notes(OWNER, job)).items] == ["owner", "owner"]
    assert first.at != second.at
    assert (await control.jobs.details(OWNER, job)).notes == (first, second)
    assert await control.labels.delete_note(OWNER, job, first.short) == first
    assert (await control.labels.notes(OWNER, job)).items == (second,)
    with pytest.raises(NotFound, match="has no note"):
        await control.labels.delete_note(OWNER, job, first.id)


async def test_a_note_belongs_to_its_job(harness: ControlHarness) -> None:
    control, job, other = service(harness), await harness.submit(), await harness.submit()
    note = await control.labels.add_note(OWNER, job, text="x")
    with pytest.raises(NotFound):
        await control.labels.delete_note(OWNER, other, note.id)
    for ref in ("", "a", "nte-", "%"):
        with pytest.raises(NotFound):
            await control.labels.delete_note(OWNER, job, ref)


async def test_a_job_has_only_so_many_notes(harness: ControlHarness) -> None:
    control, job = service(harness), await harness.submit()
    for n in range(100):
        await control.labels.add_note(OWNER, job, text=str(n))
    with pytest.raises(Conflict, match="has 100 notes"):
        await control.labels.add_note(OWNER, job, text="one more")


async def test_changes_at_the_same_time_all_count(harness: ControlHarness) -> None:
    control, job = service(harness), await harness.submit()
    await asyncio.gather(*(control.labels.change_tags(OWNER, job, add=[f"t{n}"], remove=[]) for n in range(5)))
    assert (await control.labels.tags(OWNER, job)).items == tuple(f"t{n}" for n in range(5))
