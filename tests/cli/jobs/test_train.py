"""`train`, `infer` and `benchmark`: what is sent, and what is refused before anything is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Cli
from tests.client.real_server import RealServer
from tests.plugin_packages import COUNTER, HEAD, install, make_python

pytestmark = pytest.mark.enable_socket

PROJECT = """
[build-system]
requires = ["uv_build>=0.9,<1"]
build-backend = "uv_build"
[project]
name = "mine"
version = "1.0"
[project.entry-points."crucible.models"]
counter = "mine:Counter"
"""


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The packages of ./.venv, with one model."""
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    site = make_python(tmp_path / ".venv")
    install(site, "counting", COUNTER, {"counter": "counting:Counter"})
    (tmp_path / "predict.py").write_text("print(1)\n")
    return site


def sent(real: RealServer) -> dict[str, Any]:
    (spec,) = real.specs
    return dict(spec)


def given(spec: dict[str, Any], flag: str) -> Any:
    return json.loads(spec["command"][spec["command"].index(flag) + 1])


def test_a_model_is_trained_by_its_name(cli: Cli, real: RealServer, tmp_path: Path) -> None:
    (tmp_path / "more.toml").write_text('mode = "down"\nepochs = 50\n')
    ran = cli("train", "--model", "counter", "--config", "more.toml", "--config", "epochs=7", "--goal", "far", "-d")
    assert ran.code == 0, ran.err
    spec = sent(real)
    head = ["{python}", "-m", "crucible.inside.plugin", "--model", "counter", "--method", "train", "--config"]
    assert spec["command"][:8] == head
    assert given(spec, "--config") == {"mode": "down", "epochs": 7, "goal": "far"}
    assert (spec["kind"], spec["name"]) == ("train", "counter")
    assert spec["environment"]["interpreter"] == str(tmp_path / ".venv" / "bin" / "python")
    assert (spec["source"]["kind"], spec["source"]["ref"]) == ("plugin", "counting==1.0")
    assert spec["bundle"] is not None


def test_what_run_takes_a_verb_takes_too(cli: Cli, real: RealServer, tmp_path: Path) -> None:
    (tmp_path / "recording").mkdir()
    more = ("--capture", "recording", "--memory", "2G", "--tag", "a", "--seed", "4", "--name", "mine", "--spot")
    assert cli("train", "--model", "counter", "--callback", "counting:Mine", *more, "-d").code == 0
    spec = sent(real)
    assert spec["data"] == [{"name": "capture", "source": str(tmp_path / "recording")}]
    assert (spec["resources"]["memory_bytes"], spec["tags"], spec["seed"]) == (2 * 1024**3, ["a"], 4)
    assert (spec["name"], spec["market"]) == ("mine", "spot")
    assert spec["command"][-2:] == ["--callback", "counting:Mine"]


def test_a_prediction_is_the_last_line_of_standard_output(cli: Cli, real: RealServer) -> None:
    real.play(output=b"thinking\n", result=("inference", {"doubled": 42}))
    ran = cli("infer", "--model", "counter", "--input", '{"x": 21}')
    assert ran.code == 0
    assert ran.out == 'thinking\n{"doubled": 42}\n'
    spec = sent(real)
    assert (spec["kind"], given(spec, "--inputs")) == ("inference", {"x": 21})
    assert spec["command"][6] == "infer"


def test_a_benchmark_names_its_suite(cli: Cli, real: RealServer) -> None:
    real.play(result=("benchmark", {"speed": 1}))
    ran = cli("benchmark", "--model", "counter", "--suite", "waa", "-q")
    assert ran.out.splitlines()[-1] == '{"speed": 1}'
    assert given(sent(real), "--config") == {"suite": "waa"}


def test_of_a_training_the_result_is_told(cli: Cli, real: RealServer) -> None:
    real.play(result=("train", {"loss": 0.5}))
    ran = cli("train", "--model", "counter")
    assert ran.out == ""
    assert '  Result: {"loss": 0.5}' in ran.err


def test_a_script_is_a_job_of_that_kind(cli: Cli, real: RealServer) -> None:
    real.play()
    ran = cli("infer", "predict.py", "--input", "a cat", "--input", "3", "--", "--verbose")
    assert sent(real)["command"] == ["{python}", "predict.py", "--input", '["a cat", 3]', "--verbose"]
    assert sent(real)["kind"] == "inference"
    assert "The job returned no result. A script returns one with crucible.result(value)." in ran.err


JOB_FILE = """\
kind: benchmark
name: written down
model:
  name: counter
  config:
    epochs: 7
    rate: 1e-3
memory: 1G
"""


def test_a_job_file_names_a_model(cli: Cli, real: RealServer, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB_FILE)
    assert cli("run", "job.yaml", "-d").code == 0
    spec = sent(real)
    assert (spec["command"][6], spec["kind"], spec["name"]) == ("benchmark", "benchmark", "written down")
    assert given(spec, "--config") == {"epochs": 7, "rate": 0.001}
    assert (spec["source"]["ref"], spec["resources"]["memory_bytes"]) == ("counting==1.0", 1024**3)


def test_flags_of_a_verb_stand_over_the_models_of_a_job_file(cli: Cli, real: RealServer, tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "job.yaml").write_text(f"{JOB_FILE}python: ../.venv\n")
    (tmp_path / "more.toml").write_text("epochs = 9\n")
    more = ("--config", "more.toml", "--goal", "far", "--callback", "a:B", "--name", "mine")
    ran = cli("train", "below/job.yaml", *more, "-d")
    assert ran.code == 0, ran.err
    spec = sent(real)
    assert (spec["command"][6], spec["kind"], spec["name"]) == ("train", "train", "mine")
    assert given(spec, "--config") == {"epochs": 9, "rate": 0.001, "goal": "far"}
    assert spec["command"][-2:] == ["--callback", "a:B"]


def test_a_job_file_may_hold_what_to_predict_from(cli: Cli, real: RealServer, tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text('[model]\nname = "counter"\ninput = {x = 2.5}\n')
    assert cli("infer", "job.toml", "-d").code == 0
    assert given(sent(real), "--inputs") == {"x": 2.5}
    real.sent.clear()
    assert cli("infer", "job.toml", "--input", '{"x": 3}', "-d").code == 0
    assert given(sent(real), "--inputs") == {"x": 3}


def test_a_config_may_lie_in_a_file_beside_the_job_file(cli: Cli, real: RealServer, tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "options.yaml").write_text("epochs: 4\nrate: 1e-2\n")
    text = '{"model": {"name": "counter", "config": "options.yaml"}, "python": "../.venv"}'
    (tmp_path / "below" / "job.json").write_text(text)
    assert cli("run", "below/job.json", "-d").code == 0
    assert given(sent(real), "--config") == {"epochs": 4, "rate": 0.01}


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("model: countre", "run", "job.yaml, line 1: model: There is no model 'countre'."),
        ("model: countre", "run", "Did you mean 'counter'?"),
        ("model: {name: counter, config: {epoch: 3}}", "run", "no option 'epoch'; did you mean 'epochs'?"),
        ("model: {name: counter, config: {epochs: 0}}", "run", "job.yaml, line 1: model: The config of 'counter'"),
        ("model: {name: counter, config: {epochs: 2024-01-01}}", "run", "epochs must be a whole number"),
        ("model: {name: counter, config: nowhere.yaml}", "run", "nowhere.yaml does not exist."),
        ("model: {name: counter, config: epochs}", "run", "config must be a table, or the path of a file with one."),
        ("model: counter\nkind: serve", "run", "A model cannot be a job of the kind serve."),
        ("model: counter", "run job.yaml -- --epochs 3", "A model takes no arguments after --."),
        ("model: counter", "run job.yaml --include x", "--include does not go with a model."),
        ("model: counter", "train job.yaml --model counter", "--model and code to run exclude each other."),
        ("model: counter", "train job.yaml --config epochs=0", "epochs must be at least 1, not 0."),
        ("model: counter\ntier: HUGE", "train", "There is no tier 'HUGE'."),
        ("script: predict.py", "train job.yaml --config a=1", "--config needs --model."),
    ],
)
def test_a_job_file_with_a_wrong_model_is_refused_before_anything_is_sent(
    cli: Cli, real: RealServer, tmp_path: Path, text: str, line: str, says: str
) -> None:
    (tmp_path / "job.yaml").write_text(text)
    ran = cli(*(line.split() if " " in line else (line, "job.yaml")))
    assert ran.code == 2
    assert says in ran.err
    assert real.requests == []


def test_a_project_is_installed_where_it_runs(cli: Cli, real: RealServer, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "mine" / "mine.py").write_text(COUNTER)
    assert cli("train", "--model", "counter", "--plugin", "mine", "--config", "anything=1", "-d").code == 0
    spec = sent(real)
    assert spec["environment"]["project"] == "."
    assert spec["environment"]["interpreter"] is None
    assert given(spec, "--config") == {"anything": 1}


def test_a_requirement_is_installed_where_it_runs(cli: Cli, real: RealServer) -> None:
    assert cli("train", "--model", "counter", "--plugin", "my-models[gpu]>=1.2,<2", "-d").code == 0
    spec = sent(real)
    assert spec["environment"]["requirements"] == ["my-models[gpu]>=1.2,<2"]
    assert spec["bundle"] is None


@pytest.mark.parametrize(
    ("given", "gpus"),
    [((), (1, 6 * 1024**3)), (("--gpus", "2"), (2, None)), (("--gpus", "0"), (0, None))],
)
def test_a_model_that_needs_a_gpu_asks_for_it(
    cli: Cli, real: RealServer, site: Path, given: tuple[str, ...], gpus: tuple[int, int | None]
) -> None:
    code = HEAD + (
        "class Model(BaseModel):\n    model_metadata = ModelMetadata(min_gpu_memory_gb=6)\n"
        "    def infer(self, inputs): return 1\n"
    )
    install(site, "big", code, {"big": "big:Model"})
    assert cli("infer", "--model", "big", *given, "-d").code == 0
    found = sent(real)["resources"]
    assert (found["gpus"], found.get("gpu_memory_bytes")) == gpus


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("train", "There is nothing to run: no model and no script."),
        ("infer", "crucible infer --model NAME"),
        ("train --model countre", "Did you mean 'counter'?"),
        ("train --model counter predict.py", "--model and code to run exclude each other."),
        ("train --model counter -c print(1)", "--model and code to run exclude each other."),
        ("train --model counter -- --epochs 3", "A model takes no arguments after --."),
        ("train --model counter --include *.txt", "--include does not go with a model."),
        ("train --model counter --in-place", "--in-place does not go with a model."),
        ("train --model counter --config epoch=3", "there is no option 'epoch'; did you mean 'epochs'?"),
        ("train --model counter --config epochs=0", "epochs must be at least 1, not 0."),
        ("train --model counter --config epochs=many", "epochs must be a whole number, not 'many'."),
        ("train --model counter --config nothing.toml", "nothing.toml does not exist."),
        ("train --model counter --config epochs", "--config epochs is neither a file nor KEY=VALUE."),
        ("train --model counter --plugin ./nowhere", "./nowhere does not exist."),
        ("train --model counter --plugin .venv", "--plugin .venv is not a project."),
        ("train --model other --plugin mine", "There is no model 'other'."),
        ("train --model counter --plugin mine --python .venv", "--plugin and --python exclude each other."),
        ("train --model counter --capture nowhere", "nowhere does not exist."),
        ("train --model counter --kind serve", "There is no option --kind."),
        ("train predict.py --config a=1", "--config needs --model."),
        ("train predict.py --goal x", "--goal needs --model."),
        ("train predict.py --plugin mine", "--plugin needs --model."),
        ("benchmark --model counter --suite mnist", "suite must be one of synthetic, waa, not 'mnist'."),
        ("infer --model counter --input @nowhere.json", "nowhere.json does not exist."),
    ],
)
def test_bad_lines_are_refused_before_anything_is_sent(
    cli: Cli, real: RealServer, tmp_path: Path, line: str, says: str
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "pyproject.toml").write_text(PROJECT)
    ran = cli(*line.split())
    assert ran.code == 2
    assert says in ran.err
    assert real.specs == []


def test_a_method_that_a_model_does_not_have(cli: Cli, real: RealServer, site: Path) -> None:
    install(site, "asks", HEAD + "class M(BaseModel):\n    def infer(self, i): return 1\n", {"asks": "asks:M"})
    ran = cli("train", "--model", "asks")
    assert ran.code == 2
    assert "The model 'asks' has no train()." in ran.err
    assert "It has infer()." in ran.err


def test_a_broken_project_is_told(cli: Cli, real: RealServer, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "pyproject.toml").write_text("[project")
    ran = cli("train", "--model", "counter", "--plugin", "mine")
    assert ran.code == 2
    assert "pyproject.toml cannot be read." in ran.err
