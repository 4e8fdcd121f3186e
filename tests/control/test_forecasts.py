"""What plans said is in their ids, for every server of the deployment and for nobody else to say."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.control.world import job_spec

from crucible.control.forecasts import MAX_NAME, Forecast, Forecasts
from crucible.core.routing.experience import Like

KEY = b"the deployment's key"
TOLD = Forecast(Like("torch", "RTX 4090", "5" * 64), "local", "this computer", 100.25, 1 / 3)


def id_of(forecast: Forecast, key: bytes = KEY) -> str:
    found = Forecasts(key).id_of(forecast)
    assert found is not None
    return found


def test_any_server_of_the_deployment_reads_what_was_told() -> None:
    assert Forecasts(KEY).of(id_of(TOLD)) == TOLD
    assert job_spec(plan=id_of(TOLD)).plan == id_of(TOLD), "a submission can carry it"


@pytest.mark.parametrize(
    "changes", [{"backend": "cloud"}, {"instance_type": "g4"}, {"analytic": 1.0}, {"predicted": 1.0}]
)
def test_another_forecast_has_another_id(changes: dict[str, object]) -> None:
    assert id_of(replace(TOLD, **changes)) != id_of(TOLD)  # type: ignore[arg-type]
    assert id_of(replace(TOLD)) == id_of(TOLD)


def test_what_no_server_said_is_not_believed() -> None:
    said, _, signature = id_of(TOLD).partition(".")
    more = id_of(replace(TOLD, predicted=1.0)).partition(".")[0]
    for plan in ("another", ".", said, f"{said}.", f".{signature}", f"{more}.{signature}", f"{said}x.{signature}"):
        assert Forecasts(KEY).of(plan) is None
    assert Forecasts(KEY).of(id_of(TOLD, b"another deployment")) is None
    assert Forecasts(KEY).of("0123456789abcdef" * 2) is None


def test_names_are_cut_off_and_those_beyond_measure_are_not_carried() -> None:
    long = replace(TOLD, like=Like("f" * 500, "ü" * 500, "5" * 64))
    assert Forecasts(KEY).of(id_of(replace(long, like=Like("f" * 500, "g" * 500, "5" * 64)))) == replace(
        TOLD, like=Like("f" * MAX_NAME, "g" * MAX_NAME, "5" * 64)
    )
    assert Forecasts(KEY).id_of(replace(TOLD, instance_type="x" * 1000)) is None
