"""Finds the models of a Python environment, and says why one cannot be used."""

from __future__ import annotations

from collections.abc import Mapping

from crucible.core.job import models
from crucible.wire.models.plugins import DESCRIBE_SECONDS, ModelNotFound, Plugin, describe_all, describe_one
from crucible.wire.models.subprocess_rpc import RpcError


def list_plugins(python: str, environ: Mapping[str, str], *, seconds: float = DESCRIBE_SECONDS) -> tuple[Plugin, ...]:
    """Return all models of this Python by name, broken ones included. Raises BadInput if they cannot be listed."""
    try:
        return describe_all(python, environ, seconds)
    except RpcError as error:
        raise models.cannot_list_models(python, str(error), error.stderr) from error


def find_plugin(name: str, python: str, environ: Mapping[str, str], *, seconds: float = DESCRIBE_SECONDS) -> Plugin:
    """Return the model of this name. Raises UnknownName if there is none, BadInput if it is broken."""
    try:
        plugin = describe_one(name, python, environ, seconds)
    except RpcError as error:
        raise models.cannot_list_models(python, str(error), error.stderr) from error
    except ModelNotFound as error:
        where = f"{python} was searched. Name another Python with --python, or a package to install with --plugin."
        raise models.unknown_model(name, error.known, where) from error
    if plugin.problem is not None:
        package = f"{plugin.distribution} {plugin.distribution_version}"
        raise models.broken_model(name, plugin.problem.text, plugin.problem.traceback, package, python)
    return plugin
