"""Finds the files that a program opens by name: literal paths, and paths built from constants and settings.

Module-level assignments are followed with the command line: options of argparse, and configuration files that
`exec(open("configurator.py").read())` would read. Nothing of the program is run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from crucible.client.payload.constants import (
    UNKNOWN,
    Names,
    Scope,
    as_path,
    call_name,
    fold,
    known_beginning,
)

_MAX_MODULES = 200
_MAX_SOURCE = 2_000_000
_MAX_DEPTH = 60
_MAX_STEPS = 200_000
"""Statements and expressions that are followed. Of a longer program only a part is read."""

_OUTPUT = re.compile(
    r"(^|_)(out|outputs?|saved?|logs?|logdir|work|results?|runs?|dest|tmp|temp|cached?|ckpts?|checkpoints?)(_|$)"
)
_INPUT = re.compile(r"(dir|path|file|folder|root|data|dataset|corpus|vocab|weights|config|cfg|csv|json|yaml)s?$")
_PLAIN, _READING, _WRITING = range(3)
_READS = """
    open Path load loads read_text read_bytes iterdir glob rglob iglob listdir scandir walk copy copy2
    copyfile copytree memmap fromfile loadtxt genfromtxt imread VideoCapture run_path safe_load from_file
    load_file load_model load_weights load_state_dict load_from_disk load_dataset from_pretrained read_csv
    read_json read_parquet read_table read_excel read_pickle read_feather ImageFolder DatasetFolder MNIST
    FashionMNIST CIFAR10 CIFAR100 ImageNet TextLineDataset TFRecordDataset image_dataset_from_directory
    text_dataset_from_directory
"""
_WRITES = """
    save dump savez savez_compressed savetxt save_pretrained save_to_disk save_file save_weights save_model
    save_checkpoint export to_csv to_json to_parquet to_pickle savefig imsave imwrite write_text write_bytes
    mkdir makedirs mkdtemp touch unlink remove rmtree rmdir rename replace SummaryWriter FileHandler CSVLogger
    TensorBoardLogger ModelCheckpoint BackupAndRestore CheckpointManager
"""
_NO_PATHS = """
    print getattr setattr hasattr format split startswith endswith strip info debug warning error exception
    ValueError RuntimeError KeyError TypeError compile sub match search findall isinstance encode decode
    exists isfile isdir is_file is_dir
"""
_CALLS = {
    name: kind
    for kind, names in ((_PLAIN, _NO_PATHS), (_READING, _READS), (_WRITING, _WRITES))
    for name in names.split()
}
"""What calls of these names do with the paths that they are given."""
_READING_METHODS = frozenset({"open", "read_text", "read_bytes", "iterdir", "glob", "rglob"})


@dataclass
class Opened:
    """Paths as the program names them, in the order found.

    `files` are read or mentioned; `folders` are assigned to a name, or begin a path that is not known as a whole;
    `written` are needed only if the program also reads them.
    """

    files: dict[str, bool] = field(default_factory=dict)
    """Paths, and whether a call reads them or they only look like paths."""
    folders: dict[str, None] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)


def find_opened(entry: Path, text: str, arguments: Sequence[str], start: Path) -> Opened:
    """Return what the script opens by name, and the modules of its folder that it imports."""
    reader = _Program(entry.parent, start, tuple(arguments))
    reader.read(entry, text, "__main__")
    return reader.opened


class _TooLong(Exception):
    """The program has more statements and expressions than are followed."""


@dataclass
class _Program:
    """The modules of one program. Paths are relative to `start`, where it begins."""

    folder: Path
    start: Path
    arguments: tuple[str, ...]
    opened: Opened = field(default_factory=Opened)
    modules: dict[str, Scope] = field(default_factory=dict)
    options: dict[str, object] = field(default_factory=dict)
    steps: int = 0

    def read(self, file: Path, text: str, name: str) -> Scope:
        scope: Scope = {"__file__": str(file), "__name__": name}
        self.modules[name] = scope
        try:
            tree = ast.parse(text)
            if name == "__main__" or not self.options:
                self.options.update(_argparse_options(tree, self.arguments))
            _Module(self, scope).run(tree.body)
        except (SyntaxError, ValueError, RecursionError, MemoryError, _TooLong):
            pass
        return scope

    def step(self) -> None:
        """Count a step. Raises _TooLong."""
        self.steps += 1
        if self.steps > _MAX_STEPS:
            raise _TooLong

    def module(self, name: str) -> Scope | None:
        """Return the names of a module of the script's folder, which is read if it was not; None for others."""
        if name in self.modules or len(self.modules) >= _MAX_MODULES:
            return self.modules.get(name)
        base = self.folder.joinpath(*name.split("."))
        for file in (base.with_suffix(".py"), base / "__init__.py"):
            text = self.source(file)
            if text is not None:
                return self.read(file, text, name)
        return None

    def source(self, file: Path) -> str | None:
        """Return the text of a source file; None for what is none, or is outside the script's tree."""
        try:
            if not file.is_file() or file.stat().st_size > _MAX_SOURCE:
                return None
            return file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError, ValueError):
            return None

    def configure(self, scope: Scope, module: _Module) -> None:
        """Do what nanoGPT's configurator does: run the configuration files named, then set `--name=value`."""
        for argument in self.arguments:
            name, equals, value = argument.partition("=")
            if not equals and not argument.startswith("--"):
                module.execute(argument)
            elif equals and name.startswith("--") and name[2:] in scope:
                try:
                    scope[name[2:]] = ast.literal_eval(value)
                except (ValueError, SyntaxError, RecursionError, MemoryError):
                    scope[name[2:]] = value


@dataclass
class _Module:
    """Follows the statements of one module, or of one function in it, in their order."""

    program: _Program
    scope: Scope
    later: list[ast.FunctionDef | ast.AsyncFunctionDef] = field(default_factory=list)
    depth: int = 0

    def run(self, body: Sequence[ast.stmt]) -> None:
        """Follow the statements, then the functions that they define, which see all names of the module."""
        for statement in body:
            self._statement(statement)
        while self.later:
            self._function(self.later.pop(0))

    def execute(self, name: str) -> None:
        """Follow a file in this very scope, as exec does."""
        text = self.program.source(self.program.start / name)
        if text is None or self.depth > 3:
            return
        self.program.opened.files[name] = True
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return
        _Module(self.program, self.scope, self.later, self.depth + 1).run(tree.body)
        if "argv" in text and "globals()" in text:
            self.program.configure(self.scope, _Module(self.program, self.scope, self.later, self.depth + 1))

    def _statement(self, node: ast.stmt) -> None:
        self.program.step()
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self.later.append(node)
            case ast.ClassDef():
                _Module(self.program, dict(self.scope), self.later, self.depth).run(node.body)
            case ast.Import() | ast.ImportFrom():
                self._import(node)
            case ast.Assign():
                for target in node.targets:
                    self._assign(target, node.value)
            case ast.AnnAssign() if node.value is not None:
                self._assign(node.target, node.value)
            case ast.If():
                test = fold(node.test, self.scope)
                self._expression(node.test)
                if test is not False:
                    self._body(node.body)
                if test is not True:
                    self._body(node.orelse)
            case ast.Expr(value=ast.Constant()):
                return
            case _:
                self._compound(node)

    def _body(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            self._statement(statement)

    def _compound(self, node: ast.AST) -> None:
        """Follow the expressions and bodies of any other statement; what a loop assigns is unknown."""
        targets = [node.target] if isinstance(node, ast.For | ast.AsyncFor | ast.AugAssign) else []
        for target in targets:
            self._forget(target)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                self._statement(child)
            elif isinstance(child, ast.expr):
                self._expression(child)
            else:
                self._compound(child)

    def _forget(self, target: ast.expr) -> None:
        for name in ast.walk(target):
            if isinstance(name, ast.Name):
                self.scope[name.id] = UNKNOWN

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Follow a function with the defaults of its parameters; those without are unknown."""
        if self.depth > _MAX_DEPTH:
            return
        inner = dict(self.scope)
        spec = node.args
        for parameter in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs, *filter(None, (spec.vararg, spec.kwarg))):
            known = Names(self.program.options) if parameter.arg in ("args", "opt", "opts", "options") else UNKNOWN
            inner[parameter.arg] = known
        positional = (*spec.posonlyargs, *spec.args)
        pairs = [*zip(positional[len(positional) - len(spec.defaults) :], spec.defaults, strict=True)]
        pairs += [(word, value) for word, value in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if value]
        for parameter, default in pairs:
            inner[parameter.arg] = value = fold(default, self.scope)
            self._mention(value, parameter.arg)
        _Module(self.program, inner, depth=self.depth + 1).run(node.body)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                found = self.program.module(alias.name)
                if found is not None and "." not in alias.name:
                    self.scope[alias.asname or alias.name] = Names(found)
            return
        if node.level or not node.module:
            return
        found = self.program.module(node.module)
        for alias in node.names:
            inner = self.program.module(f"{node.module}.{alias.name}")
            if found is not None:
                value = found.get(alias.name, UNKNOWN)
                self.scope[alias.asname or alias.name] = Names(inner) if inner is not None else value

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        folded = fold(value, self.scope)
        if isinstance(value, ast.Call) and call_name(value) in ("parse_args", "parse_known_args"):
            folded = Names(self.program.options)
        if isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Call):
            first = target.elts[0] if target.elts else None
            if call_name(value) == "parse_known_args" and isinstance(first, ast.Name):
                self.scope[first.id] = folded
            self._expression(value)
            return
        if not isinstance(target, ast.Name):
            self._forget(target) if isinstance(target, ast.Tuple | ast.List) else None
            self._mention(folded, getattr(target, "attr", ""))
            self._expression(value)
            return
        self.scope[target.id] = folded
        if as_path(folded) is None or isinstance(value, ast.Call):
            self._expression(value, assigned=target.id)
        self._mention(folded, target.id)

    def _mention(self, value: object, name: str) -> None:
        """Note a path that is given a name, unless by its name it is where the program writes."""
        text = as_path(value)
        if text is None or is_output(name):
            return
        if _looks_like_path(text) or _INPUT.search(name.lower()):
            self.program.opened.folders[text] = None

    def _expression(self, node: ast.expr, assigned: str = "") -> None:
        """Note the largest constant paths in an expression, and what calls do with them."""
        self.program.step()
        if isinstance(node, ast.Call):
            self._call(node, assigned)
            return
        if isinstance(node, ast.Lambda):
            return
        text = None if isinstance(node, ast.Name) else as_path(fold(node, self.scope))
        if text is not None:
            if _looks_like_path(text):
                self.program.opened.files.setdefault(text, False)
            return
        self._beginning(node)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self._expression(child)
            elif isinstance(child, ast.comprehension):
                self._forget(child.target)
                self._expression(child.iter)

    def _beginning(self, node: ast.expr, name: str = "") -> None:
        beginning = as_path(known_beginning(node, self.scope))
        if beginning is not None and beginning != "." and not is_output(name):
            self.program.opened.folders[beginning] = None

    def _call(self, node: ast.Call, assigned: str) -> None:
        name, opened = call_name(node), self.program.opened
        if name == "exec" and node.args:
            self._exec(node.args[0])
        whole = as_path(fold(node, self.scope))
        if whole is not None:
            if not assigned and _looks_like_path(whole):
                opened.files.setdefault(whole, False)
            return
        kind = _CALLS.get(name)
        writes = kind == _WRITING or (name == "open" and _writes(node, self.scope))
        if isinstance(node.func, ast.Attribute):
            path = as_path(fold(node.func.value, self.scope))
            if path is not None and not isinstance(node.func.value, ast.Constant):
                if writes:
                    opened.written.add(path)
                elif name in _READING_METHODS:
                    opened.files[path] = True
            self._expression(node.func.value)
        if name == "add_argument":
            self._argument(node)
            return
        self._beginning(node, assigned)
        words = [*(("", arg) for arg in node.args), *((word.arg or "", word.value) for word in node.keywords)]
        for number, (word, value) in enumerate(words):
            text = as_path(fold(value, self.scope))
            if text is None:
                self._expression(value, assigned=word)
                if writes:
                    beginning = as_path(known_beginning(value, self.scope))
                    opened.folders.pop(beginning or "", None)
            elif writes:
                opened.written.add(text)
            elif (kind == _READING and number == 0) or (word and _INPUT.search(word.lower())):
                opened.files[text] = True
            elif kind != _PLAIN and _looks_like_path(text) and not is_output(word):
                opened.files.setdefault(text, False)

    def _argument(self, node: ast.Call) -> None:
        """Note the value of an option of argparse, unless it is where the program writes."""
        name = _destination(node)
        if name is not None:
            self._mention(self.program.options.get(name, UNKNOWN), name)

    def _exec(self, code: ast.expr) -> None:
        """Follow `exec(open(PATH).read())`."""
        for call in ast.walk(code):
            if isinstance(call, ast.Call) and call_name(call) == "open" and call.args:
                path = as_path(fold(call.args[0], self.scope))
                if path is not None:
                    self.execute(path)


def is_output(name: str) -> bool:
    """Return whether a variable or option of this name says where a program writes."""
    return bool(_OUTPUT.search(name.lower().strip("-").replace("-", "_")))


def _looks_like_path(text: str) -> bool:
    return "://" not in text and ("/" in text or bool(re.search(r"\w\.\w{1,10}$", text)))


def _writes(node: ast.Call, scope: Mapping[str, object]) -> bool:
    """Return whether a call of open is one to write only."""
    at = 0 if isinstance(node.func, ast.Attribute) and not isinstance(node.func.value, ast.Name) else 1
    modes = [word.value for word in node.keywords if word.arg == "mode"] or node.args[at : at + 1]
    mode = fold(modes[0], scope) if modes else "r"
    return isinstance(mode, str) and "r" not in mode and bool(set("wax") & set(mode))


def _destination(node: ast.Call) -> str | None:
    """Return the name under which argparse stores an option."""
    flags = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    dest = next((word.value for word in node.keywords if word.arg == "dest"), None)
    if isinstance(dest, ast.Constant) and isinstance(dest.value, str):
        return dest.value
    long = next((flag for flag in flags if flag.startswith("--")), flags[0] if flags else None)
    return None if long is None else long.lstrip("-").replace("-", "_")


def _argparse_options(tree: ast.AST, arguments: Sequence[str]) -> dict[str, object]:
    """Return the values of the options that a program adds to argparse, by their names."""
    values: dict[str, object] = {}
    flags: dict[str, str] = {}
    positional: list[str] = []
    switches: set[str] = set()
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and call_name(node) == "add_argument"):
            continue
        name = _destination(node)
        if name is None:
            continue
        words = {word.arg: word.value for word in node.keywords}
        values[name] = fold(words["default"], {}) if "default" in words else UNKNOWN
        written = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        flags.update({flag: name for flag in written if flag.startswith("-")})
        if not written[0].startswith("-"):
            positional.append(name)
        if str(getattr(words.get("action"), "value", "")).startswith("store_"):
            switches.add(name)
    words_left: Iterator[str] = iter(arguments)
    for word in words_left:
        flag, equals, value = word.partition("=")
        if flag in flags:
            name = flags[flag]
            if name not in switches:
                values[name] = value if equals else next(words_left, UNKNOWN)
        elif not word.startswith("-") and positional:
            values[positional.pop(0)] = word
    return values
