"""What backends offer: asked once for each need, outside any transaction, and kept while they are silent."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.control.clouds import FakeCloud
from tests.control.fakes import FakeBackend, FakeClock, Gate, InlineCalls

from crucible.control.reconcile.unit_of_work import SCHEDULER
from crucible.control.runtime.system_ports import LocalWakeups
from crucible.control.scheduling.backends import ConnectedBackends
from crucible.control.scheduling.offers import MAX_NEEDS, USED_SECONDS, OfferBook
from crucible.core.compute.offers import Need, Offer
from crucible.core.compute.resources import Resources
from crucible.core.errors import Unreachable

ANY = Need()
SMALL, LARGE = Need(Resources(cpus=1)), Need(Resources(cpus=64))


@dataclass
class Cloud(FakeCloud):
    """A cloud whose answers depend on the need; `asked` are the questions that reached it."""

    asked: list[Need] = field(default_factory=list)

    def offers(self, need: Need) -> Sequence[Offer]:
        self.asked.append(need)
        found = super().offers(need)
        return found if (need.resources.cpus or 0) < 64 else found[:1]


@dataclass
class Computer(FakeBackend):
    asked: list[Need] = field(default_factory=list)

    def offers(self, need: Need) -> Sequence[Offer]:
        self.asked.append(need)
        return super().offers(need)


def book(*backends: FakeBackend, calls: InlineCalls | None = None, clock: FakeClock | None = None) -> OfferBook:
    connected = ConnectedBackends({backend.name: backend for backend in backends})
    return OfferBook(connected, calls or InlineCalls(), clock or FakeClock(), LocalWakeups())


async def turns() -> None:
    """Let everything happen that waits for nothing."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_before_it_is_asked_a_backend_has_no_offers() -> None:
    offers = book(FakeBackend())
    assert offers.get("local") is None
    assert (offers.by_need("local"), offers.unanswered("local")) == ({}, frozenset())


async def test_a_refresh_asks_every_backend_for_anything() -> None:
    offers = book(FakeBackend(), cloud := Cloud())
    await offers.refresh()
    (computer,) = offers.get("local") or ()
    assert computer.instance_type == "this computer"
    assert (cloud.asked, len(offers.get("cloud") or ())) == ([ANY], 6)


async def test_each_need_has_its_own_answer() -> None:
    offers = book(cloud := Cloud())
    await offers.fetch([("cloud", SMALL), ("cloud", LARGE)], 1.0)
    assert [len(offers.get("cloud", need) or ()) for need in (SMALL, LARGE)] == [6, 1]
    assert cloud.asked == [SMALL, LARGE]
    assert set(offers.by_need("cloud")) == {SMALL, LARGE}
    await offers.fetch([("cloud", SMALL)], 1.0)
    assert len(cloud.asked) == 2, "the answer is known"


async def test_nodes_are_the_same_for_every_need() -> None:
    offers = book(computer := Computer())
    await offers.fetch([("local", SMALL), ("local", LARGE)], 1.0)
    assert computer.asked == [ANY]
    assert offers.get("local", SMALL) == offers.get("local", LARGE) == offers.get("local")
    assert set(offers.by_need("local")) == {ANY}


async def test_a_refresh_asks_again_for_what_was_used() -> None:
    offers = book(cloud := Cloud())
    await offers.fetch([("cloud", SMALL)], 1.0)
    cloud.sold_out = set(cloud.rates)
    await offers.refresh()
    assert {offer.why_not for offer in offers.get("cloud", SMALL) or ()} == {"sold out"}


async def test_needs_that_nobody_has_any_more_are_forgotten() -> None:
    clock = FakeClock()
    offers = book(cloud := Cloud(), clock=clock)
    await offers.fetch([("cloud", SMALL), ("cloud", LARGE)], 1.0)
    clock.move(USED_SECONDS)
    assert offers.get("cloud", SMALL), "it is used"
    clock.move(1)
    cloud.asked.clear()
    await offers.refresh()
    assert sorted(need.resources.cpus or 0 for need in cloud.asked) == [0, 1]
    assert offers.get("cloud", LARGE) is None


async def test_of_many_needs_those_used_last_are_kept() -> None:
    clock = FakeClock()
    offers = book(cloud := Cloud(), clock=clock)
    needs = [Need(Resources(cpus=1 + n)) for n in range(MAX_NEEDS + 2)]
    for need in needs:
        clock.move(0.1)
        await offers.fetch([("cloud", need)], 1.0)
    clock.move(0.1)
    offers.get("cloud", needs[0])
    cloud.asked.clear()
    await offers.refresh()
    assert len(cloud.asked) == MAX_NEEDS + 1
    known = offers.by_need("cloud")
    assert [need in known for need in needs[:4]] == [True, False, False, True]


async def test_a_backend_that_does_not_answer_stops_no_other() -> None:
    offers = book(FakeBackend("a_silent", down=Unreachable("No answer.")), FakeBackend("well"))
    await offers.refresh()
    assert offers.get("a_silent") is None
    assert offers.unanswered("a_silent") == {ANY}
    assert offers.get("well")
    assert offers.unanswered("well") == set()


async def test_a_backend_that_breaks_stops_no_other() -> None:
    offers = book(FakeBackend("a_broken", down=KeyError("region")), FakeBackend("well"))
    await offers.refresh()
    assert offers.unanswered("a_broken") == {ANY}
    assert offers.get("well")


async def test_a_backend_that_hangs_delays_no_other() -> None:
    gate = Gate("a_slow")
    offers = book(FakeBackend("a_slow"), FakeBackend("well"), calls=gate)
    asking = asyncio.create_task(offers.refresh())
    await turns()
    assert (offers.get("a_slow"), len(offers.get("well") or ())) == (None, 1)
    assert offers.unanswered("a_slow") == set(), "it has not failed yet"
    gate.open.set()
    await asking
    assert offers.get("a_slow")


async def test_a_submission_waits_only_so_long_for_a_backend_that_hangs() -> None:
    gate = Gate("cloud")
    offers = book(cloud := Cloud(), FakeBackend(), calls=gate)
    await offers.fetch([("cloud", SMALL), ("local", SMALL)], 0.0)
    assert offers.get("cloud", SMALL) is None
    assert offers.get("local", SMALL)
    gate.open.set()
    await turns()
    assert offers.get("cloud", SMALL), "the answer is kept although nobody waits for it any more"
    assert cloud.asked == [SMALL]


async def test_a_need_is_asked_once_at_a_time() -> None:
    gate = Gate("cloud")
    offers = book(cloud := Cloud(), calls=gate)
    asking = [asyncio.create_task(offers.fetch([("cloud", SMALL)], 60.0)) for _ in range(3)]
    offers.fetch_in_background([("cloud", SMALL), ("cloud", LARGE)])
    refreshing = [asyncio.create_task(offers.refresh()) for _ in range(2)]
    await turns()
    offers.fetch_in_background([("cloud", ANY)])
    gate.open.set()
    await asyncio.gather(*asking, *refreshing)
    await turns()
    assert sorted(need.resources.cpus or 0 for need in cloud.asked) == [0, 1, 64]


async def test_what_the_scheduler_lacks_is_asked_in_the_background() -> None:
    offers = book(cloud := Cloud(), FakeBackend())
    offers.fetch_in_background([("cloud", SMALL), ("local", SMALL), ("gone", SMALL)])
    assert offers.get("cloud", SMALL) is None
    await turns()
    assert offers.get("cloud", SMALL)
    assert offers.get("local")
    assert (offers.get("gone", SMALL), offers.unanswered("gone")) == (None, set())
    offers.fetch_in_background([("cloud", SMALL)])
    await turns()
    assert cloud.asked == [SMALL]


async def test_a_backend_that_falls_silent_keeps_its_last_offers() -> None:
    offers = book(cloud := Cloud())
    await offers.fetch([("cloud", SMALL)], 1.0)
    cloud.down = Unreachable("No answer.")
    await offers.refresh()
    assert offers.get("cloud", SMALL)
    assert SMALL in offers.unanswered("cloud")
    cloud.down = None
    await offers.refresh()
    assert offers.unanswered("cloud") == set()


async def test_the_scheduler_is_woken_by_news_only() -> None:
    wakeups = LocalWakeups()
    cloud = Cloud()
    offers = OfferBook(ConnectedBackends({"cloud": cloud}), InlineCalls(), FakeClock(), wakeups)

    async def wakes() -> bool:
        with wakeups.listening(SCHEDULER) as listener:
            await offers.refresh()
            return listener.event.is_set()

    assert [await wakes(), await wakes()] == [True, False]
    cloud.sold_out = {"north-1"}
    assert [await wakes(), await wakes()] == [True, False]
    cloud.down = Unreachable("No answer.")
    assert [await wakes(), await wakes()] == [True, False], "candidates behind it need not wait any longer"
    cloud.down = None
    assert [await wakes(), await wakes()] == [True, False]


async def test_a_stop_ends_all_questions() -> None:
    gate = Gate("cloud")
    offers = book(cloud := Cloud(), calls=gate)
    offers.fetch_in_background([("cloud", SMALL)])
    await turns()
    await offers.stop()
    gate.open.set()
    await turns()
    assert cloud.asked == []
