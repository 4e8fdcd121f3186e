from __future__ import annotations

import pytest
from tests.client.real_server import RealServer
from tests.server.app import TOKEN

from crucible import SyncMLPlatform
from crucible.core.errors import BadInput, NotAllowed, NotFound, UnknownName, Unreachable

pytestmark = pytest.mark.enable_socket


class TestSubmitting:
    def test_code_becomes_a_job_at_the_best_place(self, blocking: SyncMLPlatform, real: RealServer) -> None:
        job = blocking.submit(code="print(1)", requirements={"cpus": 1}, name="mine")
        (spec,) = real.specs
        assert (job.id, job.name) == (real.last.id, "mine")
        assert (spec["backend"], spec["fallback"], spec["resources"]["cpus"]) == ("local", ["far"], 1)
        assert spec["bundle"] in real.bundles

    def test_the_setting_places_is_an_order(
        self, blocking: SyncMLPlatform, real: RealServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CRUCIBLE_PLACES", "far,local")
        with SyncMLPlatform(real.url, token=TOKEN) as other:
            other.submit(code="print(1)", preferences={"optimize_for": "cost", "allowed_backends": None})
            other.submit(code="print(2)", preferences={"allowed_backends": ["local"]})
        assert [(spec["backend"], spec["fallback"]) for spec in real.specs] == [("far", ["local"]), ("local", [])]

    def test_a_backend_nobody_knows_stops_it_before_anything_is_sent(
        self, blocking: SyncMLPlatform, real: RealServer
    ) -> None:
        with pytest.raises(UnknownName, match="Did you mean 'local'"):
            blocking.submit(code="print(1)", preferences={"allowed_backends": ["locl"]})
        assert not real.bundles
        assert not real.sent

    def test_a_simulated_place_and_notes_are_told_as_warnings(self, blocking: SyncMLPlatform, real: RealServer) -> None:
        with pytest.warns(UserWarning, match="simulated backend"), pytest.warns(UserWarning, match="may not run"):
            blocking.submit(code="print(", requirements={"cpus": 32})
        assert real.specs[0]["backend"] == "play"

    def test_the_servers_refusals_are_typed(self, blocking: SyncMLPlatform, real: RealServer) -> None:
        with pytest.raises(NotAllowed), SyncMLPlatform(real.url, token="wrong") as other:
            other.submit(code="print(1)")
        with pytest.raises(NotAllowed), SyncMLPlatform(real.url, token="\ud800") as odd:
            odd.jobs()
        with pytest.raises(Unreachable), SyncMLPlatform("http://127.0.0.1:9", token="x") as nobody:
            nobody.jobs()


class TestJobs:
    def test_one_and_many(self, blocking: SyncMLPlatform, real: RealServer) -> None:
        ended, running = real.complete(), real.start()
        real.page = 1
        assert blocking.job(ended.short.removeprefix("job-")).id == ended.id
        assert [job.id for job in blocking.jobs()] == [running.id, ended.id]
        assert [job.id for job in blocking.jobs(limit=1)] == [running.id]
        assert [job.id for job in blocking.jobs(status="completed")] == [ended.id]
        assert [job.id for job in blocking.jobs(active=True)] == [running.id]
        assert running.short in repr(blocking.job("last"))

    def test_by_name_and_tag(self, blocking: SyncMLPlatform, real: RealServer) -> None:
        tagged, _other = real.complete(spec={"name": "mine", "tags": ("a", "b")}), real.start()
        assert blocking.job("mine").id == tagged.id
        assert [job.id for job in blocking.jobs(name="mine")] == [tagged.id]
        assert [job.id for job in blocking.jobs(tags=["b", "a"])] == [tagged.id]
        assert blocking.jobs(tags="nosuch") == []

    def test_what_happened_and_where(self, blocking: SyncMLPlatform, real: RealServer) -> None:
        ended = real.complete(spec={"backend": "far"})
        real.run(real.perform_effects)
        job = real.start()
        events = list(blocking.job(job.id).events())
        assert [event.n for event in events] == list(range(1, len(events) + 1))
        assert (events[0].type, events[-1].type) == ("submitted", "started")
        gone, used = real.view(ended).attempts[0].machine, real.view(job).attempts[0].machine
        assert [machine.id for machine in blocking.machines()] == [used]
        assert {machine.id: machine.state for machine in blocking.machines(all=True)} == {used: "up", gone: "gone"}

    def test_names_that_are_none(self, blocking: SyncMLPlatform, real: RealServer) -> None:
        real.start()
        with pytest.raises(NotFound):
            blocking.job("nosuch")
        for wrong in ("", 3, "\ud800", "a\0b"):
            with pytest.raises(BadInput):
                blocking.job(wrong)  # type: ignore[arg-type]
        with pytest.raises(BadInput):
            blocking.jobs(limit=0)
