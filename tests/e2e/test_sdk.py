"""The Python client on a real server: what can be submitted, what comes back, and the documents' executors."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from tests.harness import Deployment
from tests.plugin_packages import COUNTER as PLUGIN
from tests.plugin_packages import install, make_python

from crucible import JobFailed, MLPlatform, Requirements, SyncMLPlatform
from crucible.client.compat import (
    ComputeBackend,
    ExecutionBackend,
    GPUExecutor,
    JobConfig,
    LocalExecutor,
    MLJob,
    WorkloadCharacteristics,
)
from crucible.client.sdk.results import JobCancelled
from crucible.core.errors import BadInput, NoCapacity, NotFound

SMALL = Requirements(cpus=0.5, memory_gb=0.25)
LONG = 90.0

COUNTER = """\
import os
import crucible

found = crucible.checkpoint.latest()
first = int(open(found).read()) + 1 if found else 1
for step in range(first, 4):
    print(f"step {step}/3 loss {1 / step:.2f}", flush=True)
    crucible.checkpoint.save(lambda path: open(path, "w").write(str(step)), step)
    if step == 2 and not found:
        raise SystemExit(3)
with open(os.path.join(os.environ["CRUCIBLE_OUTPUT_DIR"], "model.txt"), "w") as file:
    file.write("weights")
"""


@pytest.fixture
async def platform(crucible: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MLPlatform]:
    monkeypatch.setenv("CRUCIBLE_HOME", str(crucible.home))
    monkeypatch.chdir(tmp_path)
    async with MLPlatform() as found:
        yield found


async def output(platform: MLPlatform, **said: object) -> list[str]:
    job = platform.submit(requirements=SMALL, **said)  # type: ignore[arg-type]
    await job.result(LONG)
    return [line async for line in job.logs()]


async def test_code_a_file_a_folder_and_a_command(platform: MLPlatform, tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("WORD = 'helped'\n")
    (tmp_path / "train.py").write_text("import helper, sys\nprint(helper.WORD, sys.argv[1:])\n")
    found = await asyncio.gather(
        output(platform, code="print('as code')"),
        output(platform, path="train.py", args=["--epochs", 3]),
        output(platform, path=tmp_path, entry="train.py"),
        output(platform, shell="echo $WORD", env={"WORD": "in a shell"}),
    )
    assert found == [["as code"], ["helped ['--epochs', '3']"], ["helped []"], ["in a shell"]]


async def test_a_repository_at_a_revision(platform: MLPlatform, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    for text, tag in (("print('old')", "v1"), ("print('new')", "v2")):
        (repository / "main.py").write_text(text)
        for words in (["init", "-q"], ["add", "."], ["commit", "-qm", tag], ["tag", tag]):
            subprocess.run(["git", *who, *words], cwd=repository, check=True)
    assert await output(platform, git=f"{repository}@v1") == ["old"]
    assert await output(platform, git=repository.as_uri(), ref="v2") == ["new"]
    with pytest.raises(BadInput, match="cannot be fetched"):
        await platform.submit(git=f"{repository}@v3")


async def test_a_secret_of_the_project(platform: MLPlatform) -> None:
    await platform.in_thread(lambda: platform.sync.api.secrets.set("default", "DEPLOY_KEY", "a long value"))
    code = "import os\nprint(len(os.environ['KEY']), os.environ['KEY'])"
    assert await output(platform, code=code, secrets={"KEY": "DEPLOY_KEY"}, project="default") == ["12 ***"]
    with pytest.raises(NotFound, match="has no secret 'NOSUCH'"):
        await platform.submit(code=code, secrets=["NOSUCH"])


async def test_a_model_is_trained_asked_and_measured(platform: MLPlatform, tmp_path: Path) -> None:
    install(make_python(tmp_path / "env"), "counting", PLUGIN, {"counter": "counting:Counter"})
    counter: dict[str, Any] = {"model": "counter", "python": "env", "requirements": SMALL}
    trained = await platform.submit(**counter, config={"epochs": 2})
    assert (await trained.result(LONG)).value == {"data": "None", "rate": 0.5, "epochs": 2}
    assert (trained.name, trained.view.kind) == ("counter", "train")
    assert [row["loss"] for row in await trained.metrics("loss")] == [1.0, 0.5]
    asked = platform.submit(**counter, kind="inference", inputs={"x": 21})
    assert (await asked.result(LONG)).value == {"doubled": 42}
    measured = platform.submit(**counter, kind="benchmark", config={"suite": "waa"})
    assert (await measured.result(LONG)).value == {"speed": 12.5, "suite": "waa"}
    with pytest.raises(BadInput, match="did you mean 'epochs'"):
        await platform.submit(**counter, config={"epoch": 2})
    with pytest.raises(BadInput, match="Did you mean 'counter'"):
        await platform.submit(model="countre", python="env")


async def test_a_notebook(platform: MLPlatform, tmp_path: Path) -> None:
    import nbformat

    notebook = nbformat.v4.new_notebook()  # type: ignore[no-untyped-call]
    notebook["cells"] = [
        nbformat.v4.new_code_cell("%matplotlib inline\nx = 2"),  # type: ignore[no-untyped-call]
        nbformat.v4.new_code_cell("!echo from the shell\nprint(x + 1)"),  # type: ignore[no-untyped-call]
    ]
    nbformat.write(notebook, tmp_path / "study.ipynb")  # type: ignore[no-untyped-call]
    assert await output(platform, path="study.ipynb") == ["from the shell", "3"]


FUNCTION = """\
from crucible import Requirements, SyncMLPlatform

SCALE = 10

def scaled(x):
    print("working")
    return {"value": x * SCALE}

with SyncMLPlatform() as platform:
    job = platform.submit(function=scaled, args=[4], requirements=Requirements(cpus=0.5, memory_gb=0.25))
    print(job.result(90).value, list(job.logs()))
"""


def test_a_function_of_a_script_that_submits_itself(crucible: Deployment, tmp_path: Path) -> None:
    (tmp_path / "study.py").write_text(FUNCTION)
    before = len(crucible.get("/api/v1/jobs", limit=500)["items"])
    done = subprocess.run([sys.executable, "study.py"], cwd=tmp_path, env=crucible.env, capture_output=True, text=True)
    assert done.stdout == "{'value': 40} ['working']\n", done.stderr
    assert len(crucible.get("/api/v1/jobs", limit=500)["items"]) == before + 1


async def test_a_failed_job_is_resumed_from_its_checkpoint(platform: MLPlatform, tmp_path: Path) -> None:
    job = await platform.submit(code=COUNTER, requirements=SMALL, name="counter", tags=["sdk"])
    with pytest.raises(JobFailed, match="exit code 3") as raised:
        await job.result(LONG)
    assert raised.value.status.attempt == 1
    saved = await job.checkpoints()
    assert [item.step for item in saved] == [2, 1]
    assert (await job.download_checkpoint("latest", tmp_path)).read_text() == "2"
    await job.resume()
    result = await job.result(LONG)
    assert [file.path for file in result.files] == ["model.txt"]
    (model,) = await job.download(tmp_path / "out")
    assert model.read_text() == "weights"
    assert [line async for line in job.logs()] == ["step 3/3 loss 0.33"]
    assert [line async for line in job.logs(attempt=1)] == ["step 1/3 loss 1.00", "step 2/3 loss 0.50"]
    table = await job.metrics("loss")
    assert [(row["step"], row["loss"]) for row in table] == [(3, 0.33)]
    assert (await platform.job(job.id)).name == "counter"


async def test_following_and_cancelling(platform: MLPlatform) -> None:
    code = "import time\nprint('up', flush=True)\ntime.sleep(600)"
    job = platform.submit(code=code, requirements=SMALL, grace_seconds=1)
    async for line in job.logs(follow=True):
        assert line == "up"
        await job.cancel()
    assert (await job.wait(LONG)).state == "cancelled"
    with pytest.raises(JobCancelled):
        await job.result()
    assert job.id in [item.id for item in await platform.jobs(status=["cancelled"])]


async def test_following_over_a_server_that_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client starts the next one itself, as any command would."""
    gate = tmp_path / "gate"
    code = f"import os, time\nprint('step 1/2', flush=True)\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.05)"
    statuses = []
    with Deployment(tmp_path) as crucible:
        monkeypatch.setenv("CRUCIBLE_HOME", str(crucible.home))
        async with MLPlatform() as platform:
            job = platform.submit(code=code, requirements=SMALL)
            async for status in job.monitor():
                statuses.append(status)
                if status.progress == 50.0 and not gate.exists():
                    crucible.kill()
                    gate.touch()
            assert [line async for line in job.logs()] == ["step 1/2"]
    assert statuses[-1].state == "completed"


async def test_what_cannot_be(platform: MLPlatform) -> None:
    with pytest.raises(NoCapacity, match="local: asks for 1 GPU"):
        await platform.submit(code="print(1)", requirements=Requirements(gpu_memory_gb=16))
    with pytest.raises(NotFound):
        await platform.job("nosuch").status()


async def test_the_local_executor(platform: MLPlatform, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(
        "import sys, time\nprint(sys.argv[1:5], flush=True)\nprint('step 1 loss 0.5', flush=True)\ntime.sleep(600)\n"
    )
    executor = LocalExecutor(platform)
    assert await executor.can_execute()
    assert await executor.estimate_cost({"epochs": 100}) == 0.0
    config = {"epochs": 3, "requirements": {"cpus": 0.5, "memory_gb": 0.25}}
    execution = await executor.submit_job(7, "model.py", config)
    backend, *_, pid = execution.split("-")
    assert (backend, Path(f"/proc/{pid}").exists()) == ("local", True)
    assert (await executor.get_status(execution))["status"] == "running"
    job = platform.job(execution.removeprefix("local-").rpartition("-")[0])
    async with aclosing(job.logs(follow=True)) as lines:
        assert await anext(lines) == "['--job-id', '7', '--model', 'model']"
    await executor.cancel_job(execution)
    await job.wait(LONG)
    assert not Path(f"/proc/{pid}").exists()
    assert (await executor.get_status(execution))["status"] == "failed"
    logs = await executor.get_logs(execution)
    assert logs.startswith("['--job-id', '7', '--model', 'model']\n")
    assert await executor.get_logs(execution, offset=len(logs)) == ""
    assert (await executor.get_metrics(execution))["loss"] == 0.5


def test_the_compute_backend(crucible: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRUCIBLE_HOME", str(crucible.home))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(
        "import os\nopen(os.environ['CRUCIBLE_OUTPUT_DIR'] + '/model.txt', 'w').write('weights')"
    )
    with SyncMLPlatform() as platform:
        local = ComputeBackend("local", platform)
        trained = local.launch(JobConfig(path="train.py", requirements=SMALL))
        assert platform.job(trained).wait(LONG).state == "completed"
        local.download(trained, "model.txt", tmp_path / "mine.txt")
        assert (tmp_path / "mine.txt").read_text() == "weights"
        local.run(trained, "test -e train.py")
        with pytest.raises(JobFailed):
            local.run(trained, "test -e nosuch.py")
        job = local.launch(JobConfig(command="sleep 600", requirements=SMALL))
        local.terminate(job)
        assert local.status(job).state == "cancelled"


async def test_the_gpu_executor(platform: MLPlatform) -> None:
    executor = GPUExecutor(ExecutionBackend.LOCAL, platform)
    assert (await executor.check_availability()).status == "available"
    estimate = await executor.estimate_cost(WorkloadCharacteristics(duration_hours=2))
    assert (estimate.total, estimate.confidence) == (0.0, "high")
    handle = await executor.submit_job(MLJob(COUNTER, SMALL))
    assert (await handle.wait(LONG)).state == "failed"
    again = await executor.submit_job(MLJob(COUNTER, id=handle.id), resume_from_checkpoint=True)
    await again.result(LONG)
    assert [line async for line in again.logs()] == ["step 3/3 loss 0.33"]
