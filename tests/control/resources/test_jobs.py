"""What a caller sees of jobs, and may say of them."""

from __future__ import annotations

import pytest
from tests.authorisation.populated_app import CODE, MODEL, PopulatedApp
from tests.control.harness import job_spec, sha

from crucible.core.errors import NotFound
from crucible.core.job.job_filter import JobFilter
from crucible.core.people.identity import OWNER, Identity
from crucible.core.views.jobs import JobView


async def views(populated_app: PopulatedApp, who: Identity) -> list[JobView]:
    jobs = populated_app.control.jobs
    page = await jobs.list_jobs(who, JobFilter(), limit=50, cursor=None)
    return [await jobs.details(who, populated_app.job), await jobs.view(who, populated_app.job), *page.items]


async def test_a_share_link_does_not_show_the_hash_of_the_code(populated_app: PopulatedApp) -> None:
    for name, shown in (("member", sha(CODE)), ("viewer", sha(CODE)), ("share", None)):
        assert {view.bundle for view in await views(populated_app, await populated_app.identity(name))} == {shown}
    share, outputs = await populated_app.identity("share"), populated_app.control.outputs
    texts = [view.model_dump_json() for view in await views(populated_app, share)]
    texts.append((await outputs.events(share, populated_app.job, after=0, limit=100)).model_dump_json())
    texts.append((await outputs.artifacts(share, populated_app.job)).model_dump_json())
    texts.append((await populated_app.control.checkpoints.list_checkpoints(share, populated_app.job)).model_dump_json())
    assert not any(sha(CODE) in text for text in texts)


async def test_a_share_link_shows_the_hashes_of_what_it_gives(populated_app: PopulatedApp) -> None:
    """Downloads are verified by them."""
    share = await populated_app.identity("share")
    assert [
        item.sha256 for item in (await populated_app.control.outputs.artifacts(share, populated_app.job)).items
    ] == [sha(MODEL)]
    (saved,) = (await populated_app.control.checkpoints.list_checkpoints(share, populated_app.job)).items
    assert saved.sha256 == sha(MODEL)


@pytest.mark.parametrize("ref", ["theirs", "unknown", "last"])
async def test_a_job_repeats_no_other_projects_job(populated_app: PopulatedApp, ref: str) -> None:
    stranger = await populated_app.identity("stranger")
    named = {"theirs": populated_app.job, "unknown": "job-01hf7yat00000000000000zzzz"}.get(ref, ref)
    with pytest.raises(NotFound):
        await populated_app.control.jobs.submit(stranger, job_spec(project="beta", rerun_of=named), None)
    assert (await populated_app.control.jobs.list_jobs(stranger, JobFilter(), limit=50, cursor=None)).items == ()


async def test_nor_does_a_user_of_both_projects_name_a_job_of_one_in_the_other(populated_app: PopulatedApp) -> None:
    with pytest.raises(NotFound, match="in the project 'beta'"):
        await populated_app.control.jobs.submit(OWNER, job_spec(project="beta", rerun_of=populated_app.job), None)


async def test_a_job_may_say_that_it_repeats_one_of_its_project(populated_app: PopulatedApp) -> None:
    member = await populated_app.identity("member")
    made = await populated_app.control.jobs.submit(
        member, job_spec(project="alpha", rerun_of=populated_app.job[-8:]), None
    )
    assert made.view.rerun_of == populated_app.job
    again = await populated_app.control.jobs.rerun(member, populated_app.job, None)
    assert again.view.rerun_of == populated_app.job
