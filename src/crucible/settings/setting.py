"""One setting: its value with its origin, and the rule to parse it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, dataclass, field
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")


@dataclass(frozen=True)
class Setting(Generic[T]):
    """A value and where it comes from."""

    value: T
    origin: str = "default"


@dataclass(frozen=True)
class SettingRule(Generic[T]):
    """How to parse a setting, and its default. `read` raises ValueError for a bad value.

    `server`: only a server reads it. `hidden`: an error about a bad value does not repeat it.
    """

    read: Callable[[object], T]
    default: Callable[[], T]
    server: bool = False
    hidden: bool = False

    @staticmethod
    def from_field(declared: Field[Any]) -> SettingRule[Any]:
        """Return the rule that declared the field."""
        rule: SettingRule[Any] = declared.metadata["rule"]
        return rule

    def declare(self) -> Setting[T]:
        """Declare a field of `Settings`. It has no default value: `load_settings` fills every field."""
        # the cast lets the type checker compare the parser with the field's type
        return cast("Setting[T]", field(metadata={"rule": self}))


def setting(read: Callable[[object], T], default: T, *, hidden: bool = False) -> Setting[T]:
    """Declare a setting of commands, of the client and of servers."""
    return SettingRule(read, lambda: default, hidden=hidden).declare()


def server_setting(read: Callable[[object], T], default: T, *, hidden: bool = False) -> Setting[T]:
    """Declare a setting that only a server reads."""
    return SettingRule(read, lambda: default, server=True, hidden=hidden).declare()
