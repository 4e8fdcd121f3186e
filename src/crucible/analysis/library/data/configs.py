"""Configs: YAML, JSON and TOML files of the program, and dataclasses as dicts and back."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable

from crucible.analysis.library.call import Asked
from crucible.analysis.library.python.literals import MAX_CONFIG, read_yaml
from crucible.analysis.library.python.standard import copied, file_text
from crucible.analysis.values.values import UNKNOWN, Class, Instance, Thing, Value


def _yaml(asked: Asked) -> Value:
    text = asked.get(0, "stream")
    return read_yaml(text) if isinstance(text, str) else UNKNOWN


def _json(asked: Asked) -> Value:
    text = asked.get(0, "fp")
    if not isinstance(text, str) or len(text) > MAX_CONFIG:
        return UNKNOWN
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return UNKNOWN


def _toml(asked: Asked) -> Value:
    text = asked.get(0, "fp")
    if not isinstance(text, str) or len(text) > MAX_CONFIG:
        return UNKNOWN
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        return UNKNOWN


def namespace(value: Value, depth: int = 0) -> Value:
    """Return a dict as a namespace whose entries are also attributes."""
    if isinstance(value, dict) and depth < 20:
        return Thing("namespace", attrs={str(key): namespace(each, depth + 1) for key, each in value.items()})
    return value


def _omega_load(asked: Asked) -> Value:
    text = file_text(asked, asked.get(0, "file_"))
    return namespace(read_yaml(text)) if text is not None else UNKNOWN


def _omega_create(asked: Asked) -> Value:
    return namespace(asked.get(0, "obj", {}))


def _omega_merge(asked: Asked) -> Value:
    merged = Thing("namespace")
    for each in asked.args:
        if isinstance(each, Thing | Instance):
            merged.attrs.update(each.attrs)
    return merged


def _namespace(asked: Asked) -> Value:
    return Thing("namespace", attrs=dict(asked.kwargs))


def _as_dict(asked: Asked) -> Value:
    value = asked.get(0, "obj")
    return copied(dict(value.attrs)) if isinstance(value, Instance | Thing) else UNKNOWN


def _replace(asked: Asked) -> Value:
    value = asked.get(0, "obj")
    if not isinstance(value, Instance):
        return UNKNOWN
    made = Instance(value.cls, value.where, {**value.attrs, **asked.kwargs})
    asked.machine.facts.made.append(made)
    return made


def _fields(asked: Asked) -> Value:
    value = asked.get(0, "class_or_instance")
    cls = value.cls if isinstance(value, Instance) else value
    if not isinstance(cls, Class):
        return UNKNOWN
    return [Thing("dataclasses.Field", attrs={"name": name, "default": cls.lookup(name)}) for name in cls.all_fields()]


def _item_access(asked: Asked) -> Value:
    key, owner = asked.get(0, "key"), asked.owner
    if isinstance(owner, Thing) and isinstance(key, str):
        return owner.attrs.get(key, asked.get(1, "default", None))
    return UNKNOWN


def _update(asked: Asked) -> Value:
    """Update a config in place from a dict, another config or keywords."""
    more = asked.get(0, "other", {})
    more = more.attrs if isinstance(more, Thing) else more
    if isinstance(asked.owner, Thing) and isinstance(more, dict):
        for key, value in {**more, **asked.kwargs}.items():
            asked.owner.attrs[str(key)] = namespace(value)
    return None


def _own_dict(asked: Asked) -> Value:
    return copied(dict(asked.owner.attrs)) if isinstance(asked.owner, Thing) else UNKNOWN


HANDLERS: dict[str, Callable[[Asked], Value]] = {
    **{f"yaml.{name}": _yaml for name in ("safe_load", "load", "full_load", "unsafe_load")},
    "json.load": _json, "json.loads": _json, "tomllib.load": _toml, "tomllib.loads": _toml, "toml.load": _toml,
    "tomli.load": _toml,
    "omegaconf.OmegaConf.load": _omega_load, "omegaconf.OmegaConf.create": _omega_create,
    "omegaconf.OmegaConf.merge": _omega_merge, "omegaconf.OmegaConf.to_container": _as_dict,
    "argparse.Namespace": _namespace, "types.SimpleNamespace": _namespace, "easydict.EasyDict": _omega_create,
    "ml_collections.ConfigDict": _omega_create, "ml_collections.config_dict.ConfigDict": _omega_create,
    "ml_collections.FrozenConfigDict": _omega_create, "ml_collections.config_dict.FrozenConfigDict": _omega_create,
    "ml_collections.config_dict.create": _namespace, "addict.Dict": _omega_create, "munch.munchify": _omega_create,
    "namespace.update": _update, **dict.fromkeys(("namespace.lock", "namespace.unlock"), lambda asked: asked.owner),
    "namespace.copy_and_resolve_references": lambda asked: asked.owner, "namespace.to_dict": _own_dict,
    "box.Box": _omega_create,
    "dataclasses.asdict": _as_dict, "dataclasses.replace": _replace, "dataclasses.fields": _fields,
    "namespace.get": _item_access, "namespace.items": lambda asked: list(asked.owner.attrs.items()),
    "namespace.keys": lambda asked: list(asked.owner.attrs),
}  # fmt: skip
