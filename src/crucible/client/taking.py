"""What somebody wants to run, as Python says it: code, a file, a folder, a repository, a function, a model."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

from crucible.client.checks import check_text
from crucible.client.modeljobs import ModelAsk
from crucible.client.payload import JOB_FILES, Payload, Request, from_code, from_shell, make_payload
from crucible.client.payload.function import from_function
from crucible.client.payload.git import from_git, looks_like_git
from crucible.core.errors import BadInput

_FILE = re.compile(r"[^\s()=]+\.(py|ipynb|ya?ml|toml|json)")
_KINDS = ("code", "path", "git", "function", "shell", "model")
_OF_MODELS = ("config", "plugin", "inputs", "callbacks")


@dataclass(frozen=True)
class Taken:
    """One thing to run; exactly one of the first six is set.

    `code` may also be a Path (the same as `path`) or a function (the same as `function`). `args` are for the
    command line of code, and for a function its arguments, as are `kwargs`. A model has its `config`, the `plugin` to
    install it from if it is not here, `inputs` to predict from, and `callbacks` of a training.
    """

    code: object = None
    path: object = None
    git: object = None
    function: object = None
    shell: object = None
    model: object = None
    args: Sequence[object] = ()
    kwargs: Mapping[str, object] = field(default_factory=dict)
    config: Mapping[str, object] = field(default_factory=dict)
    plugin: str | None = None
    inputs: object = None
    callbacks: Sequence[str] = ()

    def checked(self) -> Taken:
        """The same, told apart; raises BadInput for what is none of them. Nothing is read yet."""
        given = [name for name in _KINDS if getattr(self, name) is not None]
        if len(given) != 1:
            raise BadInput(
                "Say one thing to run." if given else "There is nothing to run.",
                why=f"{', '.join(_KINDS[:-1])} and {_KINDS[-1]} exclude each other." if given else "",
                fix="For example: submit(code='print(1)') or submit(path='train.py').",
            )
        _check_arguments(self)
        _check_model(self)
        taken = self._of_code() if given == ["code"] else self
        if taken.function is None and self.kwargs:
            raise BadInput("kwargs are for functions.", fix="Pass args, as on the command line.", field="kwargs")
        return taken

    def _of_code(self) -> Taken:
        """Code told apart from files and functions."""
        if isinstance(self.code, Path):
            return replace(self, code=None, path=self.code)
        if callable(self.code):
            return replace(self, code=None, function=self.code)
        text = check_text("code", self.code)
        if _FILE.fullmatch(text.strip()):
            raise BadInput(
                f"{text.strip()!r} is the name of a file, not code.",
                fix=f"Pass path={text.strip()!r}, or code=open({text.strip()!r}).read().",
                field="code",
            )
        return self

    def model_ask(self, folder: Path) -> ModelAsk | None:
        """The model, if it is one."""
        if self.model is None:
            return None
        name, callbacks = check_text("model", self.model), tuple(self.callbacks)
        return ModelAsk(name, folder, self.config, (), self.plugin, self.inputs, callbacks)

    def payload(self, request: Request) -> Payload:
        """Read it. `request.arguments` are set here. A model is taken up with the wishes that it has a part in."""
        if self.function is not None:
            return from_function(_function(self.function), self.args, self.kwargs, request)
        asked = replace(request, arguments=tuple(str(item) for item in self.args))
        if self.code is not None:
            return from_code(check_text("code", self.code), asked)
        if self.shell is not None:
            return from_shell(check_text("shell", self.shell), asked)
        if self.git is not None:
            return from_git(repository(check_text("git", self.git), asked), asked)
        return make_payload(_path(self.path), asked)


def repository(said: str, request: Request) -> str:
    """The address of a repository; a path on this computer, `PATH` or `PATH@REVISION`, becomes a file:// address."""
    if not said.strip():
        raise BadInput("git names no repository.", fix="Name a folder or an address; `.` is this folder.", field="git")
    if looks_like_git(said):
        return said
    name, at, revision = said.rpartition("@")
    path = (request.folder / Path(said).expanduser()).resolve()
    if at and not path.exists():
        path = (request.folder / Path(name).expanduser()).resolve()
    else:
        revision = ""
    if not path.is_dir():
        raise BadInput(
            f"{said} is no repository.",
            why=f"It was looked for at {path}.",
            fix="Name a folder with a git repository, or an address such as https://example.org/team/project.git@main.",
        )
    address = f"file://{quote(str(path))}".replace("@", "%40")
    return f"{address}@{revision}" if revision else address


def _check_arguments(taken: Taken) -> None:
    if isinstance(taken.args, str | bytes) or not isinstance(taken.args, Sequence):
        raise BadInput("args is a list.", fix="Write args=['--epochs', 3].", field="args")
    if not isinstance(taken.kwargs, Mapping):
        raise BadInput("kwargs is a table.", fix="Write kwargs={'epochs': 3}.", field="kwargs")


def _check_model(taken: Taken) -> None:
    if taken.model is None:
        for name in _OF_MODELS:
            if getattr(taken, name):
                raise BadInput(f"{name} belongs to a model.", fix="Name it: submit(model='...').", field=name)
        return
    check_text("model", taken.model)
    if taken.args:
        raise BadInput("A model takes no args.", fix="Its options are its config.", field="args")
    if not isinstance(taken.config, Mapping):
        raise BadInput("config is a table.", fix="Write config={'epochs': 3}.", field="config")
    if taken.plugin is not None:
        check_text("plugin", taken.plugin)
    if isinstance(taken.callbacks, str) or not all(isinstance(item, str) for item in taken.callbacks):
        raise BadInput("callbacks is a list.", fix="Write callbacks=['my_package.watch:Printer'].", field="callbacks")


def _path(said: object) -> str:
    path = check_text("path", str(said) if isinstance(said, Path) else said)
    if Path(path).suffix in JOB_FILES:
        raise BadInput(
            f"{path} is a job file.",
            why="The Python client says in Python what a job file says.",
            fix=f"Run it with `crucible run {path}`, or name the script in it.",
        )
    return path


def _function(said: object) -> Callable[..., object]:
    if not callable(said):
        raise BadInput("function is no function.", fix="Pass the function itself, without calling it.")
    return said
