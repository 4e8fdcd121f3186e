"""What users write for variables, secrets, data, names and markets, as values."""

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
    """Names from texts that may each list several with commas; each once, in the order they came."""
    names = (name.strip() for text in texts for name in text.split(","))
    return tuple(dict.fromkeys(name for name in names if name))


def read_market(text: str) -> Market:
    """`spot`, `on-demand` or `reserved`."""
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
        raise UnknownName("aim", text, [aim.value for aim in Objective]) from None


def read_variables(named: Iterable[str], environ: Mapping[str, str], where: str = "--env") -> dict[str, str]:
    """The job's variables; `NAME` takes the shell's value. `where` says in errors who named them."""
    found: dict[str, str] = {}
    for item in named:
        name, equals, value = item.partition("=")
        _check_name(name, where)
        if not equals and name not in environ:
            raise BadInput(
                f"{where} {name}: the shell has no variable {name}.",
                fix=f"Set it (export {name}=…), or give the value: --env {name}=VALUE.",
            )
        found[name] = value if equals else environ[name]
    return found


def read_secrets(named: Iterable[str], where: str = "--secret") -> dict[str, str]:
    """Names of secrets by variable, from `VARIABLE=NAME`, or `NAME` where both are the same."""
    found: dict[str, str] = {}
    for item in named:
        variable, equals, name = item.partition("=")
        _check_name(variable, where)
        if found.setdefault(variable, name if equals else variable) != (name if equals else variable):
            raise BadInput(f"{where} {variable} is given twice.", fix="A variable has one secret.")
        _check_secret(found[variable], variable, where)
    return found


def _check_secret(name: str, variable: str, where: str) -> None:
    """What stands after the sign is a name; somebody may have put the value there, so it is not repeated."""
    if not _SECRET.fullmatch(name):
        raise BadInput(
            f"{where} {variable}=…: what follows is no name of a secret.",
            why="It is the name under which the secret is kept, never its value.",
            fix=f"Keep it first: crucible secrets set {variable}; then {where} {variable}.",
        )


def read_env_file(file: Path) -> dict[str, str]:
    """`NAME=VALUE` lines; empty lines and `#` comments are passed over, one pair of quotes is taken off."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fix = "Name a text file in UTF-8 with lines such as NAME=value."
        raise BadInput(f"--env-file {file} cannot be read.", why=str(error), fix=fix) from error
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip().removeprefix("export ").lstrip()
        if not stripped or stripped.startswith("#"):
            continue
        name, equals, value = stripped.partition("=")
        if not equals:
            raise BadInput(f"{file}, line {number} is no NAME=VALUE.", fix="Mend or remove the line.")
        _check_name(name.strip(), f"{file}, line {number}")
        found[name.strip()] = _unquoted(value.strip())
    return found


def read_data(items: Iterable[str], folder: Path, where: str = "--data") -> tuple[DataInput, ...]:
    """`PATH`, `URI`, or `NAME=` either of them. Paths are made absolute and must exist.

    `where` says in errors who named them.
    """
    found = tuple(_one(item, folder, where) for item in items)
    names = [item.name for item in found]
    double = next((name for name in names if names.count(name) > 1), None)
    if double is not None:
        raise BadInput(f"Two {where} inputs are called {double!r}.", fix=f"Name one: --data other={double}.")
    return found


def _one(item: str, folder: Path, where: str) -> DataInput:
    named = _NAMED.match(item)
    if named and not (folder / item).exists():
        return DataInput(name=named[1], source=_source(named[2], folder, where))
    source = _source(item, folder, where)
    name = (urlsplit(source).path if _URI.match(source) else source).rstrip("/").rpartition("/")[2]
    if not name or name in (".", ".."):
        raise BadInput(f"{where} {item} has no name of its own.", fix=f"Give it one: --data NAME={item}.")
    return DataInput(name=name, source=source)


def _source(text: str, folder: Path, where: str) -> str:
    if _URI.match(text):
        return _address(text, where)
    path = (folder / Path(text).expanduser()).resolve()
    if not path.exists():
        raise _absent(text, path, where)
    return str(path)


def _address(text: str, where: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in _READABLE:
        raise BadInput(
            f"{where} {text}: {parts.scheme}:// cannot be read.",
            why="What works: a path on this computer, file://, http:// and https://.",
            fix="Copy it here first and pass its path, or pass an https:// address of it.",
        )
    if parts.scheme == "file" and not Path(unquote(parts.path)).exists():
        raise _absent(text, Path(unquote(parts.path)), where)
    return text


def _absent(text: str, path: Path, where: str) -> BadInput:
    return BadInput(f"{where} {text} does not exist.", why=f"It was looked for at {path}.", fix="Check the path.")


def _check_name(name: str, where: str) -> None:
    if not _NAME.match(name):
        raise BadInput(f"{where}: {name!r} is no name of a variable.", fix="Write it as NAME or NAME=VALUE.")


def _unquoted(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    return value
