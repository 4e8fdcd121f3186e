from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.plugin_packages import COUNTER, HEAD, install

from crucible.inside.plugin import main
from crucible.wire.documents.results import decode_result

_made = iter(range(1000))


@pytest.fixture
def plugin(job: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Installs code under a package name of its own; `Model` is offered under that name."""
    monkeypatch.setenv("CRUCIBLE_RESULT_FILE", str(job / "result.json"))
    monkeypatch.syspath_prepend(str(job / "site"))

    def make(code: str, model: str = "Model") -> str:
        name = f"plugin_under_test_{next(_made)}"
        install(job / "site", name, code, {name: f"{name}:{model}"})
        return name

    return make


def run(name: str, *more: str, config: Any = None) -> int:
    given = [] if config is None else ["--config", config if isinstance(config, str) else json.dumps(config)]
    return main(["--model", name, *given, *more])


def left(job: Path) -> Any:
    return decode_result((job / "result.json").read_bytes())


def test_training_gets_loaders_config_and_callbacks(job: Path, plugin: Callable[..., str]) -> None:
    (job / "data").mkdir()
    (job / "data" / "digits.csv").write_text("1,2")
    assert run(plugin(COUNTER, "Counter"), config={"epochs": 2}) == 0
    assert (left(job).kind, left(job).value) == ("train", {"data": "digits.csv", "rate": 0.5, "epochs": 2})
    lines = [json.loads(line)["metrics"] for line in (job / "report.jsonl").read_text().splitlines()]
    assert [(line["epoch"], line["loss"], line["total_epochs"]) for line in lines] == [(0, 1.0, 2), (1, 0.5, 2)]


def test_several_inputs_are_a_folder_and_none_is_none(job: Path, plugin: Callable[..., str]) -> None:
    name = plugin(COUNTER, "Counter")
    assert run(name) == 0
    assert left(job).value["data"] == "None"
    (job / "data").mkdir()
    for each in ("a", "b"):
        (job / "data" / each).touch()
    assert run(name) == 0
    assert left(job).value["data"] == "data"


def test_a_prediction_and_a_benchmark_are_results(job: Path, plugin: Callable[..., str]) -> None:
    name = plugin(COUNTER, "Counter")
    assert run(name, "--method", "infer", "--inputs", '{"x": 21}') == 0
    assert (left(job).kind, left(job).value) == ("inference", {"doubled": 42})
    assert run(name, "--method", "benchmark", config={"suite": "waa"}) == 0
    assert (left(job).kind, left(job).value) == ("benchmark", {"speed": 12.5, "suite": "waa"})


def test_a_checkpoint_to_resume_from_is_given_to_the_model(
    job: Path, plugin: Callable[..., str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (job / "weights.pt").touch()
    monkeypatch.setenv("CRUCIBLE_RESUME_FROM", str(job / "weights.pt"))
    assert run(plugin(COUNTER, "Counter")) == 0
    assert "resumed weights.pt" in capsys.readouterr().out


def test_a_stop_ends_the_training_in_order(
    job: Path, plugin: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    code = COUNTER + "\n    def save(self, path):\n        path.write_text('state')\n"
    (job / "stop").touch()
    assert run(plugin(code, "Counter")) == 0
    assert "stopped as requested, after epoch 0" in capsys.readouterr().err
    assert (job / "checkpoints" / "step-00000000").read_text() == "state"
    assert not (job / "result.json").exists()


def test_a_model_that_catches_what_it_can_is_stopped_too(job: Path, plugin: Callable[..., str]) -> None:
    code = HEAD + (
        "class Model(BaseModel):\n"
        "    def save(self, path): path.touch()\n"
        "    def train(self, a, b, callbacks):\n"
        "        for epoch in range(1000):\n"
        "            try:\n                callbacks.on_epoch_end(epoch, {})\n"
        "            except Exception:\n                print('held')\n"
        "        return 1\n"
    )
    (job / "stop").touch()
    assert run(plugin(code)) == 0
    assert not (job / "result.json").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--config", "{"], "--config is not valid JSON"),
        (["--config", "[1]"], "a config is a table of names and values, not list"),
        (["--config", '{"epoch": 1}'], "there is no option 'epoch'; did you mean 'epochs'?"),
        (["--config", '{"epochs": 0}'], "epochs must be at least 1, not 0"),
        (["--method", "infer", "--inputs", "{"], "--inputs is not valid JSON"),
        (["--callback", "nonsense"], "write it as module:Class"),
        (["--callback", "no_such_module:X"], "No module named 'no_such_module'"),
        (["--callback", "json:Nothing"], "has no attribute 'Nothing'"),
    ],
)
def test_a_bad_request_is_said_in_one_go(
    plugin: Callable[..., str], capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    assert main(["--model", plugin(COUNTER, "Counter"), *arguments]) == 2
    err = capsys.readouterr().err
    assert err.startswith("Error: ")
    assert says in err


def test_a_model_nobody_offers_and_one_that_is_none(
    plugin: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("no_such_model_at_all") == 2
    assert "There is no model 'no_such_model_at_all'" in capsys.readouterr().err
    assert run(plugin("Model = 3")) == 2
    assert "is not a subclass of crucible.BaseModel" in capsys.readouterr().err


def test_a_method_it_does_not_have(plugin: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    code = HEAD + "class Model(BaseModel):\n    def infer(self, inputs): return 1\n"
    assert run(plugin(code)) == 2
    assert "has no train(); it has infer." in capsys.readouterr().err


def test_what_train_returns_need_not_be_a_result(
    job: Path, plugin: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    code = HEAD + "class Model(BaseModel):\n    def train(self, a, b, callbacks): return self\n"
    assert run(plugin(code)) == 0
    assert "is not kept as the result" in capsys.readouterr().err
    assert not (job / "result.json").exists()


def test_what_infer_returns_has_to_be_one(plugin: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    code = (
        HEAD
        + "class Model(BaseModel):\n    def infer(self, inputs): return {1, 2}\n    def benchmark(self): return 3\n"
    )
    name = plugin(code)
    assert run(name, "--method", "infer") == 1
    assert "the result is a set" in capsys.readouterr().err
    assert run(name, "--method", "benchmark") == 1
    assert "an object of measurements by name" in capsys.readouterr().err


def test_what_the_model_raises_is_its_own(plugin: Callable[..., str]) -> None:
    code = HEAD + "class Model(BaseModel):\n    def train(self, a, b, callbacks): raise ZeroDivisionError('mine')\n"
    with pytest.raises(ZeroDivisionError, match="mine"):
        run(plugin(code))


def test_an_init_of_its_own_gets_the_checked_config(job: Path, plugin: Callable[..., str]) -> None:
    code = HEAD + (
        "class Model(BaseModel):\n    schema = {'epochs': Option(int, default=7)}\n"
        "    def __init__(self, config): self.seen = dict(config)\n"
        "    def infer(self, inputs): return [self.seen, self.config]\n"
    )
    assert run(plugin(code), "--method", "infer") == 0
    assert left(job).value == [{"epochs": 7}, {"epochs": 7}]


def test_callbacks_of_the_user_are_made_and_called(
    job: Path, plugin: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    code = COUNTER + "\nclass Mine:\n    def on_epoch_end(self, epoch, metrics): print('mine', epoch)\n"
    name = plugin(code, "Counter")
    assert run(name, "--callback", f"{name}:Mine", config={"epochs": 2}) == 0
    assert capsys.readouterr().out.splitlines() == ["mine 0", "mine 1"]


def test_it_runs_as_a_program(job: Path, plugin: Callable[..., str]) -> None:
    name = plugin(COUNTER, "Counter")
    command = [sys.executable, "-m", "crucible.inside.plugin", "--job-id", "job-7", "--model", name]
    env = {"PYTHONPATH": str(job / "site"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [*command, "--config", '{"epochs": 1}'], capture_output=True, text=True, env=env, cwd=job, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout.splitlines()[-1].removeprefix("result "))["epochs"] == 1
