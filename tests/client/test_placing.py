from __future__ import annotations

import pytest
from tests.client.fake_server import FakeServer

from crucible.client.api import Api
from crucible.client.placing import any_simulated, check_places, read_market, read_names, read_places
from crucible.core.errors import BadInput, UnknownName
from crucible.core.offers import Market


def test_places_are_one_list_however_they_are_written() -> None:
    assert read_places("rehearsal,local", ()) == ("rehearsal", ("local",))
    assert read_places("rehearsal", ("local",)) == ("rehearsal", ("local",))
    assert read_places(" rehearsal , ssh ", ("local,ssh", "rehearsal")) == ("rehearsal", ("ssh", "local"))
    assert read_places(None, ("local",)) == (None, ("local",))
    assert read_places(None, ()) == (None, ())


@pytest.mark.parametrize("text", ["", ",", "  "])
def test_a_place_needs_a_name(text: str) -> None:
    with pytest.raises(BadInput, match="--backend names no place"):
        read_places(text, ())


def test_names_come_once_and_in_order() -> None:
    assert read_names(["b,a", "b", ""]) == ("b", "a")


def test_markets_as_people_write_them() -> None:
    assert read_market(None) is None
    assert read_market("SPOT") is Market.SPOT
    assert read_market("on-demand") is Market.ON_DEMAND
    assert read_market(None, spot=True) is read_market("spot", spot=True) is Market.SPOT


def test_a_market_that_is_none() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'reserved'"):
        read_market("reservd")
    with pytest.raises(BadInput, match="contradict"):
        read_market("reserved", spot=True)


@pytest.mark.enable_socket
def test_places_are_held_against_those_of_the_server(api: Api, server: FakeServer) -> None:
    server.backends.append({"name": "rehearsal", "connected": True, "capabilities": {"simulated": True}})
    with pytest.raises(UnknownName, match="`crucible backends` lists"):
        check_places(api, ["ssh"])
    with pytest.raises(UnknownName, match="Not connected, and no command connects aws yet"):
        check_places(api, ["aws"])
    check_places(api, ["rehearsal", "local"])
    with pytest.raises(UnknownName, match="Did you mean 'rehearsal'"):
        check_places(api, ["local", "rehersal"])
    assert any_simulated(api, ("local", "rehearsal"))
    assert not any_simulated(api, ("local", None))
