"""Users, projects and members, and the record of what was done to them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.authorisation.town import Town
from tests.control.caller import As
from tests.control.world import Rig, job_spec, service, sha

from crucible.control.control_plane import ControlPlane
from crucible.control.db import schema as t
from crucible.core.errors import BadInput, Conflict, Forbidden, NotFound, RefusedByPolicy
from crucible.core.job.job_filter import JobFilter
from crucible.core.people.identity import OWNER, Permission, Role
from crucible.core.requests import Resumption, UserChange


async def test_a_user_sees_the_jobs_of_his_projects_only(town: Town) -> None:
    theirs = (await town.control.jobs.submit(OWNER, job_spec(project="beta"), None)).view.id
    seen = {name: {job.id for job in await town.seen_by(name)} for name in ("stranger", "viewer", "admin")}
    assert seen == {"stranger": {theirs}, "viewer": {town.job}, "admin": {theirs, town.job}}


async def test_last_is_the_last_that_he_may_see(town: Town) -> None:
    await town.control.jobs.submit(OWNER, job_spec(project="beta"), None)
    viewer = As(town.control, await town.identity("viewer"))
    assert (await viewer.jobs.view("last")).id == town.job


async def test_an_ending_that_fits_a_foreign_job_fits_nothing(town: Town) -> None:
    stranger = As(town.control, await town.identity("stranger"))
    for ref in (town.job, town.job[-6:], f"job-{town.job[-6:]}"):
        with pytest.raises(NotFound) as caught:
            await stranger.jobs.view(ref)
        assert "alpha" not in str(caught.value)


async def test_counts_and_machines_are_those_of_ones_projects(town: Town) -> None:
    stranger, viewer = await town.faces("stranger", "viewer")
    assert [(await c.maintenance.status()).counts.running for c in (stranger, viewer, As(town.control, OWNER))] == [
        0,
        1,
        1,
    ]
    assert [len((await c.machines.list_machines()).items) for c in (stranger, viewer, As(town.control, OWNER))] == [
        0,
        1,
        1,
    ]


async def test_a_job_says_whose_it_is(town: Town) -> None:
    view = await town.control.jobs.view(OWNER, town.job)
    assert (view.project, view.user) == ("alpha", "member")
    own = await town.control.jobs.submit(OWNER, job_spec(), None)
    assert (own.view.project, own.view.user) == ("default", "owner")


async def test_a_members_job_goes_to_his_only_project(town: Town) -> None:
    member = As(town.control, await town.identity("member"))
    assert (await member.jobs.submit(job_spec(), None)).view.project == "alpha"


async def test_two_projects_may_use_the_same_key(town: Town) -> None:
    member, stranger = await town.faces("member", "stranger")
    mine = await member.jobs.submit(job_spec(), "key")
    theirs = await stranger.jobs.submit(job_spec(), "key")
    assert mine.view.id != theirs.view.id
    assert (await member.jobs.submit(job_spec(), "key")).view.id == mine.view.id


async def test_many_are_cancelled_only_where_he_may(town: Town) -> None:
    for name in ("stranger", "viewer", "share"):
        (caller,) = await town.faces(name)
        assert await caller.jobs.cancel_matching(JobFilter(), limit=10, dry_run=False) == ([], False)
        alpha = JobFilter(project=("alpha",))
        assert await caller.jobs.cancel_matching(alpha, limit=10, dry_run=False) == ([], False)
        (refused,) = await caller.jobs.cancel_named([town.job], dry_run=False)
        assert isinstance(refused, NotFound if name == "stranger" else Forbidden)
    assert (await town.control.jobs.view(OWNER, town.job)).desired == "run"
    (member,) = await town.faces("member")
    views, more = await member.jobs.cancel_matching(JobFilter(), limit=10, dry_run=False)
    assert ([view.id for view in views], more) == ([town.job], False)
    assert (await town.control.jobs.view(OWNER, town.job)).desired == "cancel"


async def test_many_are_submitted_each_by_its_own_right(town: Town) -> None:
    (member,) = await town.faces("member")
    mine, theirs = await member.jobs.submit_many([(job_spec(), None), (job_spec(project="beta"), None)])
    assert getattr(mine, "created", False)
    assert isinstance(theirs, NotFound)


async def test_a_filter_by_project_widens_nothing(town: Town) -> None:
    (stranger,) = await town.faces("stranger")
    assert (await stranger.jobs.list_jobs(JobFilter(project=("alpha",)), limit=10, cursor=None)).items == ()


async def test_a_rerun_stays_in_its_project(town: Town) -> None:
    assert (await town.control.jobs.rerun(OWNER, town.job, None)).view.project == "alpha"


async def test_whoever_knows_the_hash_of_code_has_no_right_to_it(town: Town) -> None:
    stranger = As(town.control, await town.identity("stranger"))
    code = (await town.rig.rows(t.bundles))[0]["sha256"]
    with pytest.raises(BadInput, match="has not been uploaded"):
        await stranger.jobs.submit(job_spec(bundle=code), None)
    assert code == sha(b"print('hello')")


async def test_a_foreign_checkpoint_cannot_be_started_from(town: Town) -> None:
    stranger, member = await town.faces("stranger", "member")
    checkpoint = (await member.checkpoints.list_checkpoints(town.job)).items[0].id
    with pytest.raises(NotFound):
        await stranger.jobs.submit(job_spec(resume_from=checkpoint), None)
    assert (await member.jobs.submit(job_spec(resume_from=checkpoint), None)).created


async def test_jobs_of_users_do_not_run_on_the_servers_own_computer(rig: Rig, town: Town) -> None:
    careful = service(rig)
    member = await town.identity("member")
    with pytest.raises(RefusedByPolicy) as caught:
        await careful.jobs.submit(member, job_spec(), None)
    assert "shared_computer" in caught.value.fix
    assert (await careful.jobs.submit(OWNER, job_spec(), None)).created


async def ended(control: ControlPlane) -> str:
    """A job of the project alpha that was cancelled while it waited."""
    job = (await control.jobs.submit(OWNER, job_spec(project="alpha", resources={"cpus": 4}), None)).view.id
    await control.jobs.cancel(OWNER, job)
    assert (await control.jobs.view(OWNER, job)).status == "cancelled"
    return job


async def test_nor_do_they_by_being_resumed_there(rig: Rig, town: Town) -> None:
    careful = service(rig)
    job, member = await ended(careful), await town.identity("member")
    for backend in (None, rig.backend.name):
        with pytest.raises(RefusedByPolicy, match="several users"):
            await careful.jobs.resume(member, job, Resumption(backend=backend))
    assert (await careful.jobs.resume(OWNER, job, Resumption())).status != "cancelled"


async def test_who_resumed_a_job_is_written_down(town: Town) -> None:
    job, member = await ended(town.control), await town.identity("member")
    await town.control.jobs.resume(member, job, Resumption())
    newest = (await town.control.people.audit(OWNER, project="alpha", before=None, limit=1)).items
    [(user, action, target)] = [(item.user, item.action, item.target) for item in newest]
    assert (user, action, target) == ("member", "job.resume", job)


async def test_what_the_owner_does_with_a_job_of_another_is_written_down_and_with_his_own_not(town: Town) -> None:
    async def actions() -> list[tuple[str, str, str]]:
        found = await town.control.people.audit(OWNER, project=None, before=None, limit=100)
        return [(item.user, item.action, item.target) for item in found.items]

    member = await town.identity("member")
    theirs = (await town.control.jobs.submit(member, job_spec(cpus=4, project="alpha"), None)).view.id
    his = (await town.control.jobs.submit(OWNER, job_spec(cpus=4), None)).view.id
    for job in (theirs, his):
        await town.control.jobs.cancel(OWNER, job)
        await town.control.jobs.resume(OWNER, job, Resumption())
    assert {("owner", "job.cancel", theirs), ("owner", "job.resume", theirs)} <= set(await actions())
    assert not [target for _, action, target in await actions() if action.startswith("job.") and target == his]


async def test_members_come_change_and_go(town: Town) -> None:
    people, manager = town.control.people, await town.identity("manager")
    await people.set_member(manager, "alpha", "stranger", Role.VIEWER)
    await people.set_member(manager, "alpha", "stranger", Role.MEMBER)
    assert {m.name: m.role for m in (await people.list_members(manager, "alpha")).items}["stranger"] == "member"
    assert len(await town.seen_by("stranger")) == 1
    await people.remove_member(manager, "alpha", "stranger")
    assert await town.seen_by("stranger") == ()
    with pytest.raises(NotFound):
        await people.remove_member(manager, "alpha", "stranger")


async def test_a_manager_manages_his_own_project_alone(town: Town) -> None:
    people, manager = town.control.people, await town.identity("manager")
    with pytest.raises(NotFound):
        await people.set_member(manager, "beta", "manager", Role.ADMIN)
    with pytest.raises(Forbidden):
        await people.add_project(manager, "mine")


@pytest.mark.parametrize("name", ["alpha", "default"])
async def test_a_name_that_is_taken(town: Town, name: str) -> None:
    with pytest.raises(Conflict):
        await town.control.people.add_project(OWNER, name)


@pytest.mark.parametrize("name", ["viewer", "owner"])
async def test_a_user_that_is_there(town: Town, name: str) -> None:
    with pytest.raises(Conflict):
        await town.control.people.add_user(OWNER, name)


async def test_a_project_nobody_made(town: Town) -> None:
    with pytest.raises(NotFound):
        await town.control.people.list_members(OWNER, "nothing")
    with pytest.raises(NotFound):
        await town.control.jobs.submit(OWNER, job_spec(project="nothing"), None)


async def test_what_i_am(town: Town) -> None:
    me = await town.control.people.me(await town.identity("viewer"))
    assert (me.user, me.admin, me.projects) == ("viewer", False, {"alpha": "viewer"})
    owner = await town.control.people.me(OWNER)
    assert owner.projects == {"alpha": "admin", "beta": "admin", "default": "admin"}


async def test_the_record_tells_who_did_what(town: Town) -> None:
    member = await town.identity("member")
    await town.control.jobs.cancel(member, town.job)
    whole = await town.control.people.audit(OWNER, project=None, before=None, limit=100)
    items = [(item.user, item.action, item.project) for item in whole.items]
    assert items[0] == ("member", "job.cancel", "alpha")
    assert ("member", "job.submit", "alpha") in items
    assert ("owner", "member.set", "beta") in items
    assert ("member", "share.create", "alpha") in items


async def test_the_whole_record_is_an_administrators_and_a_projects_admin_is_told_of_his_part(town: Town) -> None:
    people, manager = town.control.people, await town.identity("manager")
    with pytest.raises(Forbidden) as refused:
        await people.audit(manager, project=None, before=None, limit=5)
    assert refused.value.fix == "Name a project that you manage: crucible audit --project alpha"
    both = replace(manager, roles={"alpha": Role.ADMIN, "beta": Role.ADMIN, "gamma": Role.MEMBER})
    with pytest.raises(Forbidden) as refused:
        await people.audit(both, project=None, before=None, limit=5)
    assert refused.value.fix.endswith("crucible audit --project alpha (or beta)")
    narrow = replace(manager, scopes=frozenset({Permission.READ}))
    with pytest.raises(Forbidden, match="operate") as refused:
        await people.audit(narrow, project=None, before=None, limit=5)
    assert "--project alpha" in refused.value.fix
    with pytest.raises(Forbidden) as refused:
        await people.audit(narrow, project="alpha", before=None, limit=5)
    assert "a token with more scopes" in refused.value.fix
    for name in ("member", "viewer"):
        with pytest.raises(Forbidden) as refused:
            await people.audit(await town.identity(name), project=None, before=None, limit=5)
        assert "--project" not in refused.value.fix


async def test_a_project_has_its_own_record_in_pages(town: Town) -> None:
    people, manager = town.control.people, await town.identity("manager")
    seen: list[str] = []
    before: int | None = None
    while True:
        page = await people.audit(manager, project="alpha", before=before, limit=2)
        seen += [item.model_dump_json() for item in page.items]
        before = page.next
        if before is None:
            break
    assert len(seen) == len(set(seen)) >= 4
    assert not any("beta" in item for item in seen)


async def test_the_owner_cannot_be_changed(town: Town) -> None:
    with pytest.raises(Conflict):
        await town.control.people.change_user(OWNER, "owner", UserChange(disabled=True))


async def test_an_address_is_one_users(town: Town) -> None:
    people = town.control.people
    await people.add_user(OWNER, "ada", email="Ada@Example.org")
    with pytest.raises(Conflict, match="belongs to another user"):
        await people.add_user(OWNER, "bob", email="ada@example.org")
    with pytest.raises(Conflict):
        await people.change_user(OWNER, "viewer", UserChange(email="ADA@example.org"))
    again = await people.change_user(OWNER, "ada", UserChange(email="ada@example.org"))
    assert (again.email, again.tied) == ("ada@example.org", False)
    await people.change_user(OWNER, "ada", UserChange(email=""))
    assert (await people.change_user(OWNER, "viewer", UserChange(email="ada@example.org"))).email == "ada@example.org"


async def test_nobody_sets_his_own_address(town: Town) -> None:
    for name in ("viewer", "manager"):
        with pytest.raises(Forbidden):
            await town.control.people.change_user(await town.identity(name), name, UserChange(email="root@example.org"))
