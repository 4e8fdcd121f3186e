"""Test the cloud's API: the catalogue, and how instances are created, listed and ended."""

from __future__ import annotations

import json
from pathlib import Path

import psutil
import pytest
from tests.backends.conformance import eventually
from tests.backends.rehearsal.place import Cloud, View, get, get_metadata, processes_of

from crucible.backends.rehearsal.connection import ErrorAnswer


class TestAsking:
    def test_a_key_is_needed_and_every_answer_has_an_id(self, cloud: Cloud) -> None:
        for path in ("/v1/regions", "/v1/bill", "/admin/faults"):
            response = get(cloud.address.url, path)
            answer = json.loads(response.content)
            assert (response.status_code, answer["error"]["code"]) == (401, "unauthorized")
            assert answer["request_id"] == response.headers["X-Request-ID"]

    def test_the_customers_key_does_not_open_the_admins_door(self, cloud: Cloud) -> None:
        headers = {"Authorization": f"Bearer {cloud.address.key.reveal()}"}
        assert get(cloud.address.url, "/admin/faults", headers).status_code == 401

    def test_there_are_regions_zones_types_and_markets(self, cloud: Cloud) -> None:
        regions = cloud.call("GET", "/v1/regions")["regions"]
        assert [len(region["zones"]) for region in regions] == [2, 2, 2]
        types = cloud.call("GET", "/v1/types")["types"]
        assert len(types) == 6
        assert {kind["gpus"] for kind in types} == {0, 1, 8}
        assert {kind["minimum_seconds"] for kind in types} == {60}
        offers = cloud.call("GET", "/v1/offers")["offers"]
        assert {offer["market"] for offer in offers} == {"on_demand", "spot", "reserved"}
        assert all(isinstance(offer["rate"], int) and offer["rate"] > 0 for offer in offers)

    def test_nonsense_is_refused_with_a_code(self, cloud: Cloud) -> None:
        good = {"zone": "simulated-north-a", "type": "sim.c2", "user_data": ""}
        expected: dict[str, View] = {
            "unknown_zone": {"zone": "moon"},
            "unknown_type": {"type": "x"},
            "unknown_market": {"market": "black"},
            "unknown_on_exit": {"on_exit": "dance"},
            "invalid_parameter": {"user_data": 5},
        }
        for code, change in expected.items():
            assert cloud.refusal("POST", "/v1/instances", {**good, **change}) == (400, code)
        for change in ({"tags": {"a": 1}}, {"tags": []}, {"max_seconds": -1}, {"ends_at": "soon"}):
            assert cloud.refusal("POST", "/v1/instances", {**good, **change}) == (400, "invalid_parameter")
        assert cloud.refusal("GET", "/v1/instances?limit=x") == (400, "invalid_parameter")
        assert cloud.refusal("GET", "/v1/instances?colour=red") == (400, "invalid_parameter")
        assert cloud.refusal("GET", "/v1/nothing") == (404, "no_such_route")
        assert cloud.refusal("DELETE", "/v1/instances/i-unknown") == (404, "instance_not_found")
        assert cloud.refusal("GET", "/v1/instances/i-unknown") == (404, "instance_not_found")
        assert cloud.census() == {}


class TestLife:
    def test_its_user_data_runs_in_a_folder_and_session_of_its_own(self, cloud: Cloud) -> None:
        id = cloud.running("env > seen; mv seen environ; exec sleep 600", tags={"a": "b"})["id"]
        seen = cloud.folder(id) / "environ"
        eventually(seen.exists)
        environ = dict(line.split("=", 1) for line in seen.read_text().splitlines())
        assert environ["CLOUD_INSTANCE_ID"] == id
        assert environ["HOME"] == str(cloud.folder(id))
        metadata = json.loads(get_metadata(environ["CLOUD_METADATA_URL"]).content)
        assert (metadata["instance"], metadata["zone"], metadata["tags"]) == (id, "simulated-north-a", {"a": "b"})
        pid = cloud.census()[id]["pid"]
        assert psutil.Process(pid).pid == pid
        assert Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[3] == str(pid)

    def test_it_goes_from_pending_to_terminated(self, cloud: Cloud) -> None:
        cloud.faults(boot_seconds=1000, shutdown_seconds=1000)
        id = cloud.create()["id"]
        assert cloud.show(id)["state"] == "pending"
        assert not processes_of(id)
        cloud.advance(1000)
        assert cloud.show(id)["state"] == "running"
        assert processes_of(id)
        assert cloud.terminate(id)["state"] == "shutting-down"
        cloud.advance(1000)
        ended = cloud.show(id)
        assert (ended["state"], ended["cause"]) == ("terminated", "user_initiated")
        assert not processes_of(id)
        eventually(lambda: not cloud.folder(id).exists())

    def test_terminating_again_changes_nothing(self, cloud: Cloud) -> None:
        id = cloud.running()["id"]
        cloud.terminate(id)
        cloud.until(id, "terminated")
        before = cloud.show(id)
        assert cloud.terminate(id)["state"] == "terminated"
        assert cloud.show(id) == before

    def test_its_end_of_time_comes_by_itself(self, cloud: Cloud) -> None:
        id = cloud.running(max_seconds=500)["id"]
        cloud.advance(499)
        assert cloud.show(id)["state"] == "running"
        cloud.advance(2)
        cloud.until(id, "terminated")
        assert cloud.census()[id]["cause"] == "max_duration"
        (segment,) = cloud.bill()[id]["segments"]
        assert 500 <= segment["until"] - segment["since"] <= 502

    def test_when_its_user_data_ends_it_shuts_down_unless_told_otherwise(self, cloud: Cloud) -> None:
        ends, stays = cloud.create("exit 3")["id"], cloud.create("exit 3", on_exit="run_on")["id"]
        cloud.until(ends, "terminated")
        assert cloud.census()[ends]["cause"] == "instance_shutdown"
        assert cloud.census()[stays]["state"] == "running"

    def test_what_ended_long_ago_is_listed_no_more_and_still_billed(self, cloud: Cloud) -> None:
        id = cloud.running()["id"]
        cloud.terminate(id)
        cloud.until(id, "terminated")
        assert [found["id"] for found in cloud.listed()] == [id]
        cloud.advance(3601)
        assert cloud.listed() == []
        assert cloud.bill()[id]["micro_dollars"] > 0
        assert [found["id"] for found in cloud.listed(segments="true")] == [id], "a meter forgets nothing"


class TestTokens:
    def test_the_same_token_gives_the_same_instance(self, cloud: Cloud) -> None:
        first = cloud.create(client_token="t", tags={"a": "b"})
        assert cloud.create(client_token="t", tags={"a": "b"})["id"] == first["id"]
        cloud.terminate(first["id"])
        assert cloud.create(client_token="t", tags={"a": "b"})["id"] == first["id"]
        assert len(cloud.census()) == 1

    def test_with_other_parameters_it_is_a_mismatch(self, cloud: Cloud) -> None:
        cloud.create(client_token="t")
        with pytest.raises(ErrorAnswer, match="idempotent_parameter_mismatch"):
            cloud.create(client_token="t", tags={"a": "b"})
        with pytest.raises(ErrorAnswer, match="idempotent_parameter_mismatch"):
            cloud.create("exec sleep 601", client_token="t")

    def test_ignored_it_gives_another(self, cloud: Cloud) -> None:
        cloud.faults(tokens_honoured=False)
        ids = {cloud.create(client_token="t")["id"] for _ in range(3)}
        assert len(ids) == 3
        assert {found["id"] for found in cloud.listed(client_token="t")} == ids

    def test_without_one_each_is_new(self, cloud: Cloud) -> None:
        assert cloud.create()["id"] != cloud.create()["id"]


class TestLists:
    def test_filters_narrow_it_down(self, cloud: Cloud) -> None:
        a, b, c = (cloud.create(tags={"team": team, "n": str(n)})["id"] for n, team in enumerate("xxy"))
        cloud.call("POST", f"/admin/instances/{a}/kill")

        def ids(**query: str) -> list[str]:
            return [found["id"] for found in cloud.listed(**query)]

        assert ids() == [a, b, c]
        assert ids(**{"tag:team": "x"}) == [a, b]
        assert ids(**{"tag:team": "x,y", "tag:n": "1,2"}) == [b, c]
        assert ids(**{"tag:team": "x"}, state="running") == [b]
        assert ids(id=f"{c},{a}") == [a, c]
        assert ids(**{"tag:other": "x"}) == ids(**{"tag:team": "x' OR 1=1 --"}) == []

    def test_pages_follow_each_other_without_gap_or_double(self, cloud: Cloud) -> None:
        cloud.faults(boot_seconds=3600)
        made = [cloud.create()["id"] for _ in range(7)]
        found, cursor, sizes = [], "0", []
        while cursor:
            answer = cloud.call("GET", "/v1/instances", limit="3", cursor=cursor)
            found += [instance["id"] for instance in answer["instances"]]
            sizes.append(len(answer["instances"]))
            cursor = answer["next"]
        assert (found, sizes) == (made, [3, 3, 1])

    def test_a_lagging_list_shows_what_was(self, cloud: Cloud) -> None:
        cloud.faults(list_lag=100)
        id = cloud.create()["id"]
        assert cloud.listed() == []
        assert cloud.refusal("GET", f"/v1/instances/{id}") == (404, "instance_not_found")
        cloud.advance(101)
        assert cloud.show(id)["state"] == "running"
        cloud.terminate(id)
        cloud.until(id, "terminated")
        (late,) = cloud.listed()
        assert (late["state"], late["cause"], late["ended_at"]) == ("running", "", None)
        cloud.advance(101)
        assert cloud.show(id)["state"] == "terminated"


class TestLimits:
    def test_stock_runs_out_and_comes_back(self, cloud: Cloud) -> None:
        what = {"zone": "simulated-north-a", "type": "sim.c2", "market": "spot"}
        cloud.call("POST", "/admin/stock", {**what, "count": 1})
        id = cloud.create(**what)["id"]
        body = {**what, "user_data": ""}
        assert cloud.refusal("POST", "/v1/instances", body) == (409, "insufficient_capacity")
        cloud.create(**{**what, "market": "on_demand"})
        cloud.create(**{**what, "zone": "simulated-north-b"})
        cloud.call("POST", f"/admin/instances/{id}/kill")
        cloud.create(**what)

    def test_the_quota_counts_vcpus_of_a_region(self, cloud: Cloud) -> None:
        cloud.call("POST", "/admin/quota", {"region": "simulated-north", "vcpus": 4})
        cloud.create(zone="simulated-north-a")
        cloud.create(zone="simulated-north-b")
        body = {"zone": "simulated-north-a", "type": "sim.c2", "user_data": ""}
        assert cloud.refusal("POST", "/v1/instances", body) == (403, "quota_exceeded")
        cloud.create(zone="simulated-east-a")
