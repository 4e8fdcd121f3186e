"""Outages, empty shelves, moving prices; whose machines are whose; and the life of the cloud itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.backends.rehearsal.place import ZONE
from tests.faults.rehearsal_deployment import LONG, RehearsalDeployment, begins_of, open_gate, rehearsed
from tests.harness import Deployment, alive, shell, until

from crucible.backends.rehearsal import Address, stop_cloud


@pytest.fixture
def world(tmp_path: Path) -> Iterator[RehearsalDeployment]:
    with rehearsed(tmp_path) as world:
        yield world


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def sell_out(world: RehearsalDeployment) -> None:
    world.cloud.call("POST", "/admin/stock", {"count": 0})


def test_sold_out_it_goes_on_to_the_next_place(world: RehearsalDeployment) -> None:
    sell_out(world)
    world.crucible.start()
    job = world.submit(shell("true"), fallback=["local"])
    view = world.crucible.wait(job, LONG)
    assert (view["status"], view["backend"], view["simulated"]) == ("completed", "local", False)
    (moved,) = [event["data"] for event in world.crucible.events(job) if event["type"] == "moved_on"]
    assert (moved["from"], moved["to"]) == ("rehearsal", "local")
    assert "left in simulated-" in moved["why"]
    assert world.cloud.census() == {}


def test_a_shelf_that_was_emptied_meanwhile_is_left_too(world: RehearsalDeployment) -> None:
    """The offers are a few seconds old: the launch itself is refused, everywhere."""
    world.crucible.start()
    assert world.crucible.wait(world.submit(shell("true")), LONG)["status"] == "completed"
    sell_out(world)
    job = world.submit(shell("true"), fallback=["local"])
    view = world.crucible.wait(job, LONG)
    assert (view["status"], view["backend"]) == ("completed", "local")
    assert view["attempts"][0]["reason"] == "refused"
    assert "insufficient_capacity" in view["attempts"][0]["detail"]
    assert "moved_on" in world.types(job)
    world.nothing_lives()


def test_at_the_last_place_it_waits_and_says_why(world: RehearsalDeployment) -> None:
    sell_out(world)
    world.crucible.start()
    job = world.submit(shell("true"))
    waits = until(lambda: waiting(world, job), LONG, "the reason")
    assert waits.startswith("waits for a machine on rehearsal: the simulated cloud has no on_demand")
    world.cloud.call("POST", "/admin/stock", {"count": 5})
    assert world.crucible.wait(job, LONG)["status"] == "completed"
    world.nothing_lives()


def waiting(world: RehearsalDeployment, job: str) -> str | None:
    said = world.crucible.job(job)["waiting"]
    return said if said and "waits for a machine" in said else None


def test_a_zone_that_goes_dark_is_left(world: RehearsalDeployment, journal: Path) -> None:
    world.crucible.start()
    job = world.counting(journal, steps=20, every=5, gates=[8], regions=["simulated-north"])
    instance = world.instance_of(job, 1)
    zone = world.cloud.census()[instance]["zone"]
    path = f"/api/v1/jobs/{job}/checkpoints"
    until(lambda: world.crucible.get(path)["items"], LONG, "a checkpoint")
    world.cloud.call("POST", f"/admin/zones/{zone}/stop")
    until(lambda: len(begins_of(journal)) == 2, LONG, "the next attempt")
    open_gate(journal, 8)
    view = world.crucible.wait(job, LONG)
    assert view["status"] == "completed"
    dark, bright = view["attempts"][0], view["attempts"][-1]
    assert (dark["reason"], dark["region"]) == ("machine_lost", zone)
    assert "out of service" in dark["detail"]
    assert bright["region"] in {"simulated-north-a", "simulated-north-b"} - {zone}
    assert begins_of(journal) == [1, 6]
    world.nothing_lives()


def test_every_price_on_the_way_is_in_the_ledger(world: RehearsalDeployment, journal: Path) -> None:
    world.crucible.start()
    hold(world, 30_001)
    job = world.counting(journal, steps=10, every=1000, gates=[5], market="spot", regions=[ZONE])
    instance = world.instance_of(job, 1)
    for rate in (44_003, 61_007):
        world.cloud.advance(1800)
        hold(world, rate)
    open_gate(journal, 5)
    assert world.crucible.wait(job, LONG)["status"] == "completed"
    world.nothing_lives()
    assert [segment["rate"] for segment in world.cloud.bill()[instance]["segments"]] == [30_001, 44_003, 61_007]
    (micros,) = world.bills_agree().values()
    assert micros > (30_001 + 44_003) // 2
    assert world.crucible.job(job)["cost"]["micros"] == micros


def hold(world: RehearsalDeployment, rate: int) -> None:
    world.cloud.call("POST", "/admin/price", {"zone": ZONE, "type": "sim.c2", "rate": rate})


def test_machines_of_another_deployment_are_never_touched(world: RehearsalDeployment, journal: Path) -> None:
    """Not by looking, not by name, not by a cancellation, by pruning, or by a server that starts."""
    world.crucible.start()
    job = world.counting(journal, steps=10, every=1000, gates=[5])
    ours = world.instance_of(job, 1)
    foreign = {"crucible-deployment": "dep-somebody-else"}
    theirs = frozenset(
        world.cloud.running(tags={**foreign, "crucible-machine": name})["id"]
        for name in ("mch-of-another", "mch-of-a-third")
    ) | {world.cloud.running(tags={"purpose": "no tag of ours"})["id"]}
    assert world.crucible.get("/api/v1/machines/orphans")["items"] == []
    for id in theirs:
        assert refused_to_end(world.crucible, id)
    world.crucible.cancel(job)
    assert world.crucible.wait(job, LONG)["status"] == "cancelled"
    world.nothing_lives(others=theirs)
    with world.crucible.client() as client:
        client.post("/api/v1/prune", json={"older_than_seconds": 0}).raise_for_status()
    world.crucible.stop()
    world.crucible.start()
    until(lambda: world.crucible.get("/api/v1/machines/orphans")["items"] == [], LONG, "the janitor's look")
    assert {i["id"] for i in world.cloud.alive()} == theirs
    assert world.cloud.census()[ours]["cause"] in ("user_initiated", "instance_shutdown")
    world.bills_agree(others=theirs)


def refused_to_end(crucible: Deployment, id: str) -> bool:
    with crucible.client() as client:
        return client.post(f"/api/v1/machines/{id}/terminate").status_code == 404


def test_a_stranger_with_our_tag_is_told_and_ended_only_on_command(world: RehearsalDeployment) -> None:
    world.crucible.start()
    job = world.submit(shell("true"))
    assert world.crucible.wait(job, LONG)["status"] == "completed"
    world.nothing_lives()
    (known,) = world.cloud.census().values()
    stranger = world.cloud.running(tags={**known["tags"], "crucible-machine": "mch-01aaaaaaaaaaaaaaaaaaaaaaaa"})["id"]
    (orphan,) = until(lambda: world.crucible.get("/api/v1/machines/orphans")["items"], LONG, "the orphan")
    assert (orphan["native_id"], orphan["backend"]) == (stranger, "rehearsal")
    assert [i["id"] for i in world.cloud.alive()] == [stranger]
    with world.crucible.client() as client:
        answer = client.post(f"/api/v1/machines/{stranger}/terminate")
    assert answer.status_code in (200, 202), answer.text
    until(lambda: not world.cloud.alive(), LONG, "the orphan to end")


class TestTheCloudOfADeployment:
    """Its own: started with the server, started again when it dies, stopped with the last machine."""

    @pytest.fixture
    def crucible(self, tmp_path: Path) -> Iterator[Deployment]:
        deployment = Deployment(tmp_path, {"CRUCIBLE_BACKENDS": "local,rehearsal"})
        yield deployment
        if deployment.server is not None and deployment.server.poll() is None:
            deployment.kill()
        stop_cloud(deployment.home / "rehearsal")
        deployment.close()

    def cloud(self, crucible: Deployment) -> int | None:
        """Its pid, while it lives."""
        address = Address.read(crucible.home / "rehearsal")
        return address.pid if address is not None and alive(address.pid) else None

    def test_it_comes_and_goes_with_the_server(self, crucible: Deployment) -> None:
        crucible.start()
        first = until(lambda: self.cloud(crucible), LONG, "the cloud")
        os.kill(first, 9)
        until(lambda: self.cloud(crucible) not in (None, first), LONG, "another one")
        job = crucible.submit(shell("true", backend="rehearsal"))
        view = crucible.wait(job, LONG)
        assert (view["status"], view["simulated"]) == ("completed", True)
        until(lambda: self.all_gone(crucible), LONG, "its machine to go")
        crucible.stop()
        until(lambda: self.cloud(crucible) is None, LONG, "the cloud to stop")

    def test_it_stays_while_a_machine_lives_there(self, crucible: Deployment, tmp_path: Path) -> None:
        crucible.start()
        gate = tmp_path / "gate"
        command = f"while [ ! -e '{gate}' ]; do sleep 0.05; done"
        job = crucible.submit(shell(command, backend="rehearsal"))
        crucible.phase(job, "running", seconds=LONG)
        crucible.stop()
        assert self.cloud(crucible)
        gate.touch()
        crucible.start()
        assert crucible.wait(job, LONG)["status"] == "completed"

    def test_it_is_connected_only_where_it_is_named(self, tmp_path: Path) -> None:
        with Deployment(tmp_path) as crucible:
            assert [b["name"] for b in crucible.get("/api/v1/backends")["items"]] == ["local"]
            with crucible.client() as client:
                answer = client.post("/api/v1/jobs", json=shell("true", backend="rehearsal"))
            assert answer.status_code >= 400
            assert not (crucible.home / "rehearsal").exists()

    def all_gone(self, crucible: Deployment) -> bool:
        items = crucible.get("/api/v1/machines", all=True)["items"]
        return all(m["state"] == "gone" for m in items if m["backend"] == "rehearsal")
