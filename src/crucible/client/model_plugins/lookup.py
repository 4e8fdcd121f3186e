"""Which models a Python offers, and what to say when one cannot be used."""

from __future__ import annotations

from collections.abc import Mapping

from crucible.core.job import models
from crucible.wire.models.plugins import DESCRIBE_SECONDS, ModelNotFound, Plugin, describe_all, describe_one
from crucible.wire.models.subprocess_rpc import RpcError


def list_plugins(python: str, environ: Mapping[str, str], *, seconds: float = DESCRIBE_SECONDS) -> tuple[Plugin, ...]:
    """All models of this Python, by name, the broken ones too. Raises BadInput when it cannot be asked."""
    try:
        return describe_all(python, environ, seconds)
    except RpcError as error:
        raise models.cannot_list_models(python, str(error), error.stderr) from error


def find_plugin(name: str, python: str, environ: Mapping[str, str], *, seconds: float = DESCRIBE_SECONDS) -> Plugin:
    """The model of this name, ready for use. Raises UnknownName, and BadInput with its fault."""
    try:
        found = describe_one(name, python, environ, seconds)
    except RpcError as error:
        raise models.cannot_list_models(python, str(error), error.stderr) from error
    except ModelNotFound as error:
        where = f"It was looked for in {python}; --python names another, --plugin a package to install."
        raise models.unknown_model(name, error.known, where) from error
    if found.problem is not None:
        package = f"{found.distribution} {found.distribution_version}"
        raise models.broken_model(name, found.problem.text, found.problem.traceback, package, python)
    return found
