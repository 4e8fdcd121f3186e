from __future__ import annotations

from typing import Any

import pytest

from crucible.client.payload import Payload
from crucible.client.wishes import Wishes, make_spec
from crucible.core.errors import BadInput, UnknownName
from crucible.core.offers import Market
from crucible.core.spec import DataInput, EnvironmentSpec, Kind, Source

PAYLOAD = Payload(("{python}", "train.py"), EnvironmentSpec(interpreter="/usr/bin/python3"), Source())


def test_a_spec_holds_what_was_wished_and_defaults_otherwise() -> None:
    wishes = Wishes(name="x", tier="cpu-small", resources={"cpus": 2}, retries={"user": 1}, grace_seconds=0)
    spec = make_spec(PAYLOAD, wishes, bundle="0" * 64)
    assert (spec.name, spec.tier, spec.resources.cpus) == ("x", "CPU_SMALL", 2)
    assert (spec.retries.user, spec.retries.interruption) == (1, 10)
    assert spec.grace_seconds == 0
    assert spec.kind is Kind.TRAIN
    assert spec.resources.model_fields_set == {"cpus"}


def test_wishes_on_top_of_others() -> None:
    file = Wishes(
        name="file",
        tags=("a",),
        env={"A": "1", "B": "1"},
        resources={"cpus": 1, "gpus": 1},
        data=(DataInput(name="x", source="/1"), DataInput(name="y", source="/1")),
        grace_seconds=30,
    )
    flags = Wishes(
        name="flag",
        tags=("a", "b"),
        env={"B": "2"},
        resources={"cpus": 2},
        data=(DataInput(name="x", source="/2"),),
        grace_seconds=0,
    )
    both = flags.over(file)
    assert (both.name, both.tags, both.env) == ("flag", ("a", "b"), {"A": "1", "B": "2"})
    assert both.resources == {"cpus": 2, "gpus": 1}
    assert {item.name: item.source for item in both.data} == {"x": "/2", "y": "/1"}
    assert both.grace_seconds == 0
    assert Wishes().over(file) == file


@pytest.mark.parametrize(
    ("wishes", "says"),
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
        ({"name": "a/b"}, "--name must not hold slashes"),
        ({"env": {"CRUCIBLE_X": "1"}}, "--env"),
        ({"tags": ("x" * 101,)}, "is no tag"),
        ({"tags": ("x" * 400,)}, "is no tag"),
    ],
)
def test_absurd_wishes_name_the_option(wishes: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        make_spec(PAYLOAD, Wishes(**wishes), bundle=None)


def test_an_unknown_tier_is_told_with_the_nearest() -> None:
    with pytest.raises(UnknownName) as caught:
        make_spec(PAYLOAD, Wishes(tier="gpu_smal"), bundle=None)
    assert caught.value.meant == "GPU_SMALL"


def test_where_it_runs_and_what_is_kept_reach_the_spec() -> None:
    wishes = Wishes(
        backend="rehearsal",
        fallback=("local",),
        market=Market.SPOT,
        regions=("simulated-east",),
        keep={"latest": 5, "every": 1000},
        seed=0,
    )
    spec = make_spec(PAYLOAD, wishes, bundle=None)
    assert (spec.backend, spec.fallback, spec.market) == ("rehearsal", ("local",), Market.SPOT)
    assert (spec.regions, spec.seed) == (("simulated-east",), 0)
    assert (spec.keep.latest, spec.keep.best, spec.keep.every) == (5, 1, 1000)


def test_a_backend_replaces_the_whole_line_of_places() -> None:
    file = Wishes(backend="rehearsal", fallback=("local",), regions=("a",), keep={"latest": 2, "best": 2}, seed=1)
    both = Wishes(backend="ssh", regions=("b",), keep={"latest": 9}, seed=0).over(file)
    assert (both.backend, both.fallback) == ("ssh", ())
    assert (both.regions, both.keep, both.seed) == (("b",), {"latest": 9, "best": 2}, 0)
    other = Wishes(fallback=("ssh",)).over(file)
    assert (other.backend, other.fallback) == ("rehearsal", ("ssh",))


@pytest.mark.parametrize(
    ("wishes", "said"),
    [
        (Wishes(keep={"latest": 0}), "--keep-checkpoints must be at least 1."),
        (Wishes(seed=-1), "--seed must be at least 0."),
        (Wishes(seed=2**32), "--seed must be less than 4294967296."),
    ],
)
def test_what_is_kept_and_the_seed_have_bounds(wishes: Wishes, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        make_spec(PAYLOAD, wishes, bundle=None)
    assert caught.value.what == said
