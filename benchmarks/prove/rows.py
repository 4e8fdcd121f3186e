"""The rows of `make prove`: names, titles, commands and requirements."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from tests.scale import Scale

from crucible.core.errors import BadInput

Command = tuple[str, ...]
"""Arguments of a command. `{scale}`, `{figures}`, the names of Scale and, for a piece, `{first}` are filled in."""


@dataclass(frozen=True)
class Row:
    name: str
    """The row's name for `ROWS`."""
    title: str
    promises: tuple[int, ...]
    """Numbers of docs/reliability.md."""
    asks: str
    """Size of the row, with the names of Scale."""
    holds: str
    """What must be true at the end."""
    commands: tuple[Command, ...]
    shown: tuple[str, ...] = ()
    """Files that run it in `make test`, if they are not named by the commands."""
    piece: tuple[str, int] | None = None
    """A name of Scale, and how much of it one piece does."""

    @property
    def tests(self) -> tuple[str, ...]:
        named = [word for command in self.commands for word in command if word.startswith("tests/")]
        return self.shown or tuple(dict.fromkeys(named))

    def asked(self, scale: Scale) -> str:
        return self.asks.format(**asdict(scale))


@dataclass(frozen=True)
class Missing:
    """A row that does not exist yet, or not at full scale."""

    title: str
    promises: tuple[int, ...]
    there: str
    """What `make test` covers today."""
    why: str
    tests: tuple[str, ...] = ()


def pytest(*words: str) -> Command:
    """Return a pytest command at full scale, with hours for each test."""
    sized = ("--scale", "{scale}", "--figures", "{figures}", "--timeout", "14400")
    return ("python", "-m", "pytest", "-q", "-o", "cache_dir=.pytest_cache/prove", *sized, *words)


ROWS = (
    Row(
        "simulation",
        "simulation of the control plane in virtual time",
        promises=(1, 2, 3, 4, 5, 6),
        asks="{seeds:,} seeds",
        holds="no invariant broken",
        commands=(("crucible-sim", "--seeds", "{seeds}", "--from", "{first}", "--processes", "2"),),
        shown=("scripts/test.sh", "tests/simulation/test_seeds.py"),
        piece=("seeds", 500),
    ),
    Row(
        "planted",
        "planted bugs: for each lifecycle failure of other projects, and for the promises",
        promises=(1, 2, 3, 4, 5, 6),
        asks="each once",
        holds="each is found within 200 seeds; the same seeds pass without it",
        commands=(pytest("-n", "2", "tests/simulation/test_planted.py"),),
    ),
    Row(
        "exploration",
        "state exploration, on SQLite and on PostgreSQL",
        promises=(2, 4, 5),
        asks="every state and fact, random histories of {steps} steps",
        holds="every allowed transition is reached, and no other",
        commands=(
            pytest("tests/core/lifecycle/test_explore.py", "tests/control/test_exploration.py"),
            pytest("--database", "postgres", "tests/control/test_exploration.py"),
        ),
    ),
    Row(
        "kill9",
        "`kill -9` of the server under 12 clients",
        promises=(1, 2, 6),
        asks="{kills} kills, at least {submits:,} acknowledged",
        holds="no job lost, none run twice",
        commands=(pytest("tests/faults/test_kill9.py"),),
    ),
    Row(
        "crashpoints",
        "crash-point sweep: every named point × every backend",
        promises=(2, 3, 5, 6),
        asks="every point, {sweeps} ×",
        holds="each job runs once, no machine is left",
        commands=(pytest("-n", "2", "tests/faults/test_crashpoints.py", "tests/faults/test_rehearsal_crashes.py"),),
        piece=("sweeps", 2),
    ),
    Row(
        "proxy",
        "fault proxy before the provider's API: ambiguous creates, terminate errors, storms, truncation, latency",
        promises=(2, 3, 5),
        asks="{launches:,} launches",
        holds="no machine alive at the end",
        commands=(pytest("tests/faults/test_rehearsal_storm.py"),),
        piece=("launches", 500),
    ),
    Row(
        "partition",
        "agent partitions of 5 s, 60 s, 10 min, 2 h (virtual), and connections to server and store cut during output",
        promises=(4, 6),
        asks="every length, {lines:,} lines",
        holds="no healthy job restarted, no line lost or duplicated",
        commands=(
            pytest("tests/agent/test_partition.py", "tests/control/test_partition.py"),
            pytest("tests/faults/test_line_to_agents.py", "tests/faults/test_line_to_store.py"),
        ),
    ),
    Row(
        "postgres",
        "PostgreSQL: restarts and kills of role holders under load",
        promises=(1, 2, 6),
        asks="{restarts} restarts, {kills_of_postgres} of them by kill -9 of every process, {holders} holders killed",
        holds="takeover within 30 s, no job lost or run twice",
        commands=(pytest("tests/faults/test_postgres_restarts.py", "tests/faults/test_postgres_servers.py"),),
    ),
    Row(
        "checkpoints",
        "checkpoint: kill at random byte offsets of the upload",
        promises=(6,),
        asks="{cuts:,} cuts",
        holds="`latest` is always valid",
        commands=(pytest("tests/faults/test_checkpoint_cuts.py"),),
        piece=("cuts", 200),
    ),
    Row(
        "canaries",
        "canary secrets: leaked by a program in many ways, and the server's own credentials",
        promises=(7,),
        asks="25 values in 25 ways, on two backends and through a store",
        holds="0 found in logs, database, store, API, streams, commands, process list",
        commands=(pytest("tests/e2e/test_canaries.py"),),
    ),
    Row(
        "requests",
        "generated API cases (schemathesis): valid and invalid, every operation as administrator, and agents' routes",
        promises=(7,),
        asks="{cases:,} per operation",
        holds="no undocumented response, none above 499, no exception in the log, a fix in each refusal",
        commands=(pytest("-n", "2", "tests/hostile/test_operations.py", "tests/hostile/test_agents.py"),),
    ),
    Row(
        "parsers",
        "hostile bytes: every parser of foreign input, with noise, damaged samples and hand-made cases",
        promises=(6, 7),
        asks="4 × {cases:,} inputs each",
        holds="a result or the documented error, without delay",
        commands=(pytest("-n", "2", "tests/hostile/test_parsers.py", "tests/hostile/test_requests.py"),),
    ),
    Row(
        "archives",
        "hostile archives, each as tar.gz and as plain tar",
        promises=(7,),
        asks="{archives:,} archives",
        holds="no escapes: everything outside the folder stays unchanged, with its modes and times",
        commands=(pytest("tests/wire/files/test_archive.py"),),
    ),
    Row(
        "matrix",
        "authorisation matrix: every route and socket × anonymous, other project, viewer, member, project's admin, "
        "admin, another job's agent, share link, revoked token",
        promises=(7,),
        asks="every route once",
        holds="the response written by hand; a route without a row fails",
        commands=(pytest("-n", "2", "tests/authorisation"),),
    ),
)

MISSING: tuple[Missing, ...] = ()


def chosen(names: Iterable[str], rows: Iterable[Row] = ROWS) -> tuple[Row, ...]:
    """Return the rows with these names (default: all), in the page's order. Raises BadInput for an unknown name."""
    known, wanted = {row.name: row for row in rows}, set(names)
    for name in sorted(wanted - known.keys()):
        raise BadInput(f"There is no row {name!r}.", fix=f"The rows are: {', '.join(known)}.")
    return tuple(row for row in known.values() if row.name in wanted or not wanted)
