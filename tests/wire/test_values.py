"""Values that are made quickly are those of the standard library."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

import crucible
from crucible.wire import values

ROOMS = ("wire", "agent", "inside")
STANDARD = re.compile(r"^from dataclasses import .*\bdataclass\b|\bdataclasses\.dataclass\(", re.MULTILINE)
MAKERS = {"ours": values.dataclass(frozen=True), "the standard library's": dataclasses.dataclass(frozen=True)}


@pytest.fixture(params=MAKERS.values(), ids=MAKERS.keys())
def make(request: pytest.FixtureRequest) -> Callable[[type], Any]:
    """What holds of one holds of the other."""
    maker: Callable[[type], Any] = request.param
    return maker


def point(make: Callable[[type], Any]) -> Any:
    class Point:
        """Where."""

        x: int
        y: int = 2
        names: list[str] = dataclasses.field(default_factory=list)
        secret: str = dataclasses.field(default="s", repr=False)
        seen: int = dataclasses.field(default=0, compare=False)

        def __post_init__(self) -> None:
            if self.x < 0:
                raise ValueError("below")
            object.__setattr__(self, "y", int(self.y))

        @property
        def sum(self) -> int:
            return self.x + self.y

    return make(Point)


def test_it_takes_its_fields_in_order_by_name_and_by_default(make: Callable[[type], Any]) -> None:
    kind = point(make)
    assert dataclasses.astuple(kind(1)) == (1, 2, [], "s", 0)
    assert dataclasses.astuple(kind(1, "3", names=["a"], seen=4)) == (1, 3, ["a"], "s", 4)
    assert kind(1, 5).sum == 6


def test_what_is_made_for_each_is_each_ones_own(make: Callable[[type], Any]) -> None:
    kind = point(make)
    assert kind(1).names is not kind(1).names


@pytest.mark.parametrize("given", [(), (1, 2, [], "s", 0, 6)], ids=["too few", "too many"])
def test_too_few_and_too_many_are_refused(make: Callable[[type], Any], given: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError, match=r"Point\.__init__\(\)"):
        point(make)(*given)


def test_a_name_that_it_does_not_have_is_refused(make: Callable[[type], Any]) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        point(make)(1, z=3)


def test_what_it_checks_at_the_end_is_checked(make: Callable[[type], Any]) -> None:
    with pytest.raises(ValueError, match="below"):
        point(make)(-1)


def test_nothing_of_it_can_be_changed(make: Callable[[type], Any]) -> None:
    made = point(make)(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
        made.x = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'other'"):
        made.other = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
        del made.x
    assert made.x == 1


def test_two_are_equal_by_what_is_compared_and_only_among_their_kind(make: Callable[[type], Any]) -> None:
    kind = point(make)

    class Nearer(kind):  # type: ignore[misc]
        pass

    assert kind(1, seen=1) == kind(1, seen=2)
    assert kind(1) != kind(2)
    assert kind(1) != Nearer(1)
    assert kind(1) != (1, 2, [], "s")


def test_equal_ones_are_one_key(make: Callable[[type], Any]) -> None:
    class Pair:
        a: int
        b: tuple[int, ...] = ()
        seen: int = dataclasses.field(default=0, compare=False)

    class Nothing:
        pass

    kind, nothing = make(Pair), make(Nothing)
    assert {kind(1), kind(1, seen=3), kind(2)} == {kind(1), kind(2)}
    assert {nothing(), nothing()} == {nothing()}
    with pytest.raises(TypeError, match="unhashable"):
        hash(point(make)(1))


def test_its_words_show_what_may_be_shown(make: Callable[[type], Any]) -> None:
    shown = repr(point(make)(1, names=["a"]))
    assert shown.endswith("Point(x=1, y=2, names=['a'], seen=0)")
    assert shown.startswith("point.<locals>.")


def test_it_can_be_replaced_in_part_and_taken_apart(make: Callable[[type], Any]) -> None:
    kind = point(make)
    made = dataclasses.replace(kind(1), y=7)
    assert made == kind(1, 7)
    assert dataclasses.asdict(made) == {"x": 1, "y": 7, "names": [], "secret": "s", "seen": 0}
    assert [field.name for field in dataclasses.fields(kind)] == ["x", "y", "names", "secret", "seen"]
    assert dataclasses.is_dataclass(kind)


def test_one_that_goes_on_from_another_has_both_their_fields(make: Callable[[type], Any]) -> None:
    @make
    class Farther(point(make)):  # type: ignore[misc]
        z: int = 9

    assert dataclasses.astuple(Farther(1)) == (1, 2, [], "s", 0, 9)
    assert Farther(1).sum == 3
    assert repr(Farther(1)).endswith("Farther(x=1, y=2, names=[], seen=0, z=9)")


@pytest.mark.parametrize("first", MAKERS.values(), ids=MAKERS.keys())
def test_each_kind_goes_on_from_the_other(first: Callable[[type], Any], make: Callable[[type], Any]) -> None:
    class Base:
        a: int

    class Further(first(Base)):  # type: ignore[misc]
        b: int = 2

    made = make(Further)(1)
    assert dataclasses.astuple(made) == (1, 2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.a = 3


def test_nothing_that_can_be_changed_goes_on_from_it(make: Callable[[type], Any]) -> None:
    with pytest.raises(TypeError, match="cannot inherit non-frozen dataclass from a frozen one"):

        @dataclasses.dataclass
        class Mutable(point(make)):  # type: ignore[misc]
            z: int = 0


@pytest.mark.parametrize("told", [{"init": False}, {"hash": False}, {"kw_only": True}], ids=str)
def test_what_a_field_cannot_be_told_here_is_refused(told: dict[str, bool]) -> None:
    class Odd:
        a: int = dataclasses.field(default=1, **told)  # type: ignore[call-overload]

    with pytest.raises(TypeError, match=r"Odd\.a: use dataclasses\.dataclass"):
        MAKERS["ours"](Odd)


@pytest.mark.parametrize("kind", [ClassVar[int], dataclasses.InitVar[int]], ids=["ClassVar", "InitVar"])
def test_what_is_no_field_is_refused_here(kind: Any) -> None:
    odd = type("Odd", (), {"__annotations__": {"a": kind}, "a": 1})
    with pytest.raises(TypeError, match="Odd: use dataclasses"):
        MAKERS["ours"](odd)


def test_what_a_class_says_of_itself_stands(make: Callable[[type], Any]) -> None:
    class Quiet:
        a: int

        def __repr__(self) -> str:
            return "***"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, type(self))

    kind = make(Quiet)
    assert repr(kind(1)) == "***"
    assert kind(1) == kind(2)


def test_it_matches_by_position(make: Callable[[type], Any]) -> None:
    assert point(make).__match_args__ == ("x", "y", "names", "secret", "seen")


def test_a_single_value_is_compared_as_several_are(make: Callable[[type], Any]) -> None:
    class Single:
        a: Any

    kind, nan = make(Single), float("nan")
    assert kind(nan) == kind(nan), "the same object"
    assert kind(1) == kind(1.0)
    assert kind(1) != kind(2)
    assert {kind(1), kind(1.0)} == {kind(1)}


def test_the_names_of_its_parameters_are_those_of_its_fields(make: Callable[[type], Any]) -> None:
    kind = point(make)
    assert list(inspect.signature(kind).parameters) == ["x", "y", "names", "secret", "seen"]
    assert kind.__doc__ == "Where."


def test_what_is_not_frozen_is_not_made_here() -> None:
    with pytest.raises(TypeError, match=r"dataclasses\.dataclass"):
        values.dataclass(frozen=False)


def test_every_value_of_an_agent_is_made_quickly() -> None:
    """The rooms of its file take the frozen ones from here."""
    root = Path(crucible.__file__).parent
    files = [path for room in ROOMS for path in (root / room).rglob("*.py") if path != Path(values.__file__)]
    texts = {path.relative_to(root): path.read_text("utf-8") for path in files}
    frozen = {path: text for path, text in texts.items() if re.search(r"dataclass\([^)]*frozen=True", text)}
    assert len(frozen) > 50
    assert [path for path, text in frozen.items() if STANDARD.search(text)] == []
