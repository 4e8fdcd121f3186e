"""The control plane as the server sees it: everything a route may ask, and nothing else.

Errors come as CrucibleError; their `http_status` and `data` become the answer, so a new kind of error needs
no change here. Views are plain JSON values.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence, Set
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol

from crucible.core.errors import CrucibleError
from crucible.core.jobfilter import JobFilter
from crucible.core.models import Order
from crucible.core.offerfilter import OfferFilter
from crucible.core.people import Identity
from crucible.core.planask import PlanAsk
from crucible.core.spec import JobSpec
from crucible.server.people_ports import HooksPort, PeoplePort, SecretsPort
from crucible.server.session_ports import Entrance, Meeting
from crucible.wire.desired import Desired

View = dict[str, Any]
"""A JSON object made by control for people and programs; the server passes it on unread."""


class Submitted(Protocol):
    @property
    def view(self) -> View: ...
    @property
    def created(self) -> bool: ...


class LogPage(Protocol):
    """`data` is the attempt's output from byte `start` up to `next`.

    It goes on beyond what is stored, as far as the live tail is known. `attempts` is 0 while none was made.
    `complete` says that nothing follows `next` and nothing will.
    """

    @property
    def attempt(self) -> int: ...
    @property
    def attempts(self) -> int: ...
    @property
    def start(self) -> int: ...
    @property
    def next(self) -> int: ...
    @property
    def complete(self) -> bool: ...
    @property
    def data(self) -> bytes: ...


class StoredFile(Protocol):
    """Something in the store: an artifact, a bundle or a checkpoint."""

    @property
    def key(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def sha256(self) -> str: ...


class Store(Protocol):
    def open_range(self, key: str, start: int, end: int) -> Iterator[bytes]:
        """The bytes `start` up to, not including, `end`. Blocks; each step reads a bounded piece."""
        ...


class Watch(Protocol):
    async def changed(self, timeout: float) -> Set[str]:
        """What changed since the last call (event, log, points, progress); empty after `timeout` seconds."""
        ...


class JobsPort(Protocol):
    """What the public API asks, on behalf of somebody: everything goes through `at(who)`."""

    @property
    def store(self) -> Store: ...
    @property
    def people(self) -> PeoplePort: ...
    @property
    def vault(self) -> SecretsPort: ...
    @property
    def hooks(self) -> HooksPort: ...

    def at(self, who: Identity) -> JobsPort:
        """The same, as `who` may use it: what he may not see raises NotFound, what he may not do Forbidden."""
        ...

    async def identify(self, token: str) -> Identity | None:
        """Whom a token stands for; None for one that is good for nothing."""
        ...

    async def share(self, ref: str, *, name: str, seconds: float) -> View:
        """A token that shows this job and nothing else, to whoever has it."""
        ...

    async def submit(self, spec: JobSpec, key: str | None) -> Submitted: ...
    async def ensure_project(self, name: str) -> None:
        """An administrator's projects are made as they are named; for others nothing happens."""
        ...

    async def training(self, ref: str) -> View:
        """The job as a training record: model, config, executor, current epoch and metrics."""
        ...

    async def models(self) -> list[View]: ...
    async def model(self, name: str) -> View: ...
    async def model_spec(self, order: Order, job: Mapping[str, object]) -> JobSpec:
        """The job that does what is ordered of a model; `job` are further fields of it."""
        ...

    async def catalog(self, wanted: OfferFilter, *, limit: int, cursor: str | None) -> View:
        """Offers, cheapest first; raises UnknownName, and BadInput for a cursor that no page has given."""
        ...

    async def catalog_type(self, name: str) -> View: ...
    async def catalog_audit(self) -> View: ...
    async def compare_prices(self, text: str, *, provider: str | None, over: float) -> View:
        """The catalog beside another table of prices; raises BadInput for what is none."""
        ...

    async def refresh_prices(self, provider: str, regions: Sequence[str]) -> View:
        """Asks the provider; raises BadInput where it cannot be asked, Unreachable where it answers nothing good."""
        ...

    async def find_job(self, ref: str) -> str: ...
    async def job(self, ref: str) -> View: ...
    async def view(self, ref: str) -> View:
        """The job without the parts that have streams of their own (`recent_logs`, `metrics`)."""
        ...

    async def health(self, ref: str) -> View:
        """How a job does: verdict, level, message, advice, and the findings with their evidence."""
        ...

    async def compare(self, refs: Sequence[str]) -> View:
        """Two to twenty jobs side by side; raises BadInput for another number."""
        ...

    async def jobs(self, wanted: JobFilter, *, limit: int, cursor: str | None) -> View:
        """`items`, newest first, and `next`; raises BadInput for a cursor that no page has given."""
        ...

    async def cancel(self, ref: str) -> tuple[View, bool]: ...
    async def submit_many(self, orders: Sequence[tuple[JobSpec, str | None]]) -> Sequence[Submitted | CrucibleError]:
        """Specs and their keys. What became of each, in their order; one that is refused stops none of the others."""
        ...

    async def cancel_many(self, wanted: JobFilter, *, limit: int, dry_run: bool) -> tuple[list[View], bool]:
        """Of the jobs that fit and have not ended the newest `limit`, and whether there are more."""
        ...

    async def cancel_these(self, refs: Sequence[str], *, dry_run: bool) -> Sequence[View | CrucibleError]: ...
    async def rename(self, ref: str, name: str | None) -> View: ...
    async def tags(self, ref: str) -> list[str]: ...
    async def change_tags(self, ref: str, *, add: Sequence[str], remove: Sequence[str]) -> list[str]:
        """All tags, after `remove` and then `add`; raises BadInput for what is no tag, or for too many."""
        ...

    async def notes(self, ref: str) -> list[View]: ...
    async def add_note(self, ref: str, *, text: str) -> View:
        """Raises Conflict where the job has as many as it may."""
        ...

    async def delete_note(self, ref: str, note: str) -> View: ...
    async def resume(self, ref: str, *, checkpoint: str | None, backend: str | None) -> View:
        """Reopen a job that has ended, from a checkpoint (the newest unless named), perhaps at another place.

        Raises Conflict while it has not ended, NotFound for a checkpoint it does not have.
        """
        ...

    async def rerun(self, ref: str, key: str | None) -> Submitted:
        """A new job with the same code, environment, arguments and seed; `key` as in `submit`."""
        ...

    async def enter(self, ref: str) -> Entrance:
        """The way into a running job; raises Conflict where there is none."""
        ...

    async def ask_checkpoint(self, ref: str) -> View:
        """Tell the running program to save a checkpoint now; raises Conflict where none runs."""
        ...

    async def checkpoints(self, ref: str) -> list[View]:
        """The checkpoints of a job, newest first, with those that were not kept."""
        ...

    async def checkpoint_file(self, ref: str, checkpoint: str) -> tuple[View, StoredFile]:
        """One by its id, short id or name, or `latest` or `best`; a folder is stored as a tar archive."""
        ...

    async def logs(self, ref: str, *, attempt: int | None, offset: int, limit: int, since: float | None) -> LogPage: ...
    async def search_logs(
        self,
        ref: str,
        *,
        text: str,
        regex: bool,
        case: bool,
        attempt: int | None,
        context: int,
        limit: int,
        cursor: str | None,
    ) -> View:
        """`items`, the lines that match in order, `next` and `complete`.

        Raises BadInput for an expression or a cursor that is none. When cancelled, the search ends.
        """
        ...

    async def metrics(self, ref: str, *, series: list[str], points: int) -> View:
        """The series (all unless named) of `attempt`, the latest that has any; a `count` never falls in one.

        Each with about `points` points that draw it, or, counted from the end as a negative number, with its
        last `-points`, every one. Points are in the order in which they came.
        """
        ...

    async def events(self, ref: str | None, *, after: int, limit: int) -> list[View]: ...
    async def artifacts(self, ref: str) -> list[View]: ...
    async def artifact(self, ref: str, path: str) -> StoredFile: ...
    async def plan(self, ask: PlanAsk) -> View:
        """Offers best first, those rejected with the reason, the one chosen with its LaunchCall. Changes nothing."""
        ...

    async def predictions(self, *, limit: int, cursor: str | None) -> View:
        """What was predicted beside what it took; raises BadInput for a cursor that no page has given."""
        ...

    async def backends(self) -> list[View]: ...
    async def other_backends(self) -> list[View]: ...
    async def machines(self, *, all: bool = False) -> list[View]:
        """Machines that are not gone; with `all` also those that are."""
        ...

    async def orphans(self) -> list[View]:
        """Machines that carry our tag and that we do not know, or that should be gone."""
        ...

    async def terminate_machine(self, ref: str) -> View:
        """End a machine, named by our id, its short form, or an orphan's native id. Again is harmless."""
        ...

    async def prune(self, *, older_than: float | None, dry_run: bool) -> View:
        """Remove what retention allows, older than so many seconds; `dry_run` only says what that is."""
        ...

    async def backup(self, target: str) -> View:
        """Copy the database to this path on the server's disk, while it is in use."""
        ...

    async def confirm_restore(self) -> View:
        """After a restore: machines may be launched and ended again."""
        ...

    async def status(self) -> View: ...
    async def gauges(self) -> View:
        """How much goes on, for monitoring: cheap however many jobs there are."""
        ...

    async def has_bundle(self, sha: str) -> bool: ...
    async def put_bundle(self, sha: str, chunks: AsyncIterator[bytes]) -> bool: ...
    def ready(self) -> bool: ...
    def watch(self, job: str | None) -> AbstractAsyncContextManager[Watch]: ...


class AgentsPort(Protocol):
    """What the agents' listener asks. The two checks raise NotAllowed."""

    @property
    def store(self) -> Store: ...

    def check_machine(self, machine: str, bearer: str) -> None: ...
    def check_attempt(self, attempt: str, bearer: str) -> None: ...
    async def claim(self, machine: str, nonce: str, native_id: str) -> str: ...
    async def desired(
        self, machine: str, version: int, wait: float, devices: Mapping[str, object] | None = None
    ) -> Desired | None: ...
    async def attempt_desired(
        self,
        attempt: str,
        rank: int,
        stop: bool,
        checkpoint: int,
        wait: float,
        sessions: Collection[str] | None = None,
    ) -> View | None: ...
    def met(self, attempt: str, session: str) -> AbstractContextManager[Meeting]:
        """A session whose agent has come; raises NotFound for one that is not of this attempt, or taken."""
        ...

    async def ingest(self, attempt: str, rank: int, raw: bytes) -> int: ...
    async def put_log(
        self, attempt: str, rank: int, n: int, start: int, lines: int, sha256: str, data: bytes
    ) -> None: ...
    def put_tail(self, attempt: str, rank: int, start: int, data: bytes) -> None: ...
    async def put_artifact(
        self, attempt: str, rank: int, path: str, sha256: str, chunks: AsyncIterator[bytes]
    ) -> None: ...
    async def put_checkpoint(self, attempt: str, rank: int, sha256: str, chunks: AsyncIterator[bytes]) -> None: ...
    async def open_checkpoint(self, attempt: str, rank: int, sha256: str) -> StoredFile: ...
    async def open_bundle(self, sha: str) -> StoredFile: ...
    async def secrets(self, attempt: str) -> dict[str, str]:
        """The attempt's variables that are secrets, in the clear."""
        ...


class ControlPort(JobsPort, Protocol):
    """Both sides, with the start and stop of the background loops."""

    @property
    def agents(self) -> AgentsPort: ...

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
