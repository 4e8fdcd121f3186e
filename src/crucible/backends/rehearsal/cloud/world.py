"""The state of the simulated cloud and everything that changes it: calls of customers, admin calls, and time.

Everything happens under one lock. Before each call the world catches up with time: steps that fell due are done in
order, including those that fell due while the cloud was not running.
"""

from __future__ import annotations

import contextlib
import json
import math
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from .catalogue import TYPES, Item, Market
from .clock import Anchor, Clock
from .faults import Faults, SeededChance
from .market import MarketState
from .processes import Machines, Process
from .records import Cause, Instance, ListedInstance, OnExit, State, Step
from .store import Store

LISTED_SECONDS = 3600
"""How long a list still shows an ended instance."""
KILL_RETRY_SECONDS = 1.0
"""Delay before processes that survived are killed again."""


class Refused(Exception):
    """The cloud refuses a request: `code` for programs, `message` for people."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


@dataclass(frozen=True)
class InstanceRequest:
    """Parameters of a new instance. `ends_at` is in the cloud's time; `hash` covers all parameters but the token."""

    item: Item
    user_data: str
    tags: Mapping[str, str]
    token: str
    on_exit: OnExit
    ends_at: float | None
    max_seconds: float | None
    hash: str


class World:
    """The simulated cloud. Except for `tick`, call its methods inside `exclusive`."""

    def __init__(self, store: Store, clock: Clock, machines: Machines, seed: int, price_seconds: int) -> None:
        self._machines = machines
        self._price_seconds = price_seconds
        self._lock = threading.RLock()
        self._disks_to_remove = [id for id in machines.leftovers() if not _lives(store.get(id))]
        self._started_at = clock.now()
        self.store = store
        self.clock = clock
        self.market = MarketState(store, seed)
        self._seed = seed
        self.faults = Faults(**json.loads(store.note("faults") or "{}"))
        self.environ: dict[str, str] = {}
        """Environment variables of every machine."""
        self.metadata_url = ""
        with store.transaction():
            self._begin()

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[float]:
        """Lock the world, catch up, and yield the time. Changes are committed unless the body raises."""
        with self._lock:
            now = self._catch_up()
            with self.store.transaction():
                yield now

    def strike_faults(self, *chances: str) -> tuple[Faults, list[bool]]:
        """Return the faults, and for each of these names whether it happens now."""
        with self._lock:
            return self.faults, [self._chance.happens(getattr(self.faults, name)) for name in chances]

    def tick(self) -> float:
        """Catch up, and return the seconds of the computer's time until the next step is due."""
        with self.exclusive() as now:
            self._notice_exits(now)
            due = self.store.next_due()
            removed, self._disks_to_remove = self._disks_to_remove, []
        for id in removed:
            self._machines.remove(id)
        step = self._step_at(self._steps_done() + 1)
        return self.clock.wall_seconds(max(min(due if due is not None else step, step) - now, 0.0))

    # Calls of customers

    def create(self, wish: InstanceRequest, now: float) -> Instance:
        known = self.store.by_token(wish.token) if wish.token and self.faults.tokens_honoured else None
        if known is not None:
            if known.wish != wish.hash:
                message = f"the token was used for {known.id} with other parameters"
                raise Refused(409, "idempotent_parameter_mismatch", message)
            return known
        refusal = self.market.refusal(wish.item, self.store.alive())
        if refusal is not None:
            status = 403 if refusal.code == "quota_exceeded" else 409
            raise Refused(status, refusal.code, refusal.message)
        instance = self._new(wish, now)
        self._machines.prepare(instance.id, wish.user_data)
        self.store.add(instance)
        return instance

    def terminate(self, id: str, now: float) -> Instance:
        """Begin to shut down an instance. Idempotent."""
        instance = self.get(id)
        return self._shut_down(instance, Cause.USER, now)

    def get(self, id: str) -> Instance:
        instance = self.store.get(id)
        if instance is None:
            raise Refused(404, "instance_not_found", f"there is no instance {id!r}")
        return instance

    def list_instances(
        self, now: float, tags: Mapping[str, Sequence[str]], *, metered: bool = False
    ) -> list[ListedInstance]:
        """Return what a list shows: with the lag, and without instances that ended long ago unless `metered`."""
        ended_after = -math.inf if metered else now - LISTED_SECONDS
        return self.store.list_instances(now - self.faults.list_lag, ended_after, tags)

    # Admin calls

    def reclaim(self, id: str, notice: float | None, now: float) -> Instance:
        """Reclaim a spot instance after `notice` seconds; None: at once, without a notice."""
        instance = self.get(id)
        if instance.market is not Market.SPOT:
            raise Refused(409, "not_spot", f"{id} is {instance.market}")
        if instance.state not in (State.PENDING, State.RUNNING):
            return instance
        reclaimed = replace(instance, notice_at=None if notice is None else now, die_at=now + (notice or 0.0))
        self.store.save(reclaimed)
        return reclaimed

    def kill(self, id: str, now: float, cause: Cause = Cause.FAILURE) -> Instance:
        """End an instance at once, without a notice."""
        instance = self.get(id)
        return self._off(instance, cause, now) if instance.alive else instance

    def stop_zone(self, zone: str, now: float) -> None:
        """Kill every instance in a zone, and refuse new ones there until `start_zone`."""
        self.store.write_outage(zone, True)
        for instance in self.store.alive():
            if instance.zone == zone:
                self._off(instance, Cause.OUTAGE, now)

    def start_zone(self, zone: str) -> None:
        self.store.write_outage(zone, False)

    def set_faults(self, faults: Faults) -> None:
        self.faults = faults
        self.store.write_note("faults", json.dumps(asdict(faults)))

    def hold_price(self, zone: str, type: str, rate: int | None, now: float) -> None:
        self.market.hold(zone, type, rate)
        self._reprice(math.floor(now))

    def move_prices(self, steps: int, now: float) -> None:
        """Move the spot prices this many times now."""
        moved = int(self.store.note("moved") or 0)
        for step in range(moved, moved + steps):
            self.market.move(-1 - step)
        self.store.write_note("moved", str(moved + steps))
        self._reprice(math.floor(now))

    def jump(self, seconds: float) -> Anchor:
        """Advance the time. Steps that fall due are done before the next call."""
        anchor = self.clock.jump(seconds)
        self.store.write_note("anchor", json.dumps(asdict(anchor)))
        return anchor

    def reset(self, now: float) -> None:
        """Remove all machines, bills and faults; keys and seed stay."""
        for instance in self.store.alive():
            self._off(instance, Cause.FAILURE, now)
        self.store.forget()
        self.faults = Faults()
        self._begin()

    # Time

    def _begin(self) -> None:
        """Start price moves and random faults from the seed."""
        self._chance = SeededChance(self._seed)
        self._begun = int(self.store.note("begun") or self.clock.now())
        self.store.write_note("begun", str(self._begun))

    def _catch_up(self) -> float:
        now = self.clock.now()
        while True:
            with self.store.transaction():
                if not self._do_next(now):
                    return now

    def _do_next(self, now: float) -> bool:
        """Do the step that fell due first, and return whether there was one."""
        step = self._step_at(self._steps_done() + 1)
        instance = self.store.due(min(now, step))
        if instance is not None:
            self._do(instance)
            return True
        if step <= now:
            self._price_step()
            return True
        return False

    def _do(self, instance: Instance) -> None:
        assert instance.next is not None, "it is due"
        at, step = instance.next
        if step is Step.BOOT:
            self._boot(instance, at)
        elif step is Step.OFF:
            self._off(instance, instance.cause, at)
        elif step is Step.RECLAIM:
            self._shut_down(instance, Cause.RECLAIM, at)
        else:
            self._shut_down(instance, Cause.MAX_DURATION, at)

    def _notice_exits(self, now: float) -> None:
        """End instances whose user data has ended, unless they are to run on."""
        for instance in self.store.alive():
            if instance.state is State.RUNNING and instance.on_exit is OnExit.TERMINATE:
                process = _process(instance)
                if process and not self._machines.alive(process):
                    self._off(instance, Cause.SHUTDOWN, now)

    # Prices

    def _steps_done(self) -> int:
        return int(self.store.note("steps") or 0)

    def _step_at(self, step: int) -> int:
        return self._begun + step * self._price_seconds

    def _price_step(self) -> None:
        step = self._steps_done() + 1
        self.store.write_note("steps", str(step))
        self.market.move(step)
        self._reprice(self._step_at(step))
        self._reclaim_at_random(self._step_at(step))

    def _reprice(self, at: int) -> None:
        """Begin a new segment for every running spot instance whose price has changed."""
        rates = self.market.rates()
        for instance in self.store.alive():
            if instance.state is State.RUNNING and instance.market is Market.SPOT:
                rate = rates[instance.item]
                if self.store.open_rate(instance.id) != rate:
                    self.store.open_segment(instance.id, at, rate)

    def _reclaim_at_random(self, at: float) -> None:
        chance = self.faults.reclaims_per_hour * self._price_seconds / 3600
        for instance in self.store.alive():
            spot = instance.market is Market.SPOT and instance.state is State.RUNNING
            if spot and instance.die_at is None and self._chance.happens(chance):
                self.reclaim(instance.id, self.faults.reclaim_notice, at)

    # Transitions

    def _new(self, wish: InstanceRequest, now: float) -> Instance:
        kind, faults = TYPES[wish.item.type], self.faults
        boot = kind.boot_seconds if faults.boot_seconds is None else faults.boot_seconds
        ends = [wish.ends_at] if wish.ends_at is not None else []
        ends += [now + wish.max_seconds] if wish.max_seconds is not None else []
        return Instance(
            id=f"i-{secrets.token_hex(8)}",
            zone=wish.item.zone,
            type=wish.item.type,
            market=wish.item.market,
            tags=wish.tags,
            created_at=now,
            boot_at=now + boot,
            wish=wish.hash,
            secret=secrets.token_urlsafe(18),
            token=wish.token,
            on_exit=wish.on_exit,
            ends_at=max(now, min(ends)) if ends else None,
        )

    def _boot(self, instance: Instance, at: float) -> None:
        try:
            process = self._adopted(instance) or self._machines.boot(instance.id, self._environ(instance))
        except OSError:
            self._off(instance, Cause.BOOT, at)
            return
        running = replace(instance, state=State.RUNNING, running_at=at, pid=process.pid, started=process.started)
        self.store.save(running, at)
        self.store.open_segment(instance.id, math.floor(at), self.market.rate(instance.item))

    def _adopted(self, instance: Instance) -> Process | None:
        return self._machines.adopt(instance.id) if instance.created_at <= self._started_at else None

    def _shut_down(self, instance: Instance, cause: Cause, at: float) -> Instance:
        """Send SIGTERM, and switch the instance off a moment later. Its billing ends now."""
        if instance.state is State.PENDING:
            return self._off(instance, cause, at)
        if instance.state is not State.RUNNING:
            return instance
        self._machines.ask(_process(instance))
        off = at + self.faults.shutdown_seconds
        ending = replace(instance, state=State.SHUTTING_DOWN, cause=cause, off_at=off)
        self.store.close_segment(instance.id, math.ceil(at))
        self.store.save(ending, at)
        return ending

    def _off(self, instance: Instance, cause: Cause, at: float) -> Instance:
        """Kill everything on the instance; the next tick removes its disk. If a process survives, retry later."""
        self.store.close_segment(instance.id, math.ceil(at))
        if not self._kill_processes(instance):
            again = self.clock.now() + KILL_RETRY_SECONDS
            surviving = replace(instance, state=State.SHUTTING_DOWN, cause=cause, off_at=again)
            self.store.save(surviving, at)
            return surviving
        ended = replace(instance, state=State.TERMINATED, cause=cause, ended_at=at)
        self.store.save(ended, at)
        self._disks_to_remove.append(instance.id)
        return ended

    def _kill_processes(self, instance: Instance) -> bool:
        """Kill everything on the instance. Return False if something survived."""
        never_booted = instance.pid is None and instance.created_at > self._started_at
        return never_booted or self._machines.end(instance.id, _process(instance))

    def _environ(self, instance: Instance) -> dict[str, str]:
        return {
            **self.environ,
            "CLOUD_METADATA_URL": f"{self.metadata_url}/metadata/{instance.secret}",
            "CLOUD_REGION": instance.region,
            "CLOUD_ZONE": instance.zone,
        }


def _process(instance: Instance) -> Process | None:
    return Process(instance.pid, instance.started) if instance.pid is not None else None


def _lives(instance: Instance | None) -> bool:
    return instance is not None and instance.alive
