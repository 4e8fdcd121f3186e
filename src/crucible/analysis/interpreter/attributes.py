"""Attributes: the value of `value.name` for every kind of value."""

from __future__ import annotations

from pathlib import PurePosixPath

from crucible.analysis.interpreter.imports import local_module
from crucible.analysis.interpreter.machine import Machine
from crucible.analysis.library.data.command_line import absl_flags
from crucible.analysis.library.data.configs import HANDLERS
from crucible.analysis.library.torch.models import head_features
from crucible.analysis.values.library_names import member_of
from crucible.analysis.values.tensors import tensor_attribute
from crucible.analysis.values.values import (
    MISSING,
    UNKNOWN,
    Bound,
    Class,
    Either,
    Function,
    Instance,
    Member,
    Module,
    Name,
    Tensor,
    Thing,
    Value,
    either,
)

SPECIAL = frozenset({"sys", "absl.flags.FLAGS"})
"""Names whose attributes are values, not just longer names."""

_STATIC, _OF_CLASS = Name("builtins.staticmethod"), Name("builtins.classmethod")


def attribute(machine: Machine, value: Value, name: str) -> Value:
    """Return the value of an attribute."""
    kind = type(value)
    if kind is Name:
        return _of_name(machine, value, name)
    if kind is Instance:
        return value.attrs[name] if name in value.attrs else _of_instance(machine, value, name)
    if kind is Thing:
        return value.attrs[name] if name in value.attrs else _of_thing(value, name)
    if kind is Tensor:
        return tensor_attribute(value, name)
    if kind is Module:
        return _of_module(machine, value, name)
    if kind is Class:
        return _of_class(value, name)
    if kind is Either:
        return _of_options(machine, value, name)
    if kind is Member and name == "in_features":
        found = head_features(value)
        return Member(value, name) if found is None else found
    if kind is tuple and len(value) == 2 and name in ("values", "indices") and isinstance(value[0], Tensor):
        return value[name == "indices"]  # results of max, topk and sort have these names
    if name == "value" and kind in (str, int, float):
        return value  # a member of an Enum
    return Member(value, name)


def _of_options(machine: Machine, value: Either, name: str) -> Value:
    return either([attribute(machine, each, name) for each in value.options], value.gpu)


def _of_name(machine: Machine, value: Name, name: str) -> Value:
    path = value.path
    if path in SPECIAL:
        if path == "absl.flags.FLAGS":
            return absl_flags(machine).attrs.get(name, UNKNOWN)
        if name == "argv":
            return [machine.sources.entry, *machine.sources.arguments]
    return member_of(path, name)


def _of_thing(value: Thing, name: str) -> Value:
    if value.path == "namespace":
        return Member(value, name) if f"namespace.{name}" in HANDLERS else UNKNOWN
    if value.path == "pathlib.Path" and name in ("parent", "name", "stem", "suffix"):
        return _of_path(value, name)
    if value.path == "torch.device" and name == "type":
        chosen = value.argument(0, "type")
        return chosen.partition(":")[0] if isinstance(chosen, str) else chosen
    return Member(value, name)


def _of_path(value: Thing, name: str) -> Value:
    if not all(isinstance(each, str) for each in value.args):
        return UNKNOWN
    found = getattr(PurePosixPath(*value.args), name)
    return Thing("pathlib.Path", (str(found),)) if name == "parent" else found


def _of_instance(machine: Machine, value: Instance, name: str) -> Value:
    """Return an attribute that the object has from its class: a bound method, a property's value, or a constant."""
    if name == "__class__":
        return value.cls
    found = value.cls.lookup(name)
    if isinstance(found, Function):
        if not found.decorators:
            return Bound(value, found)
        if any(isinstance(each, Name) and each.path.endswith("property") for each in found.decorators):
            return machine.call(Bound(value, found), (), {}, found.scope)
        if _STATIC in found.decorators:
            return found
        return Bound(value.cls if _OF_CLASS in found.decorators else value, found)
    if found is not MISSING:
        return found
    return Member(value, name)


def _of_module(machine: Machine, value: Module, name: str) -> Value:
    found = value.scope.lookup(name)
    if found is not MISSING:
        return found
    inner = local_module(machine, f"{value.name}.{name}")
    return inner if inner is not None else UNKNOWN


def _of_class(value: Class, name: str) -> Value:
    if name == "__name__":
        return value.name
    found = value.lookup(name)
    if isinstance(found, Function) and _OF_CLASS in found.decorators:
        return Bound(value, found)
    if found is not MISSING:
        return found
    return Member(value, name)
