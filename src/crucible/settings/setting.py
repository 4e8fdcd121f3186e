"""One setting: its value with who said it, and the rule by which it is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, dataclass, field
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")


@dataclass(frozen=True)
class Setting(Generic[T]):
    """A value and, in words, who said it."""

    value: T
    origin: str = "default"


@dataclass(frozen=True)
class Rule(Generic[T]):
    """`read` makes a value of what was written, or raises ValueError; `default` is the one that nobody has to say.

    `server`: only a server reads it. `hidden`: it is not repeated when it is wrong.
    """

    read: Callable[[object], T]
    default: Callable[[], T]
    server: bool = False
    hidden: bool = False

    @staticmethod
    def of(declared: Field[Any]) -> Rule[Any]:
        """The rule of a field that was declared by it."""
        rule: Rule[Any] = declared.metadata["rule"]
        return rule

    def declare(self) -> Setting[T]:
        """A field of `Settings`. It has no default value: every setting says where it comes from."""
        # To a type checker the field is what it will hold, so the rule has to fit its type.
        return cast("Setting[T]", field(metadata={"rule": self}))


def known(read: Callable[[object], T], default: T, *, hidden: bool = False) -> Setting[T]:
    """Declare a setting of commands, of the client and of servers."""
    return Rule(read, lambda: default, hidden=hidden).declare()


def of_server(read: Callable[[object], T], default: T, *, hidden: bool = False) -> Setting[T]:
    """Declare a setting that only a server reads."""
    return Rule(read, lambda: default, server=True, hidden=hidden).declare()
