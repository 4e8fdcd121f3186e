"""The example plugin, installed as a stranger would, trained, asked and measured here and at a simulated cloud."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.backends.rehearsal.place import AT_ONCE, Cloud
from tests.e2e.terminal import Terminal
from tests.harness import View, until
from tests.plugin_packages import install as offer

from crucible.client.api import Api
from crucible.client.transport.http import Endpoint
from crucible.core.errors import CrucibleError
from crucible.core.job.models import ModelOrder
from crucible.core.secret import Secret

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin-logistic"
UV = Path(sys.executable).with_name("uv")
LONG = "epochs=100000"  # beyond what the schema allows
PLACES = ("local", "rehearsal")


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """Its machines boot at once."""
    cloud = Cloud(tmp_path_factory.mktemp("cloud") / "state")
    cloud.faults(**AT_ONCE)
    yield cloud
    cloud.clean()


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory, cloud: Cloud) -> Iterator[Terminal]:
    """A terminal in a folder with a .venv that has the example and nothing else: not even crucible-ml."""
    folder = tmp_path_factory.mktemp("terminal")
    settings = {
        "CRUCIBLE_BACKENDS": "local,rehearsal",
        "CRUCIBLE_REHEARSAL_STATE": str(cloud.state),
        "CRUCIBLE_MODELS_PYTHON": str(folder / "project" / ".venv" / "bin" / "python"),
    }
    with Terminal(folder, **settings) as terminal:
        install(terminal.folder / ".venv")
        terminal.crucible.start()
        yield terminal


def install(venv: Path) -> None:
    """Offline: uv builds this project by itself."""
    env = {**os.environ, "UV_OFFLINE": "1"}
    make = ("venv", "--python", os.path.realpath(sys.executable), str(venv))
    for arguments in (make, ("pip", "install", "--python", str(venv), str(EXAMPLE))):
        done = subprocess.run([UV, *arguments], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def train(terminal: Terminal, place: str, *more: str) -> View:
    """Trains to the end; the job."""
    lines = terminal.ok("train", "--model", "logistic", "--backend", place, *more, "--json").splitlines()
    return dict(json.loads(lines[-1]))


@pytest.fixture(scope="module")
def trained(terminal: Terminal) -> dict[str, View]:
    """The same training, once at each place."""
    return {place: train(terminal, place, "--config", "epochs=12") for place in PLACES}


def test_it_is_listed_with_its_schema(terminal: Terminal) -> None:
    (model,) = terminal.json("models")["items"]
    assert (model["name"], model["error"]) == ("logistic", None)
    assert model["methods"] == ["train", "infer", "benchmark"]
    assert model["schema"]["epochs"]["maximum"] == 10_000
    assert "learning_rate: float" in terminal.ok("models", "show", "logistic")


def test_it_learns_the_same_at_every_place(trained: dict[str, View]) -> None:
    here, there = trained["local"], trained["rehearsal"]
    assert (here["status"], there["status"]) == ("completed", "completed")
    assert (here["simulated"], there["simulated"]) == (False, True)
    assert here["result"] == there["result"]
    value = here["result"]["value"]
    assert (here["result"]["kind"], value["epochs"]) == ("train", 12)
    assert value["accuracy"] > 0.85
    assert here["command"] == there["command"]


@pytest.mark.parametrize("place", PLACES)
def test_metrics_progress_and_checkpoints_come_from_its_callbacks(
    terminal: Terminal, trained: dict[str, View], place: str
) -> None:
    job = trained[place]
    losses = [point[1] for point in terminal.json("metrics", job["id"])["series"]["val_loss"]["points"]]
    assert len(losses) == 12
    assert losses[-1] < losses[0]
    assert (job["progress"]["fraction"], job["progress"]["total_epochs"]) == (1.0, 12)
    steps = [item["step"] for item in terminal.json("checkpoints", job["id"])["items"]]
    assert steps == [11, 9, 4]
    assert job["checkpoint"]["step"] == 11


@pytest.mark.parametrize("place", PLACES)
def test_a_prediction_goes_on_from_a_checkpoint(terminal: Terminal, trained: dict[str, View], place: str) -> None:
    checkpoint = trained["local"]["checkpoint"]["id"]
    asked = ("infer", "--model", "logistic", "--resume-from", checkpoint, "--backend", place)
    answer = json.loads(terminal.ok(*asked, "--input", "[[2, 2], [-2, -2]]").splitlines()[-1])
    assert answer["labels"] == [1, 0]
    view = terminal.json("status", "last")
    assert (view["kind"], view["result"]["kind"], view["result"]["value"]) == ("inference", "inference", answer)


def test_a_benchmark_leaves_what_it_measured(terminal: Terminal) -> None:
    found = json.loads(terminal.ok("benchmark", "--model", "logistic", "--suite", "synthetic").splitlines()[-1])
    assert found["accuracy"] > 0.85
    assert terminal.json("status", "last")["result"]["kind"] == "benchmark"


def test_the_server_offers_the_models_of_its_python(terminal: Terminal, trained: dict[str, View]) -> None:
    crucible = terminal.crucible
    api = Api(Endpoint(crucible.discovery["url"], Secret(crucible.token)))
    assert [model.name for model in api.models.list_models()] == ["logistic"]
    schema = api.models.get("logistic").as_json()["schema"]
    assert isinstance(schema, dict)
    assert schema["epochs"]["default"] == 10
    job = api.models.submit(ModelOrder("logistic", "train", {"epochs": 12}), {"backend": "local"})
    assert crucible.wait(job.id)["status"] == "completed"
    assert crucible.get(f"/api/v1/jobs/{job.id}")["result"] == trained["local"]["result"]
    with pytest.raises(CrucibleError, match="epochs must be at least 1, not 0") as error:
        api.models.submit(ModelOrder("logistic", "train", {"epochs": 0}))
    assert error.value.data["problems"] == ["epochs must be at least 1, not 0"]


def test_the_examples_job_file_is_the_same_as_flags(terminal: Terminal) -> None:
    lines = terminal.ok("run", str(EXAMPLE / "job.yaml"), "--python", ".venv", "--json").splitlines()
    written = json.loads(lines[-1])
    assert (written["name"], written["kind"], written["status"]) == ("logistic-written-down", "train", "completed")
    said = train(terminal, "local", "--config", "epochs=20", "--config", "learning_rate=0.5")
    assert written["result"] == said["result"]
    done = terminal.run("train", str(EXAMPLE / "job.yaml"), "--python", ".venv", "--config", LONG)
    assert done.returncode == 2
    assert "epochs must be at most 10000, not 100000" in done.stderr


def test_it_reads_the_data_it_is_given(terminal: Terminal) -> None:
    (terminal.folder / "points.csv").write_text("".join(f"{n},{int(n > 10)}\n" for n in range(21)))
    job = train(terminal, "local", "--data", "points.csv", "--config", "epochs=3")
    assert len(job["result"]["value"]["weights"]) == 1


EPOCHS = 60
WAITS = """
import os, time
from crucible import should_stop

class Waits:
    def on_epoch_end(self, epoch, metrics):
        while epoch == 50 and not os.environ.get("CRUCIBLE_RESUME_FROM") and not should_stop():
            time.sleep(0.02)
"""


def slow(terminal: Terminal, *more: str) -> tuple[str, Any]:
    """Begins a training that waits to be interrupted; its id, once the first checkpoint is kept."""
    (site,) = (terminal.folder / ".venv").glob("lib/python*/site-packages")
    (site / "waiting.py").write_text(WAITS)
    config = ("--config", f"epochs={EPOCHS}", "--config", "checkpoint_every=20", "--callback", "waiting:Waits")
    job = terminal.ok("train", "--model", "logistic", *config, *more, "-d").strip()
    return job, until(lambda: terminal.json("status", job)["checkpoint"], 60, "a checkpoint")


def test_a_stop_is_honoured_and_the_training_goes_on_from_there(terminal: Terminal) -> None:
    job, _ = slow(terminal)
    terminal.ok("cancel", job, "--yes")
    stopped = terminal.json("status", job)
    assert (stopped["status"], stopped["exit_code"], stopped["result"]) == ("cancelled", 0, None)
    assert "stopped as requested, after epoch" in terminal.ok("logs", job)
    lines = terminal.ok("resume", job, "--json").splitlines()
    gone_on = json.loads(lines[-1])
    assert gone_on["status"] == "completed"
    first = gone_on["attempts"][1]["resume_from"]["step"]
    assert first == stopped["checkpoint"]["step"]
    assert gone_on["result"]["value"]["epochs"] == EPOCHS


def test_a_machine_that_is_taken_back_changes_nothing(terminal: Terminal, cloud: Cloud) -> None:
    job, _ = slow(terminal, "--backend", "rehearsal,local", "--spot", "--grace", "5s")
    machine = terminal.json("status", job)["machine"]
    (instance,) = [item["native_id"] for item in terminal.json("machines")["items"] if item["id"] == machine]
    cloud.call("POST", f"/admin/instances/{instance}/reclaim", {"notice": 30})
    view = until(lambda: _ended(terminal.json("status", job)), 60, "the job")
    assert [attempt["reason"] for attempt in view["attempts"]] == ["interrupted", "completed"]
    assert view["attempts"][1]["resume_from"] is not None
    undisturbed = train(terminal, "local", "--config", f"epochs={EPOCHS}")
    assert view["result"]["value"] == undisturbed["result"]["value"]


def _ended(view: View) -> View | None:
    return view if view["status"] in ("completed", "failed", "cancelled") else None


def test_a_project_is_installed_where_the_job_runs(terminal: Terminal, trained: dict[str, View]) -> None:
    job = train(terminal, "rehearsal", "--plugin", str(EXAMPLE), "--config", "epochs=12", "--env", "UV_OFFLINE=1")
    assert job["environment"]["project"] == "."
    assert job["result"] == trained["local"]["result"]
    done = terminal.run(
        "train", "--model", "logistic", "--plugin", str(EXAMPLE), "--config", LONG, "--env", "UV_OFFLINE=1"
    )
    assert done.returncode == 2
    assert "epochs must be at most 10000, not 100000" in done.stdout


def test_a_broken_plugin_beside_it_harms_nothing(terminal: Terminal, tmp_path: Path) -> None:
    install(tmp_path / "venv")
    (site,) = (tmp_path / "venv" / "lib").glob("*/site-packages")
    offer(site, "sick", "raise RuntimeError('no luck')", {"sick": "sick:Model"})
    python = ("--python", str(tmp_path / "venv"))
    items = {item["name"]: item for item in terminal.json("models", *python)["items"]}
    assert items["logistic"]["error"] is None
    assert "sick/__init__.py" in items["sick"]["error"]["traceback"]
    done = terminal.run("train", "--model", "sick", *python)
    assert done.returncode == 2
    assert "RuntimeError: no luck" in done.stderr
    assert train(terminal, "local", "--config", "epochs=1", *python)["status"] == "completed"


def test_the_example_passes_its_own_tests() -> None:
    env = {**os.environ, "PYTHONPATH": str(EXAMPLE / "src")}
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "-p", "no:cacheprovider", "-p", "no:randomly"]
    done = subprocess.run([*command, str(EXAMPLE / "tests")], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
