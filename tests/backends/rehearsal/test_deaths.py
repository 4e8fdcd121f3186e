"""Test how machines of the cloud end, and what survives `kill -9` of the cloud itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import psutil
import pytest
from tests.backends.conformance import eventually
from tests.backends.rehearsal.place import Cloud, get_metadata, processes_of

from crucible.backends.rehearsal import start_cloud, stop_cloud
from crucible.backends.rehearsal.cloud.processes import Machines
from crucible.backends.rehearsal.connection import ErrorAnswer
from crucible.core.errors import Trouble

LISTENING = "echo $CLOUD_METADATA_URL > url.part; mv url.part url; exec sleep 600"


def metadata_url(cloud: Cloud, id: str) -> str:
    path = cloud.folder(id) / "url"
    eventually(path.exists)
    return path.read_text().strip()


def interruption(url: str) -> dict[str, object] | None:
    response = get_metadata(url, "/interruption")
    assert response.status_code in (200, 404)
    found: dict[str, object] = json.loads(response.content)
    return found if response.status_code == 200 else None


class TestReclaim:
    def test_with_notice_the_machine_can_read_it_and_dies_then(self, cloud: Cloud) -> None:
        id = cloud.running(LISTENING, market="spot")["id"]
        url = metadata_url(cloud, id)
        assert interruption(url) is None
        cloud.call("POST", f"/admin/instances/{id}/reclaim", {"notice": 120})
        notice = interruption(url)
        assert notice is not None
        assert (notice["action"], str(notice["time"])[-1]) == ("terminate", "Z")
        assert 100 < float(str(notice["seconds"])) <= 120
        cloud.advance(60)
        assert cloud.show(id)["state"] == "running"
        assert processes_of(id)
        cloud.advance(60)
        cloud.until(id, "terminated")
        assert cloud.census()[id]["cause"] == "spot_reclaim"
        assert not processes_of(id)
        assert interruption(url) is None

    def test_without_notice_it_dies_at_once(self, cloud: Cloud) -> None:
        id = cloud.running(market="spot")["id"]
        cloud.call("POST", f"/admin/instances/{id}/reclaim", {})
        cloud.until(id, "terminated")
        assert cloud.census()[id]["cause"] == "spot_reclaim"

    def test_only_spot_is_taken_back(self, cloud: Cloud) -> None:
        id = cloud.running()["id"]
        assert cloud.refusal("POST", f"/admin/instances/{id}/reclaim", {}) == (409, "not_spot")
        assert cloud.refusal("POST", f"/admin/instances/{id}/reclaim", {"notice": 121})[0] == 400

    def test_the_cloud_takes_back_by_itself_as_often_as_told(self, cloud: Cloud) -> None:
        cloud.faults(reclaims_per_hour=3600, reclaim_notice=None)
        spot, steady = cloud.running(market="spot")["id"], cloud.running()["id"]
        cloud.advance(120)
        cloud.until(spot, "terminated")
        assert cloud.census()[spot]["cause"] == "spot_reclaim"
        assert cloud.census()[steady]["state"] == "running"

    def test_it_is_asked_to_end_before_it_is_killed(self, cloud: Cloud) -> None:
        cloud.faults(shutdown_seconds=3600)
        id = cloud.running("trap 'touch asked' TERM; touch ready; while :; do sleep 0.1; done")["id"]
        eventually((cloud.folder(id) / "ready").exists)
        cloud.terminate(id)
        eventually((cloud.folder(id) / "asked").exists)
        assert cloud.census()[id]["state"] == "shutting-down"
        cloud.advance(3600)
        assert cloud.census()[id]["state"] == "terminated"


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class TestHardDeath:
    def test_everything_on_it_dies_with_it(self, cloud: Cloud) -> None:
        """Even processes that left the session, or dropped their environment."""
        script = (
            "setsid sh -c 'sleep 600; true' & env -i sh -c 'sleep 600; true' &"
            " trap '' TERM; sleep 600 & touch ready; wait"
        )
        id = cloud.running(script)["id"]
        eventually((cloud.folder(id) / "ready").exists)
        session = str(cloud.census()[id]["pid"])
        eventually(lambda: len(processes_of(id)) >= 4 and len(in_session(session)) >= 4)
        cloud.call("POST", f"/admin/instances/{id}/kill")
        assert (processes_of(id), in_session(session)) == ([], [])
        assert cloud.census()[id]["cause"] == "hardware_failure"

    def test_what_only_its_disk_or_its_parent_gives_away_dies_too(self, cloud: Cloud) -> None:
        """Jobs have their own session and environment."""
        seconds = [f"{os.getpid() + 600}.{n}" for n in range(1, 5)]
        script = (
            f"(cd / && exec env -i PLACE=$PWD/jobs/1 setsid sleep {seconds[0]}) &"
            f" (env -i PATH=$PATH setsid sleep {seconds[1]}) &"
            f" (cd / && exec env -i PATH=$PATH setsid sh -c 'sleep {seconds[2]}; true') &"
            f" exec sleep {seconds[3]}"
        )
        id = cloud.running(script)["id"]
        eventually(lambda: all(sleeping(word) for word in seconds))
        pids = [pid for word in seconds for pid in sleeping(word)]
        cloud.call("POST", f"/admin/instances/{id}/kill")
        eventually(lambda: not any(lives(pid) for pid in pids))

    def test_other_machines_live_on(self, cloud: Cloud) -> None:
        dead, alive = cloud.running()["id"], cloud.running()["id"]
        cloud.call("POST", f"/admin/instances/{dead}/kill")
        assert processes_of(alive)
        assert cloud.show(alive)["state"] == "running"

    def test_a_zone_goes_down_with_all_its_machines(self, cloud: Cloud) -> None:
        here, there = cloud.running()["id"], cloud.running(zone="simulated-north-b")["id"]
        cloud.call("POST", "/admin/zones/simulated-north-a/stop")
        assert (cloud.census()[here]["state"], cloud.census()[here]["cause"]) == ("terminated", "zone_outage")
        assert cloud.census()[there]["state"] == "running"
        with pytest.raises(ErrorAnswer, match="zone_unavailable"):
            cloud.create()
        cloud.call("POST", "/admin/zones/simulated-north-a/start")
        cloud.create()


class TestTheCloudItself:
    def test_kill_9_keeps_everything(self, own_cloud: Cloud) -> None:
        running = own_cloud.running(market="spot", client_token="t", tags={"a": "b"})["id"]
        ended = own_cloud.running()["id"]
        own_cloud.terminate(ended)
        own_cloud.until(ended, "terminated")
        own_cloud.faults(boot_seconds=3600, lost_answers=0.25)
        pending = own_cloud.create()["id"]
        own_cloud.advance(300)
        bill = own_cloud.bill()
        own_cloud.kill9()
        assert processes_of(running)
        assert own_cloud.restart().key == own_cloud.address.key
        census = own_cloud.census()
        assert [census[id]["state"] for id in (running, ended, pending)] == ["running", "terminated", "pending"]
        assert own_cloud.bill()[ended] == bill[ended]
        assert own_cloud.bill()[running]["segments"][0] == bill[running]["segments"][0]
        assert own_cloud.call("GET", "/admin/faults")["lost_answers"] == 0.25
        own_cloud.faults(lost_answers=0)
        assert own_cloud.create(market="spot", client_token="t", tags={"a": "b"})["id"] == running
        own_cloud.terminate(running)
        own_cloud.until(running, "terminated")
        assert not processes_of(running)

    def test_a_machine_that_was_to_boot_boots_once(self, own_cloud: Cloud) -> None:
        own_cloud.faults(boot_seconds=3600)
        id = own_cloud.create("echo booted >> ../../boots; exec sleep 600")["id"]
        own_cloud.kill9()
        own_cloud.restart()
        own_cloud.advance(3600)
        own_cloud.until(id, "running")
        own_cloud.kill9()
        own_cloud.restart()
        boots = own_cloud.state / "boots"
        eventually(boots.exists)
        assert own_cloud.census()[id]["state"] == "running"
        assert boots.read_text() == "booted\n"

    def test_what_a_killed_cloud_started_and_did_not_note_is_taken_over(self, tmp_path: Path) -> None:
        first, second, id = Machines(tmp_path), Machines(tmp_path), f"i-{uuid.uuid4().hex}"
        first.prepare(id, "exec sleep 600")
        started = first.boot(id, {"PATH": os.environ["PATH"]})
        try:
            # While a process becomes another program it has no environment to be known by.
            eventually(lambda: second.adopt(id) == started)
            assert second.adopt(f"{id}-other") is None
            assert second.alive(started)
        finally:
            assert first.end(id, started)
        assert not second.alive(started)

    def test_it_comes_back_at_the_same_address_and_machines_still_find_it(self, own_cloud: Cloud) -> None:
        id = own_cloud.running(LISTENING, market="spot")["id"]
        url, before = metadata_url(own_cloud, id), own_cloud.address.url
        own_cloud.kill9()
        assert own_cloud.restart().url == before
        assert interruption(url) is None

    def test_time_goes_on_after_a_restart_at_another_speed(self, own_cloud: Cloud) -> None:
        id = own_cloud.running(max_seconds=30)["id"]
        own_cloud.kill9()
        own_cloud.restart(speed=1000)
        own_cloud.until(id, "terminated")
        assert own_cloud.census()[id]["cause"] == "max_duration"
        assert not processes_of(id)

    def test_a_machine_that_ended_meanwhile_is_noticed(self, own_cloud: Cloud) -> None:
        id = own_cloud.running()["id"]
        pid = own_cloud.census()[id]["pid"]
        own_cloud.kill9()
        os.kill(pid, 9)
        own_cloud.restart()
        own_cloud.until(id, "terminated")
        assert own_cloud.census()[id]["cause"] == "instance_shutdown"

    def test_one_cloud_has_a_state_folder(self, own_cloud: Cloud) -> None:
        assert start_cloud(own_cloud.state) == own_cloud.address
        command = [sys.executable, "-m", "crucible.backends.rehearsal.cloud", "--state", str(own_cloud.state)]
        second = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (second.returncode, "another cloud runs" in second.stderr) == (3, True)

    def test_a_cloud_whose_folder_is_removed_ends_and_is_not_started_there_again(self, tmp_path: Path) -> None:
        (tmp_path / "home").mkdir()
        cloud = Cloud(tmp_path / "home" / "cloud")
        pid = cloud.address.pid
        (tmp_path / "home").rename(tmp_path / "removed")
        eventually(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
        with pytest.raises(Trouble, match="no folder"):
            start_cloud(cloud.state)
        assert not (tmp_path / "home").exists()

    def test_stopping_it_ends_its_machines(self, tmp_path: Path) -> None:
        cloud = Cloud(tmp_path)
        cloud.faults(boot_seconds=0)
        id = cloud.running()["id"]
        stop_cloud(tmp_path)
        assert not processes_of(id)
        stop_cloud(tmp_path)

    def test_keys_and_disks_are_for_their_owner_alone(self, own_cloud: Cloud) -> None:
        id = own_cloud.running()["id"]
        state = own_cloud.state
        for path in (state / "cloud.json", state / "cloud.db", own_cloud.folder(id) / "user-data"):
            assert path.stat().st_mode & 0o077 == 0
        assert state.stat().st_mode & 0o077 == 0


def sleeping(seconds: str) -> list[int]:
    found = (p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", seconds])
    return [p.pid for p in found if p.status() != psutil.STATUS_ZOMBIE]


def in_session(session: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[3] == session and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found
