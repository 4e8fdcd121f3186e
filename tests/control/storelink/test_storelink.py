"""A control plane that no agent can reach drives jobs all the same."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.control.harness import give_back, pieces, secret, sha
from tests.control.storelink.harness import FakeHost, MailboxHarness, make_mailbox_harness

from crucible.agent.link.channel import ClaimedByAnother, DesiredAttempt
from crucible.agent.link.connection import Gone, Refused, Unreachable
from crucible.control.db import schema as t
from crucible.control.machines.janitor import release_idle_machines
from crucible.control.reconcile import repository
from crucible.control.reconcile.unit_of_work import UnitOfWork
from crucible.core.lifecycle import MachineState
from crucible.core.lifecycle import facts as f
from crucible.core.people.identity import OWNER
from crucible.core.secret import Secret
from crucible.storage import Store
from crucible.wire.documents.desired import Desired
from crucible.wire.documents.mailbox import control_document_name, decode_control_document, mailbox_folder, runner_key
from crucible.wire.documents.messages import MessageKind


async def test_a_job_runs_to_its_end(mailbox_harness: MailboxHarness) -> None:
    job, machine, host = await mailbox_harness.host_up()
    assert (await mailbox_harness.harness.machine(machine)).state is MachineState.UP
    host.line.ask(0, 25.0, '{"cpus": 4}')
    desired = await mailbox_harness.while_serving(lambda: _document(host))
    (assignment,) = desired.assignments
    runner = await mailbox_harness.runner(job)
    assert assignment.attempt == runner.attempt
    runner.whole_life()
    await mailbox_harness.link.round()
    view = await _job(mailbox_harness, job)
    assert (view["state"], view["reason"]) == ("completed", "completed")
    page = await mailbox_harness.harness.logs.page(job, None, 0, 100, None)
    assert page.data == b"one\ntwo\n"
    (artifact,) = await mailbox_harness.harness.rows(t.artifacts)
    assert (artifact["path"], artifact["sha256"]) == ("model.bin", sha(b"weights"))
    (checkpoint,) = await mailbox_harness.harness.rows(t.checkpoints)
    assert (checkpoint["step"], checkpoint["sha256"]) == (1, sha(b"state"))


async def test_nothing_that_was_taken_in_stays(mailbox_harness: MailboxHarness) -> None:
    job, machine, _ = await mailbox_harness.host_up()
    runner = await mailbox_harness.runner(job)
    runner.whole_life()
    runner.beat()
    await mailbox_harness.link.round()
    left = mailbox_harness.files(machine)
    assert not any("/up/" in name or "/blobs/" in name for name in left)
    mailbox_harness.harness.clock.move(61.0)
    await mailbox_harness.link.round()
    assert mailbox_harness.files(machine) == {"claim", "parties/host/alive", "parties/host/down"}


async def test_of_two_hosts_one_is_granted(mailbox_harness: MailboxHarness) -> None:
    _, machine, winner = await mailbox_harness.host_up()
    loser = mailbox_harness.host(machine)
    with pytest.raises(ClaimedByAnother):
        await mailbox_harness.while_serving(lambda: loser.line.claim("", "i-2"))
    assert (await mailbox_harness.harness.machine(machine)).claimed_by == "i-1"
    assert await mailbox_harness.while_serving(lambda: winner.line.claim("", "i-1"))


async def test_a_claim_that_was_written_over_does_not_change_who_holds_it(mailbox_harness: MailboxHarness) -> None:
    """A bucket may not refuse a second claim: then the answer decides."""
    _, machine, _ = await mailbox_harness.host_up()
    (mailbox_harness.box(machine) / "claim").unlink()
    loser = mailbox_harness.host(machine)
    with pytest.raises(ClaimedByAnother):
        await mailbox_harness.while_serving(lambda: loser.line.claim("", "i-2"))


async def test_a_host_with_another_nonce_is_not_heard(mailbox_harness: MailboxHarness) -> None:
    _, machine = await mailbox_harness.new_machine()
    stranger = FakeHost(mailbox_harness.folder, machine, nonce=b"guessed")
    stranger.line._put_claim("i-9")
    stranger.beat()
    await mailbox_harness.link.round()
    found = await mailbox_harness.harness.machine(machine)
    assert (found.claimed_by, found.state) == (None, MachineState.CREATING)
    right = mailbox_harness.host(machine)
    assert await mailbox_harness.while_serving(lambda: right.line.claim("", "i-1"))


async def test_a_host_that_comes_too_late_is_sent_away(mailbox_harness: MailboxHarness) -> None:
    _, machine = await mailbox_harness.new_machine()
    mailbox_harness.harness.clock.move(3600.0)
    late = mailbox_harness.host(machine)
    with pytest.raises(Gone):
        await mailbox_harness.while_serving(lambda: late.line.claim("", "i-1"))
    assert (await mailbox_harness.harness.machine(machine)).claimed_by is None


async def test_a_sign_of_life_is_a_contact_once_it_changes(mailbox_harness: MailboxHarness) -> None:
    job, machine, host = await mailbox_harness.host_up()
    runner = await mailbox_harness.runner(job)
    runner.beat()
    await mailbox_harness.link.round()
    mailbox_harness.harness.contacts.take()
    later = await mailbox_harness.restart()
    await later.link.round()
    assert not later.harness.contacts.has_pending, "what lay there may be old"
    host.beat()
    runner.beat()
    await later.link.round()
    heard = later.harness.contacts.take()
    assert (set(heard.machines), set(heard.attempts)) == ({machine}, {runner.attempt})


async def test_an_echo_is_a_contact_for_the_agent(mailbox_harness: MailboxHarness) -> None:
    _, _, host = await mailbox_harness.host_up()
    host.clock += 31.0
    assert not host.party.in_touch
    host.beat()
    await mailbox_harness.link.round()
    host.party.fetch_document()
    assert host.party.in_touch


async def test_a_stop_reaches_the_runner(mailbox_harness: MailboxHarness) -> None:
    job, _, _ = await mailbox_harness.host_up()
    runner = await mailbox_harness.runner(job)
    runner.say(MessageKind.STARTED, pid=77)
    known = DesiredAttempt()
    assert await mailbox_harness.while_serving(lambda: runner.channel.desired(known, 0.05)) is None
    await mailbox_harness.harness.writer.write(lambda unit: _cancel(unit, job))
    wish = await mailbox_harness.while_serving(lambda: runner.channel.desired(known, 10.0))
    assert wish == DesiredAttempt(stop=True)


async def test_a_runner_that_is_not_wanted_hears_it(mailbox_harness: MailboxHarness) -> None:
    job, _, _ = await mailbox_harness.host_up()
    runner = await mailbox_harness.runner(job)
    runner.whole_life()
    await mailbox_harness.link.round()
    wish = await mailbox_harness.while_serving(lambda: runner.channel.desired(DesiredAttempt(), 10.0))
    assert wish is not None
    assert wish.settled


async def test_a_machine_that_is_not_wanted_hears_it(mailbox_harness: MailboxHarness) -> None:
    job, machine, host = await mailbox_harness.host_up()
    (await mailbox_harness.runner(job)).whole_life()
    await mailbox_harness.link.round()
    known = (await mailbox_harness.harness.agents.read_desired(machine)).version
    await _release(mailbox_harness)
    host.line.ask(known, 25.0, None)
    with pytest.raises(Gone):
        await mailbox_harness.while_serving(lambda: _document(host))


async def test_the_mailbox_of_a_machine_that_is_gone_goes(mailbox_harness: MailboxHarness) -> None:
    job, machine, _ = await mailbox_harness.host_up()
    (await mailbox_harness.runner(job)).whole_life()
    await _release(mailbox_harness)
    await _gone(mailbox_harness, machine)
    await mailbox_harness.link.round()
    assert (await _job(mailbox_harness, job))["state"] == "completed", "it is read to its end first"
    mailbox_harness.harness.clock.move(61.0)
    await mailbox_harness.link.round()
    assert not mailbox_harness.box(machine).exists()


async def test_the_mail_of_a_machine_that_went_while_nobody_looked_is_found(mailbox_harness: MailboxHarness) -> None:
    job, machine, _ = await mailbox_harness.host_up()
    (await mailbox_harness.runner(job)).whole_life()
    await _gone(mailbox_harness, machine)
    await (await mailbox_harness.restart()).link.round()
    (slot,) = await mailbox_harness.harness.rows(t.slots)
    assert slot["acked"] == 8


async def test_the_mailbox_of_a_machine_that_another_deployment_has_too_is_left_alone(
    mailbox_harness: MailboxHarness,
) -> None:
    """Its row came with a backup of that deployment, which uses the same store."""
    _, machine = await mailbox_harness.new_machine()
    theirs = FakeHost(mailbox_harness.folder, machine, nonce=b"theirs")
    theirs.line._put_claim("i-9")
    theirs.beat()
    await _gone(mailbox_harness, machine)
    before = mailbox_harness.files(machine)
    for _ in range(3):
        await mailbox_harness.link.round()
        mailbox_harness.harness.clock.move(3600.0)
    assert mailbox_harness.files(machine) == before


async def test_another_deployments_mailbox_is_left_alone(mailbox_harness: MailboxHarness) -> None:
    stranger = FakeHost(mailbox_harness.folder, "mch_other", nonce=b"theirs")
    stranger.line._put_claim("i-9")
    stranger.beat()
    before = mailbox_harness.files("mch_other")
    await mailbox_harness.link.round()
    assert mailbox_harness.files("mch_other") == before


async def test_the_bundle_is_read_where_it_lies(mailbox_harness: MailboxHarness) -> None:
    code = b"an archive"
    await mailbox_harness.harness.bundles.put(OWNER, sha(code), pieces(code))
    job, _, _ = await mailbox_harness.host_up(bundle=sha(code))
    runner = await mailbox_harness.runner(job)
    runner.beat()
    await mailbox_harness.link.round()
    assert b"".join(runner.channel.bundle(sha(code), 0)) == code
    assert b"".join(runner.channel.bundle(sha(code), 3)) == code[3:]


STORES = {"private folder": (0o700, False), "open folder": (0o755, False), "bucket": (0o700, True)}


@pytest.fixture(params=STORES)
async def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MailboxHarness]:
    mode, bucket = STORES[request.param]
    room = await make_mailbox_harness(tmp_path, mode, bucket=bucket)
    yield await room.restart(Recording(room.harness.ports.store))
    await give_back(room.harness.ports.db)


class Recording:
    """A store that keeps all that was ever put into it."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.written: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def put(self, key: str, data: bytes, **more: Any) -> Any:
        self.written.append(data)
        return self._inner.put(key, data, **more)


async def test_no_secret_lies_readable_in_the_store(any_store: MailboxHarness) -> None:
    """Where others may look, nothing does; in a folder of the one user of both sides a project's secrets do not."""
    value = "a-secret-of-the-project"
    await any_store.harness.services.vault.set(OWNER, "default", "TOKEN", Secret(value))
    job, machine, host = await any_store.host_up(env={"TOKEN": "a-value-of-the-user"}, secrets={"HF": "TOKEN"})
    runner = await any_store.runner(job)
    assert await any_store.while_serving(runner.channel.secrets) == {"HF": value}
    runner.whole_life()
    for speaker in (runner, host):
        speaker.beat()
    await any_store.link.round()
    written = any_store.harness.ports.store.written  # type: ignore[attr-defined]
    files = [path.read_bytes() for path in any_store.folder.rglob("*") if path.is_file()]
    everything = b"".join([*written, *files])
    assert len(written) > 5
    for name in ("nonce", "machine"):
        assert secret(name, machine) not in everything
    assert value.encode() not in everything
    others = [secret("attempt", runner.attempt), b"a-value-of-the-user"]
    assert all((other in everything) == is_private(any_store) for other in others)
    alive = (any_store.box(machine) / "parties/host/alive").read_bytes()
    assert alive.startswith(b"signed" if is_private(any_store) else b"encrypted")


def is_private(mailbox_harness: MailboxHarness) -> bool:
    return not mailbox_harness.bucket and mailbox_harness.folder.stat().st_mode & 0o077 == 0


async def test_a_job_runs_to_its_end_in_any_store(any_store: MailboxHarness) -> None:
    job, _, _ = await any_store.host_up()
    (await any_store.runner(job)).whole_life()
    await any_store.link.round()
    assert (await _job(any_store, job))["state"] == "completed"


async def test_a_folder_that_is_opened_to_others_gets_encrypted_documents_from_then_on(
    mailbox_harness: MailboxHarness,
) -> None:
    job, machine, host = await mailbox_harness.host_up(env={"TOKEN": "a-value-of-the-user"})
    down = mailbox_harness.box(machine) / "parties/host/down"
    assert b"a-value-of-the-user" in down.read_bytes()
    mailbox_harness.folder.chmod(0o750)
    host.beat()
    await mailbox_harness.link.round()
    assert b"a-value-of-the-user" not in down.read_bytes()
    (await mailbox_harness.runner(job)).beat()
    assert b"a-value-of-the-user" not in b"".join(
        p.read_bytes() for p in mailbox_harness.folder.rglob("*") if p.is_file()
    )
    assert host.party.fetch_document() is not None


async def test_a_sign_of_life_that_is_put_back_is_no_contact(mailbox_harness: MailboxHarness) -> None:
    job, machine, _ = await mailbox_harness.host_up()
    runner = await mailbox_harness.runner(job)
    alive, kept = mailbox_harness.box(machine) / f"parties/{runner.party.name}/alive", []
    for _ in range(3):
        runner.beat()
        kept.append(alive.read_bytes())
        await mailbox_harness.link.round()
    assert runner.attempt in mailbox_harness.harness.contacts.take().attempts
    for old in kept:
        alive.write_bytes(old)
        await mailbox_harness.link.round()
    assert not mailbox_harness.harness.contacts.take().attempts
    runner.beat()
    await mailbox_harness.link.round()
    assert runner.attempt in mailbox_harness.harness.contacts.take().attempts


async def test_secrets_come_encrypted_and_only_while_they_are_asked_for(mailbox_harness: MailboxHarness) -> None:
    value = "a-secret-of-the-project"
    await mailbox_harness.harness.services.vault.set(OWNER, "default", "TOKEN", Secret(value))
    job, machine, _ = await mailbox_harness.host_up(secrets={"HF": "TOKEN"})
    runner = await mailbox_harness.runner(job)
    assert await mailbox_harness.while_serving(runner.channel.secrets) == {"HF": value}
    key, name = (
        runner_key(secret("attempt", runner.attempt), runner.party.name),
        control_document_name(runner.party.name),
    )

    def lying() -> bytes:
        return (mailbox_harness.folder / mailbox_folder(machine) / name).read_bytes()

    assert "secrets" in decode_control_document(key, runner.party.name, lying()).body
    everything = b"".join(path.read_bytes() for path in mailbox_harness.folder.rglob("*") if path.is_file())
    assert value.encode() not in everything
    runner.beat()
    await mailbox_harness.link.round()
    assert "secrets" not in decode_control_document(key, runner.party.name, lying()).body


async def test_secrets_that_are_not_there_any_more_are_refused_by_mail(mailbox_harness: MailboxHarness) -> None:
    await mailbox_harness.harness.services.vault.set(OWNER, "default", "TOKEN", Secret("some value"))
    job, _, _ = await mailbox_harness.host_up(secrets={"HF": "TOKEN"})
    await mailbox_harness.harness.services.vault.remove(OWNER, "default", "TOKEN")
    runner = await mailbox_harness.runner(job)
    with pytest.raises(Refused, match="no secret 'TOKEN'"):
        await mailbox_harness.while_serving(runner.channel.secrets)


async def test_quiet_mailboxes_are_looked_into_less_often(mailbox_harness: MailboxHarness) -> None:
    assert await mailbox_harness.link.round() == 2.0
    await mailbox_harness.host_up()
    assert await mailbox_harness.link.round() == 1.0


def _document(host: FakeHost) -> Desired:
    """What a host hears in the end: as long as nobody has looked into its mailbox it goes on asking."""
    until = time.monotonic() + 15.0
    while True:
        try:
            found = host.line.answer()
        except Unreachable:
            assert time.monotonic() < until, "nobody looks into the mailbox"
            found = None
        if found is not None:
            return found
        host.beat()
        time.sleep(0.01)


async def _job(mailbox_harness: MailboxHarness, job: str) -> dict[str, object]:
    return next(row for row in await mailbox_harness.harness.rows(t.jobs) if row["id"] == job)


def _cancel(unit: UnitOfWork, job: str) -> None:
    world = repository.load_world(unit.conn, job)
    assert world is not None
    unit.advance(world, f.CancelRequested())


async def _release(mailbox_harness: MailboxHarness) -> None:
    await mailbox_harness.harness.writer.write(release_idle_machines)


async def _gone(mailbox_harness: MailboxHarness, machine: str) -> None:
    await mailbox_harness.harness.change_machine(machine, f.SeenGone(), f.SeenGone())
    assert (await mailbox_harness.harness.machine(machine)).state is MachineState.GONE
