from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.control.harness import ControlHarness, FakeRunner, pieces, secret, service, sha

from crucible.control.agents.agents import NONCE_SECONDS, MachineUnwanted, UnreadableBatch
from crucible.control.agents.slots import AttemptGone
from crucible.control.db import schema as t
from crucible.control.telemetry.feed import Hint
from crucible.core.errors import BadInput, Conflict, NotAllowed, NotFound
from crucible.core.lifecycle import MachineState
from crucible.core.lifecycle import facts as f
from crucible.core.people.identity import OWNER
from crucible.core.views.agents import DesiredAttemptView
from crucible.storage import HashMismatch
from crucible.storage.layout import artifact_key, checkpoint_key, log_segment_key, output_key
from crucible.wire.documents.desired import Desired
from crucible.wire.documents.messages import MessageKind

SOON = 0.05
LONG = 30.0


def nonce(machine: str) -> str:
    return secret("nonce", machine).decode()


async def launched(harness: ControlHarness) -> str:
    await harness.submit()
    await harness.performer.perform_due()
    return (await harness.machine()).id


async def wait_for(harness: ControlHarness, machine: str, version: int) -> Desired | None:
    return await harness.agents.desired(machine, version, LONG)


def stored_objects(harness: ControlHarness) -> dict[str, bytes]:
    store = harness.ports.store
    return {key: store.get(key) for key, _ in store.list("")}


async def begun(work: asyncio.Task[object]) -> None:
    """Lets a task run until it waits."""
    for _ in range(10):
        await asyncio.sleep(0)
    assert not work.done()


# Secrets


def test_only_the_own_secret_opens(harness: ControlHarness) -> None:
    harness.agents.check_machine("m", secret("machine", "m").decode())
    harness.agents.check_attempt("a", secret("attempt", "a").decode())
    for bearer in (
        "",
        "x",
        secret("machine", "other").decode(),
        secret("attempt", "m").decode(),
        "ünïcode",
        "\ud800",
    ):
        with pytest.raises(NotAllowed):
            harness.agents.check_machine("m", bearer)
        with pytest.raises(NotAllowed):
            harness.agents.check_attempt("a", bearer)


# Claims


async def test_the_first_claim_gets_the_secret_and_may_ask_again(harness: ControlHarness) -> None:
    machine = await launched(harness)
    given = await harness.agents.claim(machine, nonce(machine), "i-1")
    assert given == secret("machine", machine).decode()
    assert await harness.agents.claim(machine, nonce(machine), "i-1") == given
    assert (await harness.machine()).claimed_by == "i-1"


async def test_of_two_hosts_the_second_is_refused(harness: ControlHarness) -> None:
    machine = await launched(harness)
    await harness.agents.claim(machine, nonce(machine), "i-1")
    with pytest.raises(Conflict):
        await harness.agents.claim(machine, nonce(machine), "i-2")
    assert (await harness.machine()).claimed_by == "i-1"


@pytest.mark.parametrize("wrong", ["", "guess", "ünïcode"])
async def test_a_wrong_nonce_is_refused(harness: ControlHarness, wrong: str) -> None:
    machine = await launched(harness)
    with pytest.raises(NotAllowed):
        await harness.agents.claim(machine, wrong, "i-1")
    assert (await harness.machine()).claimed_by is None


async def test_a_nonce_does_not_live_long(harness: ControlHarness) -> None:
    machine = await launched(harness)
    harness.clock.time = (await harness.machine()).launch_deadline + NONCE_SECONDS + 1
    with pytest.raises(NotAllowed, match="expired"):
        await harness.agents.claim(machine, nonce(machine), "i-1")


async def test_a_nonce_lives_anew_with_every_launch(harness: ControlHarness) -> None:
    harness.backend.answers = ["nothing", "ok"]
    await harness.submit()
    await harness.performer.perform_due()
    first = (await harness.machine()).launch_deadline
    harness.clock.time = first + NONCE_SECONDS + 1
    machine = await launched(harness)
    assert (await harness.machine()).launch_deadline > harness.clock.now()
    assert await harness.agents.claim(machine, nonce(machine), "i-1")


@pytest.mark.parametrize("late", [0, 1, 600])
async def test_a_host_that_has_spoken_cannot_claim_again(harness: ControlHarness, late: float) -> None:
    """Whoever reads its bootstrap later, such as a job's program, gets nothing with it."""
    machine = await launched(harness)
    await harness.agents.claim(machine, nonce(machine), "i-1")
    assert await harness.agents.claim(machine, nonce(machine), "i-1"), "its first answer may have been lost"
    harness.clock.time += late
    await harness.agents.desired(machine, 0, 0)
    with pytest.raises(Conflict, match="has its secret already"):
        await harness.agents.claim(machine, nonce(machine), "i-1")
    harness.clock.move(1)
    with pytest.raises(Conflict, match="has its secret already"):
        await harness.agents.claim(machine, nonce(machine), "i-1")


async def test_a_claim_is_not_repeated_for_ever_though_its_host_is_silent(harness: ControlHarness) -> None:
    machine = await launched(harness)
    await harness.agents.claim(machine, nonce(machine), "i-1")
    harness.clock.time = (await harness.machine()).launch_deadline + NONCE_SECONDS + 1
    with pytest.raises(NotAllowed, match="expired"):
        await harness.agents.claim(machine, nonce(machine), "i-1")


async def test_a_host_that_is_started_again_without_its_files_claims_again(harness: ControlHarness) -> None:
    await harness.submit()
    machine = await harness.host_up()
    harness.clock.move(2 * NONCE_SECONDS)
    await harness.agents.desired(machine, 0, 0)
    await harness.ports.db.write(harness.contacts.take().store)
    harness.clock.move(1)
    with pytest.raises(NotAllowed):
        await harness.agents.claim(machine, nonce(machine), f"i-{machine}")
    await harness.change_machine(machine, f.SeenHalted())
    await harness.performer.perform_due()
    assert await harness.agents.claim(machine, nonce(machine), f"i-{machine}")
    harness.clock.move(1)
    await harness.agents.desired(machine, 0, 0)
    with pytest.raises(Conflict, match="has its secret already"):
        await harness.agents.claim(machine, nonce(machine), f"i-{machine}")


async def test_a_machine_nobody_wants_cannot_be_claimed(harness: ControlHarness) -> None:
    machine = await launched(harness)
    await harness.change_machine(machine, f.Unwanted("enough"))
    for name in (machine, "mch-unknown"):
        with pytest.raises(MachineUnwanted):
            await harness.agents.claim(name, nonce(name), "i-1")


async def test_two_claims_at_once_have_one_winner(harness: ControlHarness) -> None:
    machine = await launched(harness)
    outcomes = await asyncio.gather(
        *(harness.agents.claim(machine, nonce(machine), f"i-{n}") for n in range(5)), return_exceptions=True
    )
    assert sum(isinstance(o, str) for o in outcomes) == 1
    assert sum(isinstance(o, Conflict) for o in outcomes) == 4


# The desired document


async def test_the_first_contact_brings_the_machine_up(harness: ControlHarness) -> None:
    machine = await launched(harness)
    found = await harness.agents.desired(machine, 0, LONG)
    assert found is not None
    assert len(found.assignments) == 1
    row = await harness.machine()
    assert (row.state, row.up_at) == (MachineState.UP, harness.clock.now())


async def test_the_first_contact_settles_a_launch_whose_answer_was_lost(harness: ControlHarness) -> None:
    harness.backend.answers = ["lost"]
    machine = await launched(harness)
    await harness.host_speaks(machine, "i-1")
    row = await harness.machine()
    assert (row.state, row.native_id, row.launch_settled) == (MachineState.UP, "i-1", True)


async def test_a_contact_with_a_machine_that_its_place_calls_gone_is_news(harness: ControlHarness) -> None:
    machine = await harness.host_up() if await harness.submit() else ""
    await harness.change_machine(machine, f.SeenGone())
    await harness.agents.desired(machine, 0, 0)
    assert (await harness.machine()).gone_sightings == 0
    await harness.change_machine(machine, f.SeenGone())
    assert (await harness.machine()).state is MachineState.UP


async def test_later_contacts_are_kept_in_memory(harness: ControlHarness) -> None:
    machine = await harness.host_up() if await harness.submit() else ""
    version = (await harness.machine()).version
    harness.clock.move(5)
    await harness.agents.desired(machine, 0, 0)
    assert (await harness.machine()).version == version
    assert harness.contacts.take().machines == {machine: harness.clock.now()}


async def test_a_change_is_answered_at_once(harness: ControlHarness) -> None:
    machine = await harness.host_up() if await harness.submit() else ""
    known = await harness.agents.desired(machine, 0, 0)
    assert known is not None
    waiting = asyncio.create_task(wait_for(harness, machine, known.version))
    await begun(waiting)
    await harness.submit()
    found = await asyncio.wait_for(waiting, 5)
    assert found is not None
    assert len(found.assignments) == 2


async def test_a_change_before_the_question_is_not_waited_for(harness: ControlHarness) -> None:
    machine = await harness.host_up() if await harness.submit() else ""
    known = await harness.agents.desired(machine, 0, 0)
    assert known is not None
    await harness.submit()
    assert await asyncio.wait_for(harness.agents.desired(machine, known.version, LONG), 5) is not None


async def test_without_a_change_there_is_no_answer_after_the_wait(harness: ControlHarness) -> None:
    machine = await harness.host_up() if await harness.submit() else ""
    known = await harness.agents.desired(machine, 0, 0)
    assert known is not None
    assert await harness.agents.desired(machine, known.version, 0) is None
    assert await harness.agents.desired(machine, known.version, SOON) is None


async def test_a_release_reaches_the_host_that_waits(harness: ControlHarness) -> None:
    machine = await harness.host_up() if await harness.submit() else ""
    known = await harness.agents.desired(machine, 0, 0)
    assert known is not None
    waiting = asyncio.create_task(wait_for(harness, machine, known.version))
    await begun(waiting)
    await harness.change_machine(machine, f.Unwanted("enough"))
    with pytest.raises(MachineUnwanted):
        await asyncio.wait_for(waiting, 5)


async def test_an_unknown_machine_is_unwanted(harness: ControlHarness) -> None:
    with pytest.raises(MachineUnwanted):
        await harness.agents.desired("mch-unknown", 0, LONG)


# What is wanted of one attempt


async def test_a_runner_hears_of_a_stop_at_once(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    waiting = asyncio.create_task(harness.agents.attempt_desired(runner.attempt, 0, False, 0, LONG))
    await begun(waiting)
    await service(harness).jobs.cancel(OWNER, job)
    assert await asyncio.wait_for(waiting, 5) == DesiredAttemptView(stop=True)


async def test_a_runner_that_knows_everything_waits(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    assert await harness.agents.attempt_desired(runner.attempt, 0, False, 0, SOON) is None
    await service(harness).jobs.cancel(OWNER, job)
    assert await harness.agents.attempt_desired(runner.attempt, 0, True, 0, SOON) is None


@pytest.mark.parametrize(("stop", "checkpoint"), [(True, 0), (False, 3)])
async def test_any_difference_is_answered_at_once(harness: ControlHarness, stop: bool, checkpoint: int) -> None:
    _, runner = await harness.running()
    asked = harness.agents.attempt_desired(runner.attempt, 0, stop, checkpoint, LONG)
    assert await asyncio.wait_for(asked, 5) == DesiredAttemptView()


async def test_a_settled_attempt_is_said_to_be_so(harness: ControlHarness) -> None:
    _, runner = await harness.running()
    await runner.end()
    found = await asyncio.wait_for(harness.agents.attempt_desired(runner.attempt, 0, False, 0, LONG), 5)
    assert found is not None
    assert found.settled


async def test_an_unknown_attempt_is_gone(harness: ControlHarness) -> None:
    with pytest.raises(AttemptGone):
        await harness.agents.attempt_desired("att-unknown", 0, False, 0, LONG)


async def test_asking_is_a_sign_of_life(harness: ControlHarness) -> None:
    _, runner = await harness.running()
    harness.clock.move(9)
    await harness.agents.attempt_desired(runner.attempt, 0, False, 0, 0)
    assert harness.contacts.take().attempts[runner.attempt] == harness.clock.now()


# Messages


async def test_a_batch_with_a_wrong_signature_is_refused(harness: ControlHarness) -> None:
    _, runner = await harness.running()
    raw = runner.encoded([runner.message(MessageKind.NOTE, text="hello")])
    for bad in (raw[:-1] + b" ", b"x" + raw, b"", b"not a batch"):
        with pytest.raises(UnreadableBatch) as raised:
            await harness.agents.ingest(runner.attempt, 0, bad)
        assert raised.value.http_status == 400


async def test_a_batch_of_another_attempt_is_refused(harness: ControlHarness) -> None:
    _, runner = await harness.running()
    _, other = await harness.running()
    raw = runner.encoded([runner.message(MessageKind.NOTE, text="hello")])
    with pytest.raises(UnreadableBatch):
        await harness.agents.ingest(other.attempt, 0, raw)
    with pytest.raises(UnreadableBatch):
        await harness.agents.ingest(runner.attempt, 1, raw)


# Logs, artifacts, bundles


async def test_a_segment_may_be_put_again(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    for _ in range(2):
        await harness.agents.put_log(runner.attempt, 0, 0, 0, 1, sha(b"one\n"), b"one\n")
    assert harness.agents.store.get(log_segment_key(job, runner.attempt, 0, 0, sha(b"one\n"))) == b"one\n"
    assert await harness.rows(t.log_segments) == [], "it counts once its message has come"
    assert harness.tails.read(runner.attempt, 0, 10) == b"one\n", "but those who watch see it"


async def test_a_segment_with_another_hash_is_refused(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    with pytest.raises(HashMismatch):
        await harness.agents.put_log(runner.attempt, 0, 0, 0, 1, sha(b"one\n"), b"two\n")
    assert harness.agents.store.size(log_segment_key(job, runner.attempt, 0, 0, sha(b"one\n"))) is None
    assert harness.tails.read(runner.attempt, 0, 10) == b""


async def test_output_wakes_those_who_watch(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    with harness.feed.watch(job) as watch:
        await harness.agents.put_tail(runner.attempt, 0, 0, b"hello")
        assert await watch.changed(0) == {Hint.LOG}


async def test_nothing_is_stored_for_an_unknown_attempt(harness: ControlHarness) -> None:
    with pytest.raises(AttemptGone):
        await harness.agents.put_log("att-unknown", 0, 0, 0, 1, sha(b"x"), b"x")
    with pytest.raises(AttemptGone):
        await harness.agents.put_artifact("att-unknown", 0, "model.pt", sha(b"x"), pieces(b"x"))


async def test_an_artifact_is_put_whole_or_not_at_all(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    key = output_key(job, runner.attempt, sha(b"abc"))
    with pytest.raises(HashMismatch):
        await harness.agents.put_artifact(runner.attempt, 0, "out/model.pt", sha(b"abc"), pieces(b"ab"))
    assert harness.agents.store.size(key) is None
    await harness.agents.put_artifact(runner.attempt, 0, "out/model.pt", sha(b"abc"), pieces(b"ab", b"c"))
    assert harness.agents.store.get(key) == b"abc"


async def test_a_checkpoint_cut_off_anywhere_is_not_stored(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    data = b"the weights of step 5"
    key = checkpoint_key(job, sha(data))
    for cut in range(len(data)):
        with pytest.raises(HashMismatch):
            await harness.agents.put_checkpoint(runner.attempt, 0, sha(data), pieces(data[:cut]))
        assert harness.agents.store.size(key) is None
    for _ in range(2):
        await harness.agents.put_checkpoint(runner.attempt, 0, sha(data), pieces(data))
    assert harness.agents.store.get(key) == data
    with pytest.raises(AttemptGone):
        await harness.agents.put_checkpoint("att-unknown", 0, sha(data), pieces(data))


async def test_an_attempt_opens_the_checkpoint_it_starts_from_and_no_other(harness: ControlHarness) -> None:
    job, first = await harness.running(retries={"infrastructure": 1, "wait_seconds": 0})
    for step, data in ((1, b"older"), (2, b"newer")):
        await first.checkpoint(data, step)
    for data in (b"older", b"newer"):
        with pytest.raises(NotFound):
            await harness.agents.open_checkpoint(first.attempt, 0, sha(data))
    await first.say(MessageKind.ENDED)
    harness.clock.move(10)
    await harness.place()
    next_one = (await harness.attempt(job)).id
    assert next_one != first.attempt
    found = await harness.agents.open_checkpoint(next_one, 0, sha(b"newer"))
    assert (found.size, harness.agents.store.get(found.key)) == (5, b"newer")
    with pytest.raises(NotFound):
        await harness.agents.open_checkpoint(next_one, 0, sha(b"older"))
    with pytest.raises(AttemptGone):
        await harness.agents.open_checkpoint(next_one, 1, sha(b"newer"))


async def test_an_attempt_opens_its_own_bundle_and_no_other(harness: ControlHarness) -> None:
    for data in (b"mine", b"another's"):
        await harness.bundles.put(OWNER, sha(data), pieces(data))
    _, runner = await harness.running(bundle=sha(b"mine"))
    _, bare = await harness.running()
    found = await harness.agents.open_bundle(runner.attempt, sha(b"mine"))
    assert (found.size, harness.agents.store.get(found.key)) == (4, b"mine")
    for attempt, data in ((runner.attempt, b"another's"), (runner.attempt, b"unknown"), (bare.attempt, b"mine")):
        with pytest.raises(NotFound):
            await harness.agents.open_bundle(attempt, sha(data))
    with pytest.raises(AttemptGone):
        await harness.agents.open_bundle("att-unknown", sha(b"mine"))


# After the end


async def test_the_secret_of_an_attempt_ends_with_it(harness: ControlHarness) -> None:
    await harness.bundles.put(OWNER, sha(b"code"), pieces(b"code"))
    job, runner = await harness.running(bundle=sha(b"code"))
    await runner.artifact("model.pt", b"weights")
    await runner.checkpoint(b"state", 1)
    await runner.log(1, 0, b"one\n")
    await runner.end()
    attempt, agents, stored = runner.attempt, harness.agents, stored_objects(harness)
    for late in (
        agents.put_artifact(attempt, 0, "model.pt", sha(b"other"), pieces(b"other")),
        agents.put_artifact(attempt, 0, "model.pt", sha(b"weights"), pieces(b"weights")),
        agents.put_checkpoint(attempt, 0, sha(b"late"), pieces(b"late")),
        agents.put_log(attempt, 0, 2, 4, 1, sha(b"two\n"), b"two\n"),
        agents.put_tail(attempt, 0, 4, b"two\n"),
        agents.open_bundle(attempt, sha(b"code")),
        agents.open_checkpoint(attempt, 0, sha(b"state")),
        agents.secrets(attempt),
        agents.require_open(attempt, 0),
    ):
        with pytest.raises(AttemptGone, match="has ended") as raised:
            await late
        assert raised.value.http_status == 410
    assert stored_objects(harness) == stored
    file = await service(harness).outputs.artifact(OWNER, job, "model.pt")
    assert (file.sha256, harness.agents.store.get(file.key)) == (sha(b"weights"), b"weights")
    assert await harness.rows(t.uploads) == []


async def test_an_attempt_has_its_own_ranks_and_no_others(harness: ControlHarness) -> None:
    _, runner = await harness.running()
    for rank in (1, 99999):
        for write in (
            harness.agents.put_artifact(runner.attempt, rank, "a", sha(b"x"), pieces(b"x")),
            harness.agents.put_checkpoint(runner.attempt, rank, sha(b"x"), pieces(b"x")),
            harness.agents.put_log(runner.attempt, rank, 1, 0, 1, sha(b"x"), b"x"),
            harness.agents.put_tail(runner.attempt, rank, 0, b"x"),
        ):
            with pytest.raises(AttemptGone, match="no such rank"):
                await write
    assert stored_objects(harness) == {}


async def test_an_upload_that_outlasts_its_attempt_changes_nothing_that_is_recorded(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    may_go_on, asked = asyncio.Event(), asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        asked.set()
        await may_go_on.wait()
        yield b"other"

    sending = asyncio.create_task(harness.agents.put_artifact(runner.attempt, 0, "model.pt", sha(b"other"), slowly()))
    await asked.wait()
    await runner.artifact("model.pt", b"weights")
    await runner.end()
    stored = stored_objects(harness)
    may_go_on.set()
    with pytest.raises(AttemptGone):
        await sending
    assert stored_objects(harness) == stored
    file = await service(harness).outputs.artifact(OWNER, job, "model.pt")
    assert harness.agents.store.get(file.key) == b"weights"


# What is recorded


async def test_what_is_recorded_is_never_overwritten(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    await runner.artifact("model.pt", b"weights")
    await runner.log(1, 0, b"one\n")
    stored = stored_objects(harness)
    with pytest.raises(Conflict, match="stored already"):
        await harness.agents.put_artifact(runner.attempt, 0, "model.pt", sha(b"other"), pieces(b"other"))
    await harness.agents.put_artifact(runner.attempt, 0, "model.pt", sha(b"weights"), pieces(b"weights"))
    await harness.agents.put_log(runner.attempt, 0, 1, 0, 1, sha(b"two\n"), b"two\n")
    assert stored_objects(harness) == stored
    page = await service(harness).outputs.logs(OWNER, job, attempt=None, offset=0, limit=100, since=None)
    assert page.data == b"one\n"


async def test_what_an_older_server_stored_is_still_found(harness: ControlHarness) -> None:
    """Its objects have other names. What it had stored may be announced to this one."""
    job, runner = await harness.running()
    store = harness.agents.store
    store.put(log_segment_key(job, runner.attempt, 0, 1), b"one\n")
    store.put(artifact_key(job, runner.attempt, "model #1.pt"), b"weights")
    await runner.say(MessageKind.LOG, n=1, start=0, end=4, lines=1, sha256=sha(b"one\n"))
    await runner.say(MessageKind.ARTIFACT, path="model #1.pt", size=7, sha256=sha(b"weights"))
    await runner.log(2, 4, b"two\n")
    page = await service(harness).outputs.logs(OWNER, job, attempt=None, offset=0, limit=100, since=None)
    assert page.data == b"one\ntwo\n"
    file = await service(harness).outputs.artifact(OWNER, job, "model #1.pt")
    assert store.get(file.key) == b"weights"


async def test_a_segment_far_after_the_last_one_is_refused(harness: ControlHarness) -> None:
    _, runner = await harness.running()
    with pytest.raises(BadInput, match="too far after segment 0"):
        await harness.agents.put_log(runner.attempt, 0, 2**31 - 1, 0, 1, sha(b"x"), b"x")
    assert stored_objects(harness) == {}


async def test_a_runner_of_an_older_server_is_heard_by_the_next(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    again = service(harness)
    heard = FakeRunner(again.agents, runner.attempt)
    heard.n = runner.n
    await heard.end()
    assert (await harness.world(job)).job.state.terminal
