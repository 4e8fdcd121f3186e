"""A model by its name as a job: from what was asked for to code and wishes, checked by the model's own schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from crucible.client.payload.base import Payload, Request
from crucible.client.payload.plugin import from_installed, from_source, look_up
from crucible.client.plugins import Plugin, read_config
from crucible.client.plugins.configs import Schema
from crucible.client.wishes import Wishes
from crucible.core.errors import BadInput
from crucible.core.models import KINDS, Order, gpu_needs
from crucible.core.spec import Kind

METHODS = {kind: method for method, kind in KINDS.items()}


@dataclass(frozen=True)
class ModelAsk:
    """A model as it was asked for. `items` are as `--config` takes them, from `folder`, and stand over `config`."""

    name: str
    folder: Path
    config: Mapping[str, Any] = field(default_factory=dict)
    items: tuple[str, ...] = ()
    plugin: str | None = None
    inputs: Any = None
    callbacks: tuple[str, ...] = ()

    def over(self, base: ModelAsk) -> ModelAsk:
        """These on top of others: what is said here wins; configs and callbacks are joined. The name is the base's."""
        return replace(
            base,
            folder=self.folder,
            items=(*base.items, *self.items),
            plugin=self.plugin if self.plugin is not None else base.plugin,
            inputs=self.inputs if self.inputs is not None else base.inputs,
            callbacks=(*base.callbacks, *self.callbacks),
        )

    def read(self, schema: Schema | None) -> dict[str, Any]:
        return read_config(self.items, self.folder, schema, self.name, self.config)


def take_model(asked: ModelAsk, request: Request, wishes: Wishes) -> tuple[Payload, Wishes]:
    """What to send, and the wishes with what the model itself asks for. Raises BadInput, UnknownName.

    What is done with the model is by the kind of job; a training unless said.
    """
    _refuse_code(asked.name, request)
    order = Order(asked.name, _method(wishes.kind), {}, asked.inputs, asked.callbacks)
    wishes = replace(wishes, name=wishes.name or asked.name, kind=order.kind)
    if asked.plugin is not None:
        return from_source(replace(order, config=asked.read(None)), asked.plugin, request), wishes
    plugin, choice = look_up(order.model, order.method, request)
    config = asked.read(plugin.schema)
    return from_installed(replace(order, config=config), plugin, choice, request), _sized(wishes, plugin)


def _refuse_code(model: str, request: Request) -> None:
    """What is for code, and would be passed over in silence."""
    if request.arguments:
        fix = f"`crucible models show {model}` lists its options: --config KEY=VALUE."
        raise BadInput("A model takes no arguments after --.", fix=fix)
    for name in ("entry", "ref", "include", "in_place"):
        if getattr(request, name):
            raise BadInput(f"--{name.replace('_', '-')} does not go with a model.", fix="Leave it out.")


def _method(kind: Kind | None) -> str:
    method = METHODS.get(kind or Kind.TRAIN)
    if method is None:
        said = ", ".join(known.value for known in METHODS)
        raise BadInput(f"A model cannot be a job of the kind {kind}.", fix=f"The kinds of models are {said}.")
    return method


def _sized(wishes: Wishes, plugin: Plugin) -> Wishes:
    """The GPU memory that the model says it needs, unless a size was given."""
    if wishes.tier or {"gpus", "gpu_memory_bytes"} & set(wishes.resources):
        return wishes
    return replace(wishes, resources={**wishes.resources, **gpu_needs(plugin.min_gpu_memory_gb)})
