"""Prints docs/lifecycle.md from the table of allowed transitions.

python -m tests.core.lifecycle.page > docs/lifecycle.md
"""

from __future__ import annotations

import typing
from collections.abc import Iterable, Iterator

from tests.core.lifecycle.allowed import ANY, ATTEMPTS, EXITS, JOBS, MACHINES, TOGETHER, Rule
from tests.core.lifecycle.moves import NONE

from crucible.core.lifecycle import AttemptState, JobState, MachineState
from crucible.core.lifecycle import facts as f

COMMAND = "python -m tests.core.lifecycle.page > docs/lifecycle.md"

INTRO = f"""# The life of jobs, attempts and machines

Three state machines in two pure functions: `advance(world, fact, now)` moves a job with its attempts,
`advance_machine(machine, fact, now)` a machine (`src/crucible/core/lifecycle/`). A *fact* is anything that comes in.
What follows is a new state, *events* (what is now true) and *effects* (what must be done outside: launch or terminate
a machine).

This page is printed from `tests/core/lifecycle/allowed.txt`, which is written by hand:

```sh
{COMMAND}
```

`tests/core/lifecycle/test_explore.py` walks through every state that can be reached (worlds that differ in nothing that
rules ask for count as one) and applies every fact there: each row below happens, and nothing else does.
`tests/control/test_exploration.py` applies the same facts through the database, on SQLite and on PostgreSQL, and random
histories with crashes, conflicts, doubled and late facts.

How to read the tables: a word with `?` comes in some cases only. A pair of state and fact that has no row changes
nothing, and is listed as such. In any state, nothing follows from a fact about an attempt other than the live one, nor
from an outdated placement: decided before a cancel, applied twice, or on a machine that is being released.
"""

JOB_WORDS = {
    JobState.PENDING: "accepted, not planned yet",
    JobState.BLOCKED: "waits for another job; nothing leads here yet",
    JobState.QUEUED: "waits to be placed, for its first attempt or the next",
    JobState.PROVISIONING: "placed; its machine is not up",
    JobState.STARTING: "its machine is up, or its runner prepares code, environment and data",
    JobState.RUNNING: "its program runs, or has ended and its outputs are being saved",
    JobState.STOPPING: "a user cancelled it, and part of it may still run",
    JobState.COMPLETED: "its program completed",
    JobState.FAILED: "it ended otherwise and has no retry left",
    JobState.CANCELLED: "a user cancelled it, and no part of it runs",
}
ATTEMPT_WORDS = {
    AttemptState.PLACED: "has a slot on a machine that is up",
    AttemptState.LAUNCHING: "its machine must be made, or is being made",
    AttemptState.STAGING: "its runner prepares code, environment and data",
    AttemptState.RUNNING: "its program runs",
    AttemptState.SAVING: "its program has ended; outputs are being stored",
    AttemptState.ENDED: "over, with a reason",
}
MACHINE_WORDS = {
    MachineState.INTENDED: "its row and its launch are stored; the call may not have been made",
    MachineState.CREATING: "the backend has answered; its host has not made contact yet, or is being restarted",
    MachineState.UP: "its host has made contact",
    MachineState.RELEASING: "it is no longer wanted; its termination is retried until the backend says that it is gone",
    MachineState.GONE: "the backend says so, or refused to make it",
}
FACT_WORDS: dict[type, str] = {
    f.Planned: "analysis and planning are done",
    f.Waits: "the scheduler could not place the job, and says why",
    f.Placed: "the scheduler chose a machine for the next attempt",
    f.Impossible: "no connected backend can ever run the job",
    f.NothingSaved: "the last attempt had all its machine's time and saved nothing",
    f.MovedOn: "the backend that the job waits for has nothing for it; it moves on to the next",
    f.CancelRequested: "a user cancels the job",
    f.ResumeRequested: "a user resumes the ended job",
    f.CheckpointRequested: "a user asks the running program to save now",
    f.RunnerStaging: "the runner prepares something",
    f.RunnerStarted: "the program has been started",
    f.RunnerExited: "the program has ended, and how",
    f.RunnerEnded: "the runner is done and its outputs are in",
    f.InterruptionNoticed: "the provider announced that it takes the machine back",
    f.RunnerContacted: "any contact by the runner",
    f.Tick: "time passed, or something around the job changed: check again",
    f.LaunchSent: "the call is about to be made",
    f.LaunchAnswered: "the call was answered with the machine's own id",
    f.LaunchRefused: "the backend refused, and this call made nothing",
    f.LaunchLost: "the call gave no answer: there may be a machine",
    f.FoundNothing: "a search by the launch's token found nothing",
    f.HostSeen: "the machine's host made contact",
    f.SeenUp: "the backend lists it",
    f.SeenHalted: "the backend lists it, but our host on it has stopped",
    f.SeenGone: "the backend says it is gone, or does not list it",
    f.Unwanted: "its owner no longer needs it",
}


def page() -> str:
    return "\n".join((INTRO, *_jobs(), *_attempts(), *_machines(), *_facts())) + "\n"


def _jobs() -> Iterator[str]:
    facts = [fact.__name__ for fact in typing.get_args(f.Fact)]
    yield "## Jobs\n"
    yield from _table(("state", "what it means", "its live attempt is"), _job_states())
    yield from _diagram(JOBS, "pending", "blocked")
    for state in JobState:
        yield f"### A {state.value} job\n"
        yield from _transitions(JOBS, state.value, facts, ("events", "effects"))


def _job_states() -> Iterator[tuple[str, ...]]:
    for state, words in JOB_WORDS.items():
        yield state.value, words, ", ".join(TOGETHER[state.value].split())


def _attempts() -> Iterator[str]:
    facts = [fact.__name__ for fact in typing.get_args(f.Fact)]
    yield "## Attempts\n"
    yield "At most one attempt of a job is live. `none` is a job without one: only a placement begins the next.\n"
    yield from _table(("state", "what it means"), ((s.value, words) for s, words in ATTEMPT_WORDS.items()))
    yield from _diagram(ATTEMPTS, NONE)
    yield f"*As reported* stands for what exit reports say: {', '.join(EXITS.split())} and their like.\n"
    for state in (NONE, *(s.value for s in AttemptState)):
        yield f"### {'No live attempt' if state == NONE else f'An attempt that is {state}'}\n"
        yield from _transitions(ATTEMPTS, state, facts, ("why",))


def _machines() -> Iterator[str]:
    facts = [fact.__name__ for fact in typing.get_args(f.MachineFact)]
    yield "## Machines\n"
    yield "A host's claim (which one it is) is stored beside these and moves nothing by itself.\n"
    yield from _table(("state", "what it means"), ((s.value, words) for s, words in MACHINE_WORDS.items()))
    yield from _diagram(MACHINES, "intended")
    for state in MachineState:
        yield f"### A machine that is {state.value}\n"
        yield from _transitions(MACHINES, state.value, facts, ("effects",))


def _facts() -> Iterator[str]:
    yield "## Facts\n"
    for title, union in (("fact about a job", f.Fact), ("fact about a machine", f.MachineFact)):
        yield from _table((title, "what it says"), ((k.__name__, FACT_WORDS[k]) for k in typing.get_args(union)))


def _transitions(rules: Iterable[Rule], state: str, facts: list[str], columns: tuple[str, ...]) -> Iterator[str]:
    mine = sorted((rule for rule in rules if rule.state == state), key=lambda r: [*facts, ANY].index(r.fact))
    if mine:
        yield from _table(("fact", "becomes", *columns, "when"), (_row(rule, columns) for rule in mine))
    vain = [fact for fact in facts if fact not in {rule.fact for rule in mine}]
    if vain:
        yield f"Nothing follows from {'anything' if not mine else ', '.join(vain)}.\n"


def _row(rule: Rule, columns: tuple[str, ...]) -> tuple[str, ...]:
    becomes = "stays" if rule.becomes == rule.state else f"**{rule.becomes}**"
    fact = "any, beside what it does" if rule.fact == ANY else rule.fact
    return fact, becomes, *(_words(getattr(rule, column)) for column in columns), rule.when


def _words(words: tuple[str, ...]) -> str:
    exits = tuple(EXITS.split())
    if words[: len(exits)] == exits:
        words = ("as reported", *words[len(exits) :])
    return ", ".join(words)


def _diagram(rules: Iterable[Rule], *starts: str) -> Iterator[str]:
    """States and the facts that lead from one to another."""
    edges: dict[tuple[str, str], list[str]] = {}
    for rule in rules:
        if rule.state != rule.becomes:
            edges.setdefault((rule.state, rule.becomes), []).append(rule.fact)
    yield "```mermaid\nstateDiagram-v2"
    yield from (f"    [*] --> {start}" for start in starts)
    yield from (f"    {state} --> {to}: {', '.join(dict.fromkeys(facts))}" for (state, to), facts in edges.items())
    yield "```\n"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(row)} |".replace("|  |", "| |").replace("|  |", "| |")
    yield ""


if __name__ == "__main__":
    print(page(), end="")
