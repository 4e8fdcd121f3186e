"""Configs and inputs of a model, as people give them: files, `key=value` pairs and JSON."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from crucible.client.payload.base import not_found
from crucible.core.errors import BadInput
from crucible.core.job.models import MOST_BYTES, encode_json, wrong_config
from crucible.wire.models.options import BadConfig, Option, check_config

FORMATS = (".json", ".toml", ".yaml", ".yml")

Schema = Mapping[str, Option]


def read_config(
    items: Iterable[str], folder: Path, schema: Schema | None, model: str, base: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The config of these `--config` items, later ones over earlier ones and all over `base`, without the defaults.

    `schema` None: not known here; then nothing is checked. Raises BadInput with all that is wrong.
    """
    found = dict(base or {})
    for item in items:
        found.update(_item(item, folder, schema or {}))
    if schema is not None:
        found = {name: _typed(value, schema.get(name)) for name, value in found.items()}
        _check(found, schema, model)
    encode_json(found, "The config")
    return found


def read_inputs(items: Iterable[str], folder: Path) -> Any:
    """The value of the `--input` items: JSON, `@FILE`, or else text; several become a list."""
    values = [_input(item, folder) for item in items]
    found = None if not values else values[0] if len(values) == 1 else values
    encode_json(found, "--input")
    return found


def _check(config: Mapping[str, Any], schema: Schema, model: str) -> None:
    try:
        check_config(schema, config)
    except BadConfig as error:
        raise wrong_config(model, error.problems) from error


def _item(item: str, folder: Path, schema: Schema) -> dict[str, Any]:
    name, equals, text = item.partition("=")
    if equals and name.isidentifier() and not (folder / item).is_file():
        return {name: _value(text, schema.get(name))}
    return read_table(item, folder, "--config")


def _value(text: str, option: Option | None) -> Any:
    """By the type of its option; where that is not known, JSON if it is some, else text."""
    if option is not None and option.type is str:
        return None if text == "null" and option.default is None else text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _typed(value: Any, option: Option | None) -> Any:
    """A text where a number belongs, read as one: YAML takes 1e-3 for a text."""
    is_number = option is not None and option.type in (int, float)
    return _value(value, option) if is_number and isinstance(value, str) else value


def read_table(item: str, folder: Path, called: str) -> dict[str, Any]:
    """The table in a file; `called` is what named it, for errors."""
    path = (folder / Path(item).expanduser()).resolve()
    if path.suffix not in FORMATS:
        raise BadInput(
            f"{called} {item} is neither a file nor KEY=VALUE.",
            fix=f"Write it as --config epochs=3, or name a file that ends in {', '.join(FORMATS)}.",
        )
    content = _parsed(_read(path, item), path.suffix, f"{called} {item}")
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise BadInput(f"{called} {item} holds no table of names and values.", fix="For example: epochs = 3")
    return content


def _input(item: str, folder: Path) -> Any:
    if item.startswith("@"):
        path = (folder / Path(item[1:]).expanduser()).resolve()
        text = _read(path, item[1:])
        return _parsed(text, path.suffix, f"--input {item}") if path.suffix in FORMATS else text
    try:
        return json.loads(item)
    except (ValueError, RecursionError):
        return item


def _read(path: Path, shown: str) -> str:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise _too_large(shown)
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise not_found(path, shown) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{shown} cannot be read.", why=str(error), fix="Check the file.") from error


def _parsed(text: str, suffix: str, shown: str) -> Any:
    import yaml

    try:
        if suffix == ".json":
            return json.loads(text)
        return tomllib.loads(text) if suffix == ".toml" else yaml.safe_load(text)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise BadInput(f"{shown} is not valid {suffix[1:].upper()}.", why=str(error), fix="Mend it there.") from error


def _too_large(what: str) -> BadInput:
    return BadInput(f"{what} is larger than {MOST_BYTES // 1024} KiB.", fix="Pass large inputs as files, with --data.")
