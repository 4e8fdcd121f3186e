"""Test a runner without contact, in virtual time: how its lease and the control plane's timeout work together."""

from __future__ import annotations

import signal

import pytest

from crucible.agent.runner import runner_events as ev
from crucible.agent.runner import runner_state as rs
from crucible.agent.runner.lease import ContactTracker
from crucible.wire.documents.messages import Cause, MessageKind

TERM = ev.SendSignal(signal.SIGTERM)
MINUTE, HOUR = 60.0, 3600.0
TURN = 5.0


class Node:
    """A running runner on a fake clock. The poller makes one request each turn."""

    def __init__(self, lease: float | None, seconds: float | None = None) -> None:
        self.now = 1000.0
        self.contacts = ContactTracker(lambda: None, lease, lambda: self.now)
        self.state, _ = rs.begin(10.0, seconds, self.now)
        self.did: list[ev.Action] = []
        self.feed(ev.StagingDone(), ev.ProcessStarted(7))

    def feed(self, *events: ev.Event) -> None:
        for event in events:
            self.state, actions = rs.step(self.state, event)
            self.did += actions

    def live(self, seconds: float, *, connected: bool) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + TURN)
            self.contact(connected)
            self.turn()

    def contact(self, connected: bool, took: float = 1.0) -> None:
        if connected:
            self.contacts.succeeded()
        else:
            self.contacts.failed("no route", self.now - took)

    def turn(self) -> None:
        if self.contacts.has_lease_expired():
            self.feed(ev.LeaseExpired())
        self.feed(ev.Tick(self.now))

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    @property
    def was_stopped(self) -> bool:
        return TERM in self.did

    def cause(self) -> object:
        self.feed(ev.ProcessEnded(0, None))
        return next(a.data["cause"] for a in self.did if isinstance(a, ev.SendMessage) and a.kind is MessageKind.EXITED)


@pytest.mark.parametrize("lease", [None, 6 * HOUR])
@pytest.mark.parametrize("partition", [5.0, MINUTE, 10 * MINUTE, 2 * HOUR])
def test_a_healthy_runner_outlives_a_partition(lease: float | None, partition: float) -> None:
    node = Node(lease)
    node.live(10 * MINUTE, connected=True)
    node.live(partition, connected=False)
    node.live(MINUTE, connected=True)
    assert not node.was_stopped
    assert node.cause() == Cause.EXIT.value


def test_without_a_lease_silence_ends_nothing() -> None:
    node = Node(None)
    node.live(48 * HOUR, connected=False)
    assert not node.was_stopped


def test_after_its_lease_it_saves_and_ends_fenced() -> None:
    node = Node(6 * HOUR)
    node.live(10 * MINUTE, connected=True)
    node.live(6 * HOUR - MINUTE, connected=False)
    assert not node.was_stopped
    node.live(2 * MINUTE, connected=False)
    assert node.did.count(TERM) == 1
    assert ev.WriteStopFile() in node.did
    assert node.cause() == Cause.FENCED.value


def test_partitions_do_not_add_up() -> None:
    node = Node(6 * HOUR)
    for _ in range(5):
        node.live(5 * HOUR, connected=False)
        node.live(TURN, connected=True)
    assert not node.was_stopped


def test_a_machine_that_slept_asks_before_it_acts() -> None:
    node = Node(6 * HOUR)
    node.live(MINUTE, connected=True)
    node.sleep(9 * HOUR)
    node.turn()
    node.contact(False, took=9 * HOUR)  # the request that was under way breaks at last
    node.turn()
    node.live(20.0, connected=False)  # the network is not up yet
    assert not node.was_stopped
    node.live(MINUTE, connected=True)
    node.live(HOUR, connected=False)
    assert not node.was_stopped


def test_a_machine_that_slept_and_finds_nobody_is_fenced() -> None:
    node = Node(6 * HOUR)
    node.live(MINUTE, connected=True)
    node.sleep(9 * HOUR)
    node.live(2 * MINUTE, connected=False)
    assert node.cause() == Cause.FENCED.value


def test_the_lease_may_become_another() -> None:
    node = Node(None)
    node.contacts.set_lease(HOUR)
    node.live(HOUR - MINUTE, connected=False)
    assert not node.was_stopped
    node.contacts.set_lease(3 * HOUR)
    node.live(HOUR, connected=False)
    assert not node.was_stopped
    node.contacts.set_lease(2 * HOUR)
    node.live(2 * MINUTE, connected=False)
    assert node.was_stopped
