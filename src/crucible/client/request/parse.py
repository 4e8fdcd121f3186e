"""Parses the text of arguments: names, markets, variables, secrets and data."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from crucible.core.compute.offers import Market
from crucible.core.errors import BadInput, UnknownName
from crucible.core.job.spec import DataInput, Kind
from crucible.core.people.project_secrets import SECRET_PATTERN
from crucible.core.routing.plan_request import Objective

_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
_SECRET = re.compile(SECRET_PATTERN)
_URI = re.compile(r"^[a-z][a-z0-9+.-]+://")
_READABLE = ("file", "http", "https")
_NAMED = re.compile(r"^([A-Za-z0-9_.-]+)=(.+)$", re.DOTALL)


def read_names(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the names in texts that may each list several, separated by commas; each once, in order."""
    names = (name.strip() for text in texts for name in text.split(","))
    return tuple(dict.fromkeys(name for name in names if name))


def read_market(text: str) -> Market:
    """Return the market named `spot`, `on-demand` or `reserved`. Raises UnknownName."""
    try:
        return Market(text.strip().lower().replace("-", "_"))
    except ValueError:
        raise UnknownName("market", text, [market.value for market in Market]) from None


def read_kind(text: str) -> Kind:
    try:
        return Kind(text.lower())
    except ValueError:
        raise UnknownName("kind of job", text, [kind.value for kind in Kind]) from None


def read_objective(text: str) -> Objective:
    try:
        return Objective(text.strip().lower())
    except ValueError:
        raise UnknownName("objective", text, [objective.value for objective in Objective]) from None


def read_variables(items: Iterable[str], environ: Mapping[str, str], label: str = "--env") -> dict[str, str]:
    """Return the job's variables; `NAME` alone takes its value from `environ`. `label` names the argument in errors."""
    variables: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        _check_name(name, label)
        if not equals and name not in environ:
            raise BadInput(
                f"{label} {name}: the shell has no variable {name}.",
                fix=f"Set it (export {name}=…), or give the value: --env {name}=VALUE.",
            )
        variables[name] = value if equals else environ[name]
    return variables


def read_secrets(items: Iterable[str], label: str = "--secret") -> dict[str, str]:
    """Return names of secrets by variable, from `VARIABLE=NAME`, or `NAME` if both are the same."""
    secrets: dict[str, str] = {}
    for item in items:
        variable, equals, name = item.partition("=")
        _check_name(variable, label)
        if secrets.setdefault(variable, name if equals else variable) != (name if equals else variable):
            raise BadInput(
                f"{label} {variable} is given twice, with different secrets.", fix="Name one secret for each variable."
            )
        _check_secret(secrets[variable], variable, label)
    return secrets


def _check_secret(name: str, variable: str, label: str) -> None:
    """Check the name of a secret. The error does not repeat it: the user may have written the value instead."""
    if not _SECRET.fullmatch(name):
        raise BadInput(
            f"{label} {variable}=…: this is not the name of a secret.",
            why="Give the name of the secret, never its value.",
            fix=f"Set it first: crucible secrets set {variable}; then {label} {variable}.",
        )


def read_env_file(file: Path) -> dict[str, str]:
    """Return the `NAME=VALUE` lines; empty lines and `#` comments are skipped, one pair of quotes is removed."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fix = "Name a text file in UTF-8 with lines such as NAME=value."
        raise BadInput(f"--env-file {file} cannot be read.", why=str(error), fix=fix) from error
    variables: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip().removeprefix("export ").lstrip()
        if not stripped or stripped.startswith("#"):
            continue
        name, equals, value = stripped.partition("=")
        if not equals:
            raise BadInput(f"{file}, line {number} is not NAME=VALUE.", fix="Correct or remove the line.")
        _check_name(name.strip(), f"{file}, line {number}")
        variables[name.strip()] = _unquoted(value.strip())
    return variables


def read_data(items: Iterable[str], folder: Path, label: str = "--data") -> tuple[DataInput, ...]:
    """Return inputs from `PATH`, `URI`, or `NAME=` and either of them. Paths become absolute and must exist.

    `label` names the argument in errors.
    """
    inputs = tuple(_read_input(item, folder, label) for item in items)
    names = [item.name for item in inputs]
    duplicate = next((name for name in names if names.count(name) > 1), None)
    if duplicate is not None:
        raise BadInput(f"Two {label} inputs are named {duplicate!r}.", fix=f"Rename one: --data OTHER={duplicate}.")
    return inputs


def _read_input(item: str, folder: Path, label: str) -> DataInput:
    match = _NAMED.match(item)
    if match and not (folder / item).exists():
        return DataInput(name=match[1], source=_source(match[2], folder, label))
    source = _source(item, folder, label)
    name = (urlsplit(source).path if _URI.match(source) else source).rstrip("/").rpartition("/")[2]
    if not name or name in (".", ".."):
        raise BadInput(f"{label} {item} has no name.", fix=f"Name it: --data NAME={item}.")
    return DataInput(name=name, source=source)


def _source(text: str, folder: Path, label: str) -> str:
    if _URI.match(text):
        return _address(text, label)
    path = (folder / Path(text).expanduser()).resolve()
    if not path.exists():
        raise _not_found(text, path, label)
    return str(path)


def _address(text: str, label: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in _READABLE:
        raise BadInput(
            f"{label} {text}: {parts.scheme}:// cannot be read.",
            why="Inputs are local paths, file://, http:// and https:// addresses.",
            fix="Copy it here and pass its path, or pass its https:// address.",
        )
    if parts.scheme == "file" and not Path(unquote(parts.path)).exists():
        raise _not_found(text, Path(unquote(parts.path)), label)
    return text


def _not_found(text: str, path: Path, label: str) -> BadInput:
    return BadInput(f"{label} {text} does not exist.", why=f"There is no {path}.", fix="Check the path.")


def _check_name(name: str, label: str) -> None:
    if not _NAME.match(name):
        raise BadInput(f"{label}: {name!r} is not the name of a variable.", fix="Write it as NAME or NAME=VALUE.")


def _unquoted(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    return value
