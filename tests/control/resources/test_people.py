"""Users, projects and members, and the record of what was done to them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.authorisation.populated_app import PopulatedApp
from tests.control.harness import ControlHarness, job_spec, service, sha
from tests.control.scoped import ScopedControl

from crucible.backends.base import Reach
from crucible.control.control_plane import ControlPlane
from crucible.control.db import schema as t
from crucible.core.errors import BadInput, Conflict, Forbidden, NotFound, RefusedByPolicy
from crucible.core.job.job_filter import JobFilter
from crucible.core.people.identity import OWNER, Permission, Role
from crucible.core.requests import Resumption, UserChange


async def test_a_user_sees_the_jobs_of_his_projects_only(populated_app: PopulatedApp) -> None:
    theirs = (await populated_app.control.jobs.submit(OWNER, job_spec(project="beta"), None)).view.id
    seen = {name: {job.id for job in await populated_app.seen_by(name)} for name in ("stranger", "viewer", "admin")}
    assert seen == {"stranger": {theirs}, "viewer": {populated_app.job}, "admin": {theirs, populated_app.job}}


async def test_last_is_the_last_that_he_may_see(populated_app: PopulatedApp) -> None:
    await populated_app.control.jobs.submit(OWNER, job_spec(project="beta"), None)
    viewer = ScopedControl(populated_app.control, await populated_app.identity("viewer"))
    assert (await viewer.jobs.view("last")).id == populated_app.job


async def test_an_ending_that_fits_a_foreign_job_fits_nothing(populated_app: PopulatedApp) -> None:
    stranger = ScopedControl(populated_app.control, await populated_app.identity("stranger"))
    for ref in (populated_app.job, populated_app.job[-6:], f"job-{populated_app.job[-6:]}"):
        with pytest.raises(NotFound) as caught:
            await stranger.jobs.view(ref)
        assert "alpha" not in str(caught.value)


async def test_counts_and_machines_are_those_of_ones_projects(populated_app: PopulatedApp) -> None:
    stranger, viewer = await populated_app.scoped("stranger", "viewer")
    assert [
        (await c.maintenance.status()).counts.running
        for c in (stranger, viewer, ScopedControl(populated_app.control, OWNER))
    ] == [
        0,
        1,
        1,
    ]
    assert [
        len((await c.machines.list_machines()).items)
        for c in (stranger, viewer, ScopedControl(populated_app.control, OWNER))
    ] == [
        0,
        1,
        1,
    ]


async def test_a_job_says_whose_it_is(populated_app: PopulatedApp) -> None:
    view = await populated_app.control.jobs.view(OWNER, populated_app.job)
    assert (view.project, view.user) == ("alpha", "member")
    own = await populated_app.control.jobs.submit(OWNER, job_spec(), None)
    assert (own.view.project, own.view.user) == ("default", "owner")


async def test_a_members_job_goes_to_his_only_project(populated_app: PopulatedApp) -> None:
    member = ScopedControl(populated_app.control, await populated_app.identity("member"))
    assert (await member.jobs.submit(job_spec(), None)).view.project == "alpha"


async def test_two_projects_may_use_the_same_key(populated_app: PopulatedApp) -> None:
    member, stranger = await populated_app.scoped("member", "stranger")
    mine = await member.jobs.submit(job_spec(), "key")
    theirs = await stranger.jobs.submit(job_spec(), "key")
    assert mine.view.id != theirs.view.id
    assert (await member.jobs.submit(job_spec(), "key")).view.id == mine.view.id


async def test_many_are_cancelled_only_where_he_may(populated_app: PopulatedApp) -> None:
    for name in ("stranger", "viewer", "share"):
        (caller,) = await populated_app.scoped(name)
        assert await caller.jobs.cancel_matching(JobFilter(), limit=10, dry_run=False) == ([], False)
        alpha = JobFilter(project=("alpha",))
        assert await caller.jobs.cancel_matching(alpha, limit=10, dry_run=False) == ([], False)
        (refused,) = await caller.jobs.cancel_named([populated_app.job], dry_run=False)
        assert isinstance(refused, NotFound if name == "stranger" else Forbidden)
    assert (await populated_app.control.jobs.view(OWNER, populated_app.job)).desired == "run"
    (member,) = await populated_app.scoped("member")
    views, more = await member.jobs.cancel_matching(JobFilter(), limit=10, dry_run=False)
    assert ([view.id for view in views], more) == ([populated_app.job], False)
    assert (await populated_app.control.jobs.view(OWNER, populated_app.job)).desired == "cancel"


async def test_many_are_submitted_each_by_its_own_right(populated_app: PopulatedApp) -> None:
    (member,) = await populated_app.scoped("member")
    mine, theirs = await member.jobs.submit_many([(job_spec(), None), (job_spec(project="beta"), None)])
    assert getattr(mine, "created", False)
    assert isinstance(theirs, NotFound)


async def test_a_filter_by_project_widens_nothing(populated_app: PopulatedApp) -> None:
    (stranger,) = await populated_app.scoped("stranger")
    assert (await stranger.jobs.list_jobs(JobFilter(project=("alpha",)), limit=10, cursor=None)).items == ()


async def test_a_rerun_stays_in_its_project(populated_app: PopulatedApp) -> None:
    assert (await populated_app.control.jobs.rerun(OWNER, populated_app.job, None)).view.project == "alpha"


async def test_whoever_knows_the_hash_of_code_has_no_right_to_it(populated_app: PopulatedApp) -> None:
    stranger = ScopedControl(populated_app.control, await populated_app.identity("stranger"))
    code = (await populated_app.harness.rows(t.bundles))[0]["sha256"]
    with pytest.raises(BadInput, match="has not been uploaded"):
        await stranger.jobs.submit(job_spec(bundle=code), None)
    assert code == sha(b"print('hello')")


async def test_a_foreign_checkpoint_cannot_be_started_from(populated_app: PopulatedApp) -> None:
    stranger, member = await populated_app.scoped("stranger", "member")
    checkpoint = (await member.checkpoints.list_checkpoints(populated_app.job)).items[0].id
    with pytest.raises(NotFound):
        await stranger.jobs.submit(job_spec(resume_from=checkpoint), None)
    assert (await member.jobs.submit(job_spec(resume_from=checkpoint), None)).created


async def test_jobs_of_users_do_not_run_on_the_servers_own_computer(
    harness: ControlHarness, populated_app: PopulatedApp
) -> None:
    careful = service(harness)
    member = await populated_app.identity("member")
    with pytest.raises(RefusedByPolicy) as caught:
        await careful.jobs.submit(member, job_spec(), None)
    assert "shared_computer" in caught.value.fix
    assert (await careful.jobs.submit(OWNER, job_spec(), None)).created


async def test_the_servers_own_computer_is_protected_however_it_is_reached(
    harness: ControlHarness, populated_app: PopulatedApp
) -> None:
    """A backend reaches it by a tunnel, as one host among others."""
    harness.backend.capabilities = replace(harness.backend.capabilities, reach=Reach.TUNNEL)
    member = await populated_app.identity("member")
    elsewhere = ControlPlane(harness.ports, harness.backends, replace(harness.deployment, own_node="node-of-another"))
    assert (await elsewhere.jobs.submit(member, job_spec(), None)).created
    here = ControlPlane(harness.ports, harness.backends, replace(harness.deployment, own_node="node-local"))
    with pytest.raises(RefusedByPolicy) as caught:
        await here.jobs.submit(member, job_spec(), None)
    assert "shared_computer" in caught.value.fix


async def ended(control: ControlPlane) -> str:
    """A job of the project alpha that was cancelled while it waited."""
    job = (await control.jobs.submit(OWNER, job_spec(project="alpha", resources={"cpus": 4}), None)).view.id
    await control.jobs.cancel(OWNER, job)
    assert (await control.jobs.view(OWNER, job)).status == "cancelled"
    return job


async def test_nor_do_they_by_being_resumed_there(harness: ControlHarness, populated_app: PopulatedApp) -> None:
    careful = service(harness)
    job, member = await ended(careful), await populated_app.identity("member")
    for backend in (None, harness.backend.name):
        with pytest.raises(RefusedByPolicy, match="several users"):
            await careful.jobs.resume(member, job, Resumption(backend=backend))
    assert (await careful.jobs.resume(OWNER, job, Resumption())).status != "cancelled"


async def test_who_resumed_a_job_is_written_down(populated_app: PopulatedApp) -> None:
    job, member = await ended(populated_app.control), await populated_app.identity("member")
    await populated_app.control.jobs.resume(member, job, Resumption())
    newest = (await populated_app.control.people.audit(OWNER, project="alpha", before=None, limit=1)).items
    [(user, action, target)] = [(item.user, item.action, item.target) for item in newest]
    assert (user, action, target) == ("member", "job.resume", job)


async def test_what_the_owner_does_with_a_job_of_another_is_written_down_and_with_his_own_not(
    populated_app: PopulatedApp,
) -> None:
    async def actions() -> list[tuple[str, str, str]]:
        found = await populated_app.control.people.audit(OWNER, project=None, before=None, limit=100)
        return [(item.user, item.action, item.target) for item in found.items]

    member = await populated_app.identity("member")
    theirs = (await populated_app.control.jobs.submit(member, job_spec(cpus=4, project="alpha"), None)).view.id
    his = (await populated_app.control.jobs.submit(OWNER, job_spec(cpus=4), None)).view.id
    for job in (theirs, his):
        await populated_app.control.jobs.cancel(OWNER, job)
        await populated_app.control.jobs.resume(OWNER, job, Resumption())
    assert {("owner", "job.cancel", theirs), ("owner", "job.resume", theirs)} <= set(await actions())
    assert not [target for _, action, target in await actions() if action.startswith("job.") and target == his]


async def test_members_come_change_and_go(populated_app: PopulatedApp) -> None:
    people, manager = populated_app.control.people, await populated_app.identity("manager")
    await people.set_member(manager, "alpha", "stranger", Role.VIEWER)
    await people.set_member(manager, "alpha", "stranger", Role.MEMBER)
    assert {m.name: m.role for m in (await people.list_members(manager, "alpha")).items}["stranger"] == "member"
    assert len(await populated_app.seen_by("stranger")) == 1
    await people.remove_member(manager, "alpha", "stranger")
    assert await populated_app.seen_by("stranger") == ()
    with pytest.raises(NotFound):
        await people.remove_member(manager, "alpha", "stranger")


async def test_a_manager_manages_his_own_project_alone(populated_app: PopulatedApp) -> None:
    people, manager = populated_app.control.people, await populated_app.identity("manager")
    with pytest.raises(NotFound):
        await people.set_member(manager, "beta", "manager", Role.ADMIN)
    with pytest.raises(Forbidden):
        await people.add_project(manager, "mine")


@pytest.mark.parametrize("name", ["alpha", "default"])
async def test_a_name_that_is_taken(populated_app: PopulatedApp, name: str) -> None:
    with pytest.raises(Conflict):
        await populated_app.control.people.add_project(OWNER, name)


@pytest.mark.parametrize("name", ["viewer", "owner"])
async def test_a_user_that_is_there(populated_app: PopulatedApp, name: str) -> None:
    with pytest.raises(Conflict):
        await populated_app.control.people.add_user(OWNER, name)


async def test_a_project_nobody_made(populated_app: PopulatedApp) -> None:
    with pytest.raises(NotFound):
        await populated_app.control.people.list_members(OWNER, "nothing")
    with pytest.raises(NotFound):
        await populated_app.control.jobs.submit(OWNER, job_spec(project="nothing"), None)


async def test_what_i_am(populated_app: PopulatedApp) -> None:
    me = await populated_app.control.people.me(await populated_app.identity("viewer"))
    assert (me.user, me.admin, me.projects) == ("viewer", False, {"alpha": "viewer"})
    owner = await populated_app.control.people.me(OWNER)
    assert owner.projects == {"alpha": "admin", "beta": "admin", "default": "admin"}


async def test_the_record_tells_who_did_what(populated_app: PopulatedApp) -> None:
    member = await populated_app.identity("member")
    await populated_app.control.jobs.cancel(member, populated_app.job)
    whole = await populated_app.control.people.audit(OWNER, project=None, before=None, limit=100)
    items = [(item.user, item.action, item.project) for item in whole.items]
    assert items[0] == ("member", "job.cancel", "alpha")
    assert ("member", "job.submit", "alpha") in items
    assert ("owner", "member.set", "beta") in items
    assert ("member", "share.create", "alpha") in items


async def test_the_whole_record_is_an_administrators_and_a_projects_admin_is_told_of_his_part(
    populated_app: PopulatedApp,
) -> None:
    people, manager = populated_app.control.people, await populated_app.identity("manager")
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
            await people.audit(await populated_app.identity(name), project=None, before=None, limit=5)
        assert "--project" not in refused.value.fix


async def test_a_project_has_its_own_record_in_pages(populated_app: PopulatedApp) -> None:
    people, manager = populated_app.control.people, await populated_app.identity("manager")
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


async def test_the_owner_cannot_be_changed(populated_app: PopulatedApp) -> None:
    with pytest.raises(Conflict):
        await populated_app.control.people.change_user(OWNER, "owner", UserChange(disabled=True))


async def test_an_address_is_one_users(populated_app: PopulatedApp) -> None:
    people = populated_app.control.people
    await people.add_user(OWNER, "ada", email="Ada@Example.org")
    with pytest.raises(Conflict, match="belongs to another user"):
        await people.add_user(OWNER, "bob", email="ada@example.org")
    with pytest.raises(Conflict):
        await people.change_user(OWNER, "viewer", UserChange(email="ADA@example.org"))
    again = await people.change_user(OWNER, "ada", UserChange(email="ada@example.org"))
    assert (again.email, again.tied) == ("ada@example.org", False)
    await people.change_user(OWNER, "ada", UserChange(email=""))
    assert (await people.change_user(OWNER, "viewer", UserChange(email="ada@example.org"))).email == "ada@example.org"


async def test_nobody_sets_his_own_address(populated_app: PopulatedApp) -> None:
    for name in ("viewer", "manager"):
        with pytest.raises(Forbidden):
            await populated_app.control.people.change_user(
                await populated_app.identity(name), name, UserChange(email="root@example.org")
            )
