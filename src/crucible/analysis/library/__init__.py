"""How calls of libraries are interpreted: one table of paths, filled by one module per subject."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from crucible.analysis.interpreter.machine import Machine
from crucible.analysis.library import arrays, flax, numpy
from crucible.analysis.library.call import Asked
from crucible.analysis.library.data import command_line, config_programs, configs, datasets
from crucible.analysis.library.keras import data as keras_data
from crucible.analysis.library.keras import layers as keras_layers
from crucible.analysis.library.keras import own_layers
from crucible.analysis.library.python import builtins, methods, standard
from crucible.analysis.library.torch import constructors as torch_makers
from crucible.analysis.library.torch import functions as torch_functions
from crucible.analysis.library.torch import layers as torch_layers
from crucible.analysis.library.torch import lightning, wrappers
from crucible.analysis.library.torch import methods as torch_methods
from crucible.analysis.library.torch import models as torch_models
from crucible.analysis.library.torch import products as torch_products
from crucible.analysis.library.torch import rearrange as torch_moves
from crucible.analysis.values.scope import Scope
from crucible.analysis.values.values import UNKNOWN, Instance, Member, Name, Tensor, Thing, Value

Handler = Callable[[Asked], Value]

_HANDLERS: dict[str, Handler] = {
    **builtins.HANDLERS,
    **standard.HANDLERS,
    **configs.HANDLERS,
    **command_line.HANDLERS,
    **config_programs.HANDLERS,
    **torch_layers.HANDLERS,
    **torch_functions.HANDLERS,
    **torch_makers.HANDLERS,
    **torch_products.HANDLERS,
    **torch_moves.HANDLERS,
    **torch_models.HANDLERS,
    **datasets.HANDLERS,
    **arrays.TENSORFLOW,
    **keras_layers.HANDLERS,
    **keras_data.HANDLERS,
    **numpy.HANDLERS,
    **own_layers.HANDLERS,
    **flax.HANDLERS,
    **wrappers.HANDLERS,
    **lightning.HANDLERS,
}
_PREFIXES: tuple[tuple[str, Handler], ...] = (
    ("torchvision.datasets.", datasets.torch_dataset),
    ("torchaudio.datasets.", datasets.torch_dataset),
    ("keras.datasets.", datasets.keras_dataset),
    ("keras.layers.", keras_layers.layer),
    ("torchvision.models.", torch_models.named),
    ("keras.applications.", torch_models.named),
    ("transformers.", torch_models.transformers_call),
    ("trl.", torch_models.trl_call),
    ("diffusers.", torch_models.diffusers_call),
    ("flax.linen.", flax.linen),
    ("flax.nnx.", flax.nnx),
    *((prefix, arrays.call) for prefix in arrays.PREFIXES),
)
_QUIET = frozenset(
    {"builtins.print", "builtins.len", "builtins.str", "builtins.int", "builtins.range", "builtins.super"}
)

_PLAIN = frozenset({str, list, dict, tuple, int, float})

BUILTIN_NAMES = builtins.NAMES
command_made_by = command_line.command_made_by


def called_library(
    machine: Machine, path: str, args: tuple[Value, ...], kwargs: dict[str, Value], scope: Scope
) -> Value:
    """Return the result of calling a function or class of a library, and note the call as a fact."""
    handler = _handler(path)
    if handler is not None:
        result = handler(Asked(machine, path, args, kwargs, scope))
    elif path.endswith("()"):
        result = UNKNOWN
    else:
        result = Thing(path, args, kwargs, machine.line)
    if path not in _QUIET:
        machine.note_call(path, args, kwargs, None, result)
    return result


@lru_cache(maxsize=8192)
def _handler(path: str) -> Handler | None:
    return _HANDLERS.get(path) or next((handler for start, handler in _PREFIXES if path.startswith(start)), None)


def called_member(
    machine: Machine, member: Member, args: tuple[Value, ...], kwargs: dict[str, Value], scope: Scope
) -> Value:
    """Return the result of a method of an object that is not of the program's own classes, and note the call."""
    owner, name = member.owner, member.name
    kind = type(owner)
    path = f"{owner.path if kind is Thing else path_of(owner)}.{name}"
    asked = Asked(machine, path, args, kwargs, scope, owner)
    if kind is Tensor:
        result = torch_methods.method(asked, owner, name)
    elif kind in _PLAIN:
        return methods.method(asked, owner, name)
    else:
        handler = _HANDLERS.get(path) or _inherited(owner, name)
        result = handler(asked) if handler is not None else _default(asked, owner, name)
    machine.note_call(path, args, kwargs, owner, result)
    return result


def _inherited(owner: Value, name: str) -> Handler | None:
    """Return the handler of a method that the object's class inherits from a library class, or None."""
    if not isinstance(owner, Instance):
        return None
    for base in owner.bases:
        handler = _HANDLERS.get(f"{base}.{name}")
        if handler is not None:
            return handler
    return None


def _default(asked: Asked, owner: Value, name: str) -> Value:
    """Return the result of a method that no handler knows."""
    handler = torch_layers.MODULE_METHODS.get(name) if torch_layers.is_module(owner) else None
    if handler is not None:
        return handler(asked)
    if name in ("to", "cuda", "cpu", "train", "eval", "half", "float", "double", "bfloat16", "requires_grad_", "apply"):
        return owner
    if isinstance(owner, Member) and name in ("parameters", "named_parameters"):
        return Thing(asked.path, where=asked.machine.line, attrs={"of": _root(owner), "whole": False})
    if isinstance(owner, Thing) and owner.path != "list":
        return Thing(asked.path, asked.args, asked.kwargs, asked.machine.line, {"of": owner})
    if name == "backward":
        torch_methods.backward(asked.machine)
    return UNKNOWN


def _root(member: Member) -> Value:
    """Return the object at the root of attributes: the model, for `model.features` and `model.layer4.conv1`."""
    owner: Value = member
    while isinstance(owner, Member):
        owner = owner.owner
    return owner


def called_thing(machine: Machine, thing: Thing, args: tuple[Value, ...], kwargs: dict[str, Value]) -> Value:
    """Return the result of calling an object of a library: a layer, a decorator with options, or a wrapped function."""
    if torch_layers.is_module(thing):
        return torch_layers.forward(machine, thing, args, kwargs)
    if thing.path.startswith("keras."):
        return keras_layers.called(machine, thing, args, kwargs)
    if thing.path.startswith(("flax.linen.", "flax.nnx.")):
        return flax.called(machine, thing, args, kwargs)
    if thing.path == "command":
        return command_line.run_command(machine, thing)
    if thing.path == "typer.Typer" and thing.attrs.get("commands"):
        return command_line.run_command(machine, thing.attrs["commands"][0])
    machine.note_call(f"{thing.path}()", args, kwargs, thing, UNKNOWN)
    wrapped = thing.argument(0, "fun")
    if thing.path in ("functools.partial", "torch.compile", "jax.jit", "jax.pmap", "jax.vmap", "jax.grad"):
        more = thing.args[1:] if thing.path == "functools.partial" else ()
        own = thing.kwargs if thing.path == "functools.partial" else {}
        return machine.call(wrapped, (*more, *args), {**own, **kwargs}, machine.nowhere())
    return UNKNOWN


def path_of(owner: Value) -> str:
    """Return the path of a value as methods of it are noted, or an empty string."""
    kind = type(owner)
    if kind is Thing or kind is Name:
        return str(owner.path)
    if kind is Instance:
        bases = owner.bases
        return str(bases[0]) if bases else ""
    if kind is Tensor:
        return "tensor"
    if kind is Member:
        inner = path_of(owner.owner)
        return f"{inner}.{owner.name}"
    return ""
