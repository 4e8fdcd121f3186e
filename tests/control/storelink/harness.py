"""A control plane in memory whose agents share only a folder with it: real agent code, no listener."""

from __future__ import annotations

import asyncio
import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from tests.control.harness import KEY, ControlHarness, join, make_harness, secret

from crucible.agent.link.channel import LogSegment
from crucible.agent.storelink.channel import StoreChannel
from crucible.agent.storelink.client import MailboxClient
from crucible.agent.storelink.machine import StoreMachineChannel
from crucible.agent.storelink.mailbox import FolderMailbox
from crucible.control.storelink import Mailboxes, StoreLink
from crucible.storage import Store, open_store
from crucible.wire.documents.mailbox import HOST, host_key, mailbox_folder, runner_key, runner_party
from crucible.wire.documents.messages import Message, MessageKind

T = TypeVar("T")


@dataclass
class MailboxHarness:
    """The harness, its store's folder, and the link that serves the mailboxes there."""

    harness: ControlHarness
    folder: Path
    link: StoreLink
    bucket: bool = False
    """Whether both sides treat the folder as a bucket."""

    def box(self, machine: str) -> Path:
        return self.folder / mailbox_folder(machine)

    def files(self, machine: str) -> set[str]:
        root = self.box(machine)
        return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}

    async def restart(self, store: Store | None = None) -> MailboxHarness:
        """Return the same deployment in a new process, optionally with another store."""
        ports = replace(self.harness.ports, store=store or self.harness.ports.store)
        harness = join(
            ports, self.harness.clock, self.harness.calls, self.harness.backends, self.harness.deployment.scratch
        )
        await harness.offers.refresh()
        await harness.duties.renew(ports.db, harness.clock)
        return MailboxHarness(
            harness, self.folder, make_link(harness, None if self.bucket else self.folder), self.bucket
        )

    async def while_serving(self, work: Callable[[], T], seconds: float = 20.0) -> T:
        """Run an agent's blocking call while the mailboxes are served; return its result."""
        task = asyncio.create_task(asyncio.to_thread(work))
        async with asyncio.timeout(seconds):
            while not task.done():
                await self.link.round()
                await asyncio.sleep(0.005)
        return await task

    async def new_machine(self, **spec: object) -> tuple[str, str]:
        """Submit a job and launch its machine, which has not made contact; return both IDs."""
        job = await self.harness.submit(**spec)
        while await self.harness.performer.perform_due():
            pass
        return job, (await self.harness.machine()).id

    def host(self, machine: str) -> FakeHost:
        return FakeHost(self.folder, machine, bucket=self.bucket)

    async def host_up(self, **spec: object) -> tuple[str, str, FakeHost]:
        """Submit a job whose machine has a host in contact; return both IDs and the host."""
        job, machine = await self.new_machine(**spec)
        host = self.host(machine)
        await self.while_serving(lambda: host.line.claim("", "i-1"))
        return job, machine, host

    async def runner(self, job: str) -> StoreRunner:
        attempt = await self.harness.attempt(job)
        return StoreRunner(self.folder, attempt.slots[0].machine, attempt.id, bucket=self.bucket)


def make_link(harness: ControlHarness, folder: Path | None) -> StoreLink:
    return StoreLink(harness.ports, harness.agents, Mailboxes(harness.ports, folder), KEY, harness.backends)


async def make_mailbox_harness(tmp_path: Path, mode: int = 0o700, *, bucket: bool = False) -> MailboxHarness:
    folder = tmp_path / "store"
    folder.mkdir()
    folder.chmod(mode)
    plain = await make_harness(tmp_path)
    ports = replace(plain.ports, store=open_store(str(folder)))
    harness = join(ports, plain.clock, plain.calls, plain.backends, tmp_path)
    await harness.offers.refresh()
    await harness.duties.renew(ports.db, harness.clock)
    return MailboxHarness(harness, folder, make_link(harness, None if bucket else folder), bucket)


class BucketLike(FolderMailbox):
    """A store that counts as a bucket, whose readers are unknown."""

    is_private = False  # type: ignore[assignment]


def quick_mail(folder: Path, machine: str, *, bucket: bool = False) -> FolderMailbox:
    mail = (BucketLike if bucket else FolderMailbox)(folder, machine)
    mail.pace = 0.01
    return mail


class FakeHost:
    """A host's channel, with the key derived from its bootstrap's nonce."""

    def __init__(self, folder: Path, machine: str, nonce: bytes | None = None, *, bucket: bool = False) -> None:
        key = host_key(nonce or secret("nonce", machine), machine)
        self.clock = 0.0
        self.party = MailboxClient(quick_mail(folder, machine, bucket=bucket), HOST, key, clock=lambda: self.clock)
        self.line = StoreMachineChannel(self.party, key)

    def beat(self) -> None:
        self.clock += 11.0
        self.party.send_heartbeat()


class StoreRunner:
    """A runner's channel; numbers its messages."""

    def __init__(self, folder: Path, machine: str, attempt: str, rank: int = 0, *, bucket: bool = False) -> None:
        name = runner_party(attempt, rank)
        self.clock = 0.0
        key = runner_key(secret("attempt", attempt), name)
        self.party = MailboxClient(quick_mail(folder, machine, bucket=bucket), name, key, clock=lambda: self.clock)
        self.channel = StoreChannel(self.party, attempt, rank, secret("attempt", attempt).decode())
        self.attempt = attempt
        self.folder = folder
        self.n = 0

    def beat(self) -> None:
        self.clock += 11.0
        self.party.send_heartbeat()

    def message(self, kind: MessageKind, **data: object) -> Message:
        self.n += 1
        return Message(self.n, kind, 12.5, data)

    def say(self, kind: MessageKind, **data: object) -> None:
        self.channel.send([self.message(kind, **data)])

    def log(self, n: int, start: int, text: bytes) -> None:
        path = self.folder / "segment.log"
        path.write_bytes(text)
        lines = text.count(b"\n")
        sha256 = self.channel.put_log(LogSegment(n, start, start + len(text), lines, path))
        self.say(MessageKind.LOG, n=n, start=start, end=start + len(text), lines=lines, sha256=sha256)

    def artifact(self, path: str, data: bytes) -> None:
        sha256 = hashlib.sha256(data).hexdigest()
        self.channel.put_artifact(path, io.BytesIO(data), len(data), sha256)
        self.say(MessageKind.ARTIFACT, path=path, size=len(data), sha256=sha256)

    def checkpoint(self, name: str, data: bytes, step: int) -> None:
        sha256 = hashlib.sha256(data).hexdigest()
        self.channel.put_checkpoint(sha256, io.BytesIO(data), len(data))
        self.say(MessageKind.CHECKPOINT, name=name, form="file", size=len(data), sha256=sha256, step=step, metric=None)

    def whole_life(self) -> None:
        """Send every message of a runner, from its start to its end."""
        self.say(MessageKind.STARTED, pid=77)
        self.log(1, 0, b"one\n")
        self.say(MessageKind.POINTS, series={"loss": [[1, 0.5, 12.0]]})
        self.artifact("model.bin", b"weights")
        self.checkpoint("step-1", b"state", 1)
        self.log(2, 4, b"two\n")
        self.say(MessageKind.EXITED, code=0, cause="exit")
        self.say(MessageKind.ENDED)
