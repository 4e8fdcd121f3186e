from __future__ import annotations

import math
from typing import Any

import pytest

from crucible.wire.models.options import BadConfig, BadSchema, Option, check_config, check_schema, read_schema

SCHEMA = {
    "epochs": Option(int, default=10, minimum=1, maximum=1000, help="Passes over the data."),
    "rate": Option(float, default=0.1, minimum=0),
    "optimizer": Option(str, default="adam", choices=("sgd", "adam")),
    "layers": Option(list, default=[8, 8], minimum=1, maximum=3),
    "goal": Option(str, default=None, maximum=5),
    "shuffle": Option(bool, default=True),
    "extra": Option(dict, default={}),
    "name": Option(str),
}


def problems(**config: Any) -> list[str]:
    with pytest.raises(BadConfig) as error:
        check_config(SCHEMA, {"name": "x", **config})
    assert isinstance(error.value, ValueError)
    return list(error.value.problems)


def test_what_is_not_said_is_the_default() -> None:
    found = check_config(SCHEMA, {"name": "x", "epochs": 3, "rate": 1})
    assert found["epochs"] == 3
    assert (found["rate"], type(found["rate"])) == (1.0, float)
    assert (found["optimizer"], found["layers"], found["goal"]) == ("adam", [8, 8], None)


def test_a_default_is_not_shared_between_configs() -> None:
    check_config(SCHEMA, {"name": "x"})["layers"].append(1)
    assert check_config(SCHEMA, {"name": "x"})["layers"] == [8, 8]


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"epoch": 3}, "there is no option 'epoch'; did you mean 'epochs'?"),
        ({"zzz": 3}, "there is no option 'zzz'; there are epochs, rate, optimizer, layers"),
        ({"epochs": "many"}, "epochs must be a whole number, not 'many'"),
        ({"epochs": 1.5}, "epochs must be a whole number, not 1.5"),
        ({"epochs": True}, "epochs must be a whole number, not True"),
        ({"epochs": None}, "epochs must be a whole number, not None"),
        ({"epochs": 0}, "epochs must be at least 1, not 0"),
        ({"epochs": 1001}, "epochs must be at most 1000, not 1001"),
        ({"rate": math.nan}, "rate must be a number, not nan"),
        ({"rate": math.inf}, "rate must be a number, not inf"),
        ({"rate": False}, "rate must be a number, not False"),
        ({"rate": -0.5}, "rate must be at least 0, not -0.5"),
        ({"optimizer": "sdg"}, "optimizer must be one of sgd, adam, not 'sdg'; did you mean 'sgd'?"),
        ({"optimizer": 1}, "optimizer must be a text, not 1"),
        ({"layers": []}, "layers must be at least 1 items long, not 0"),
        ({"layers": [1, 2, 3, 4]}, "layers must be at most 3 items long, not 4"),
        ({"goal": "too long"}, "goal must be at most 5 characters long, not 8"),
        ({"shuffle": 1}, "shuffle must be true or false, not 1"),
        ({"extra": []}, "extra must be a table, not []"),
    ],
)
def test_what_is_wrong_is_said_exactly(config: dict[str, Any], says: str) -> None:
    (problem,) = problems(**config)
    assert problem.startswith(says)


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(BadConfig) as error:
        check_config(SCHEMA, {"epochs": 0, "rat": 1})
    assert list(error.value.problems) == [
        "there is no option 'rat'; did you mean 'rate'?",
        "epochs must be at least 1, not 0",
        "name is required: a text",
    ]


@pytest.mark.parametrize("config", [None, [], "epochs", {1: 2}])
def test_a_config_is_a_table(config: object) -> None:
    with pytest.raises(BadConfig, match="a table of names and values"):
        check_config(SCHEMA, config)


def test_without_a_schema_all_goes_and_with_an_empty_one_nothing() -> None:
    assert check_config(None, {"anything": object})["anything"] is object
    with pytest.raises(BadConfig, match="there is no option 'epochs'; this model has none"):
        check_config({}, {"epochs": 1})


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Option(set), "an option is one of int, float"),
        (lambda: Option("int"), "an option is one of int, float"),  # type: ignore[arg-type]
        (lambda: Option(int, default=0, minimum=1), "the default must be at least 1, not 0"),
        (lambda: Option(int, default="3"), "the default must be a whole number"),
        (lambda: Option(int, minimum=3, maximum=2), "the minimum 3 is above the maximum 2"),
        (lambda: Option(int, minimum="1"), "a limit is a number"),  # type: ignore[arg-type]
        (lambda: Option(bool, minimum=1), "true or false has no limits"),
        (lambda: Option(str, choices=("a", 2)), "the choice must be a text, not 2"),
        (lambda: Option(str, default="b", choices=("a",)), "the default must be one of a"),
        (lambda: Option(int, help=3), "help is a text"),  # type: ignore[arg-type]
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(make: Any, says: str) -> None:
    with pytest.raises(BadSchema, match=says):
        make()


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ([], "a dict of names and Options, not list"),
        ({"epochs": 3}, "the option 'epochs' is int, not an Option"),
        ({"not a name": Option(int)}, "is not an identifier"),
        ({3: Option(int)}, "is not an identifier"),
        ({f"o{n}": Option(int) for n in range(501)}, "501 options; at most 500"),
    ],
)
def test_a_schema_is_names_and_options(schema: object, says: str) -> None:
    with pytest.raises(BadSchema, match=says):
        check_schema(schema)


def test_a_schema_travels() -> None:
    told = {name: option.as_json() for name, option in SCHEMA.items()}
    assert told["epochs"] == {
        "type": "int",
        "required": False,
        "default": 10,
        "minimum": 1,
        "maximum": 1000,
        "help": "Passes over the data.",
    }
    assert told["name"] == {"type": "str", "required": True}
    assert read_schema(told) == SCHEMA


def test_a_number_that_has_no_room_is_no_number() -> None:
    with pytest.raises(BadConfig, match="rate must be a number"):
        check_config({"rate": Option(float)}, {"rate": 10**400})
    with pytest.raises(BadSchema):
        read_schema({"rate": {"type": "float", "required": False, "default": 10**400}})


@pytest.mark.parametrize("told", [{"a": {}}, {"a": {"type": "set", "required": True}}, {"a": 3}, []])
def test_what_is_no_schema_is_refused(told: Any) -> None:
    with pytest.raises(BadSchema):
        read_schema(told)
