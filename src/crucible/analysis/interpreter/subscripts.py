"""Subscripts: the value of `value[key]` for lists, dicts, tensors and objects that act like them."""

from __future__ import annotations

import ast

from crucible.analysis.interpreter.machine import Machine
from crucible.analysis.library.torch.models import head_features
from crucible.analysis.values.scope import Scope
from crucible.analysis.values.tensors import indexed
from crucible.analysis.values.values import GPUS, UNKNOWN, Either, Name, Tensor, Thing, Unknown, Value, either


def subscript(machine: Machine, node: ast.Subscript, scope: Scope) -> Value:
    """Return the value of a subscript."""
    value = machine.evaluate(node.value, scope)
    if isinstance(value, Name):
        if value.path == "os.environ":
            return UNKNOWN
        return value  # a type with parameters: Optional[int], nn.Module[...]
    key = machine.evaluate(node.slice, scope)
    if value is GPUS and isinstance(key, int) and machine.situation().certain and not machine.loops:
        machine.facts.refusals.append((scope.file, node.lineno))
    length = _window(machine, node.slice, scope)
    if length is not None and not isinstance(value, list | tuple | str | dict):
        rest = value.shape[1:] if isinstance(value, Tensor) and value.shape else ()
        return Tensor((length, *rest), getattr(value, "kind", "float32"))
    return item(machine, value, key)


def _window(machine: Machine, node: ast.expr, scope: Scope) -> int | None:
    """Return the length of `[i : i + n]` for an unknown i, or None."""
    if not isinstance(node, ast.Slice) or node.lower is None or not isinstance(node.upper, ast.BinOp):
        return None
    start, size = node.lower, 0
    if not isinstance(start, ast.Name | ast.Attribute):
        return None
    terms: list[ast.expr] = [node.upper]
    found = False
    while terms:
        each = terms.pop()
        if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Add):
            terms += [each.left, each.right]
        elif not found and ast.dump(each) == ast.dump(start):
            found = True
        else:
            value = machine.evaluate(each, scope)
            if not isinstance(value, int):
                return None
            size += value
    return size if found and not isinstance(machine.evaluate(start, scope), int) else None


def item(machine: Machine, value: Value, key: Value) -> Value:
    """Return the item of a value for a known or unknown key."""
    if isinstance(value, Tensor):
        return indexed(machine, value, key)
    if isinstance(value, Either):
        return either([item(machine, each, key) for each in value.options], value.gpu)
    if isinstance(value, dict):
        return _entry(value, key)
    if isinstance(value, list | tuple | str):
        return _element(value, key)
    if isinstance(value, Thing):
        return _of_thing(value, key)
    return UNKNOWN if head_features(value) is None else value  # a layer of the classifier counts as the classifier


def _entry(value: dict[Value, Value], key: Value) -> Value:
    if isinstance(key, str | int | float | bool | Name):
        return value.get(key, UNKNOWN)
    if isinstance(key, Either) and all(isinstance(each, str | int) for each in key.options):
        return either([value.get(each, UNKNOWN) for each in key.options], key.gpu)
    if isinstance(key, Either | Unknown) and 0 < len(value) <= 4:
        return either(list(value.values()))
    return UNKNOWN


def _element(value: list[Value] | tuple[Value, ...] | str, key: Value) -> Value:
    if isinstance(key, int) and -len(value) <= key < len(value):
        return value[key]
    if (
        isinstance(key, Thing)
        and key.path == "slice"
        and all(each is None or isinstance(each, int) for each in key.args)
    ):
        low, high, step = key.args
        return value[low:high:step] if step != 0 else UNKNOWN
    if isinstance(key, Unknown | Either) and isinstance(value, list | tuple) and 0 < len(value) <= 4:
        return either(list(value))
    return UNKNOWN


def _of_thing(value: Thing, key: Value) -> Value:
    if value.path == "list":
        return value.attrs.get("like", UNKNOWN)
    if value.children and not isinstance(key, Thing):
        return _element(value.children, key) if isinstance(key, int) else UNKNOWN
    if value.children:
        part = _element(value.children, key)
        return Thing(value.path, where=value.where, children=part) if isinstance(part, list) else UNKNOWN
    if isinstance(key, str) and key in value.attrs:
        return value.attrs[key]
    return UNKNOWN
