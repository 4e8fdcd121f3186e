"""Builds the payload and the fields of a model's job, checked against the model's schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from crucible.client.model_plugins import Plugin, read_config
from crucible.client.model_plugins.configs import Schema
from crucible.client.payload.base import CodeSource, Payload
from crucible.client.payload.plugin import find_model, from_installed, from_source
from crucible.client.request.job_request import PartialSpec, merge
from crucible.core.errors import BadInput
from crucible.core.job.models import KINDS, ModelOrder, gpu_needs
from crucible.core.job.spec import Kind

METHODS = {kind: method for method, kind in KINDS.items()}


def build_model_payload(code_source: CodeSource, fields: PartialSpec) -> tuple[Payload, PartialSpec]:
    """Return what to send, and the fields with the model's own needs. Raises BadInput, UnknownName.

    The kind of job selects the model's method (default: training).
    """
    try:
        return _build(code_source, fields)
    except BadInput as error:
        if not code_source.label:
            raise
        raise BadInput(f"{code_source.label}: {error.what}", why=error.why, fix=error.fix, **error.data) from error


def _build(code_source: CodeSource, fields: PartialSpec) -> tuple[Payload, PartialSpec]:
    model, name = code_source.model, str(code_source.target)
    assert model is not None, "the source names a model"
    _refuse_code_options(name, code_source)

    def config(schema: Schema | None) -> dict[str, Any]:
        return read_config(model.items, model.folder, schema, name, model.config)

    order = ModelOrder(name, _method(fields.get("kind")), {}, model.inputs, model.callbacks)
    fields = merge({"name": name, "kind": order.kind}, fields)
    if model.plugin is not None:
        return from_source(replace(order, config=config(None)), model.plugin, code_source), fields
    plugin, choice = find_model(order.model, order.method, code_source)
    order = replace(order, config=config(plugin.schema))
    return from_installed(order, plugin, choice, code_source), _with_gpu_memory(fields, plugin)


def _refuse_code_options(model: str, code_source: CodeSource) -> None:
    """Raise BadInput for options that apply only to code: a model would silently ignore them."""
    if code_source.arguments:
        fix = f"`crucible models show {model}` lists its options: --config KEY=VALUE."
        raise BadInput("A model takes no arguments after --.", fix=fix)
    for name in ("entry", "ref", "include", "in_place"):
        if getattr(code_source, name):
            raise BadInput(f"--{name.replace('_', '-')} does not go with a model.", fix="Leave it out.")


def _method(kind: object) -> str:
    method = METHODS.get(Kind.TRAIN if kind is None else Kind(str(kind)))
    if method is None:
        kinds = ", ".join(known.value for known in METHODS)
        raise BadInput(f"A model cannot be a job of the kind {kind}.", fix=f"Choose one of {kinds}.")
    return method


def _with_gpu_memory(fields: PartialSpec, plugin: Plugin) -> PartialSpec:
    """Add the GPU memory that the model needs, if the user named no size."""
    resources = fields.get("resources", {})
    assert isinstance(resources, Mapping)
    if fields.get("tier") or {"gpus", "gpu_memory_bytes"} & set(resources):
        return fields
    return merge({"resources": gpu_needs(plugin.min_gpu_memory_gb)}, fields)
