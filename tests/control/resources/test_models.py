"""The models of the server's Python: asked there, never imported here."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.control.fakes import FakeClock
from tests.plugin_packages import COUNTER, HEAD, install, make_python

from crucible.control.resources.models import CACHE_SECONDS, Models, ModelsPython
from crucible.core.errors import BadInput, NotFound
from crucible.core.job.models import ModelOrder
from crucible.core.job.spec import Kind
from crucible.core.people.identity import OWNER
from crucible.core.views.server import ModelPage


@pytest.fixture
def site(tmp_path: Path) -> Path:
    site = make_python(tmp_path / "venv")
    install(site, "counting", COUNTER, {"counter": "counting:Counter"})
    return site


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def models(tmp_path: Path, site: Path, clock: FakeClock) -> Models:
    return Models(ModelsPython(str(tmp_path / "venv" / "bin" / "python"), dict(os.environ)), clock)


def order(**changes: Any) -> ModelOrder:
    return ModelOrder(**{"model": "counter", "method": "train", "config": {"epochs": 2}, **changes})


async def test_a_server_without_a_python_for_models_has_none(clock: FakeClock) -> None:
    models = Models(ModelsPython(), clock)
    assert await models.list_models(OWNER) == ModelPage()
    with pytest.raises(NotFound, match="There is no model 'counter'"):
        await models.get(OWNER, "counter")


async def test_models_are_listed_and_described(models: Models) -> None:
    (listed,) = (await models.list_models(OWNER)).items
    assert listed == await models.get(OWNER, "counter")
    assert listed.methods == ("train", "infer", "benchmark")
    assert "counting" not in sys.modules


async def test_a_description_is_kept_for_a_while(models: Models, site: Path, clock: FakeClock) -> None:
    assert len((await models.list_models(OWNER)).items) == 1
    install(site, "second", COUNTER, {"second": "second:Counter"})
    clock.move(CACHE_SECONDS - 1)
    assert len((await models.list_models(OWNER)).items) == 1
    clock.move(2)
    assert len((await models.list_models(OWNER)).items) == 2


async def test_one_that_hangs_holds_up_no_other(models: Models, site: Path, clock: FakeClock, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    waits = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)\n"
    install(site, "slow", waits + COUNTER, {"slow": "slow:Counter"})
    listing = asyncio.create_task(models.list_models(OWNER))
    asked = [asyncio.create_task(models.get(OWNER, "slow")) for _ in range(2)]
    assert (await models.job_spec(OWNER, order(), {})).name == "counter"
    assert not listing.done()
    clock.move(CACHE_SECONDS + 30)
    gate.touch()
    assert [item.name for item in (await listing).items] == ["counter", "slow"]
    assert (await asked[0]).methods == (await asked[1]).methods == ("train", "infer", "benchmark")
    install(site, "second", COUNTER, {"second": "second:Counter"})
    assert len((await models.list_models(OWNER)).items) == 2, (
        "kept from when it was known, not from when it was asked for"
    )


async def test_an_order_becomes_a_job(models: Models, tmp_path: Path) -> None:
    spec = await models.job_spec(OWNER, order(), {"backend": "local", "tags": ["a"], "resources": {"cpus": 1}})
    assert (spec.kind, spec.name, spec.backend, spec.tags) == (Kind.TRAIN, "counter", "local", ("a",))
    assert spec.command == order().command
    assert spec.environment.interpreter == str(tmp_path / "venv" / "bin" / "python")
    assert spec.source.ref == "counting==1.0"
    spec = await models.job_spec(OWNER, order(method="infer", config={}, inputs={"x": 1}), {"name": "mine"})
    assert (spec.kind, spec.name, spec.command[-1]) == (Kind.INFERENCE, "mine", '{"x": 1}')


@pytest.mark.parametrize(
    ("job", "found"),
    [({}, (1, 2 * 1024**3)), ({"resources": {"gpus": 0}}, (0, None)), ({"tier": "CPU_SMALL"}, (0, None))],
)
async def test_a_model_that_needs_a_gpu_asks_for_it(
    models: Models, site: Path, job: dict[str, Any], found: tuple[int, int | None]
) -> None:
    code = HEAD + "class M(BaseModel):\n    model_metadata = ModelMetadata(min_gpu_memory_gb=2)\n"
    install(site, "big", code + "    def infer(self, i): return 1\n", {"big": "big:M"})
    spec = await models.job_spec(OWNER, order(model="big", method="infer", config={}), job)
    assert ((spec.resources.gpus or 0), spec.resources.gpu_memory_bytes) == found


@pytest.mark.parametrize(
    ("changes", "job", "says"),
    [
        ({"config": {"epoch": 1}}, {}, "there is no option 'epoch'; did you mean 'epochs'?"),
        ({"config": {"epochs": 0}}, {}, "epochs must be at least 1, not 0"),
        ({"config": {"epochs": float("nan")}}, {}, "epochs must be a whole number, not nan"),
        ({"inputs": float("nan")}, {}, "The input contains a value that JSON does not support"),
        ({"inputs": "x" * 70_000}, {}, "The input is larger than 64 KiB"),
        ({}, {"command": ["true"]}, "The model sets the field 'command'"),
        ({}, {"environment": {}}, "The model sets the field 'environment'"),
        ({}, {"zzzzzz": 1}, "There is no field 'job.zzzzzz'. There are backend, bundle"),
        ({}, {"retires": {}}, "There is no field 'job.retires'. Did you mean 'retries'?"),
        ({}, {"resources": {"cpus": -1}}, "The field 'job.resources.cpus' is not right"),
        ({}, {"resources": "many"}, "The field 'job.resources' is not right"),
    ],
)
async def test_what_does_not_fit_is_refused(
    models: Models, changes: dict[str, Any], job: dict[str, Any], says: str
) -> None:
    with pytest.raises(BadInput) as error:
        await models.job_spec(OWNER, order(**changes), job)
    assert says in str(error.value)


async def test_a_name_a_method_and_a_plugin_that_are_not_there(models: Models, site: Path) -> None:
    with pytest.raises(NotFound, match=r"There is no model 'countre'. Did you mean 'counter'\?"):
        await models.job_spec(OWNER, order(model="countre"), {})
    install(site, "asks", HEAD + "class M(BaseModel):\n    def infer(self, i): return 1\n", {"asks": "asks:M"})
    install(site, "sick", "raise RuntimeError('no luck')", {"sick": "sick:M"})
    fresh = Models(models._source, FakeClock())
    with pytest.raises(BadInput, match=r"The model 'asks' has no train\(\). It has infer\(\)"):
        await fresh.job_spec(OWNER, order(model="asks"), {})
    with pytest.raises(BadInput, match="The model 'sick' cannot be used: RuntimeError: no luck"):
        await fresh.job_spec(OWNER, order(model="sick"), {})
    assert [item.name for item in (await fresh.list_models(OWNER)).items if item.error] == ["sick"]


async def test_a_python_that_is_none_is_said(clock: FakeClock) -> None:
    with pytest.raises(BadInput, match="The models of /no/python cannot be listed"):
        await Models(ModelsPython("/no/python"), clock).list_models(OWNER)
