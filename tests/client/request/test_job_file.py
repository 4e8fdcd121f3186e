from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from crucible.client.payload import CodeSource
from crucible.client.request.job_file import parse_job_file, read_job_file
from crucible.client.request.job_request import PartialSpec
from crucible.client.request.pythons import SubmitHost
from crucible.core.compute.offers import Market
from crucible.core.compute.resources import GiB
from crucible.core.errors import BadInput
from crucible.core.job.job_file import JobFile
from crucible.core.job.spec import MAX_PRIORITY, Kind


def read(folder: Path, text: str, name: str = "job.yaml", **changes: Any) -> tuple[CodeSource, PartialSpec]:
    (folder / name).write_text(text)
    host = SubmitHost({"HF_TOKEN": "secret"}, folder.parent)
    return read_job_file(str(folder / name), CodeSource(host, scratch=folder, **changes))


def source(folder: Path, text: str, name: str = "job.yaml", **changes: Any) -> CodeSource:
    """What the file says to run."""
    return read(folder, text, name, **changes)[0]


def fields(folder: Path, text: str, name: str = "job.yaml") -> Any:
    """What the file says of the job."""
    return read(folder, text, name)[1]


FULL = """\
script: train.py
args: [--epochs, 3]
include: ["configs/*.yaml"]
name: first
kind: benchmark
backend: local
tier: cpu-small
cpus: 0.5
memory: 512Mi
gpus: 1
gpu_memory: 16G
time: 1h30m
max_cost_usd: 2.5
env:
  MODE: fast
  N: 4
  HF_TOKEN: null
env_files: [vars.env]
data:
  images: ./images
retries: 2
grace: 30s
outputs: "*.pt"
tags: [a, b]
"""


def test_every_field_is_taken_up(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "vars.env").write_text("FROM_FILE=1\nMODE=slow\n")
    source, found = read(tmp_path, FULL)
    assert (source.kind, source.target) == ("path", "train.py")
    assert source.folder == tmp_path
    assert source.arguments == ("--epochs", "3")
    assert found["kind"] is Kind.BENCHMARK
    assert found["resources"] == {
        "cpus": 0.5,
        "memory_bytes": 512 * 1024**2,
        "gpus": 1,
        "gpu_memory_bytes": 16 * GiB,
        "seconds": 5400,
    }
    assert found["env"] == {"FROM_FILE": "1", "MODE": "fast", "N": "4", "HF_TOKEN": "secret"}
    data: Any = found["data"]
    assert [(item.name, item.source) for item in data] == [("images", str(tmp_path / "images"))]
    assert (found["retries"], found["grace_seconds"], found["tags"]) == ({"user": 2}, 30, ("a", "b"))
    assert found["max_cost_usd"] == 2.5
    assert found["outputs"] == ("*.pt",)
    assert (found["name"], found["backend"], found["tier"]) == ("first", "local", "cpu-small")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("job.toml", 'shell = "make"\nargs = ["a"]'),
        ("job.json", '{"shell": "make", "args": ["a"]}'),
        ("job.yml", "shell: make\nargs: [a]"),
    ],
)
def test_the_three_formats(tmp_path: Path, name: str, text: str) -> None:
    found = source(tmp_path, text, name, arguments=("b",))
    assert (found.kind, found.target, found.arguments) == ("shell", "make", ("a", "b"))


def test_flags_win(tmp_path: Path) -> None:
    text = "directory: .\nentry: a.py\npython: /usr/bin/python3"
    found = source(tmp_path, text, entry="b.py", python="/opt/python", include=("x",))
    assert (found.entry, found.python) == ("b.py", "/opt/python")
    assert found.include == ("x",)
    named = source(tmp_path, text, python="./env").python
    assert named == str(tmp_path.parent / "env"), "a flag's path is relative to where it was typed"


def test_retries_may_be_given_by_cause() -> None:
    assert parse_job_file("code: x\nretries: {interruption: 3}", ".yaml", "j").retries == {"interruption": 3}
    with pytest.raises(BadInput, match="the causes are"):
        parse_job_file("code: x\nretries: {weather: 3}", ".yaml", "j")


def test_an_unknown_field_is_told_with_its_line_and_the_nearest() -> None:
    with pytest.raises(BadInput) as caught:
        parse_job_file("script: a.py\n\nmemmory: 4G\n", ".yaml", "job.yaml")
    assert caught.value.what == "job.yaml, line 3: there is no field 'memmory'."
    assert caught.value.fix == "Did you mean 'memory'?"


def test_a_kind_that_is_none_is_told_with_the_nearest() -> None:
    with pytest.raises(BadInput, match="Did you mean 'inference'"):
        parse_job_file("script: a.py\nkind: infrence\n", ".yaml", "job.yaml")
    with pytest.raises(BadInput, match="Known: train, inference"):
        parse_job_file("script: a.py\nkind: [x]\n", ".yaml", "job.yaml")


def test_a_bad_value_is_told_with_its_line() -> None:
    with pytest.raises(BadInput, match="line 2: gpus"):
        parse_job_file("script: a.py\ngpus: many\n", ".yaml", "job.yaml")


@pytest.mark.parametrize("text", ["name: x", "script: a\nshell: b"])
def test_exactly_one_payload(text: str) -> None:
    with pytest.raises(BadInput, match="exactly one of script"):
        parse_job_file(text, ".yaml", "job.yaml")


@pytest.mark.parametrize(
    ("suffix", "text", "says"),
    [
        (".yaml", "a: [1", "line 1"),
        (".yaml", "a: b: c", "line 1, column 5"),
        (".toml", "a = = 1", "not valid TOML"),
        (".json", "{", "not valid JSON"),
        (".yaml", "- a", "is not a job file"),
        (".yaml", "", "is not a job file"),
        (".yaml", "!!python/object/apply:os.system [ls]", "not valid YAML"),
    ],
)
def test_a_broken_file_is_bad_input(suffix: str, text: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        parse_job_file(text, suffix, "job")


def test_a_missing_file_is_told_with_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("")
    flags = CodeSource(SubmitHost({}, tmp_path))
    with pytest.raises(BadInput) as caught:
        read_job_file("jop.yaml", flags)
    assert "job.yaml" in caught.value.fix


def test_the_schema_describes_every_field() -> None:
    properties = JobFile.model_json_schema()["properties"]
    assert isinstance(properties, dict)
    assert set(properties) == set(JobFile.model_fields)
    assert all("description" in field for field in properties.values())


@pytest.mark.parametrize(
    ("name", "text", "args"),
    [
        ("job.yaml", "code: x\nargs: [--flag, true, yes, False, 007, 3.10, 1e3]", "--flag true yes False 007 3.10 1e3"),
        ("job.toml", "code = 'x'\nargs = ['--flag', true, 3.10, 1_000]", "--flag true 3.10 1000"),
        ("job.json", '{"code": "x", "args": [true, false, 3.10]}', "true false 3.10"),
    ],
)
def test_arguments_reach_the_program_as_they_were_written(tmp_path: Path, name: str, text: str, args: str) -> None:
    assert source(tmp_path, text, name).arguments == tuple(args.split())


def test_variables_reach_the_program_as_they_were_written(tmp_path: Path) -> None:
    found = fields(tmp_path, "code: x\nenv: {A: true, B: No, C: 3.10, D: text, HF_TOKEN: null}")["env"]
    assert found == {"A": "true", "B": "No", "C": "3.10", "D": "text", "HF_TOKEN": "secret"}
    assert fields(tmp_path, "code = 'x'\n[env]\nA = true", "job.toml")["env"] == {"A": "true"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("code: x\nargs: [a, 2024-01-01]", "line 2: args: item 2 is a date or time; put it in quotes"),
        ("code: x\nargs: [null]", "args: item 1 is empty"),
        ("code: x\nargs: [[a]]", "args: item 1 is a list"),
        ("code: x\nargs: --epochs 2", r'args: this is a text, but a list is needed: \["--epochs", "2"\]'),
        ("code: x\nenv: {DAY: 2024-01-01}", "line 2: env: DAY is a date"),
        ("code: x\ngpus: many", "line 2: gpus: this must be a whole number"),
    ],
)
def test_what_is_no_text_is_refused_by_name(text: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        parse_job_file(text, ".yaml", "job.yaml")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("memory: 4", "job.yaml, line 2: memory must be at least 16 MiB. It is 4 B. .* write 4G for 4 GiB"),
        ("memory: lots", "job.yaml, line 2: memory: 'lots' is not a valid amount of memory"),
        ("time: soon", "job.yaml, line 2: time: 'soon' is not a valid duration"),
        ("max_cost_usd: -1", "job.yaml, line 2: max_cost_usd must be at least 0"),
        ("cpus: -1", "job.yaml, line 2: cpus must be at least 0.01"),
        ("name: a/b", "job.yaml, line 2: name must not contain slashes"),
        ("data: [s3://bucket/x]", "job.yaml, line 2: data s3://bucket/x: s3:// cannot be read"),
    ],
)
def test_what_is_out_of_bounds_is_told_with_file_and_field(tmp_path: Path, line: str, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        read(tmp_path, f"code: x\n{line}\n")
    assert re.search(says, str(caught.value))
    assert "--memory" not in str(caught.value)


def test_the_time_before_a_retry(tmp_path: Path) -> None:
    found = fields(tmp_path, "code: x\nretries: 2\nretry_wait: 30s")
    assert found["retries"] == {"user": 2, "wait_seconds": 30}


PLACED = """\
script: train.py
backend: rehearsal
fallback: [local]
market: on-demand
regions: [simulated-east, simulated-west]
keep: {latest: 5, best: 0, every: 1000, higher_is_better: true}
seed: 7
priority: -2
"""


def test_places_checkpoints_and_the_seed_are_taken_up(tmp_path: Path) -> None:
    found = fields(tmp_path, PLACED)
    assert (found["backend"], found["fallback"], found["market"]) == ("rehearsal", ("local",), Market.ON_DEMAND)
    assert found["regions"] == ("simulated-east", "simulated-west")
    assert found["keep"] == {"latest": 5, "best": 0, "every": 1000, "higher_is_better": True}
    assert (found["seed"], found["priority"]) == (7, -2)


def test_places_may_be_one_text_and_keep_one_number(tmp_path: Path) -> None:
    found = fields(tmp_path, "script: a.py\nbackend: rehearsal, local\nregions: east\nkeep: 2\n")
    assert (found["backend"], found["fallback"], found["regions"]) == ("rehearsal", ("local",), ("east",))
    assert found["keep"] == {"latest": 2}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("keep: 0", "job.yaml, line 2: keep: this is too small."),
        ("keep: {last: 3}", "job.yaml, line 2: keep: its fields are latest, best, every, higher_is_better."),
        ("keep: {latest: 0}", "job.yaml, line 2: keep must be at least 1."),
        ("market: spott", "job.yaml, line 2: market: There is no market 'spott'."),
        ("seed: 4294967296", "job.yaml, line 2: seed must be less than 4294967296."),
        ("backend: ','", "job.yaml, line 2: backend names no backend."),
        ("kind: infrence", "job.yaml, line 2: there is no kind 'infrence'."),
        ("falback: local", "job.yaml, line 2: there is no field 'falback'."),
    ],
)
def test_wrong_places_and_keeping_are_told_with_the_line(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        read(tmp_path, f"script: a.py\n{line}\n")
    assert caught.value.what.endswith(said)


@pytest.mark.parametrize(
    ("written", "secrets"),
    [
        ("[HF_TOKEN, KEY]", {"HF_TOKEN": "HF_TOKEN", "KEY": "KEY"}),
        ("{KEY: team-key}", {"KEY": "team-key"}),
        ("[KEY=team-key]", {"KEY": "team-key"}),
    ],
)
def test_secrets_are_a_list_or_a_table(tmp_path: Path, written: str, secrets: dict[str, str]) -> None:
    assert fields(tmp_path, f"shell: 'true'\nsecrets: {written}\n")["secrets"] == secrets


@pytest.mark.parametrize("written", ["[1X]", "{CRUCIBLE_SEED: a}", "{KEY: 'not a name'}", "{PATH: a}"])
def test_secrets_that_cannot_be(tmp_path: Path, written: str) -> None:
    with pytest.raises(BadInput, match=re.escape("job.yaml")):
        read(tmp_path, f"shell: 'true'\nsecrets: {written}\n")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("job.yaml", "model: {name: tiny, config: {rate: 0.5, day: '2024-01-01'}, callbacks: [a:B]}"),
        ("job.toml", "model = {name = 'tiny', config = {rate = 0.5, day = '2024-01-01'}, callbacks = ['a:B']}"),
        ("job.json", '{"model": {"name": "tiny", "config": {"rate": 0.5, "day": "2024-01-01"}, "callbacks": ["a:B"]}}'),
    ],
)
def test_a_models_options_are_values_in_every_format(tmp_path: Path, name: str, text: str) -> None:
    found = source(tmp_path, text, name)
    assert found.model is not None
    assert (found.kind, found.target) == ("model", "tiny")
    assert found.model.config == {"rate": 0.5, "day": "2024-01-01"}
    assert found.model.callbacks == ("a:B",)


def test_a_model_may_be_its_name_alone(tmp_path: Path) -> None:
    found = source(tmp_path, "model: tiny")
    assert found.model is not None
    assert (found.target, found.model.config, found.model.inputs) == ("tiny", {}, None)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name: x\nmodel: {nam: tiny}", "job.yaml, line 2: model.name: this field is required."),
        ("name: x\nmodel: {name: tiny, confg: {}}", "job.yaml, line 2: there is no field 'confg' in 'model'."),
        ("model: [tiny]", "job.yaml, line 1: model: this must be a name or a table."),
        ("model: ''", "job.yaml, line 1: model.name: this must not be empty."),
        ("model: tiny\nscript: a.py", "exactly one of script, directory, git, notebook, code, shell, model"),
        ("model: tiny\nargs: [a]", "args does not go with a model; give its options in its config."),
    ],
)
def test_what_is_wrong_with_a_model_is_told_with_its_line(text: str, says: str) -> None:
    with pytest.raises(BadInput, match=re.escape(says)):
        parse_job_file(text, ".yaml", "job.yaml")


def test_the_schema_takes_a_models_name_or_its_table() -> None:
    schema = JobFile.model_json_schema()
    kinds = [option.get("type") or option["$ref"] for option in schema["properties"]["model"]["anyOf"]]
    assert kinds == ["string", "#/$defs/JobModel", "null"]
    assert set(schema["$defs"]["JobModel"]["properties"]) == {"name", "config", "plugin", "input", "callbacks"}


def test_the_schema_bounds_a_priority() -> None:
    options = JobFile.model_json_schema()["properties"]["priority"]["anyOf"]
    (whole,) = [option for option in options if option["type"] == "integer"]
    assert (whole["minimum"], whole["maximum"]) == (-MAX_PRIORITY, MAX_PRIORITY)


@pytest.mark.parametrize("priority", [MAX_PRIORITY + 1, -MAX_PRIORITY - 1])
def test_a_priority_beyond_its_bounds_is_refused(tmp_path: Path, priority: int) -> None:
    with pytest.raises(BadInput, match="priority"):
        fields(tmp_path, f"code: x\npriority: {priority}")


def test_a_job_file_may_let_spot_become_on_demand(tmp_path: Path) -> None:
    assert fields(tmp_path, "code: x\nspot_fallback: true")["spot_fallback"] is True
    assert "spot_fallback" not in fields(tmp_path, "code: x\nmarket: spot\nspot_fallback: false")
    with pytest.raises(BadInput, match=r"job\.yaml, line 3: spot_fallback: needs the market spot, not reserved"):
        fields(tmp_path, "code: x\nmarket: reserved\nspot_fallback: true")
