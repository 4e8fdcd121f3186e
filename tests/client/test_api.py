from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.client.real_server import RealServer
from tests.server.app import TOKEN

from crucible import __version__
from crucible.client.api import Api
from crucible.client.transport.http import Endpoint
from crucible.control.upkeep import restore_hold
from crucible.core.errors import BadInput, Conflict, NotAllowed, NotFound, TimedOut, Trouble, Unreachable
from crucible.core.job.job_filter import JobFilter
from crucible.core.job.spec import JobSpec
from crucible.core.secret import Secret
from crucible.storage.layout import bundle_key
from crucible.wire.files.archive import Entry
from crucible.wire.files.bundle import make_bundle

pytestmark = pytest.mark.enable_socket

SPEC = JobSpec(command=("{python}", "train.py"))


def test_a_bundle_is_sent_once_and_arrives_whole(real_api: Api, real: RealServer, tmp_path: Path) -> None:
    bundle = make_bundle([Entry.of_bytes("train.py", b"print(1)\n" * 100_000)], tmp_path)
    assert not real_api.has_bundle(bundle.sha256)
    real_api.put_bundle(bundle.sha256, bundle.path)
    assert real_api.has_bundle(bundle.sha256)
    assert real.harness.ports.store.get(bundle_key(bundle.sha256)) == bundle.path.read_bytes()


def test_a_submission_that_is_repeated_is_one_job(real_api: Api, real: RealServer) -> None:
    real.faults.refuse("/api/v1/jobs")
    real.faults.cut("/api/v1/jobs")
    job = real_api.submit(SPEC)
    assert job.id == real.last.id
    assert job.status == "queued"
    assert [method for method, path in real.requests if path == "/api/v1/jobs"] == ["POST"] * 3
    assert len({*real.keys}) == 1
    assert len(real_api.jobs().items) == 1


def test_a_job_is_found_by_its_ending(real_api: Api, real: RealServer) -> None:
    running = real.start()
    real.run(running.points, loss=[0.5])
    job = real_api.job(running.short.removeprefix("job-"))
    assert (job.id, job.display_name, job.metrics) == (running.id, running.short, {"loss": 0.5})


def test_fields_of_a_newer_server_are_kept(real_api: Api, real: RealServer) -> None:
    job = real.start().id
    real.faults.change("/api/v1/jobs/*", lambda view: {**view, "colour": "green"})
    assert real_api.job(job).as_json()["colour"] == "green"


def test_a_problem_answer_becomes_its_error_with_the_fix(real_api: Api) -> None:
    with pytest.raises(NotFound) as caught:
        real_api.job("nosuch")
    assert caught.value.what == "There is no job 'nosuch'."
    assert "crucible jobs" in caught.value.fix


@pytest.mark.parametrize(
    "ask",
    [
        lambda api: api.job(""),
        lambda api: api.people.members(""),
        lambda api: api.people.revoke_token(""),
        lambda api: api.hooks.get("vision", ""),
        lambda api: api.secrets.list_secrets(""),
        lambda api: api.catalog.type(""),
    ],
)
def test_an_empty_name_is_told_and_nobody_is_asked(
    real_api: Api, real: RealServer, ask: Callable[[Api], object]
) -> None:
    before = len(real.requests)
    with pytest.raises(BadInput, match="A name is empty"):
        ask(real_api)
    assert len(real.requests) == before


def test_a_wrong_token_is_not_allowed(real: RealServer) -> None:
    real_api = Api(Endpoint(real.url, Secret("wrong")))
    with pytest.raises(NotAllowed) as caught:
        real_api.jobs()
    assert "crucible login" in caught.value.fix


def test_a_named_server_that_is_down_is_told_at_once() -> None:
    real_api = Api(Endpoint("http://127.0.0.1:9", Secret(TOKEN)))
    with pytest.raises(Unreachable) as caught:
        real_api.server()
    assert caught.value.exit_code == 9
    assert "--server" in caught.value.fix


def test_an_embedded_server_that_moved_is_found_again(real: RealServer) -> None:
    moved = Endpoint(real.url, Secret(TOKEN), embedded=True)
    real_api = Api(Endpoint("http://127.0.0.1:9", Secret(TOKEN), embedded=True), relocate=lambda: moved)
    assert real_api.server().version == __version__
    assert real_api.endpoint == moved


def test_a_server_that_stays_busy_is_unreachable_in_its_own_words(real_api: Api, real: RealServer) -> None:
    real.faults.refuse("*", times=99, body=b'{"code": "unreachable", "detail": "Too busy."}')
    with pytest.raises(Unreachable, match="Too busy"):
        real_api.server()


def test_an_answer_that_makes_no_sense_is_trouble(real_api: Api, real: RealServer) -> None:
    job = real.start().id
    real.faults.change("/api/v1/jobs/*", lambda view: {**view, "attempts": "many"}, times=1)
    real.faults.garble("/api/v1/jobs/*")
    for _ in range(2):
        with pytest.raises(Trouble, match="response is invalid"):
            real_api.job(job)


def test_lists_are_filtered(real_api: Api, real: RealServer) -> None:
    ended, running = real.complete(), real.start()
    assert [job.id for job in real_api.jobs(active=True).items] == [running.id]
    assert [job.id for job in real_api.jobs(statuses=["completed"]).items] == [ended.id]


def test_a_page_of_log_says_where_to_go_on(real_api: Api, real: RealServer) -> None:
    job = real.start()
    real.run(job.write, b"one\ntwo\n")
    page = real_api.logs(job.id, offset=4)
    assert (page.data, page.start, page.next, page.complete) == (b"two\n", 4, 8, False)


def test_a_cancel_says_what_is_wanted_now(real_api: Api, real: RealServer) -> None:
    assert real_api.cancel(real.start().id).as_json()["desired"] == "cancel"


def test_conflict_has_its_own_exit_code() -> None:
    assert Conflict("x").exit_code == 5


def test_a_resumption_says_only_what_was_wished(real_api: Api, real: RealServer) -> None:
    job = real.start()
    real.run(job.checkpoint, "step_1", b"weights", 1)
    real.run(job.end, 1)
    other = real.complete(1)
    assert real_api.resume(job.id, checkpoint="latest", backend="local").generation == 2
    assert real_api.resume(other.id).generation == 2
    assert [body for _, body in real.sent] == [{"checkpoint": "latest", "backend": "local"}, {}]


def test_a_resumption_that_may_have_happened_is_not_repeated(real_api: Api, real: RealServer) -> None:
    job = real.complete(1)
    real.faults.cut("*/resume")
    with pytest.raises(Unreachable):
        real_api.resume(job.id)
    assert len(real.requests) == 1
    assert real.view(job).generation == 2


def test_running_a_job_again_is_one_job_however_often_it_is_asked_for(real_api: Api, real: RealServer) -> None:
    job = real.complete()
    real.faults.cut("*/rerun")
    assert real_api.rerun(job.id).id == real.last.id
    assert len({*real.keys}) == 1
    assert len(real_api.jobs().items) == 2


def test_checkpoints_are_listed_and_found(real_api: Api, real: RealServer) -> None:
    job = real.start()
    real.run(job.checkpoint, "step 600", b"weights", 600, form="folder")
    [listed] = real_api.checkpoints(job.id)
    assert (listed.display_name, listed.step, listed.file_name) == (listed.short, 600, "step 600.tar")
    assert real_api.checkpoint(job.id, "step 600") == listed
    with pytest.raises(NotFound, match="no checkpoint"):
        real_api.checkpoint(job.id, "nosuch")


def test_views_of_an_older_server_have_defaults(real_api: Api, real: RealServer) -> None:
    def older(view: dict[str, Any]) -> dict[str, Any]:
        newer = ("conditions", "checkpoint", "previous_backend", "generation", "simulated", "plan", "health")
        attempts = [{name: attempt[name] for name in ("number", "id", "state")} for attempt in view["attempts"]]
        return {**{name: value for name, value in view.items() if name not in newer}, "attempts": attempts}

    running = real.start().id
    real.faults.change("/api/v1/jobs/*", older)
    real.faults.change("/api/v1/machines", lambda page: {"items": [{"id": "mch-1", "state": "up"}]})
    job, [machine] = real_api.job(running), real_api.compute.machines(all=True)
    assert (job.checkpoint, job.previous_backend, job.generation, job.conditions) == (None, None, 1, ())
    assert (job.attempts[0].resume_from, job.is_simulated) == (None, False)
    assert (machine.display_name, machine.bills) == ("mch-1", False)


def test_upkeep(real_api: Api, real: RealServer) -> None:
    job = real.start()
    real.run(job.checkpoint, "step_1", b"weights", 1)
    real.run(job.end)
    real.harness.clock.move(3600)
    assert real_api.maintenance.prune(older_than=60.0, dry_run=True).is_any
    assert (real_api.maintenance.prune(older_than=60.0).bytes, real_api.maintenance.prune().is_any) == (7, False)
    assert real.sent[0] == ("/api/v1/prune", {"older_than_seconds": 60.0, "dry_run": True})
    now = real.harness.clock.now()
    real.run(real.harness.sql, lambda conn: restore_hold.mark_restored(conn, now, now - 60))
    assert real_api.maintenance.confirm_restore().as_json()["confirmed"] is True


def test_many_jobs_are_submitted_with_a_key_each(real_api: Api, real: RealServer) -> None:
    specs = [JobSpec(command=("true",), name="a"), JobSpec(command=("true",), backend="locl")]
    page = real_api.bulk.submit(specs, keys=["k1", "k2"])
    assert (page.created, page.refused) == (1, 1)
    assert page.items[0].job is not None
    assert page.items[0].job.name == "a"
    assert page.items[1].problem is not None
    assert "local" in page.items[1].problem.fix
    assert [item["key"] for item in real.sent[-1][1]["jobs"]] == ["k1", "k2"]
    real_api.bulk.submit(specs)
    keys = [item["key"] for item in real.sent[-1][1]["jobs"]]
    assert len(set(keys)) == 2


def test_jobs_are_cancelled_by_filter_or_ids(real_api: Api, real: RealServer) -> None:
    job = real.start(tags=("old",))
    assert [found.id for found in real_api.bulk.cancel(JobFilter(tag=("old",)), dry_run=True).matching_jobs] == [job.id]
    assert real.sent[-1][1] == {"filter": {"tag": ["old"]}, "dry_run": True}
    assert real_api.bulk.cancel(ids=[job.id]).matching_jobs[0].as_json()["desired"] == "cancel"
    assert real.sent[-1][1] == {"ids": [job.id], "dry_run": False}


def test_labels_have_the_same_words_as_the_command(real_api: Api, real: RealServer) -> None:
    job = real.complete(output=b"one\ntwo\n", spec={"tags": ("a",)}).id
    assert real_api.labels.change_tags(job, add=["b"], remove=["a"]) == real_api.labels.tags(job) == ("b",)
    assert real_api.labels.rename(job, "x").name == "x"
    note = real_api.labels.add_note(job, "good")
    assert real_api.labels.notes(job) == (note,)
    assert real_api.labels.delete_note(job, note.id) == note
    [hit] = real_api.search_logs(job, "TWO", case=False, context=1).items
    assert (hit.line, hit.offset, hit.text, hit.before) == (2, 4, "two", ("one",))


def test_a_server_of_another_version_is_told(real_api: Api, real: RealServer, caplog: pytest.LogCaptureFixture) -> None:
    real.faults.version = "99.1.0"
    assert real_api.jobs().items == ()
    assert "The server is version 99.1.0" in caplog.text


def test_a_server_that_does_not_answer_in_time_is_told(real: RealServer) -> None:
    real.faults.hang("/api/v1/server", times=99)
    api = Api(Endpoint(real.url, Secret(TOKEN)), seconds=0.2)
    with pytest.raises((TimedOut, Unreachable)):
        api.server()
