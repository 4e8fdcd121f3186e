"""What `status`, `jobs` and `logs` say about jobs."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from tests.cli.conftest import Cli
from tests.client.real_server import RealServer, RunningJob
from tests.control.clouds import FakeCloud
from tests.control.fakes import FakeBackend

from crucible.cli.options.filters import parse_time
from crucible.core.job.spec import EnvironmentSpec, Retries, Source

pytestmark = pytest.mark.enable_socket

PLACE = "local (this computer: 4 CPUs, 16 GiB, 2 x T4, free) because it is free and it fits"
ALL_CPUS = 4.0
WAITING = "waits for 4 CPUs: 0 free, held by "


TRAIN = """
import torch
device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Sequential(torch.nn.Linear(784, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)).to(device)
optimizer = torch.optim.Adam(model.parameters())
data = torch.utils.data.TensorDataset(torch.randn(60000, 784), torch.zeros(60000, dtype=torch.long))
loader = torch.utils.data.DataLoader(data, batch_size=64)
for epoch in range(20):
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
"""


@pytest.fixture
def backends() -> tuple[FakeBackend, ...]:
    return (FakeCloud(),)


@pytest.fixture
def queued(real: RealServer) -> RunningJob:
    """A job that waits because another one uses this whole computer."""
    real.start(name="first", cpus=ALL_CPUS)
    return real.submit(name="second", cpus=ALL_CPUS)


def test_what_runs_is_shown(cli: Cli, real: RealServer) -> None:
    job = real.start(
        command=("{python}", "train.py", "--epochs", "3"),
        source=Source(kind="script", path="/home/me/train.py"),
        environment=EnvironmentSpec(interpreter="/opt/venv/bin/python", origin="the shell's VIRTUAL_ENV"),
        tags=("a", "b"),
        priority=5,
        spot_fallback=True,
    )
    row = cli("jobs").out.splitlines()[1]
    assert "train.py" in row.split()
    assert "python train.py --epochs 3" in row
    assert "/opt/venv/bin/python" in row
    shown = cli("status", job.id).out
    assert "Command     python train.py --epochs 3" in shown
    assert "Python      /opt/venv/bin/python (the shell's VIRTUAL_ENV)" in shown
    assert "Tags        a, b" in shown
    assert "Priority    5" in shown
    assert "Market      spot, else on demand" in shown


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ({"kind": "git", "url": "https://host/team/project.git"}, "project"),
        ({"kind": "directory", "path": "/home/me/model"}, "model"),
        ({"kind": "notebook", "path": "/home/me/look.ipynb"}, "look.ipynb"),
        ({"kind": "code"}, "(code)"),
    ],
)
def test_a_job_without_a_name_goes_by_what_it_was_made_from(
    cli: Cli, real: RealServer, source: dict[str, str], name: str
) -> None:
    job = real.submit(source=Source.model_validate(source))
    assert cli("jobs").out.splitlines()[1].split()[1] == name
    cli("rename", job.id, "mine")
    assert cli("jobs").out.splitlines()[1].split()[1] == "mine"


def test_a_shell_command_is_shown_as_it_was_written(cli: Cli, real: RealServer) -> None:
    real.submit(command=("/bin/sh", "-c", "make   train\n | tee log", "sh", "a b"))
    assert "make train | tee log 'a b'" in cli("jobs").out


def test_lists_show_a_priority_where_there_is_one(cli: Cli, real: RealServer) -> None:
    urgent, plain = real.submit(name="urgent", priority=7), real.submit(name="plain")
    for command in ("jobs", "status"):
        rows = {row.split()[0]: row for row in cli(command).out.splitlines()[1:]}
        assert "priority 7" in rows[urgent.short]
        assert "priority" not in rows[plain.short]


def test_a_job_that_waits_for_its_next_attempt_ran_somewhere(cli: Cli, real: RealServer) -> None:
    job = real.start(retries=Retries(user=1))
    real.run(job.end, 1)
    shown = cli("status", job.id).out
    assert re.search(rf"^Ran last on +{re.escape(PLACE)}$", shown, re.MULTILINE)
    assert "Will run on" not in shown


def test_why_jobs_wait_is_shown(cli: Cli, queued: RunningJob) -> None:
    assert f"waiting: {WAITING}" in cli("status").out
    shown = cli("status", queued.id).out
    assert "Running on" not in shown
    assert "Will run on  local\n" in shown
    assert f"Waiting      {WAITING}" in shown


def test_where_a_job_will_run_is_shown_before_it_does(cli: Cli, real: RealServer) -> None:
    shown = cli("status", real.submit().id).out
    assert f"Will run on  {PLACE}" in shown
    assert "Running on" not in shown


def test_a_job_that_never_ran_ran_nowhere(cli: Cli, queued: RunningJob) -> None:
    assert cli("cancel", queued.id).code == 0
    shown = cli("status", queued.id).out
    assert "Ran on" not in shown
    assert "Waiting" not in shown


def test_how_long_it_ran_is_the_servers_word(cli: Cli, real: RealServer) -> None:
    assert "Ran        7s" in cli("status", real.complete(seconds=7.3).id).out


def test_reasons_of_several_lines_stay_aligned(cli: Cli, real: RealServer) -> None:
    job = real.complete(3, output=b"Traceback\n")
    shown = cli("status", job.id).out
    why = (
        "Why        The program ended with an error.",
        f"           Its last lines say why: crucible logs {job.short}",
    )
    assert "\n".join(why) in shown


def test_a_job_goes_by_its_name_the_newest_one_of_it(cli: Cli, real: RealServer) -> None:
    real.complete(spec={"name": "mine"})
    newest = real.start(name="mine")
    real.submit(name="other")
    assert cli("status", "mine", "-q").out == f"{newest.id}\n"
    assert cli("events", "mine").code == 0
    assert cli("logs", "mine").code == 0
    assert cli("metrics", "mine").code == 0
    assert f"{newest.short} cancelled" in cli("cancel", "mine").err
    assert cli("status", "nobody").code == 3


def test_jobs_are_filtered_by_name_and_tag(cli: Cli, real: RealServer) -> None:
    old = real.submit(name="x")
    failed = real.complete(1, spec={"name": "y", "tags": ("red",)})
    new = real.submit(name="x", tags=("red", "big"))

    def found(*options: str) -> list[str]:
        return cli("jobs", *options, "-q").out.split()

    assert found("--name", "x") == [new.id, old.id]
    assert found("--name", "x", "-n", "1") == [new.id]
    assert found("--all") == [new.id, failed.id, old.id]
    assert found("--backend", "ssh") == []
    assert found("--tag", "red") == [new.id, failed.id]
    assert found("--tag", "red", "--tag", "big") == [new.id]
    assert found("--tag", "red", "--status", "failed") == [failed.id]
    assert "No job matches" in cli("jobs", "--tag", "blue").err


def test_all_jobs_are_listed_page_by_page(cli: Cli, real: RealServer) -> None:
    real.page = 2
    jobs = [real.submit().id for _ in range(5)]
    assert cli("jobs", "--all", "-q").out.split() == jobs[::-1]
    assert len(real.requests) == 3


def test_logs_of_a_job_that_waits_say_so(cli: Cli, queued: RunningJob) -> None:
    ran = cli("logs", queued.id)
    assert (ran.code, ran.out) == (0, "")
    assert f"{queued.short} has not started. Waiting: {WAITING}" in ran.err
    assert cli("logs", queued.id, "--json").err == ""


def test_followed_logs_say_why_a_job_waits_and_how_it_ended(cli: Cli, real: RealServer) -> None:
    first = real.start(cpus=ALL_CPUS)
    second = real.submit(cpus=ALL_CPUS)

    async def play(job: RunningJob) -> None:
        await first.end()
        await real.perform(job, output=b"one\n")

    real.play_now(second, play)
    ran = cli("logs", "-f", second.id)
    assert ran.out == "one\n"
    assert ran.err.count(f"Waiting: {WAITING}{first.short}") == 1
    assert f"{second.short} completed after 42s" in ran.err


def test_crucibles_own_lines_in_a_log_go_to_standard_error(cli: Cli, real: RealServer) -> None:
    job = real.complete(output=b"[crucible] building\none\n[crucible] built\ntwo")
    ran = cli("logs", job.id)
    assert ran.out == "one\ntwo"
    assert ran.err == "[crucible] building\n[crucible] built\n"
    quiet = cli("logs", job.id, "--quiet")
    assert (quiet.out, quiet.err) == ("one\ntwo", "")
    assert cli("logs", job.id, "--grep", "buil", "-q").out == ""


def test_a_result_is_shown(cli: Cli, real: RealServer) -> None:
    job = real.complete(result=("inference", {"label": "café"}))
    assert 'Result     {"label": "café"}' in cli("status", job.id).out
    assert cli("status", job.id, "--json").json["result"]["value"] == {"label": "café"}


def test_what_its_plan_said_is_shown(cli: Cli, real: RealServer, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    job = real.submit().id
    for backend in ("local", "cloud"):
        assert cli("run", "train.py", "-d", "--backend", backend).code == 0
    assert "Planned" not in cli("status", job).out
    real.run(real.plan_jobs)
    cloud, here = (cli("status", found["id"]).out for found in cli("jobs", "--limit", "2", "--json").json["items"])
    assert "Planned      on this computer (local)\n" in cli("status", job).out
    assert re.search(r"Planned      about 1m \d\ds on this computer \(local\), free\n", here)
    assert re.search(r"Planned      about 2m \d\ds on sim.small \(cloud\), \$0.04 in all\n", cloud)


def test_why_its_plan_found_no_offer_is_shown(cli: Cli, real: RealServer, backends: tuple[FakeCloud, ...]) -> None:
    job = real.submit(backend="cloud")
    backends[0].sold_out.update(backends[0].rates)
    real.run(real.harness.offers.refresh)
    real.run(real.plan_jobs)
    assert "sold out" in cli("status", job.id).out


def test_jobs_are_asked_for_in_the_servers_words(cli: Cli, real: RealServer) -> None:
    options = ("--status", "queued,running", "--backend", "local", "--kind", "train", "--text", "a b", "--active")
    assert cli("jobs", *options, "--project", "p", "--since", "2026-11-15T10:00:00Z", "--limit", "7").code == 0
    [query] = real.queries
    said = parse_qs(query)
    assert said["status"] == ["queued", "running"]
    assert said["created_after"] == ["2026-11-15T10:00:00Z"]
    assert (said["text"], said["active"], said["limit"]) == (["a b"], ["true"], ["7"])


@pytest.mark.parametrize(
    "options",
    [
        ("--status", "runing"),
        ("--kind", "training"),
        ("--tag", "=x"),
        ("--since", "yesterday"),
        ("--until", "-3h"),
        ("--name", ""),
        ("--name", "n" * 201),
        ("--backend", "b" * 101),
        ("--limit", "0"),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused_before_the_server_is_asked(
    cli: Cli, real: RealServer, options: tuple[str, ...]
) -> None:
    assert cli("jobs", *options).code == 2
    if options[0] != "--limit":
        assert cli("cancel", "--yes", "--active", *options).code == 2
    assert real.requests == []


def test_a_time_is_so_long_ago_or_a_date() -> None:
    now = datetime(2026, 11, 15, 12, tzinfo=UTC)
    assert parse_time("--since", "2h", now) == datetime(2026, 11, 15, 10, tzinfo=UTC)
    assert parse_time("--since", "2026-11-14T10:00:00+00:00", now) == datetime(2026, 11, 14, 10, tzinfo=UTC)
    assert parse_time("--since", "2026-11-14", now).tzinfo is not None


def test_lines_are_found_by_the_server_page_by_page(cli: Cli, real: RealServer) -> None:
    real.page = 2
    job = real.complete(output=b"one\nLoss nan\nloss nan\nfour\nloss nan too").id
    assert cli("logs", job, "--grep", "loss nan").out == "loss nan\nloss nan too\n"
    assert cli("logs", job, "--grep", "loss nan", "-i").out == "Loss nan\nloss nan\nloss nan too\n"
    assert cli("logs", job, "--grep", "four", "-C", "1").out == "loss nan\nfour\nloss nan too\n"
    found = cli("logs", job, "--grep", "loss nan", "--json").lines
    assert [(hit["line"], hit["offset"]) for hit in found] == [(3, 13), (5, 27)]
    nothing = cli("logs", job, "--grep", "absent")
    assert (nothing.code, nothing.out) == (0, "")
    assert "No line" in nothing.err


def test_jobs_are_cancelled_by_options_after_a_question(cli: Cli, real: RealServer) -> None:
    ended = real.complete(spec={"tags": ("old",)})
    other = real.start()
    one, two = real.start(tags=("old",)), real.start(tags=("old",))
    refused = cli("cancel", "--tag", "old")
    assert refused.code == 2
    assert f"Cancel 2 jobs: {two.short}, {one.short}?" in refused.err
    assert real.view(one).status == "running"
    done = cli("cancel", "--tag", "old", "--yes")
    assert done.code == 0
    assert f"{one.short} cancelled." in done.err
    statuses = [real.view(job).status for job in (one, two, other, ended)]
    assert statuses == ["cancelled", "cancelled", "running", "completed"]
    assert real.sent[-1][1]["ids"] == [two.id, one.id]
    none = cli("cancel", "--tag", "old", "--yes")
    assert (none.code, "No active job matches" in none.err) == (0, True)


def test_one_job_that_was_not_named_is_asked_about_too(cli: Cli, real: RealServer) -> None:
    job = real.start(tags=("old",))
    ran = cli("cancel", "--tag", "old")
    assert (ran.code, f"Cancel 1 job: {job.short}?" in ran.err) == (2, True)


def test_more_jobs_than_can_be_cancelled_at_once_are_told(cli: Cli, real: RealServer) -> None:
    real.start(tags=("old",))
    real.faults.change("/api/v1/jobs/cancel", lambda answer: {**answer, "more": True})
    assert "More than 1" in cli("cancel", "--tag", "old").err


def test_cancel_needs_to_know_which(cli: Cli, real: RealServer) -> None:
    job = real.start()
    assert cli("cancel").code == 2
    assert cli("cancel", job.id, "--tag", "old").code == 2
    assert cli("cancel", "--yes").code == 2
    assert real.sent == []
