"""Connect, change and disconnect backends of a running control plane."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.control.fakes import FakeBackend, Gate
from tests.control.harness import ControlHarness, give_back, job_spec, join, make_harness, service
from tests.control.moon import KEY, Moon, MoonBackend

from crucible.backends.base import NotInstalled, Reach
from crucible.backends.settings import MissingSettings
from crucible.control.control_plane import ControlPlane
from crucible.control.db import schema as t
from crucible.control.resources.backends import CheckFailed
from crucible.control.runtime.deployment_check import OtherComputer
from crucible.control.upkeep import restore_hold
from crucible.core.errors import BadInput, Conflict, Forbidden, NoCapacity, NotFound, RefusedByPolicy, UnknownName
from crucible.core.ids import short
from crucible.core.lifecycle import JobState, MachineState
from crucible.core.people.identity import OWNER, Identity, LoginMethod, Role
from crucible.core.routing.plan_request import PlanRequest
from crucible.core.settings_source import SettingsSource

GIVEN = {"api_key": KEY, "region": "serenity"}


class Deployment:
    """A control plane to which the moon can be connected. Others may be on the same database."""

    def __init__(self, harness: ControlHarness, moon: Moon) -> None:
        self.harness, self.moon = harness, moon
        self.control: ControlPlane = service(harness)
        self.services = self.control._services

    async def connect(self, **given: object) -> Any:
        return await self.control.backends.connect(OWNER, "moon", given or GIVEN)

    async def disconnect(self) -> Any:
        return await self.control.backends.disconnect(OWNER, "moon")

    async def show(self) -> Any:
        return await self.control.backends.show(OWNER, "moon")

    @property
    def backend(self) -> MoonBackend:
        found = self.services.backends.get("moon")
        assert isinstance(found, MoonBackend)
        return found

    async def place(self) -> None:
        """Let the scheduler have its round, and another one once backends have answered what it asked."""
        await self.services.scheduler.round()
        await asyncio.gather(*self.services.offers._requests.values())
        await self.services.scheduler.round()

    async def round(self) -> None:
        """What the background loop does."""
        await self.services.connections.sync()
        await self.services.disconnector.finish_all()
        await self.services.connections.sync()


def process(harness: ControlHarness, moon: Moon, worker: str = "w1", **factory: Any) -> Deployment:
    """Return a process on the harness's database, with its own backends."""
    twin = join(
        replace(harness.ports, worker=worker, calls=harness.calls),
        harness.clock,
        harness.calls,
        {"local": FakeBackend()},
        harness.deployment.scratch,
    )
    made = moon.factory({"local": twin.backend}, **factory)
    deployment = replace(twin.deployment, factory=made)
    return Deployment(replace_deployment(twin, deployment), moon)


def replace_deployment(harness: ControlHarness, deployment: Any) -> ControlHarness:
    harness.deployment = deployment
    return harness


@pytest.fixture
def moon() -> Moon:
    return Moon()


@pytest.fixture
async def one(tmp_path: Path, moon: Moon) -> AsyncIterator[Deployment]:
    harness = await make_harness(tmp_path)
    made = process(harness, moon)
    await made.services.offers.refresh()
    await made.services.duties.renew(harness.ports.db, harness.clock)
    yield made
    await give_back(harness.ports.db)


def member(*projects: str) -> Identity:
    return Identity("usr-1", "ada", LoginMethod.SESSION, roles=dict.fromkeys(projects, Role.MEMBER))


async def all_text(one: Deployment) -> str:
    """Return everything that is in the database."""
    tables = [await one.harness.rows(table) for table in t.metadata.sorted_tables]
    return json.dumps(tables, default=str)


async def test_it_is_usable_at_once_and_says_what_it_costs(one: Deployment) -> None:
    done = await one.connect()
    assert (done.ok, done.connected) == (True, True)
    assert [finding.what for finding in done.findings] == ["the region serenity exists", "the key is valid"]
    assert [offer.rate_micros_per_hour for offer in done.offers] == [1_500_000]
    assert [(c.name, c.before, c.after) for c in done.changes] == [
        ("api_key", None, "***"), ("region", None, "serenity"),
    ]  # fmt: skip
    page = await one.control.backends.list_backends()
    assert [item.name for item in page.items if item.connected] == ["local", "moon"]
    job = await one.control.jobs.submit(OWNER, job_spec(backend="moon"), None)
    assert (await one.harness.world(job.view.id)).live is not None


async def test_its_secret_is_encrypted_and_shown_nowhere(one: Deployment, caplog: pytest.LogCaptureFixture) -> None:
    done = await one.connect()
    shown = await one.show()
    assert one.backend.settings.api_key.reveal() == KEY
    audit = await one.harness.rows(t.audit)
    assert [(row["action"], row["target"]) for row in audit] == [("backend.connect", "moon")]
    (entry,) = [each for each in shown.settings if each.name == "api_key"]
    assert (entry.value, entry.secret, entry.origin) == ("***", True, "crucible backends connect")
    for text in (await all_text(one), repr(done), repr(shown), repr(one.services.live), repr(one.backend.settings)):
        assert KEY not in text
    assert KEY not in caplog.text


async def test_a_failed_check_writes_nothing_and_hides_the_secret(one: Deployment) -> None:
    with pytest.raises(CheckFailed) as caught:
        await one.connect(api_key="stolen-key")
    assert caught.value.what == "moon was not connected, because 1 of 2 checks failed."
    assert caught.value.why == "the key is valid: *** is refused"
    assert caught.value.fix == "Get another key."
    one.moon.unreachable = True
    with pytest.raises(CheckFailed) as caught:
        await one.connect()
    assert KEY not in f"{caught.value} {caught.value.data}"
    assert await one.harness.rows(t.connections) == []
    assert await one.harness.rows(t.secrets) == []
    assert not one.services.backends.has("moon")


async def test_a_check_changes_nothing(one: Deployment) -> None:
    checked = await one.control.backends.check(OWNER, "moon", GIVEN)
    assert (checked.ok, checked.connected) == (True, False)
    assert not one.services.backends.has("moon")
    assert await one.harness.rows(t.connections) == []
    await one.connect()
    checked = await one.control.backends.check(OWNER, "moon", {"region": "crisium"})
    assert [(c.before, c.after) for c in checked.changes] == [("serenity", "crisium")]
    assert one.moon.checked[-1].region == "crisium"
    assert one.moon.checked[-1].api_key.reveal() == KEY
    assert one.backend.settings.region == "serenity"
    assert (await one.control.backends.check(OWNER, "moon", {})).changes == ()


async def test_connecting_again_changes_what_is_given_and_keeps_the_rest(one: Deployment) -> None:
    await one.connect(api_key=KEY, region="serenity", hosts=["a", "b"], most="3")
    done = await one.connect(hosts="c", region="")
    assert [(c.name, c.before, c.after) for c in done.changes] == [
        ("region", "serenity", None), ("hosts", "a, b", "c"),
    ]  # fmt: skip
    settings = one.backend.settings
    assert (settings.api_key.reveal(), settings.region, settings.hosts, settings.most) == (
        KEY, "tranquility", ("c",), 3,
    )  # fmt: skip
    (row,) = await one.harness.rows(t.connections)
    assert (row["version"], json.loads(row["settings"])) == (2, {"hosts": ["c"], "most": 3})
    await one.connect(api_key=f"{KEY}-2")
    assert one.backend.settings.api_key.reveal() == f"{KEY}-2"


async def test_show_says_which_source_set_what(tmp_path: Path, moon: Moon) -> None:
    harness = await make_harness(tmp_path)
    tables = {"moon": SettingsSource("[backends.moon] in config.toml", {"most": 7, "region": "nubium"})}
    one = process(harness, moon, tables=tables, environ={"CRUCIBLE_MOON_REGION": "vaporum", "MOON_KEY": KEY})
    await one.connect(hosts=["a"], region="serenity")
    settings = {each.name: (each.value, each.origin) for each in (await one.show()).settings}
    assert settings == {
        "api_key": ("***", "MOON_KEY"),
        "region": ("vaporum", "CRUCIBLE_MOON_REGION"),
        "hosts": ("a", "crucible backends connect"),
        "most": ("7", "[backends.moon] in config.toml"),
        "projects": ("", "default"),
    }
    assert (one.backend.settings.region, one.backend.settings.most) == ("vaporum", 7)
    (row,) = await harness.rows(t.connections)
    assert json.loads(row["settings"]) == {"hosts": ["a"], "region": "serenity"}
    await give_back(harness.ports.db)


async def test_show_describes_what_is_not_connected(one: Deployment) -> None:
    shown = await one.show()
    assert (shown.state, shown.connected_by, shown.about) == ("not connected", None, "Machines on the moon.")
    assert [each.name for each in shown.settings if each.is_missing] == ["api_key"]
    assert [each.option for each in shown.settings] == ["api-key", "region", "host", "most", "project"]


# Bad input


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({}, MissingSettings, "needs api_key"),
        ({"api_kye": KEY}, UnknownName, "Did you mean 'api_key'"),
        ({**GIVEN, "projects": ["defualt"]}, UnknownName, "Did you mean 'default'"),
        ({**GIVEN, "most": "many"}, BadInput, "valid integer"),
        ({**GIVEN, "region": "a\0b"}, BadInput, r"U\+0000"),
        ({**GIVEN, "region": "a\x1b[2J"}, BadInput, r"U\+001B"),
        ({**GIVEN, "region": "x" * 1_000_000}, BadInput, "at most 32768"),
        ({"api_key": "\x00" + KEY}, BadInput, "not printable"),
    ],
)
async def test_bad_settings_are_refused(one: Deployment, given: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says) as caught:
        await one.control.backends.connect(OWNER, "moon", given)
    assert KEY not in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert await one.harness.rows(t.connections) == []


async def test_an_unknown_backend_is_refused(one: Deployment) -> None:
    operations = one.control.backends
    for refused in (
        operations.connect(OWNER, "mooon", {}), operations.show(OWNER, "mooon"), operations.disconnect(OWNER, "mooon"),
    ):  # fmt: skip
        with pytest.raises(UnknownName, match="Did you mean 'moon'"):
            await refused


async def test_a_package_that_is_missing_names_the_command(one: Deployment) -> None:
    one.moon.installed = False
    with pytest.raises(NotInstalled, match="pip install moon"):
        await one.connect()
    assert (await one.show()).install == "pip install moon"


async def test_only_operators_may_connect(one: Deployment) -> None:
    operations = one.control.backends
    for refused in (
        operations.connect(member("default"), "moon", GIVEN),
        operations.check(member("default"), "moon", GIVEN),
        operations.show(member("default"), "moon"),
        operations.disconnect(member("default"), "moon"),
    ):
        with pytest.raises(Forbidden):
            await refused
    assert one.moon.made == []


@pytest.mark.parametrize("connected", [False, True])
async def test_of_two_processes_that_connect_it_at_once_one_is_told(one: Deployment, connected: bool) -> None:
    if connected:
        await one.connect()
    one.harness.calls = gate = Gate("check moon")
    both = [process(one.harness, one.moon, "w1"), process(one.harness, one.moon, "w2")]
    regions = ("crisium", "nubium")
    connecting = [
        asyncio.create_task(each.connect(api_key=KEY, region=region))
        for each, region in zip(both, regions, strict=True)
    ]
    await asyncio.sleep(0.05)
    gate.open.set()
    results = await asyncio.gather(*connecting, return_exceptions=True)
    assert [type(result) for result in results].count(Conflict) == 1
    (row,) = await one.harness.rows(t.connections)
    (winner,) = [region for region, result in zip(regions, results, strict=True) if not isinstance(result, Conflict)]
    assert json.loads(row["settings"]) == {"region": winner}
    assert len(await one.harness.rows(t.secrets)) == 1


# Several processes


async def test_every_process_picks_up_a_change_and_a_disconnect(one: Deployment) -> None:
    other = process(one.harness, one.moon, "w2")
    await one.connect()
    assert not other.services.backends.has("moon")
    await other.round()
    assert other.backend.settings.region == "serenity"
    assert other.backend.settings.api_key.reveal() == KEY
    await one.connect(region="nubium")
    await other.round()
    assert other.backend.settings.region == "nubium"
    made = len(one.moon.made)
    await other.round()
    assert len(one.moon.made) == made, "what has not changed is not made again"
    await one.disconnect()
    await other.round()
    assert not other.services.backends.has("moon")


async def test_disconnecting_and_connecting_between_two_looks_is_noticed(one: Deployment) -> None:
    other = process(one.harness, one.moon, "w2")
    await one.connect()
    await other.round()
    await one.disconnect()
    one.harness.clock.move(1)
    await one.connect(api_key=KEY, region="nubium")
    await other.round()
    assert other.backend.settings.region == "nubium"


async def test_a_new_process_has_what_was_connected(one: Deployment) -> None:
    await one.connect()
    later = process(one.harness, one.moon, "w9")
    await later.services.connections.sync()
    assert later.backend.settings.api_key.reveal() == KEY


async def test_duties_outbox_and_mail_follow_the_connected_backends(one: Deployment) -> None:
    await one.connect()
    job = await one.control.jobs.submit(OWNER, job_spec(backend="moon"), None)
    while await one.services.performer.perform_due():
        pass
    assert len(one.backend.made) == 1
    assert (await one.harness.world(job.view.id)).live is not None
    await one.services.duties.renew(one.harness.ports.db, one.harness.clock)
    assert "scheduler:local,moon" in {row["name"] for row in await one.harness.rows(t.roles)}
    assert sorted(one.services.storelink._backends) == ["local", "moon"]


async def test_waiting_jobs_are_placed_once_their_backend_is_connected(one: Deployment) -> None:
    await one.connect()
    one.backend.capacity = one.backend.capacity.model_copy(update={"cpus": 0.5})
    await one.services.offers.refresh()
    with pytest.raises(NoCapacity):
        await one.control.jobs.submit(OWNER, job_spec(backend="moon"), None)
    one.backend.capacity = one.backend.capacity.model_copy(update={"cpus": 4})
    one.backend.down = Exception("down")
    await one.services.offers.refresh()
    one.services.offers.forget("moon")
    job = (await one.control.jobs.submit(OWNER, job_spec(backend="moon"), None)).view.id
    assert (await one.harness.world(job)).job.state is JobState.QUEUED
    await one.disconnect()
    assert (await one.harness.world(job)).job.waiting == "waits for moon, which is not connected"
    await one.connect()
    await one.place()
    assert (await one.harness.world(job)).live is not None


# Disconnecting


async def test_an_idle_backend_is_gone_at_once_with_its_secrets(one: Deployment) -> None:
    await one.connect()
    done = await one.disconnect()
    assert (done.state, [finding.what for finding in done.findings]) == ("not connected", ["removed the dust"])
    assert one.moon.cleaned == ["serenity"]
    assert not one.services.backends.has("moon")
    assert await one.harness.rows(t.connections) == []
    assert await one.harness.rows(t.secrets) == []
    assert [row["action"] for row in await one.harness.rows(t.audit)] == ["backend.connect", "backend.disconnect"]
    with pytest.raises(NotFound, match="not connected"):
        await one.disconnect()


async def test_settings_that_do_not_reach_its_machines_are_warned_of(one: Deployment) -> None:
    await one.connect()
    await one.control.jobs.submit(OWNER, job_spec(backend="moon"), None)
    while await one.services.performer.perform_due():
        pass
    (machine,) = (await one.control.machines.list_machines(OWNER)).items
    assert [each for each in (await one.connect(region="tranquility")).findings if each.warning] == []
    one.moon.machines.clear()  # as in another account
    assert [each for each in (await one.connect(region="tranquility")).findings if each.warning] == []
    done = await one.connect(region="serenity")
    assert (done.ok, done.connected) == (True, True)
    (warned,) = [each for each in done.findings if each.warning]
    assert warned.what == f"machines that these settings do not reach: {short(machine.id)} (here)"
    assert "until the settings reach them again" in warned.why


async def test_with_machines_it_gets_no_new_jobs_and_ends_with_the_last(one: Deployment) -> None:
    await one.connect()
    job = (await one.control.jobs.submit(OWNER, job_spec(backend="moon"), None)).view.id
    while await one.services.performer.perform_due():
        pass
    done = await one.disconnect()
    assert (done.state, len(done.machines)) == ("disconnecting", 1)
    assert (await one.disconnect()).state == "disconnecting"
    assert (await one.show()).state == "disconnecting"
    with pytest.raises(NoCapacity, match="being disconnected") as caught:
        await one.control.jobs.submit(OWNER, job_spec(backend="moon"), None)
    assert "crucible backends connect moon" in caught.value.fix
    second = await one.control.jobs.submit(OWNER, job_spec(backend="moon", fallback=("local",)), None)
    await one.place()
    assert (await one.harness.world(second.view.id)).job.backend == "local"
    await one.round()
    assert one.services.backends.has("moon")
    assert one.moon.cleaned == []
    await one.control.jobs.cancel(OWNER, job)
    for _ in range(20):
        await one.harness.reconciler.round()
        await one.services.performer.perform_due()
        await one.services.poller.poll()
        one.harness.clock.move(60)
    assert (await one.harness.machine(done.machines[0].id)).state is MachineState.GONE
    await one.round()
    assert not one.services.backends.has("moon")
    assert one.moon.cleaned == ["serenity"]


async def test_connecting_again_ends_the_disconnecting(one: Deployment) -> None:
    await one.connect()
    await one.control.jobs.submit(OWNER, job_spec(backend="moon"), None)
    assert (await one.disconnect()).state == "disconnecting"
    await one.connect(region="nubium")
    assert (await one.show()).state == "connected"
    await one.control.jobs.submit(OWNER, job_spec(backend="moon"), None)


async def test_with_other_processes_it_waits_until_they_know(one: Deployment) -> None:
    await one.connect()
    one.services.disconnector = replace(one.services.disconnector, shared=True)
    assert (await one.disconnect()).state == "disconnecting"
    one.harness.clock.move(11)
    await one.round()
    assert not one.services.backends.has("moon")


async def test_a_process_on_another_computer_does_not_connect_what_is_on_the_first(one: Deployment) -> None:
    def check(conn: object, now: float, nearby: frozenset[str]) -> None:
        if "moon" in nearby:
            raise OtherComputer("It is on another computer.")

    one.moon.capabilities = replace(MoonBackend.capabilities, reach=Reach.LOOPBACK)
    await one.connect()
    harness = process(one.harness, one.moon, "w2").harness
    harness.deployment = replace(harness.deployment, check=check)
    other = Deployment(harness, one.moon)
    await other.round()
    assert ((await other.show()).state, (await one.show()).state) == ("failed", "connected")
    assert [item.name for item in (await other.control.backends.list_backends()).items] == ["local"]


async def test_a_process_without_the_backend_leaves_the_end_to_others(one: Deployment) -> None:
    await one.connect()
    one.moon.installed = False
    other = process(one.harness, one.moon, "w2")
    other.services.disconnector = replace(other.services.disconnector, shared=True)
    await other.round()
    assert (await other.show()).state == "failed"
    assert (await other.disconnect()).state == "disconnecting"
    one.harness.clock.move(60)
    await other.round()
    assert len(await one.harness.rows(t.connections)) == 1
    one.harness.clock.move(61)
    await other.round()
    assert await one.harness.rows(t.connections) == []


async def test_a_host_that_cannot_be_cleaned_up_keeps_nothing(one: Deployment) -> None:
    await one.connect()
    one.moon.unreachable = True
    done = await one.disconnect()
    (finding,) = done.findings
    assert (done.state, finding.ok, finding.fix) == ("not connected", False, "Remove it by hand.")
    assert finding.what == "The moon does not answer to ***."


async def test_machines_of_a_backend_that_is_gone_are_still_shown(one: Deployment) -> None:
    await one.connect()
    await one.control.jobs.submit(OWNER, job_spec(backend="moon"), None)
    while await one.services.performer.perform_due():
        pass
    await one.harness.sql(lambda conn: conn.execute(t.connections.delete()).rowcount)
    await one.round()
    assert not one.services.backends.has("moon")
    shown = await one.show()
    assert (shown.state, [machine.state for machine in shown.machines]) == ("not connected", ["creating"])
    assert len((await one.control.machines.list_machines(OWNER)).items) == 1
    with pytest.raises(NotFound, match="Connect it again to end them"):
        await one.disconnect()


# Named by the configuration


async def test_what_the_configuration_connects_says_so_and_what_to_change(tmp_path: Path, moon: Moon) -> None:
    harness = await make_harness(tmp_path)
    environ = {"MOON_KEY": KEY}
    one = process(harness, moon, configured=("local", "moon"), configured_by="CRUCIBLE_BACKENDS", environ=environ)
    await one.round()
    shown = await one.show()
    assert (shown.state, shown.connected_by) == ("connected", "CRUCIBLE_BACKENDS")
    with pytest.raises(Conflict, match="comes from CRUCIBLE_BACKENDS") as caught:
        await one.disconnect()
    assert "crucible config set backends local" in caught.value.fix
    await one.connect(region="nubium")
    assert (one.backend.settings.region, one.backend.settings.api_key.reveal()) == ("nubium", KEY)
    await give_back(harness.ports.db)


async def test_one_that_lacks_settings_is_shown_as_failed(tmp_path: Path, moon: Moon) -> None:
    harness = await make_harness(tmp_path)
    one = process(harness, moon, configured=("local", "moon"), configured_by="CRUCIBLE_BACKENDS")
    await one.round()
    shown = await one.show()
    assert shown.state == "failed"
    assert shown.problem.what == "The backend 'moon' needs api_key."
    others = {item.name: item.why for item in (await one.control.backends.list_backends()).others}
    assert others["moon"].startswith("The backend 'moon' needs api_key.")
    await one.connect()
    assert (await one.show()).state == "connected"
    await give_back(harness.ports.db)


# Keys, backups


async def test_a_lost_key_is_named_and_the_backend_can_be_connected_anew(one: Deployment) -> None:
    await one.connect()
    (one.harness.deployment.scratch / "secrets.keys").unlink()
    later = process(one.harness, one.moon, "w9")
    await later.round()
    shown = await later.show()
    assert shown.state == "failed"
    assert shown.problem.what == "The secret settings of the backend 'moon' cannot be read."
    assert "crucible backends disconnect moon" in shown.problem.fix
    await later.disconnect()
    await later.connect()
    assert later.backend.settings.api_key.reveal() == KEY


async def test_rotated_keys_keep_the_connection(one: Deployment) -> None:
    await one.connect()
    assert (await one.control.secrets.rotate(OWNER)).secrets == 1
    later = process(one.harness, one.moon, "w9")
    await later.round()
    assert later.backend.settings.api_key.reveal() == KEY


async def test_after_a_restore_nothing_is_cleaned_up(one: Deployment) -> None:
    await one.connect()
    await one.harness.sql(
        lambda conn: conn.execute(t.meta.insert().values(key=restore_hold.RESTORED_AT, value="1")).rowcount
    )
    assert (await one.disconnect()).state == "disconnecting"
    assert one.moon.cleaned == []


# Who may use it


async def test_projects_that_may_use_it(one: Deployment) -> None:
    for name in ("alpha", "beta"):
        await one.control.people.add_project(OWNER, name, "")
    await one.connect(api_key=KEY, projects="alpha")
    ada = member("alpha", "beta")
    await one.control.jobs.submit(ada, job_spec(backend="moon", project="alpha"), None)
    with pytest.raises(RefusedByPolicy, match="'beta' may not run on 'moon'") as caught:
        await one.control.jobs.submit(ada, job_spec(backend="moon", project="beta"), None)
    assert caught.value.fix.endswith("crucible backends connect moon --project alpha --project beta")
    await one.control.jobs.submit(OWNER, job_spec(backend="moon", project="beta"), None)


async def test_a_plan_rejects_it_in_the_words_of_a_submission(one: Deployment) -> None:
    for name in ("alpha", "beta"):
        await one.control.people.add_project(OWNER, name, "")
    await one.connect(api_key=KEY, projects="alpha")
    await one.services.offers.refresh()
    ada, plans = member("alpha", "beta"), one.control.plans
    with pytest.raises(RefusedByPolicy) as caught:
        await one.control.jobs.submit(ada, job_spec(backend="moon", project="beta"), None)
    for backend in ("moon", None):
        found = await plans.plan(ada, plan_request(backend=backend, project="beta"))
        rejected = [offer for offer in found.rejected if offer.backend == "moon"]
        assert {(offer.why, offer.refused) for offer in rejected} == {(str(caught.value), True)}
        assert "moon" not in {offer.backend for offer in found.offers}
        assert found.chosen is None
        assert backend is None or found.why == f"No connected backend can run it: {caught.value}"
    for request in (plan_request(backend="moon", project="alpha"), plan_request(backend="moon")):
        assert (await plans.plan(ada, request)).chosen is not None
    assert (await plans.plan(OWNER, plan_request(backend="moon", project="beta"))).chosen is not None


def plan_request(**more: Any) -> PlanRequest:
    return PlanRequest.model_validate(dict(job_spec(**more)))


async def test_without_projects_it_is_open_unless_others_use_its_computers(one: Deployment) -> None:
    await one.control.people.add_project(OWNER, "alpha", "")
    await one.connect()
    await one.control.jobs.submit(member("alpha"), job_spec(backend="moon", project="alpha"), None)
    one.moon.capabilities = replace(one.backend.capabilities, operators_only=True)
    done = await one.connect(region="nubium")
    assert (done.operators_only, (await one.show()).operators_only) == (True, True)
    with pytest.raises(RefusedByPolicy, match="Others use its computers too"):
        await one.control.jobs.submit(member("alpha"), job_spec(backend="moon", project="alpha"), None)
    await one.connect(projects=["alpha"])
    await one.control.jobs.submit(member("alpha"), job_spec(backend="moon", project="alpha"), None)


# Errors of the backend


async def test_errors_of_a_connected_backend_do_not_contain_its_secrets(one: Deployment) -> None:
    await one.connect()
    one.backend.down = ValueError(f"401 for {KEY}")
    with pytest.raises(Exception) as caught:
        await one.services.ports.calls.run("moon", lambda: one.backend.owned("dpl"), 1.0)
    assert "401 for ***" in str(caught.value)
    assert KEY not in str(caught.value)
