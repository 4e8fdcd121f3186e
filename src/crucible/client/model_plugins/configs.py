"""Reads the config and the inputs of a model from files, `key=value` pairs and JSON."""

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
    """Return the config of these `--config` items, without defaults. Later items override earlier ones and `base`.

    Without a `schema`, nothing is checked. Raises BadInput with everything that is wrong.
    """
    config = dict(base or {})
    for item in items:
        config.update(_read_item(item, folder, schema or {}))
    if schema is not None:
        config = {name: _typed(value, schema.get(name)) for name, value in config.items()}
        try:
            check_config(schema, config)
        except BadConfig as error:
            raise wrong_config(model, error.problems) from error
    encode_json(config, "The config")
    return config


def read_inputs(items: Iterable[str], folder: Path) -> Any:
    """Return the value of the `--input` items: JSON, `@FILE`, or else text. Several become a list; None without any."""
    values = [_read_input(item, folder) for item in items]
    value = None if not values else values[0] if len(values) == 1 else values
    encode_json(value, "--input")
    return value


def _read_item(item: str, folder: Path, schema: Schema) -> dict[str, Any]:
    name, equals, text = item.partition("=")
    if equals and name.isidentifier() and not (folder / item).is_file():
        return {name: _parse_value(text, schema.get(name))}
    return read_table(item, folder, "--config")


def _parse_value(text: str, option: Option | None) -> Any:
    """Return the text itself for an option of type `str`; else the value if the text is valid JSON, else the text."""
    if option is not None and option.type is str:
        return None if text == "null" and option.default is None else text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _typed(value: Any, option: Option | None) -> Any:
    """Return the value, with text parsed if the option is a number: YAML reads 1e-3 as text."""
    is_number = option is not None and option.type in (int, float)
    return _parse_value(value, option) if is_number and isinstance(value, str) else value


def read_table(item: str, folder: Path, label: str) -> dict[str, Any]:
    """Return the table in a file. `label` names the argument in errors."""
    path = (folder / Path(item).expanduser()).resolve()
    if path.suffix not in FORMATS:
        raise BadInput(
            f"{label} {item} is neither a file nor KEY=VALUE.",
            fix=f"Write it as --config epochs=3, or name a file that ends in {', '.join(FORMATS)}.",
        )
    content = _parse(_read_text(path, item), path.suffix, f"{label} {item}")
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise BadInput(f"{label} {item} is not a table of names and values.", fix="For example: epochs = 3")
    return content


def _read_input(item: str, folder: Path) -> Any:
    if item.startswith("@"):
        path = (folder / Path(item[1:]).expanduser()).resolve()
        text = _read_text(path, item[1:])
        return _parse(text, path.suffix, f"--input {item}") if path.suffix in FORMATS else text
    try:
        return json.loads(item)
    except (ValueError, RecursionError):
        return item


def _read_text(path: Path, name: str) -> str:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise BadInput(
                f"{name} is larger than {MOST_BYTES // 1024} KiB.", fix="Pass large inputs as files, with --data."
            )
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise not_found(path, name) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{name} cannot be read.", why=str(error), fix="Check the file.") from error


def _parse(text: str, suffix: str, name: str) -> Any:
    import yaml

    try:
        if suffix == ".json":
            return json.loads(text)
        return tomllib.loads(text) if suffix == ".toml" else yaml.safe_load(text)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise BadInput(f"{name} is not valid {suffix[1:].upper()}.", why=str(error), fix="Correct the file.") from error
