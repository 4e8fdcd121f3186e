"""Print docs/lifecycle.md from the table of allowed transitions.

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

INTRO = f"""# The lifecycle of jobs, attempts and machines

Three state machines in two pure functions: `advance(world, fact, now)` moves a job with its attempts,
`advance_machine(machine, fact, now)` a machine (`src/crucible/core/lifecycle/`). A *fact* is an input. The result is
a new state, *events* (what is now true) and *effects* (what must be done outside: launch or terminate a machine).

This page is generated from `tests/core/lifecycle/allowed.txt`, which is written by hand:

```sh
{COMMAND}
```

`tests/core/lifecycle/test_explore.py` visits every reachable state (treating states that no rule distinguishes as
one) and applies every fact there: each row below happens, and nothing else does. `tests/control/test_exploration.py`
applies the same facts, and random histories with crashes, conflicts, duplicate and late facts, through the database,
on SQLite and on PostgreSQL.

In the tables, a word with `?` occurs in some cases only. A pair of state and fact without a row changes nothing and
is listed as such. In every state, facts about an attempt other than the live one have no effect, and neither has an
outdated placement: from before a cancellation, a repeated one, or one on a machine that is being released.
"""

JOB_WORDS = {
    JobState.PENDING: "accepted, not planned yet",
    JobState.BLOCKED: "waits for another job; not used yet",
    JobState.QUEUED: "waits for a machine, for its first or next attempt",
    JobState.PROVISIONING: "placed; its machine is not up",
    JobState.STARTING: "its machine is up, or its runner prepares code, environment and data",
    JobState.RUNNING: "its program runs, or has ended and its outputs are being saved",
    JobState.STOPPING: "a user cancelled it, and its processes may still run",
    JobState.COMPLETED: "its program completed",
    JobState.FAILED: "it did not complete and has no attempts left",
    JobState.CANCELLED: "a user cancelled it, and nothing of it runs",
}
ATTEMPT_WORDS = {
    AttemptState.PLACED: "has a slot on a machine that is up",
    AttemptState.LAUNCHING: "its machine is to be launched, or is being launched",
    AttemptState.STAGING: "its runner prepares code, environment and data",
    AttemptState.RUNNING: "its program runs",
    AttemptState.SAVING: "its program has ended; outputs are being stored",
    AttemptState.ENDED: "over, with a reason",
}
MACHINE_WORDS = {
    MachineState.INTENDED: "its row and its launch are stored; the call may not have been sent",
    MachineState.CREATING: "its provider has responded; its host has not made contact, or is being restarted",
    MachineState.QUEUED: "it waits in its provider's own queue; its clocks stand still until it starts",
    MachineState.UP: "its host has made contact",
    MachineState.RELEASING: "it is not needed; its termination is retried until its provider reports it gone",
    MachineState.GONE: "its provider reports it gone, or refused to launch it",
}
FACT_WORDS: dict[type, str] = {
    f.Planned: "analysis and planning are done",
    f.Waits: "the scheduler could not place the job, and says why",
    f.Placed: "the scheduler chose slots for the next attempt",
    f.NothingSaved: "the last attempt used all of its machine's time and saved nothing",
    f.CancelRequested: "a user cancels the job",
    f.ResumeRequested: "a user resumes the ended job",
    f.CheckpointRequested: "a user requests a checkpoint from the running program",
    f.RunnerStaging: "the runner prepares the attempt",
    f.RunnerStarted: "the program has been started",
    f.RunnerExited: "the program has ended, with its exit report",
    f.RunnerEnded: "the runner is done and the outputs are stored",
    f.StopAttempt: "the attempt is to save and stop, without its job: that continues in another one",
    f.InterruptionNoticed: "the provider announced that it takes the machine back",
    f.RunnerContacted: "any message from the runner",
    f.Tick: "time passed, or something related to the job changed",
    f.LaunchSent: "the launch call is about to be sent",
    f.LaunchAnswered: "the call returned the machine's native ID",
    f.LaunchRefused: "the provider refused and launched nothing",
    f.LaunchLost: "the call got no response: there may be a machine",
    f.FoundNothing: "a search by the launch's token found nothing",
    f.HostClaimed: "a host claimed the machine, and named the provider's ID for it",
    f.HostSeen: "the machine's host made contact",
    f.SeenQueued: "the provider reports that it waits in its queue",
    f.SeenUp: "the provider reports that it starts or is up",
    f.SeenHalted: "the machine exists, but the agent's host does not run",
    f.SeenGone: "the provider reports it gone, or does not list it",
    f.DeclaredLost: "an operator declares that it will never be heard of again",
    f.Withdraw: "it has waited in its provider's queue for too long",
    f.Withdrawn: "the provider cancelled it in its queue",
    f.AlreadyStarted: "it had left its provider's queue before it could be withdrawn",
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
    yield "At most one attempt of a job is live. `none` is a job without one; only a placement starts the next.\n"
    yield from _table(("state", "what it means"), ((s.value, words) for s, words in ATTEMPT_WORDS.items()))
    yield from _diagram(ATTEMPTS, NONE)
    yield f"*As reported* stands for the reason of the exit report: {', '.join(EXITS.split())} or similar.\n"
    for state in (NONE, *(s.value for s in AttemptState)):
        yield f"### {'No live attempt' if state == NONE else f'An attempt that is {state}'}\n"
        yield from _transitions(ATTEMPTS, state, facts, ("why",))


def _machines() -> Iterator[str]:
    facts = [fact.__name__ for fact in typing.get_args(f.MachineFact)]
    yield "## Machines\n"
    yield from _table(("state", "what it means"), ((s.value, words) for s, words in MACHINE_WORDS.items()))
    yield from _diagram(MACHINES, "intended")
    for state in MachineState:
        yield f"### A machine that is {state.value}\n"
        yield from _transitions(MACHINES, state.value, facts, ("effects",))


def _facts() -> Iterator[str]:
    yield "## Facts\n"
    for title, union in (("fact about a job", f.Fact), ("fact about a machine", f.MachineFact)):
        yield from _table((title, "meaning"), ((k.__name__, FACT_WORDS[k]) for k in typing.get_args(union)))


def _transitions(rules: Iterable[Rule], state: str, facts: list[str], columns: tuple[str, ...]) -> Iterator[str]:
    mine = sorted((rule for rule in rules if rule.state == state), key=lambda r: [*facts, ANY].index(r.fact))
    if mine:
        yield from _table(("fact", "becomes", *columns, "when"), (_row(rule, columns) for rule in mine))
    vain = [fact for fact in facts if fact not in {rule.fact for rule in mine}]
    if vain:
        yield f"Nothing follows from {'anything' if not mine else ', '.join(vain)}.\n"


def _row(rule: Rule, columns: tuple[str, ...]) -> tuple[str, ...]:
    becomes = "stays" if rule.becomes == rule.state else f"**{rule.becomes}**"
    fact = "any, in addition" if rule.fact == ANY else rule.fact
    return fact, becomes, *(_words(getattr(rule, column)) for column in columns), rule.when


def _words(words: tuple[str, ...]) -> str:
    exits = tuple(EXITS.split())
    if words[: len(exits)] == exits:
        words = ("as reported", *words[len(exits) :])
    return ", ".join(words)


def _diagram(rules: Iterable[Rule], *starts: str) -> Iterator[str]:
    """Yield a diagram of the states and the facts that lead from one to another."""
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
