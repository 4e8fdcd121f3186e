"""`@dataclass(frozen=True)`, made quickly: the same order, defaults, comparison, hash, words and refusals.

The standard library compiles six functions for every class of the kind each time a program starts. An agent has more
than a hundred such classes, and that was a third of a host's start. Here one is compiled, the one whose parameters are
the class's own; the others are closures. Type checkers are told that it is the standard library's; its `replace`,
`asdict` and `fields` know these classes too, and each kind may go on from the other. Of what a field can be told,
`default`, `default_factory`, `repr` and `compare` are known here, and anything else is refused.
"""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING, Field, FrozenInstanceError
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Callable, NoReturn, TypeVar

T = TypeVar("T")

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(*, frozen: bool) -> Callable[[type[T]], type[T]]:
        """Only of frozen values: what changes is a class of its own."""
        if not frozen:
            raise TypeError("use dataclasses.dataclass for what is not frozen")
        return _made


def _made(cls: type[T]) -> type[T]:
    # Else the standard library writes the signature there, which takes as long as all the rest.
    cls.__doc__ = cls.__doc__ or cls.__name__
    goes_on = any(map(dataclasses.is_dataclass, cls.__mro__[1:]))
    made = dataclasses.dataclass(init=False, repr=False, eq=False, frozen=goes_on)(cls)
    made.__dataclass_params__.frozen = True  # type: ignore[attr-defined]
    given = dataclasses.fields(made)  # type: ignore[arg-type]
    _refuse_unknown(made, given)
    compared = _values_of([field.name for field in given if field.compare])
    for name, function in (
        ("__init__", _initialiser(made, given)),
        ("__repr__", _words([field.name for field in given if field.repr])),
        ("__eq__", _comparison(compared)),
        ("__hash__", _hash(compared)),
        ("__setattr__", _refuse_to_assign),
        ("__delattr__", _refuse_to_delete),
    ):
        if made.__dict__.get(name) is None:
            setattr(made, name, function)
    return made


def _refuse_unknown(cls: type, given: tuple[Field[Any], ...]) -> None:
    for field in given:
        if not field.init or field.hash is not None or getattr(field, "kw_only", False):
            raise TypeError(f"{cls.__name__}.{field.name}: use dataclasses.dataclass for init, hash and kw_only")
    if len(given) != len(cls.__dataclass_fields__):  # type: ignore[attr-defined]
        raise TypeError(f"{cls.__name__}: use dataclasses.dataclass for ClassVar and InitVar")


def _initialiser(cls: type, given: tuple[Field[Any], ...]) -> Callable[..., None]:
    known: dict[str, Any] = {"_MISSING": MISSING}
    parameters, lines = ["self"], ["__values__ = self.__dict__"]
    for field in given:
        name, default = field.name, f"_default_{field.name}"
        parameter, value = name, name
        if field.default is not MISSING:
            parameter, known[default] = f"{name}={default}", field.default
        elif field.default_factory is not MISSING:
            parameter, known[default] = f"{name}=_MISSING", field.default_factory
            value = f"{default}() if {name} is _MISSING else {name}"
        parameters.append(parameter)
        lines.append(f"__values__[{name!r}] = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    made: dict[str, Callable[..., None]] = {}
    # The names are those of a class's attributes, and nothing else is in the text.
    exec("def __init__(" + ", ".join(parameters) + "):\n " + "\n ".join(lines), known, made)  # noqa: S102
    made["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
    return made["__init__"]


def _values_of(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Always as a tuple, whose comparison takes what is the same object for equal."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple([getattr(self, name) for name in names])


def _words(names: list[str]) -> Callable[[Any], str]:
    def __repr__(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return __repr__


def _comparison(compared: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, object], Any]:
    def __eq__(self: Any, other: object) -> Any:
        return compared(self) == compared(other) if type(other) is type(self) else NotImplemented

    return __eq__


def _hash(compared: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], int]:
    def __hash__(self: Any) -> int:
        return hash((type(self), compared(self)))

    return __hash__


def _refuse_to_assign(self: object, name: str, value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")
