"""Our prices beside another table of them."""

from __future__ import annotations

import pytest
from tests.catalog.builders import family, make_row

from crucible.catalog.compare import Comparison, compare
from crucible.core.errors import BadInput, UnknownName

HEAD = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone"


def table(*lines: str) -> str:
    return "\n".join([HEAD, *lines])


def beside(*lines: str, provider: str | None = None) -> Comparison:
    return compare([*family(), make_row(provider="modal", region="any", instance_type="T4")], table(*lines), provider)


def test_the_same_price_agrees() -> None:
    found = beside("g4dn.xlarge,T4,1,4,16,,0.526,0.2,us-east-1,a")
    assert (found.provider, found.theirs, found.matched(), found.within(0.02)) == ("aws", 1, 1, 1)
    assert found.over(0) == []
    assert len(found.missing_there) == len(family()) - 1


def test_differences_come_largest_first() -> None:
    found = beside(
        "g4dn.xlarge,T4,1,4,16,,0.5,,us-east-1,a",
        "g4dn.2xlarge,T4,1,8,32,,0.376,,us-east-1,a",
        "g4dn.4xlarge,T4,1,16,64,,1.2,,us-east-1,a",
    )
    assert (found.matched(), found.within(0.02), found.within(0.10)) == (3, 1, 2)
    assert [(one.row, round(one.relative, 2)) for one in found.over(0.02)] == [
        ("g4dn.2xlarge us-east-1", 1.0),
        ("g4dn.xlarge us-east-1", 0.05),
    ]
    view = found.view(0.10)
    assert view.differences_count == 1
    assert view.within == {"2%": 1, "10%": 2}
    assert view.matched_share == round(3 / 12, 4)


def test_zones_are_taken_together() -> None:
    lines = [
        f"g4dn.xlarge,T4,1,4,16,,0.526,{spot},us-east-1,{zone}"
        for zone, spot in zip("abc", (0.1, 0.2, 0.9), strict=True)
    ]
    found = compare([make_row(spot=0.2)], table(*lines))
    assert (found.theirs, found.matched("spot"), found.within(0.02, "spot")) == (1, 1, 1)


def test_gpus_that_are_priced_apart_are_added_to_their_host() -> None:
    row = make_row(provider="gcp", region="us-central1", instance_type="n1-standard-8+2xT4", gpus=2, on_demand=1.08)
    host, gpus = "n1-standard-8,,,8,30,,0.38,,us-central1,a", ",T4,2,,,,0.70,,us-central1,a"
    found = compare([row], table(host, gpus), "gcp")
    assert (found.matched(), found.within(0.001)) == (1, 1)
    assert compare([row], table(host), "gcp").matched() == 0, "a host without its GPUs is another thing"


def test_a_bare_host_is_not_a_host_with_gpus() -> None:
    row = make_row(provider="gcp", region="r", instance_type="n1-standard-8+1xT4", on_demand=0.73)
    plain = "InstanceType,Region,Price\nn1-standard-8,r,0.38\n"
    assert compare([row], plain, "gcp").matched() == 0
    assert compare([row], f"{plain}n1-standard-8+1xT4,r,0.73\n", "gcp").within(0.001) == 1


def test_the_narrowest_name_of_a_gpu_prices_it() -> None:
    row = make_row(provider="gcp", region="r", instance_type="a2-ultra", gpu="A100-80GB-SXM", on_demand=5.0)
    lines = ("a2-ultra,,,12,170,,1.0,,r,a", ",A100,1,,,,2.0,,r,a", ",A100-80GB,1,,,,4.0,,r,a")
    assert compare([row], table(*lines), "gcp").within(0.001) == 1
    assert compare([row], table(*lines[:2]), "gcp").over(0.1)[0].theirs == 3_000_000


def test_what_one_of_them_lacks_is_named() -> None:
    found = beside("g4dn.xlarge,T4,1,4,16,,0.5,,eu-south-1,a", "x9.huge,,,4,16,,0.5,,us-east-1,a")
    assert found.missing_here == ("g4dn.xlarge eu-south-1",)
    assert found.unknown_types == 1
    assert found.matched() == 0


def test_the_provider_is_told_by_the_instance_types() -> None:
    assert beside("T4,T4,1,4,16,,0.6,,any,a").provider == "modal"
    assert beside("T4,T4,1,4,16,,0.6,,any,a", provider="aws").matched() == 0


def test_a_price_of_zero_is_none_and_garbage_is_counted() -> None:
    found = beside(
        "g4dn.xlarge,T4,1,4,16,,0.0,0.00,us-east-1,a", "g4dn.xlarge,T4,1,4,16,,cheap,,us-west-2,a", provider="aws"
    )
    assert (found.theirs, found.matched(), found.unreadable) == (0, 0, 1)


@pytest.mark.parametrize("text", ["", "a,b\n1,2", "InstanceType,Region\nx,y", "\x00\x00"])
def test_another_file_is_refused(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        compare(family(), text)
    assert caught.value.fix


def test_a_table_of_something_else_is_refused() -> None:
    with pytest.raises(BadInput, match="no instance type"):
        beside("apples,,,1,1,,1,,market,a")
    with pytest.raises(UnknownName):
        beside("g4dn.xlarge,T4,1,4,16,,0.5,,us-east-1,a", provider="amazon")
