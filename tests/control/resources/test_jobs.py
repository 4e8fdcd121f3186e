"""What a caller sees of jobs, and may say of them."""

from __future__ import annotations

import pytest
from tests.authorisation.town import CODE, MODEL, Town
from tests.control.world import job_spec, sha

from crucible.core.errors import NotFound
from crucible.core.job.job_filter import JobFilter
from crucible.core.people.identity import OWNER, Identity
from crucible.core.views.jobs import JobView


async def views(town: Town, who: Identity) -> list[JobView]:
    jobs = town.control.jobs
    page = await jobs.list_jobs(who, JobFilter(), limit=50, cursor=None)
    return [await jobs.details(who, town.job), await jobs.view(who, town.job), *page.items]


async def test_a_share_link_does_not_show_the_hash_of_the_code(town: Town) -> None:
    for name, shown in (("member", sha(CODE)), ("viewer", sha(CODE)), ("share", None)):
        assert {view.bundle for view in await views(town, await town.identity(name))} == {shown}
    share, outputs = await town.identity("share"), town.control.outputs
    texts = [view.model_dump_json() for view in await views(town, share)]
    texts.append((await outputs.events(share, town.job, after=0, limit=100)).model_dump_json())
    texts.append((await outputs.artifacts(share, town.job)).model_dump_json())
    texts.append((await town.control.checkpoints.list_checkpoints(share, town.job)).model_dump_json())
    assert not any(sha(CODE) in text for text in texts)


async def test_a_share_link_shows_the_hashes_of_what_it_gives(town: Town) -> None:
    """Downloads are verified by them."""
    share = await town.identity("share")
    assert [item.sha256 for item in (await town.control.outputs.artifacts(share, town.job)).items] == [sha(MODEL)]
    (saved,) = (await town.control.checkpoints.list_checkpoints(share, town.job)).items
    assert saved.sha256 == sha(MODEL)


@pytest.mark.parametrize("ref", ["theirs", "unknown", "last"])
async def test_a_job_repeats_no_other_projects_job(town: Town, ref: str) -> None:
    stranger = await town.identity("stranger")
    named = {"theirs": town.job, "unknown": "job-01hf7yat00000000000000zzzz"}.get(ref, ref)
    with pytest.raises(NotFound):
        await town.control.jobs.submit(stranger, job_spec(project="beta", rerun_of=named), None)
    assert (await town.control.jobs.list_jobs(stranger, JobFilter(), limit=50, cursor=None)).items == ()


async def test_nor_does_a_user_of_both_projects_name_a_job_of_one_in_the_other(town: Town) -> None:
    with pytest.raises(NotFound, match="in the project 'beta'"):
        await town.control.jobs.submit(OWNER, job_spec(project="beta", rerun_of=town.job), None)


async def test_a_job_may_say_that_it_repeats_one_of_its_project(town: Town) -> None:
    member = await town.identity("member")
    made = await town.control.jobs.submit(member, job_spec(project="alpha", rerun_of=town.job[-8:]), None)
    assert made.view.rerun_of == town.job
    again = await town.control.jobs.rerun(member, town.job, None)
    assert again.view.rerun_of == town.job
