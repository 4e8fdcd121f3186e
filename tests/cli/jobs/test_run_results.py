"""What a job found out, after it was followed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.client.real_server import RealServer

pytestmark = pytest.mark.enable_socket

FOUND = ("inference", {"label": "cät"})


@pytest.fixture(autouse=True)
def script(real: RealServer, tmp_path: Path) -> None:
    (tmp_path / "predict.py").write_text("print(1)\n")


def test_run_tells_it_and_leaves_standard_output_to_the_program(cli: Cli, real: RealServer) -> None:
    real.play(output=b"thinking\n", result=FOUND)
    ran = cli("run", "predict.py")
    assert ran.out == "thinking\n"
    assert '  Result: {"label": "cät"}' in ran.err


def test_a_verb_prints_it(cli: Cli, real: RealServer) -> None:
    real.play(result=FOUND)
    assert cli("infer", "predict.py").out == '{"label": "cät"}\n'


def test_as_json_it_is_part_of_the_job(cli: Cli, real: RealServer) -> None:
    real.play(result=FOUND)
    for verb in ("run", "infer"):
        ran = cli(verb, "predict.py", "--json")
        assert ran.lines[-1]["result"]["value"] == {"label": "cät"}
        assert "Result" not in ran.err


@pytest.mark.parametrize(("verb", "said"), [("run", False), ("benchmark", True)])
def test_where_there_is_none(cli: Cli, real: RealServer, verb: str, said: bool) -> None:
    real.play()
    assert ("The job returned no result" in cli(verb, "predict.py").err) is said
