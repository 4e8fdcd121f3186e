"""A model plugin: its package, its config, and the runner that every job can import."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from crucible.client.model_plugins.lookup import find_plugin
from crucible.client.payload.base import CodeSource, Payload, not_found
from crucible.client.payload.files import gather
from crucible.client.payload.git_state import GitState, git_state, list_files
from crucible.client.request.declarations import Code
from crucible.client.request.pythons import EnvironmentChoice, choose_environment
from crucible.core.errors import BadInput
from crucible.core.job.models import ModelOrder, no_method, unknown_model
from crucible.core.job.spec import EnvironmentSpec, Source, SourceKind
from crucible.wire.models.plugins import Plugin

GROUP = "crucible.models"
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_REQUIREMENT = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*(\s*\[[^\]]*\])?\s*($|[@<>=!~;].*)")


def find_model(model: str, method: str, code_source: CodeSource) -> tuple[Plugin, EnvironmentChoice]:
    """Return the plugin in the Python that the job will run in. Raises BadInput, UnknownName."""
    choice = choose_environment(code_source.python, Code(), code_source.host)
    assert choice.environment.interpreter is not None, "code without declarations gets an installed Python"
    plugin = find_plugin(model, choice.environment.interpreter, code_source.host.environ)
    if method not in plugin.methods:
        raise no_method(model, method, plugin.methods)
    return plugin, choice


def from_installed(order: ModelOrder, plugin: Plugin, choice: EnvironmentChoice, code_source: CodeSource) -> Payload:
    """Return the payload of an installed plugin: a copy of its package, run by the Python it was found in."""
    ref = f"{plugin.distribution}=={plugin.distribution_version}"
    if plugin.package is None:
        note = f"The package of {order.model} is not one folder, so the job runs it where it is installed."
        source = Source(kind=SourceKind.PLUGIN, ref=ref)
        return Payload(order.command, choice.environment, source, notes=(*choice.notes, note))
    root, name = plugin.package.parent, plugin.package.name
    # An installed copy is not in a work tree, even if its environment lies in one.
    state = GitState() if _INSTALLED & set(plugin.package.parts) else git_state(root, (name,))
    return Payload(
        command=order.command,
        environment=choice.environment,
        source=state.source(SourceKind.PLUGIN, plugin.package, ref),
        entries=gather(root, [name], code_source.limit),
        notes=choice.notes,
    )


def from_source(order: ModelOrder, named: str, code_source: CodeSource) -> Payload:
    """Return the payload of a plugin that is installed for the job, from a project's folder or a requirement.

    Its config is checked when the job starts.
    """
    if code_source.python:
        raise BadInput(
            "--plugin and --python exclude each other.",
            why="The plugin is installed into an environment of its own.",
            fix="Leave one of them out.",
        )
    root = (code_source.folder / Path(named).expanduser()).resolve()
    if root.is_dir():
        return _from_project(order, root, named, code_source)
    if not _REQUIREMENT.match(named):
        raise not_found(root, named)
    return Payload(
        command=order.command,
        environment=EnvironmentSpec(requirements=(named,), origin=f"--plugin {named}"),
        source=Source(kind=SourceKind.PLUGIN, ref=named),
    )


def _from_project(order: ModelOrder, root: Path, named: str, code_source: CodeSource) -> Payload:
    _check_project(order.model, root, named)
    return Payload(
        command=order.command,
        environment=EnvironmentSpec(project=".", origin=f"the project {named}"),
        source=git_state(root).source(SourceKind.PLUGIN, root),
        entries=gather(root, list_files(root), code_source.limit),
    )


def _check_project(model: str, root: Path, named: str) -> None:
    """Raise BadInput for a project that cannot be installed or clearly does not offer the model."""
    file = root / "pyproject.toml"
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        fix = "Name the folder of a project with a pyproject.toml; docs/plugins.md shows one."
        raise BadInput(f"--plugin {named} is not a project.", why=f"There is no {file}.", fix=fix) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadInput(f"{file} cannot be read.", why=str(error), fix="Correct it there.") from error
    project = table.get("project", {})
    if "entry-points" in project.get("dynamic", []) or not project:
        return
    offered = project.get("entry-points", {}).get(GROUP, {})
    if model not in offered:
        fix = f'Declare it in {named} under [project.entry-points."{GROUP}"].'
        raise unknown_model(model, offered, fix)
