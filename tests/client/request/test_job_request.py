from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from crucible.cli.options.job_options import flag_name, option_fills
from crucible.client.payload import Payload
from crucible.client.request.job_request import ArgumentReader, PartialSpec, make_spec, merge
from crucible.client.request.pythons import SubmitHost
from crucible.core.compute.offers import Market
from crucible.core.errors import BadInput, UnknownName
from crucible.core.job.spec import DataInput, EnvironmentSpec, JobSpec, Kind, Source
from crucible.core.job.training import Orchestration
from crucible.core.patterns import PATTERN_RULES
from crucible.core.routing.plan_request import Goal, Objective, PlanRequest

PAYLOAD = Payload(("{python}", "train.py"), EnvironmentSpec(interpreter="/usr/bin/python3"), Source())
FLAGS = ArgumentReader(option_fills(), flag_name, SubmitHost({"HOME": "/home/me"}, Path("/")))


def made(fields: PartialSpec) -> JobSpec:
    """The job of these fields, as the command line names them."""
    return make_spec({**fields, **PAYLOAD.fields()}, FLAGS)


def test_what_is_spelt_like_a_field_fills_it_and_others_as_they_say(tmp_path: Path) -> None:
    (tmp_path / "vars").write_text("A=1\nB=1\n")
    given = {"name": "x", "memory": "4G", "max_cost": 0, "env_file": (tmp_path / "vars",), "env": ("B=2", "HOME")}
    fields, goal = FLAGS.read({**given, "gpu": ("T4,A10G",), "deadline": "90m", "allow": ("a,b",), "detach": True})
    assert fields == {
        "name": "x",
        "resources": {"memory_bytes": 4 * 1024**3},
        "max_cost_usd": 0,
        "env": {"A": "1", "B": "2", "HOME": "/home/me"},
        "gpu_types": ("T4", "A10G"),
    }
    assert (goal.deadline_hours, goal.allowed_backends, goal.optimize) == (1.5, ("a", "b"), Objective.COST)


def test_what_was_not_given_says_nothing() -> None:
    fields, goal = FLAGS.read({"name": None, "env": (), "dedicated": False, "seed": None})
    assert (fields, goal.model_fields_set) == ({}, set())


@pytest.mark.parametrize(
    ("backend", "fallback", "found"),
    [
        ("rehearsal,local", (), {"backend": "rehearsal", "fallback": ("local",)}),
        ("rehearsal", ("local",), {"backend": "rehearsal", "fallback": ("local",)}),
        (" rehearsal , ssh ", ("local,ssh", "rehearsal"), {"backend": "rehearsal", "fallback": ("ssh", "local")}),
        (None, ("local",), {"fallback": ("local",)}),
        (None, (), {}),
    ],
)
def test_backends_are_one_list_however_they_are_written(
    backend: str | None, fallback: tuple[str, ...], found: PartialSpec
) -> None:
    assert FLAGS.read({"backend": backend, "fallback": fallback})[0] == found


@pytest.mark.parametrize("text", ["", ",", "  "])
def test_a_backend_needs_a_name(text: str) -> None:
    with pytest.raises(BadInput, match="--backend names no backend"):
        FLAGS.read({"backend": text})


def test_a_market_is_said_once() -> None:
    assert FLAGS.read({"market": "spot", "spot": True})[0] == {"market": Market.SPOT}
    with pytest.raises(BadInput, match="--market and --spot contradict each other"):
        FLAGS.read({"market": "reserved", "spot": True})


def test_a_spec_holds_what_was_given_and_defaults_otherwise() -> None:
    said = {"name": "x", "tier": "cpu-small", "resources": {"cpus": 2}, "retries": {"user": 1}, "grace_seconds": 0}
    spec = made(said)
    assert (spec.name, spec.tier, spec.resources.cpus) == ("x", "CPU_SMALL", 2)
    assert (spec.retries.user, spec.retries.interruption) == (1, 10)
    assert spec.grace_seconds == 0
    assert spec.kind is Kind.TRAIN
    assert spec.resources.model_fields_set == {"cpus"}


def test_fields_on_top_of_others() -> None:
    file = {
        "name": "file",
        "tags": ("a",),
        "env": {"A": "1", "B": "1"},
        "resources": {"cpus": 1, "gpus": 1},
        "data": (DataInput(name="x", source="/1"), DataInput(name="y", source="/1")),
        "grace_seconds": 30,
    }
    flags = {
        "name": "flag",
        "tags": ("a", "b"),
        "env": {"B": "2"},
        "resources": {"cpus": 2},
        "data": (DataInput(name="x", source="/2"),),
        "grace_seconds": 0,
    }
    both = merge(file, flags)
    assert (both["name"], both["tags"], both["env"]) == ("flag", ("a", "b"), {"A": "1", "B": "2"})
    assert both["resources"] == {"cpus": 2, "gpus": 1}
    assert {item.name: item.source for item in both["data"]} == {"x": "/2", "y": "/1"}
    assert both["grace_seconds"] == 0
    assert merge(file, {}) == file


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"resources": {"cpus": -1}}, "--cpus"),
        ({"resources": {"memory_bytes": 10**30}}, "--memory must be at most 64 TiB"),
        ({"resources": {"memory_bytes": 4}}, "--memory must be at least 16 MiB. It is 4 B. .* write 4G for 4 GiB"),
        ({"resources": {"cpus": float("nan")}}, "--cpus must be"),
        ({"retries": {"wait_seconds": 1e9}}, "--retry-wait must be at most 1d 0h"),
        ({"resources": {"seconds": 0}}, "--time must be at least 1s"),
        ({"resources": {"gpus": 10**9}}, "--gpus"),
        ({"retries": {"user": -1}}, "--retries"),
        ({"grace_seconds": 1e9}, "--grace"),
        ({"name": "a/b"}, "--name must not contain slashes"),
        ({"resume_from": "a\0"}, "--resume-from must not contain NUL characters"),
        ({"backend": "a\0"}, "--backend must not contain NUL characters"),
        ({"data": [{"name": "a/b", "source": "/x"}]}, "--data must not contain slashes"),
        ({"project": "A b"}, "--project must have 1 to 63 of a-z"),
        ({"secrets": {"TOKEN": "a b"}}, "--secret must have 1 to 100 letters"),
        ({"bundle": "x"}, "bundle must be a SHA-256"),
        ({"env": {"CRUCIBLE_X": "1"}}, "--env"),
        ({"tags": ("x" * 101,)}, "is not a valid tag"),
        ({"tags": ("x" * 400,)}, "is not a valid tag"),
    ],
)
def test_absurd_values_name_the_option(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        made(fields)


def patterns_in(schema: object) -> set[str]:
    """Return every pattern that a JSON schema demands of a text."""
    if isinstance(schema, list):
        return set().union(*map(patterns_in, schema))
    if not isinstance(schema, dict):
        return set()
    found = {schema["pattern"]} if isinstance(schema.get("pattern"), str) else set()
    return found.union(*map(patterns_in, schema.values()))


@pytest.mark.parametrize("kind", [JobSpec, Goal, PlanRequest, Orchestration])
def test_every_pattern_has_a_rule_in_words(kind: type[BaseModel]) -> None:
    patterns = patterns_in(kind.model_json_schema())
    assert patterns
    assert patterns <= PATTERN_RULES.keys()


def test_an_unknown_tier_is_told_with_the_nearest() -> None:
    with pytest.raises(UnknownName) as caught:
        made({"tier": "gpu_smal"})
    assert caught.value.meant == "GPU_SMALL"


def test_where_it_runs_and_what_is_kept_reach_the_spec() -> None:
    fields = {
        "backend": "rehearsal",
        "fallback": ("local",),
        "market": Market.SPOT,
        "regions": ("simulated-east",),
        "keep": {"latest": 5, "every": 1000},
        "seed": 0,
    }
    spec = made(fields)
    assert (spec.backend, spec.fallback, spec.market) == ("rehearsal", ("local",), Market.SPOT)
    assert (spec.regions, spec.seed) == (("simulated-east",), 0)
    assert (spec.keep.latest, spec.keep.best, spec.keep.every) == (5, 1, 1000)


def test_a_market_replaces_the_spot_fallback_and_the_reverse() -> None:
    file = {"market": Market.SPOT, "spot_fallback": True}
    assert made(merge(file, {"seed": 0})).spot_fallback
    assert made(merge(file, {"market": Market.ON_DEMAND})).market is Market.ON_DEMAND
    assert not made(merge(file, {"market": Market.SPOT})).spot_fallback
    assert made(merge({"market": Market.ON_DEMAND}, {"spot_fallback": True})).market is Market.SPOT


def test_a_backend_replaces_the_whole_line_of_places() -> None:
    file = {
        "backend": "rehearsal",
        "fallback": ("local",),
        "regions": ("a",),
        "keep": {"latest": 2, "best": 2},
        "seed": 1,
    }
    both = merge(file, {"backend": "ssh", "regions": ("b",), "keep": {"latest": 9}, "seed": 0})
    assert (both["backend"], both["fallback"]) == ("ssh", ())
    assert (both["regions"], both["keep"], both["seed"]) == (("b",), {"latest": 9, "best": 2}, 0)
    other = merge(file, {"fallback": ("ssh",)})
    assert (other["backend"], other["fallback"]) == ("rehearsal", ("ssh",))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"keep": {"latest": 0}}, "--keep-checkpoints must be at least 1."),
        ({"seed": -1}, "--seed must be at least 0."),
        ({"seed": 2**32}, "--seed must be less than 4294967296."),
    ],
)
def test_what_is_kept_and_the_seed_have_bounds(fields: PartialSpec, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        made(fields)
    assert caught.value.what == said


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"hours": -1}, "--hours"),
        ({"deadline": "0s"}, "--deadline"),
        ({"limit": 10**6}, "--limit"),
        ({"max_cost": -1}, "--max-cost must be at least 0"),
        ({"optimize": "fame"}, "--optimize: There is no objective"),
    ],
)
def test_what_is_out_of_bounds_names_its_option(given: dict[str, object], option: str) -> None:
    with pytest.raises(BadInput) as raised:
        FLAGS.read(given)
    assert raised.value.what.startswith(option)
