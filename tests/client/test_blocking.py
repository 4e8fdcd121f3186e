from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.client.fake_server import AGAIN, JOB, TOKEN, FakeServer, checkpoint_view, completed, failed, job_view

from crucible import JobFailed, SyncMLPlatform
from crucible.client.payload.function import RESULT
from crucible.client.sdk.results import JobCancelled
from crucible.core.errors import BadInput, Conflict, NotAllowed, NotFound, TimedOut, UnknownName, Unreachable

pytestmark = pytest.mark.enable_socket

GiB = 1024**3
OFFER = {"capacity": {"cpus": 4, "memory_bytes": 8 * GiB}, "rate_micros_per_hour": 0, "startup_seconds": 0}


def place(name: str, rate: int = 0, **more: Any) -> dict[str, Any]:
    return {"name": name, "connected": True, "offers": [{**OFFER, "rate_micros_per_hour": rate}], **more}


@pytest.fixture
def platform(server: FakeServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[SyncMLPlatform]:
    server.backends = [place("local", capabilities={"slots": "counted"}), place("far", 1_000_000)]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("crucible.client.sdk.blocking.job.REFRESH_SECONDS", 3600)
    with SyncMLPlatform(server.url, token=TOKEN) as found:
        yield found


def moved(**changes: Any) -> dict[str, Any]:
    return {"stream": "job", "job": job_view(**changes)}


class TestSubmitting:
    def test_code_becomes_a_job_at_the_best_place(self, platform: SyncMLPlatform, server: FakeServer) -> None:
        job = platform.submit(code="print(1)", requirements={"cpus": 1}, name="mine")
        (spec,) = server.specs
        assert (job.id, job.name) == (JOB, "mine")
        assert (spec["backend"], spec["fallback"], spec["resources"]["cpus"]) == ("local", ["far"], 1)
        assert spec["bundle"] in server.bundles

    def test_the_setting_places_is_an_order(
        self, platform: SyncMLPlatform, server: FakeServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CRUCIBLE_PLACES", "far,local")
        with SyncMLPlatform(server.url, token=TOKEN) as other:
            other.submit(code="print(1)", preferences={"optimize_for": "cost", "allowed_backends": None})
            other.submit(code="print(2)", preferences={"allowed_backends": ["local"]})
        assert [(spec["backend"], spec["fallback"]) for spec in server.specs] == [("far", ["local"]), ("local", [])]

    def test_a_backend_nobody_knows_stops_it_before_anything_is_sent(
        self, platform: SyncMLPlatform, server: FakeServer
    ) -> None:
        with pytest.raises(UnknownName, match="Did you mean 'local'"):
            platform.submit(code="print(1)", preferences={"allowed_backends": ["locl"]})
        assert not server.bundles

    def test_a_simulated_place_and_notes_are_told_as_warnings(
        self, platform: SyncMLPlatform, server: FakeServer
    ) -> None:
        server.backends = [place("play", simulated=True)]
        with pytest.warns(UserWarning, match="simulated place"), pytest.warns(UserWarning, match="may not run"):
            platform.submit(code="print(")

    def test_the_servers_refusals_are_typed(self, server: FakeServer) -> None:
        with pytest.raises(NotAllowed), SyncMLPlatform(server.url, token="wrong") as other:
            other.submit(code="print(1)")
        with pytest.raises(NotAllowed), SyncMLPlatform(server.url, token="\ud800") as odd:
            odd.jobs()
        with pytest.raises(Unreachable), SyncMLPlatform("http://127.0.0.1:9", token="x") as nobody:
            nobody.jobs()


class TestJobs:
    @pytest.fixture(autouse=True)
    def a_job(self, server: FakeServer) -> None:
        server.jobs[JOB] = job_view()

    def test_one_and_many(self, platform: SyncMLPlatform, server: FakeServer) -> None:
        server.jobs[AGAIN] = completed(id=AGAIN, short="job-def456")
        server.page = 1
        assert platform.job("abc123").id == JOB
        assert [job.id for job in platform.jobs()] == [JOB, AGAIN]
        assert [job.id for job in platform.jobs(limit=1)] == [JOB]
        assert [job.id for job in platform.jobs(status="completed")] == [AGAIN]
        assert [job.id for job in platform.jobs(active=True)] == [JOB]
        assert "job-abc123" in repr(platform.job("last"))

    def test_by_name_and_tag(self, platform: SyncMLPlatform, server: FakeServer) -> None:
        server.jobs[AGAIN] = completed(id=AGAIN, short="job-def456", name="mine", tags=["a", "b"])
        assert platform.job("mine").id == AGAIN
        assert [job.id for job in platform.jobs(name="mine")] == [AGAIN]
        assert [job.id for job in platform.jobs(tags=["b", "a"])] == [AGAIN]
        assert platform.jobs(tags="nosuch") == []

    def test_what_happened_and_where(self, platform: SyncMLPlatform, server: FakeServer) -> None:
        server.events = [{"n": n, "type": kind, "at": None, "data": {}} for n, kind in enumerate(("a", "b"), 1)]
        server.machines = [{"id": "mch-1", "state": "up"}, {"id": "mch-2", "state": "gone"}]
        assert [event.type for event in platform.job(JOB).events()] == ["a", "b"]
        assert [machine.id for machine in platform.machines()] == ["mch-1"]
        assert len(platform.machines(all=True)) == 2

    def test_names_that_are_none(self, platform: SyncMLPlatform) -> None:
        with pytest.raises(NotFound):
            platform.job("nosuch")
        for wrong in ("", 3, "\ud800", "a\0b"):
            with pytest.raises(BadInput):
                platform.job(wrong)  # type: ignore[arg-type]
        with pytest.raises(BadInput):
            platform.jobs(limit=0)

    def test_monitor_tells_of_moves_to_the_end(self, platform: SyncMLPlatform, server: FakeServer) -> None:
        job = platform.job(JOB)
        server.acts = [
            (
                [
                    moved(),
                    {"stream": "progress", "progress": {"fraction": 0.5}},
                    moved(backend="far", previous_backend="local"),
                    moved(**completed(backend="far", previous_backend="local")),
                ],
                1000,
            )
        ]
        found = [(s.backend, s.progress, s.backend_changed, s.ended) for s in job.monitor()]
        assert found[0][0] == "local"
        assert ("local", 50.0, False, False) in found
        assert [item for item in found if item[2]] == [("far", 0.0, True, False)]
        assert found[-1] == ("far", 100.0, False, True)
        assert job.view.status == "completed"

    def test_wait_returns_however_it_ended(self, platform: SyncMLPlatform, server: FakeServer) -> None:
        server.ends_as = failed(3)
        status = platform.job(JOB).wait(timeout=30)
        assert (status.state, status.exit_code) == ("failed", 3)

    def test_wait_gives_up_in_time(self, platform: SyncMLPlatform, server: FakeServer) -> None:
        server.acts = [([moved()], 0)]
        with pytest.raises(TimedOut, match="It is running"):
            platform.job(JOB).wait(timeout=0)
        for wrong in (-1, "soon", True):
            with pytest.raises(BadInput, match="timeout"):
                platform.job(JOB).wait(timeout=wrong)  # type: ignore[arg-type]

    def test_the_result_is_what_it_left(self, platform: SyncMLPlatform, server: FakeServer) -> None:
        server.jobs[JOB] = completed()
        server.artifacts = {"model.bin": b"weights", RESULT: b'{"sum": 3}'}
        result = platform.job(JOB).result()
        assert (result.value, [file.path for file in result.files]) == ({"sum": 3}, ["model.bin"])
        assert result.metrics == {"loss": 0.5}
        assert result.status.logs == ("last line",)

    def test_the_result_is_what_the_program_found_out(self, platform: SyncMLPlatform, server: FakeServer) -> None:
        server.jobs[JOB] = completed(result={"kind": "value", "value": [1, 2], "attempt": 1})
        assert platform.job(JOB).result().value == [1, 2]

    def test_the_result_of_a_failed_job_is_an_error(self, platform: SyncMLPlatform, server: FakeServer) -> None:
        server.jobs[JOB] = failed(3)
        with pytest.raises(JobFailed, match=r"failed with exit code 3\. The code failed\. Look at") as raised:
            platform.job(JOB).result()
        assert raised.value.status.exit_code == 3
        server.jobs[JOB] = completed(status="cancelled", phase="cancelled")
        with pytest.raises(JobCancelled, match="was cancelled"):
            platform.job(JOB).result()

    def test_logs_are_lines(self, platform: SyncMLPlatform, server: FakeServer) -> None:
        server.log = "one\nzwölf\nlast".encode()
        assert list(platform.job(JOB).logs()) == ["one", "zwölf", "last"]
        assert list(platform.job(JOB).logs(follow=True)) == ["one", "zwölf", "last"]

    def test_metrics_are_a_table(self, platform: SyncMLPlatform, server: FakeServer) -> None:
        server.series = {"loss": {"count": 1, "points": [[1, 0.5, 10.0]]}}
        assert list(platform.job(JOB).metrics()) == [{"step": 1, "time": 10.0, "loss": 0.5}]

    def test_files_and_checkpoints_are_fetched(
        self, platform: SyncMLPlatform, server: FakeServer, tmp_path: Path
    ) -> None:
        server.artifacts = {"out/model.bin": b"weights", "log.txt": b"x"}
        job = platform.job(JOB)
        assert job.download(tmp_path / "a", "out") == [tmp_path / "a/out/model.bin"]
        assert len(job.download(tmp_path / "a")) == 2
        (tmp_path / "a/log.txt").write_text("mine")
        with pytest.raises(Conflict, match=r"would be overwritten.*with overwrite=True"):
            job.download(tmp_path / "a")
        job.download(tmp_path / "a", overwrite=True)
        assert (tmp_path / "a/log.txt").read_text() == "x"
        with pytest.raises(NotFound, match="no artifact 'nosuch'"):
            job.download(tmp_path, "nosuch")
        view = checkpoint_view()
        server.checkpoints, server.contents = [view], {view["id"]: b"weights"}
        assert [item.step for item in job.checkpoints()] == [600]
        saved = job.download_checkpoint(into=tmp_path)
        assert saved.read_bytes() == b"weights"
        saved.write_text("mine")
        with pytest.raises(Conflict, match="would be overwritten"):
            job.download_checkpoint(into=tmp_path)
        assert job.download_checkpoint(into=tmp_path, overwrite=True).read_bytes() == b"weights"

    def test_what_changes_a_job(self, platform: SyncMLPlatform, server: FakeServer) -> None:
        job = platform.job(JOB)
        job.checkpoint_now()
        with pytest.raises(Conflict, match="has not ended"):
            job.resume()
        job.cancel()
        assert job.wait(30).state == "cancelled"
        assert job.resume(backend="far").state == "queued"
        assert job.view.backend == "far"
        assert job.rerun().id == AGAIN
