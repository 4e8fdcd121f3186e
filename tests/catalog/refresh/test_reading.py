"""Answers in the documented shapes of each provider, read into prices."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from tests.catalog.builders import make_row, usd
from tests.catalog.refresh.providers import (
    aws_line,
    aws_list,
    azure_item,
    lambda_type,
    product,
    reserved,
    sku,
)

from crucible.catalog.findings import Rule
from crucible.catalog.refresh import aws, azure, gcp, lambdacloud
from crucible.catalog.refresh.fetcher import BadAnswer
from crucible.catalog.refresh.quotes import Quotes, amount_of
from crucible.catalog.rows import Row
from crucible.core.compute.resources import GiB

DAY = date(2025, 10, 1)
T4 = "Standard_NC4as_T4_v3"


def quotes(*rows: Row) -> Quotes:
    known = rows or (make_row(), make_row(instance_type="p3.2xlarge", gpu="V100-16GB"))
    return Quotes(known[0].provider, {row.instance_type: row for row in known}, DAY)


def aws_prices(*lines: str) -> dict[str, int]:
    found = quotes()
    aws.read_list(aws_list(*lines).splitlines(keepends=True), found, "us-east-1")
    return found.prices.get(("us-east-1", "g4dn.xlarge"), {})


class TestAws:
    def test_plain_linux_on_demand_and_reserved_with_nothing_paid_ahead(self) -> None:
        assert aws_prices(
            aws_line("g4dn.xlarge", "0.5260000000"),
            reserved("g4dn.xlarge", "0.3320000000", "1yr"),
            reserved("g4dn.xlarge", "0.2270000000", "3yr"),
        ) == {"on_demand": usd(0.526), "reserved_1y": usd(0.332), "reserved_3y": usd(0.227)}

    @pytest.mark.parametrize(
        "line",
        [
            aws_line("g4dn.xlarge", "0.7", **{"Operating System": "Windows"}),
            aws_line("g4dn.xlarge", "0.6", Tenancy="Dedicated"),
            aws_line("g4dn.xlarge", "0.6", **{"Pre Installed S/W": "SQL Std"}),
            aws_line("g4dn.xlarge", "0.0", CapacityStatus="AllocatedCapacityReservation"),
            aws_line("g4dn.xlarge", "99", Unit="Quantity"),
            aws_line("x9.huge", "0.6"),
            reserved("g4dn.xlarge", "0.3", "1yr", PurchaseOption="All Upfront"),
            reserved("g4dn.xlarge", "0.3", "1yr", OfferingClass="convertible"),
            reserved("g4dn.xlarge", "0.3", "5yr"),
            '"too","short"',
        ],
    )
    def test_what_is_something_else_is_passed_over(self, line: str) -> None:
        assert aws_prices(line) == {}

    @pytest.mark.parametrize(
        ("line", "rule"),
        [
            (aws_line("g4dn.xlarge", "0.0000000000"), Rule.ZERO),
            (aws_line("g4dn.xlarge", "-1"), Rule.NEGATIVE),
            (aws_line("g4dn.xlarge", "call us"), Rule.UNREADABLE),
            (aws_line("g4dn.xlarge", "nan"), Rule.UNREADABLE),
            (aws_line("g4dn.xlarge", "3.5", Currency="CNY"), Rule.UNREADABLE),
        ],
    )
    def test_what_is_no_price_is_refused_by_name(self, line: str, rule: Rule) -> None:
        found = quotes()
        aws.read_list(aws_list(line).splitlines(keepends=True), found, "us-east-1")
        assert found.prices == {}
        assert [problem.rule for problem in found.problems] == [rule]
        assert found.problems[0].row == "aws us-east-1 g4dn.xlarge"

    @pytest.mark.parametrize(
        "text", ["", "<html>\n", "a,b\n" * 50, '"SKU","TermType"\n1,2\n', '"SKU\n' + "x" * 200_000]
    )
    def test_another_file_is_no_price_list(self, text: str) -> None:
        with pytest.raises(BadAnswer):
            aws.read_list(text.splitlines(keepends=True), quotes(), "us-east-1")

    def test_products_of_the_query_interface(self) -> None:
        found = quotes()
        aws.read_products([product("g4dn.xlarge", "0.526"), product("x9.huge", "1")], found, "us-east-1")
        assert found.prices == {("us-east-1", "g4dn.xlarge"): {"on_demand": usd(0.526)}}
        aws.read_products([product("p3.2xlarge", "3", "EUR")], found, "us-east-1")
        assert found.problems[0].rule is Rule.UNREADABLE

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"product": {}}', '{"product": {"attributes": {}}, "terms": 1}'])
    def test_products_that_cannot_be_read(self, text: str) -> None:
        with pytest.raises(BadAnswer):
            aws.read_products([text], quotes(), "us-east-1")

    def test_the_advisor_tells_how_often_and_how_much_less(self) -> None:
        found = quotes()
        found.add("us-east-1", "g4dn.xlarge", "on_demand", 0.5)
        advice = {"g4dn.xlarge": {"r": 1, "s": 60}, "p3.2xlarge": {"r": 0, "s": 70}, "x9.huge": {"r": 9, "s": 0}}
        aws.read_advisor({"spot_advisor": {"us-east-1": {"Linux": advice}}}, found, ["us-east-1", "eu-west-1"])
        (row,) = found.rows()
        assert (row.spot, row.interruption) == (usd(0.2), "5-10%")

    @pytest.mark.parametrize("told", [{"r": "often"}, {"r": 7, "s": 100}, {"s": -5}, {"s": "x"}, 3, None])
    def test_advice_that_makes_no_sense_is_left_out(self, told: object) -> None:
        found = quotes()
        found.add("us-east-1", "g4dn.xlarge", "on_demand", 0.5)
        aws.read_advisor({"spot_advisor": {"us-east-1": {"Linux": {"g4dn.xlarge": told}}}}, found, ["us-east-1"])
        (row,) = found.rows()
        assert (row.spot, row.interruption) == (None, "")

    def test_an_advisor_that_answers_something_else(self) -> None:
        with pytest.raises(BadAnswer):
            aws.read_advisor({"spot_advisor": []}, quotes(), ["us-east-1"])

    def test_the_newest_spot_price_of_each_zone_counts(self) -> None:
        found = quotes()
        found.add("us-east-1", "g4dn.xlarge", "on_demand", 0.5)
        found.add("us-east-1", "g4dn.xlarge", "spot", 0.1)

        def entry(zone: str, time: str, price: object, kind: str = "g4dn.xlarge") -> dict[str, object]:
            about = {"AvailabilityZone": zone, "InstanceType": kind, "ProductDescription": "Linux/UNIX"}
            return {**about, "SpotPrice": price, "Timestamp": time}

        entries = [
            entry("us-east-1a", "2025-09-30T10:00", "0.2000"),
            entry("us-east-1a", "2025-09-30T09:00", "0.9000"),
            entry("us-east-1b", "2025-09-30T09:00", "0.2200"),
            entry("us-east-1c", "2025-09-30T09:00", "0.3000"),
            entry("us-east-1d", "2025-09-30T09:00", "free"),
            entry("us-east-1d", "2025-09-30T09:00", "0.0000"),
            entry("us-east-1a", "2025-09-30T10:00", "5", "x9.huge"),
        ]
        aws.read_history(entries, found, "us-east-1")
        assert found.prices["us-east-1", "g4dn.xlarge"]["spot"] == usd(0.22)


class TestAzure:
    def prices(self, *items: dict[str, object]) -> tuple[dict[str, int], Quotes]:
        row = make_row(provider="azure", region="eastus", instance_type=T4, price_list="azure-vm")
        found = quotes(row)
        azure.read(items, found)
        return found.prices.get(("eastus", T4), {}), found

    def test_on_demand_spot_and_reserved_by_the_hour(self) -> None:
        found, _ = self.prices(
            azure_item(T4, 0.526),
            azure_item(T4, 0.12, skuName="NC4as T4 v3 Spot"),
            azure_item(T4, 2933.0, type="Reservation", reservationTerm="1 Year"),
            azure_item(T4, 6000.0, type="Reservation", reservationTerm="3 Years"),
        )
        assert found == {
            "on_demand": usd(0.526),
            "spot": usd(0.12),
            "reserved_1y": round(2933 / 8760 * 1e6),
            "reserved_3y": round(6000 / 26280 * 1e6),
        }

    @pytest.mark.parametrize(
        "changes",
        [
            {"productName": "Virtual Machines NCasT4_v3 Series Windows"},
            {"skuName": "NC4as T4 v3 Low Priority"},
            {"type": "DevTestConsumption"},
            {"type": "Reservation", "reservationTerm": "5 Years"},
            {"unitOfMeasure": "1 GB"},
            {"armSkuName": "Standard_Other"},
            {"armSkuName": None},
            {"armRegionName": 5},
        ],
    )
    def test_what_is_something_else_is_passed_over(self, changes: dict[str, object]) -> None:
        found, told = self.prices({**azure_item(T4, 0.526), **changes})
        assert (found, told.problems) == ({}, [])

    @pytest.mark.parametrize(
        ("price", "currency", "rule"),
        [
            (0, "USD", Rule.ZERO),
            (-1, "USD", Rule.NEGATIVE),
            ("x", "USD", Rule.UNREADABLE),
            (None, "USD", Rule.UNREADABLE),
            (True, "USD", Rule.UNREADABLE),
            (1e300, "USD", Rule.UNREADABLE),
            (0.526, "EUR", Rule.UNREADABLE),
        ],
    )
    def test_what_is_no_price_is_refused_by_name(self, price: object, currency: str, rule: Rule) -> None:
        found, told = self.prices(azure_item(T4, price, currencyCode=currency))
        assert (found, [problem.rule for problem in told.problems]) == ({}, [rule])


class TestGcp:
    parts = (
        sku("N1 Predefined Instance Core running in Americas", 0.031611, ["us-central1", "us-east1"]),
        sku("N1 Predefined Instance Ram running in Americas", 0.004237, ["us-central1"]),
        sku("Nvidia Tesla T4 GPU running in Americas", 0.35, ["us-central1"]),
        sku("Spot Preemptible N1 Predefined Instance Core running in Americas", 0.006655, ["us-central1"]),
        sku("Spot Preemptible N1 Predefined Instance Ram running in Americas", 0.000892, ["us-central1"]),
        sku("Nvidia Tesla T4 GPU attached to Spot Preemptible VMs running in Americas", 0.14, ["us-central1"]),
        sku("Network Internet Egress from Americas to China", 0.23, ["us-central1"]),
        sku("Commitment v1: N1 Cpu in Americas for 1 Year", 0.0199, ["us-central1"]),
    )

    def prices(self, *skus: dict[str, Any], regions: tuple[str, ...] = ("us-central1",)) -> Quotes:
        row = make_row(
            provider="gcp",
            region="us-central1",
            instance_type="n1-standard-8+2xT4",
            gpus=2,
            vcpus=8.0,
            memory_bytes=30 * GiB,
            price_list="gcp-compute",
        )
        found = quotes(row)
        gcp.read(skus, found, regions)
        return found

    def test_a_machine_is_the_sum_of_its_parts(self) -> None:
        found = self.prices(*self.parts).prices["us-central1", "n1-standard-8+2xT4"]
        assert found["on_demand"] == pytest.approx(usd(8 * 0.031611 + 30 * 0.004237 + 2 * 0.35), abs=1)
        assert found["spot"] == pytest.approx(usd(8 * 0.006655 + 30 * 0.000892 + 2 * 0.14), abs=1)

    def test_a_machine_without_one_of_its_parts_has_no_price(self) -> None:
        assert self.prices(*self.parts[:2]).prices == {}
        assert self.prices(*self.parts, regions=("us-east1",)).prices == {}

    def test_spot_is_told_by_its_name_however_it_is_filed(self) -> None:
        filed = {"category": {"usageType": "OnDemand"}}
        skus = [*self.parts[:5], {**self.parts[5], **filed}]
        found = self.prices(*skus).prices["us-central1", "n1-standard-8+2xT4"]
        assert found["on_demand"] > 2 * found["spot"]

    @pytest.mark.parametrize(
        "changes",
        [
            {"pricingInfo": []},
            {"pricingInfo": [{"pricingExpression": {"tieredRates": []}}]},
            {"pricingInfo": "soon"},
            {"pricingInfo": [{"pricingExpression": {"tieredRates": [{"unitPrice": {"currencyCode": "USD"}}]}}]},
            {
                "pricingInfo": [
                    {"pricingExpression": {"tieredRates": [{"unitPrice": {"units": "1", "currencyCode": "EUR"}}]}}
                ]
            },
        ],
    )
    def test_a_part_without_a_price_is_refused_and_makes_no_machine(self, changes: dict[str, object]) -> None:
        found = self.prices(*self.parts[:2], {**self.parts[2], **changes})
        assert found.prices == {}
        assert found.problems[0].row == "gcp us-central1 Nvidia Tesla T4 GPU"

    @pytest.mark.parametrize("broken", [{}, {"description": 5}, {"description": "x" * 1000}, {"serviceRegions": None}])
    def test_other_things_are_passed_over(self, broken: dict[str, object]) -> None:
        assert self.prices({**self.parts[0], **broken} if broken else {}).problems == []


class TestLambda:
    known = (
        make_row(
            provider="lambda", region="us-east-1", instance_type="gpu_1x_a10", gpu="A10", price_list="lambda-cloud"
        ),
        make_row(
            provider="lambda", region="us-west-1", instance_type="gpu_1x_a10", gpu="A10", price_list="lambda-cloud"
        ),
    )

    def rows(self, types: object) -> tuple[list[Row], list[str], Quotes]:
        found = quotes(*self.known)
        notes = lambdacloud.read({"data": types}, found, self.known)
        return list(found.rows()), notes, found

    def test_a_price_holds_where_a_type_is_known_or_to_be_had(self) -> None:
        rows, notes, _ = self.rows({"gpu_1x_a10": lambda_type("gpu_1x_a10", 129, "A10 (24 GB PCIe)", ("us-south-1",))})
        assert {(row.region, row.on_demand) for row in rows} == {
            ("us-east-1", usd(1.29)),
            ("us-west-1", usd(1.29)),
            ("us-south-1", usd(1.29)),
        }
        assert notes == []

    @pytest.mark.parametrize(
        ("described", "gpu"),
        [
            ("H100 (80 GB SXM5)", "H100-SXM"),
            ("H100 (80 GB PCIe)", "H100-PCIe"),
            ("A100 (40 GB SXM4)", "A100-40GB-SXM"),
            ("A100 (80 GB SXM4)", "A100-80GB-SXM"),
            ("GH200 (96 GB)", "GH200"),
            ("B200 (180 GB SXM6)", "B200"),
            ("A6000 (48 GB)", "RTX-A6000"),
            ("Tesla V100 (16 GB)", "V100-16GB"),
            ("RTX 6000 (24 GB)", "RTX-6000"),
        ],
    )
    def test_a_new_type_is_understood_by_its_description(self, described: str, gpu: str) -> None:
        rows, _, _ = self.rows({"gpu_new": lambda_type("gpu_new", 249, described, ("us-east-1",), gpus=2, vcpus=52)})
        (row,) = rows
        assert (row.gpu, row.gpus, row.vcpus, row.memory_bytes) == (gpu, 2, 52.0, 200 * GiB)

    @pytest.mark.parametrize("described", ["", "N/A", "Z900 (99 GB)", "H100 (81 GB SXM5)", "A100 (40 GB)", "H100"])
    def test_what_cannot_be_told_is_noted_and_left_out(self, described: str) -> None:
        rows, notes, _ = self.rows({"gpu_new": lambda_type("gpu_new", 249, described, ("us-east-1",))})
        assert rows == []
        assert "gpu_new" in notes[0]

    @pytest.mark.parametrize(("cents", "rule"), [(0, Rule.ZERO), (-5, Rule.NEGATIVE), (None, Rule.UNREADABLE)])
    def test_what_is_no_price_is_refused(self, cents: object, rule: Rule) -> None:
        rows, _, found = self.rows({"gpu_1x_a10": lambda_type("gpu_1x_a10", cents, "A10 (24 GB PCIe)")})
        assert rows == []
        assert {problem.rule for problem in found.problems} == {rule}

    @pytest.mark.parametrize(
        "entry", [None, [], {}, {"instance_type": 5}, {"regions_with_capacity_available": [1, {}]}]
    )
    def test_a_broken_entry_costs_itself(self, entry: object) -> None:
        rows, _, _ = self.rows({"gpu_1x_a10": lambda_type("gpu_1x_a10", 75, "A10 (24 GB PCIe)"), "bad": entry})
        assert len(rows) == 2

    @pytest.mark.parametrize("answer", [None, [], {}, {"data": []}, {"error": {"code": "x"}}])
    def test_another_answer_is_none(self, answer: object) -> None:
        with pytest.raises(BadAnswer):
            lambdacloud.read(answer, quotes(*self.known), self.known)


def test_of_two_prices_for_the_same_the_lower_one_counts() -> None:
    found = quotes()
    found.add("r", "g4dn.xlarge", "on_demand", 0.6)
    found.add("r", "g4dn.xlarge", "on_demand", 0.5)
    assert found.prices["r", "g4dn.xlarge"] == {"on_demand": usd(0.5)}


def test_problems_are_not_without_end() -> None:
    found = quotes()
    for _ in range(1000):
        found.add("r", "g4dn.xlarge", "on_demand", 0)
    assert len(found.problems) == 100


@pytest.mark.parametrize(
    ("value", "amount"),
    [
        ("0.5", 0.5),
        (3, 3.0),
        (0.25, 0.25),
        ("", None),
        ("x", None),
        (None, None),
        (True, None),
        ("inf", None),
        ([], None),
    ],
)
def test_amounts(value: object, amount: float | None) -> None:
    assert amount_of(value) == amount
