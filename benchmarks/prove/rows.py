"""The rows of `make prove`: what each is called, what it shows, and what it runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from tests.scale import Scale

from crucible.core.errors import BadInput

Command = tuple[str, ...]
"""Words; `{scale}`, `{figures}`, the names of Scale and, of a piece, the `{first}` in braces are filled in."""


@dataclass(frozen=True)
class Row:
    name: str
    """What `ROWS` takes."""
    title: str
    promises: tuple[int, ...]
    """Numbers of docs/reliability.md."""
    asks: str
    """How much of it, by the names of Scale."""
    holds: str
    """What must be true at the end."""
    commands: tuple[Command, ...]
    shown: tuple[str, ...] = ()
    """What shows it in `make test`, where that is not what the commands name."""
    piece: tuple[str, int] | None = None
    """A name of Scale, and how much of it is done in one go."""

    @property
    def tests(self) -> tuple[str, ...]:
        named = [word for command in self.commands for word in command if word.startswith("tests/")]
        return self.shown or tuple(dict.fromkeys(named))

    def asked(self, scale: Scale) -> str:
        return self.asks.format(**asdict(scale))


@dataclass(frozen=True)
class Missing:
    """A row whose parts are not there, or not there at full size."""

    title: str
    promises: tuple[int, ...]
    there: str
    """What `make test` shows of it today."""
    why: str
    tests: tuple[str, ...] = ()


def pytest(*words: str) -> Command:
    """At full size, with hours for each test."""
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
        "planted bugs: for each lifecycle row of peers' failures, and for promises",
        promises=(1, 2, 3, 4, 5, 6),
        asks="each once",
        holds="each found within 200 seeds; the same seeds silent without them",
        commands=(pytest("-n", "2", "tests/simulation/test_planted.py"),),
    ),
    Row(
        "exploration",
        "state exploration, on SQLite and on PostgreSQL",
        promises=(2, 4, 5),
        asks="every state and fact, random histories of {steps} steps",
        holds="every allowed transition reached, no other possible",
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
        holds="none lost, none done twice",
        commands=(pytest("tests/faults/test_kill9.py"),),
    ),
    Row(
        "crashpoints",
        "crash-point sweep: every named point × every backend",
        promises=(2, 3, 5, 6),
        asks="every point, {sweeps} ×",
        holds="each job done once, no machine left",
        commands=(pytest("-n", "2", "tests/faults/test_crashpoints.py", "tests/faults/test_rehearsal_crashes.py"),),
        piece=("sweeps", 2),
    ),
    Row(
        "proxy",
        "fault proxy before the provider's API: ambiguous creates, terminate errors, storms, truncation, latency",
        promises=(2, 3, 5),
        asks="{launches:,} launches",
        holds="none alive at the end",
        commands=(pytest("tests/faults/test_rehearsal_storm.py"),),
        piece=("launches", 500),
    ),
    Row(
        "partition",
        "agent partition 5 s, 60 s, 10 min, 2 h (virtual), and lines to the server and the store cut under output",
        promises=(4, 6),
        asks="every length, {lines:,} lines",
        holds="no healthy job restarted, no line lost or doubled",
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
        holds="takeover within 30 s, none lost or doubled",
        commands=(pytest("tests/faults/test_postgres_restarts.py", "tests/faults/test_postgres_servers.py"),),
    ),
    Row(
        "checkpoints",
        "checkpoint: kill at random byte offsets of the upload",
        promises=(6,),
        asks="{cuts:,} cuts",
        holds="`latest` always verifies",
        commands=(pytest("tests/faults/test_checkpoint_cuts.py"),),
        piece=("cuts", 200),
    ),
    Row(
        "canaries",
        "canary secrets: let out by a program in as many ways, and the server's own credentials",
        promises=(7,),
        asks="25 values in 25 ways, at two places and through a store",
        holds="0 found in logs, database, store, API, streams, commands, process list",
        commands=(pytest("tests/e2e/test_canaries.py"),),
    ),
    Row(
        "requests",
        "generated API cases (schemathesis): every operation, sound and unsound, as administrators; and agents' routes",
        promises=(7,),
        asks="{cases:,} an operation",
        holds="0 undocumented answers, 0 above 499, 0 exceptions in the log, each refusal with a fix",
        commands=(pytest("-n", "2", "tests/hostile/test_operations.py", "tests/hostile/test_agents.py"),),
    ),
    Row(
        "parsers",
        "hostile bytes: every parser of what strangers send, fed with noise, damaged samples and hand-made cases",
        promises=(6, 7),
        asks="4 × {cases:,} inputs each",
        holds="an answer or the documented refusal, within a moment",
        commands=(pytest("-n", "2", "tests/hostile/test_parsers.py", "tests/hostile/test_requests.py"),),
    ),
    Row(
        "archives",
        "archives hostile by construction, each as tar.gz and as plain tar",
        promises=(7,),
        asks="{archives:,} archives",
        holds="0 escapes: all round the folder stays as it was, byte for byte, with its modes and times",
        commands=(pytest("tests/wire/files/test_archive.py"),),
    ),
    Row(
        "matrix",
        "authorisation matrix: every route and socket × anonymous, other project, viewer, member, project's admin, "
        "admin, another job's agent, share link, revoked token",
        promises=(7,),
        asks="every route once",
        holds="the answer written by hand; a route without a row fails",
        commands=(pytest("-n", "2", "tests/authorisation"),),
    ),
)

MISSING: tuple[Missing, ...] = ()


def chosen(names: Iterable[str], rows: Iterable[Row] = ROWS) -> tuple[Row, ...]:
    """The rows of these names, in the order of the page; all of them for none. Raises BadInput."""
    known, wanted = {row.name: row for row in rows}, set(names)
    for name in sorted(wanted - known.keys()):
        raise BadInput(f"There is no row {name!r}.", fix=f"The rows are: {', '.join(known)}.")
    return tuple(row for row in known.values() if row.name in wanted or not wanted)
