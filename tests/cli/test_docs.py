"""Every command that the README and the docs show is one that the real command line can read."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer
from _pytest.mark import ParameterSet
from pydantic import BaseModel

from crucible.cli.command_table import COMMANDS
from crucible.cli.main import app
from crucible.cli.options.job_options import RunOptions, flag_name
from crucible.core.errors import CrucibleError
from crucible.core.job.job_file import JobFile, JobModel
from crucible.core.views.jobs import CheckpointView, JobView

PROJECT = Path(__file__).parents[2]
PAGES = sorted([PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *(PROJECT / "docs").glob("*.md")])
FENCED = re.compile(r"^```\w*[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(crucible [a-z][^`\n]+)`")
OPTIONAL = re.compile(r"\s\[[^\]]*\]")


def complete_commands(page: Path) -> Iterator[str]:
    """Yield each command line of the page's code blocks."""
    for block in FENCED.findall(page.read_text(encoding="utf-8")):
        for line in re.sub(r"\\\n\s*", " ", block).splitlines():
            if found := re.match(r"^(?:\$ )?(?:[A-Z_]+=\S+ )*(crucible [a-z-].*)$", line):
                yield found[1]


def mentioned_commands(page: Path) -> Iterator[str]:
    """Yield each command that the text names: `crucible resume` does, without a job."""
    for line in FENCED.sub("", page.read_text(encoding="utf-8")).splitlines():
        yield from (found for found in INLINE.findall(line) if "COMMAND" not in found)


def words_of(command: str) -> list[str]:
    """Split a command as a shell does, up to a pipe, a redirection or the next command."""
    lexer = shlex.shlex(OPTIONAL.sub("", command).replace("…", ""), posix=True, punctuation_chars="<>|&;")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    words: list[str] = []
    for word in lexer:
        if word[0] in "<>|&;":
            break
        words.append(word)
    return words[1:]


def read(words: list[str]) -> None:
    """Read a command line as `crucible` does, without running the command."""
    command: Any = typer.main.get_command(app)
    context = command.make_context("crucible", words)
    while hasattr(command, "resolve_command"):
        name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name, rest, parent=context)


def shown(commands: Callable[[Path], Iterator[str]]) -> list[ParameterSet]:
    found = [(page.name, command) for page in PAGES for command in dict.fromkeys(commands(page))]
    return [pytest.param(command, id=f"{page}: {command}") for page, command in found]


def test_the_pages_show_commands() -> None:
    assert len(shown(complete_commands)) > 40
    assert len(shown(mentioned_commands)) > 80


@pytest.mark.parametrize("command", shown(complete_commands))
def test_a_command_of_a_page_can_be_read(command: str) -> None:
    read(words_of(command))


@pytest.mark.parametrize("command", shown(mentioned_commands))
def test_a_command_that_is_mentioned_is_there_with_its_options(command: str) -> None:
    try:
        read(words_of(command))
    except typer.Exit:
        pass
    except typer.TyperException as error:
        if type(error).__name__ not in ("MissingParameter", "NoArgsIsHelpError", "BadOptionUsage"):
            raise


@pytest.mark.parametrize("command", ["crucible rum train.py", "crucible run --teir small", "crucible jobs one two"])
def test_what_no_command_takes_would_be_found(command: str) -> None:
    with pytest.raises((typer.TyperException, CrucibleError)):
        read(words_of(command))


def test_the_readme_lists_every_command_and_no_other() -> None:
    text = (PROJECT / "README.md").read_text(encoding="utf-8")
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `crucible ")]
    listed = [name.removeprefix("crucible ") for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
    assert sorted(listed) == sorted(row.name for row in COMMANDS)


def section(page: str, heading: str) -> str:
    text = "\n" + (PROJECT / "docs" / page).read_text(encoding="utf-8")
    return text.split(f"\n{heading}\n")[1].split("\n## ")[0]


def first_cells(text: str) -> str:
    """Return the first cells of the tables in this text; a `|` within a cell is written with a backslash."""
    rows = (re.split(r"(?<!\\)\|", line)[1] for line in text.splitlines() if line.startswith("| `"))
    return "\n".join(rows)


def test_every_option_of_run_is_in_its_table_and_no_other() -> None:
    listed = re.findall(r"--[a-z-]+", first_cells(section("cli.md", "## Options of `run`")))
    options = {flag_name(item.name) for item in fields(RunOptions)} - {"--target", "--plan"}
    assert sorted(listed) == sorted(options)


@pytest.mark.parametrize(
    ("kind", "page", "heading"),
    [
        (JobFile, "job-file.md", "# Job files"),
        (JobModel, "job-file.md", "## Models"),
        (JobView, "cli.md", "## The job object"),
    ],
)
def test_every_field_has_a_row_in_its_table_and_no_other(kind: type[BaseModel], page: str, heading: str) -> None:
    named = re.findall(r"`(\w+)`", first_cells(section(page, heading)))
    assert sorted(named) == sorted(kind.model_fields)


def test_every_field_of_a_checkpoint_is_named() -> None:
    text = section("cli.md", "## The checkpoint object")
    assert [name for name in CheckpointView.model_fields if f"`{name}`" not in text] == []
