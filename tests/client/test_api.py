from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.client.fake_server import AGAIN, JOB, TOKEN, FakeServer, checkpoint_view, completed, job_view

from crucible.client.api import Api
from crucible.client.transport import Endpoint
from crucible.core.errors import BadInput, Conflict, NotAllowed, NotFound, Trouble, Unreachable
from crucible.core.jobfilter import JobFilter
from crucible.core.secret import Secret
from crucible.core.spec import JobSpec
from crucible.wire.archive import Entry
from crucible.wire.bundle import make_bundle

pytestmark = pytest.mark.enable_socket

SPEC = JobSpec(command=("{python}", "train.py"))


def test_a_bundle_is_sent_once_and_arrives_whole(api: Api, server: FakeServer, tmp_path: Path) -> None:
    bundle = make_bundle([Entry.of_bytes("train.py", b"print(1)\n" * 100_000)], tmp_path)
    assert not api.has_bundle(bundle.sha256)
    api.put_bundle(bundle.sha256, bundle.path)
    assert api.has_bundle(bundle.sha256)
    assert server.bundles[bundle.sha256] == bundle.path.read_bytes()


def test_a_submission_that_is_repeated_is_one_job(api: Api, server: FakeServer) -> None:
    server.busy_answers = 2
    job = api.submit(SPEC)
    assert job.id == JOB
    assert job.status == "queued"
    assert len(server.specs) == 1
    assert [method for method, path in server.requests if path == "/api/v1/jobs"] == ["POST"] * 3


def test_a_job_is_found_by_its_ending(api: Api, server: FakeServer) -> None:
    server.jobs[JOB] = job_view()
    job = api.job("abc123")
    assert (job.id, job.called, job.metrics) == (JOB, "job-abc123", {"loss": 0.5})


def test_fields_of_a_newer_server_are_kept(api: Api, server: FakeServer) -> None:
    server.jobs[JOB] = job_view(colour="green")
    assert api.job(JOB).as_json()["colour"] == "green"


def test_a_problem_answer_becomes_its_error_with_the_fix(api: Api) -> None:
    with pytest.raises(NotFound) as caught:
        api.job("nosuch")
    assert caught.value.what == "There is no such job."
    assert "crucible jobs" in caught.value.fix


@pytest.mark.parametrize(
    "ask",
    [
        lambda api: api.job(""),
        lambda api: api.people.members(""),
        lambda api: api.people.revoke_token(""),
        lambda api: api.hooks.one("vision", ""),
        lambda api: api.secrets.listed(""),
        lambda api: api.catalog.type(""),
    ],
)
def test_an_empty_name_is_told_and_nobody_is_asked(api: Api, server: FakeServer, ask: Callable[[Api], object]) -> None:
    before = len(server.requests)
    with pytest.raises(BadInput, match="A name is empty"):
        ask(api)
    assert len(server.requests) == before


def test_a_wrong_token_is_not_allowed(server: FakeServer) -> None:
    api = Api(Endpoint(server.url, Secret("wrong")))
    with pytest.raises(NotAllowed) as caught:
        api.jobs()
    assert "CRUCIBLE_TOKEN" in caught.value.fix


def test_a_named_server_that_is_down_is_told_at_once() -> None:
    api = Api(Endpoint("http://127.0.0.1:9", Secret(TOKEN)))
    with pytest.raises(Unreachable) as caught:
        api.server()
    assert caught.value.exit_code == 9
    assert "--server" in caught.value.fix


def test_an_embedded_server_that_moved_is_found_again(server: FakeServer) -> None:
    moved = Endpoint(server.url, Secret(TOKEN), embedded=True)
    api = Api(Endpoint("http://127.0.0.1:9", Secret(TOKEN), embedded=True), relocate=lambda: moved)
    assert api.server().version == "0.1.0"
    assert api.endpoint == moved


def test_a_server_that_stays_busy_is_unreachable_in_its_own_words(api: Api, server: FakeServer) -> None:
    server.busy_answers = 99
    with pytest.raises(Unreachable, match="Too busy"):
        api.server()


def test_an_answer_that_makes_no_sense_is_trouble(api: Api, server: FakeServer) -> None:
    server.jobs[JOB] = {**job_view(), "attempts": "many"}
    with pytest.raises(Trouble, match="cannot be understood"):
        api.job(JOB)


def test_lists_are_filtered(api: Api, server: FakeServer) -> None:
    server.jobs = {"1": job_view(id="1"), "2": completed(id="2")}
    assert [job.id for job in api.jobs(active=True).items] == ["1"]
    assert [job.id for job in api.jobs(statuses=["completed"]).items] == ["2"]


def test_a_page_of_log_says_where_to_go_on(api: Api, server: FakeServer) -> None:
    server.jobs[JOB], server.log = job_view(), b"one\ntwo\n"
    page = api.logs(JOB, offset=4)
    assert (page.data, page.start, page.next, page.complete) == (b"two\n", 4, 8, False)


def test_a_cancel_says_what_is_wanted_now(api: Api, server: FakeServer) -> None:
    server.jobs[JOB] = job_view()
    assert api.cancel(JOB).as_json()["desired"] == "cancel"


def test_conflict_has_its_own_exit_code() -> None:
    assert Conflict("x").exit_code == 5


def test_a_resumption_says_only_what_was_wished(api: Api, server: FakeServer) -> None:
    server.jobs[JOB], server.checkpoints = completed(), [checkpoint_view()]
    assert api.resume(JOB, checkpoint="latest", backend="local").status == "queued"
    server.jobs[JOB] = completed()
    assert api.resume(JOB).generation == 2
    assert [body for _, body in server.bodies] == [{"checkpoint": "latest", "backend": "local"}, {}]


def test_a_resumption_that_may_have_happened_is_not_repeated(api: Api, server: FakeServer) -> None:
    server.jobs[JOB], server.busy_answers = completed(), 1
    with pytest.raises(Unreachable):
        api.resume(JOB)
    assert len(server.requests) == 1


def test_running_a_job_again_is_one_job_however_often_it_is_asked_for(api: Api, server: FakeServer) -> None:
    server.jobs[JOB], server.busy_answers = completed(), 1
    assert api.rerun(JOB).id == AGAIN
    assert len({*server.keys}) == 1


def test_checkpoints_are_listed_and_found(api: Api, server: FakeServer) -> None:
    server.jobs[JOB] = job_view()
    server.checkpoints = [checkpoint_view(form="folder", name="step 600", metric=None)]
    [listed] = api.checkpoints(JOB)
    assert (listed.called, listed.step, listed.file_name) == ("ckp-aaa111", 600, "step 600.tar")
    assert api.checkpoint(JOB, "step 600") == listed
    with pytest.raises(NotFound, match="no checkpoint"):
        api.checkpoint(JOB, "nosuch")


def test_views_of_an_older_server_have_defaults(api: Api, server: FakeServer) -> None:
    view = job_view()
    del view["conditions"]
    server.jobs[JOB], server.machines = view, [{"id": "mch-1", "state": "up"}]
    job, [machine] = api.job(JOB), api.places.machines(all=True)
    assert (job.checkpoint, job.previous_backend, job.generation, job.conditions) == (None, None, 1, ())
    assert (job.attempts[0].resume_from, job.is_simulated) == (None, False)
    assert (machine.called, machine.bills) == ("mch-1", False)


def test_upkeep(api: Api, server: FakeServer) -> None:
    server.prunable = [{"what": "checkpoint", "job": JOB, "bytes": 7, "why": "older than 30 days"}]
    assert api.upkeep.prune(older_than=60.0, dry_run=True).is_any
    assert (api.upkeep.prune().bytes, api.upkeep.prune().is_any) == (7, False)
    assert api.upkeep.backup("/b.db").bytes == 4096
    assert api.upkeep.confirm_restore().as_json()["confirmed"] is True
    assert server.bodies[0] == ("/api/v1/prune", {"older_than_seconds": 60.0, "dry_run": True})


def test_many_jobs_are_submitted_with_a_key_each(api: Api, server: FakeServer) -> None:
    specs = [JobSpec(command=("true",), name="a"), JobSpec(command=("bad",))]
    page = api.many.submit(specs, keys=["k1", "k2"])
    assert (page.created, page.refused) == (1, 1)
    assert page.items[0].job is not None
    assert page.items[0].job.name == "a"
    assert page.items[1].problem is not None
    assert page.items[1].problem.fix == "Another."
    assert [item["key"] for item in server.bodies[-1][1]["jobs"]] == ["k1", "k2"]
    api.many.submit(specs)
    keys = [item["key"] for item in server.bodies[-1][1]["jobs"]]
    assert len(set(keys)) == 2


def test_jobs_are_cancelled_by_filter_or_ids(api: Api, server: FakeServer) -> None:
    server.jobs[JOB] = job_view(tags=["old"])
    assert [job.id for job in api.many.cancel(JobFilter(tag=("old",)), dry_run=True).found] == [JOB]
    assert server.bodies[-1][1] == {"filter": {"tag": ["old"]}, "dry_run": True}
    assert api.many.cancel(ids=[JOB]).found[0].status == "cancelled"
    assert server.bodies[-1][1] == {"ids": [JOB], "dry_run": False}


def test_labels_have_the_same_words_as_the_command(api: Api, server: FakeServer) -> None:
    server.jobs[JOB] = job_view(tags=["a"])
    assert api.labels.tag(JOB, add=["b"], remove=["a"]) == api.labels.tags(JOB) == ("b",)
    assert api.labels.rename(JOB, "x").name == "x"
    note = api.labels.add_note(JOB, "good")
    assert api.labels.notes(JOB) == (note,)
    assert api.labels.delete_note(JOB, note.id) == note
    server.log = b"one\ntwo\n"
    [hit] = api.search_logs(JOB, "TWO", case=False, context=1).items
    assert (hit.line, hit.offset, hit.text, hit.before) == (2, 4, "two", ("one",))
