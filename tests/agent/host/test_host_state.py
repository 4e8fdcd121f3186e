from __future__ import annotations

from crucible.agent.host import host_state as hs
from crucible.wire.documents.desired import Assignment, Desired


def assignment(name: str, **changes: object) -> Assignment:
    return Assignment(attempt=name, job="j", rank=0, secret="s", command=("true",), **changes)  # type: ignore[arg-type]


def listing(*names: str, release: bool = False) -> Desired:
    return Desired("m", 1, tuple(assignment(name) for name in names), release=release)


class Play:
    """Feeds events to the reducer and collects its actions."""

    def __init__(self, idle: float = 60.0) -> None:
        self.now = 0.0
        self.state = hs.begin(idle, 0.0)

    def __call__(self, event: hs.Event) -> tuple[hs.Action, ...]:
        self.state, actions = hs.step(self.state, event)
        return actions

    def tick(self, seconds: float) -> tuple[hs.Action, ...]:
        """Let time pass in small steps, as for a host that does not sleep."""
        actions: tuple[hs.Action, ...] = ()
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + 10.0)
            actions += self(hs.Tick(self.now))
        return actions


def test_each_assignment_gets_one_runner() -> None:
    play = Play()
    assert play(hs.DesiredReceived(listing("a", "b"), 0.0)) == (
        hs.StartRunner(assignment("a")),
        hs.StartRunner(assignment("b")),
    )
    assert play(hs.DesiredReceived(listing("a", "b"), 1.0)) == ()


def test_an_assignment_that_is_to_stop_still_gets_a_runner_that_says_so() -> None:
    stopped = assignment("a", stop=True)
    play = Play()
    assert play(hs.DesiredReceived(Desired("m", 1, (stopped,)), 0.0)) == (hs.StartRunner(stopped),)


def test_a_living_runner_of_an_earlier_host_is_kept() -> None:
    play = Play()
    assert play(hs.RunnerAdopted("a", 0, True, False, 0.0)) == ()
    assert play(hs.DesiredReceived(listing("a"), 1.0)) == ()


def test_a_dead_runner_of_an_earlier_host_gets_a_successor() -> None:
    play = Play()
    assert play(hs.RunnerAdopted("a", 0, False, False, 0.0)) == (hs.RecoverRunner("a", 0),)


def test_a_runner_that_dies_is_succeeded_at_once_and_then_ever_more_slowly() -> None:
    play = Play()
    play(hs.DesiredReceived(listing("a"), 0.0))
    assert play(hs.RunnerEnded("a", 0, False, 1.0)) == (hs.RecoverRunner("a", 0),)
    assert play(hs.RunnerEnded("a", 0, False, 2.0)) == ()
    assert play(hs.Tick(2.5)) == ()
    assert play(hs.Tick(3.1)) == (hs.RecoverRunner("a", 0),)
    for _ in range(10):
        play(hs.RunnerEnded("a", 0, False, 4.0))
    assert play(hs.Tick(60.0)) == ()
    assert play(hs.Tick(70.0)) == (hs.RecoverRunner("a", 0),)


def test_what_is_done_goes_once_it_is_no_longer_listed_and_never_comes_back() -> None:
    play = Play()
    play(hs.DesiredReceived(listing("a"), 0.0))
    assert play(hs.RunnerEnded("a", 0, True, 1.0)) == ()
    assert play(hs.DesiredReceived(listing("a"), 2.0)) == ()
    assert play(hs.DesiredReceived(listing(), 3.0)) == (hs.RemoveAttempt("a", 0),)
    assert play(hs.DesiredReceived(listing("a"), 4.0)) == ()


def test_nothing_is_removed_before_the_first_document() -> None:
    play = Play()
    assert play(hs.RunnerAdopted("a", 0, False, True, 0.0)) == ()
    assert play(hs.DesiredReceived(listing(), 1.0)) == (hs.RemoveAttempt("a", 0),)


def test_a_runner_that_is_no_longer_listed_is_left_to_end_itself() -> None:
    play = Play()
    play(hs.DesiredReceived(listing("a"), 0.0))
    assert play(hs.DesiredReceived(listing(), 1.0)) == ()
    assert play(hs.RunnerEnded("a", 0, True, 2.0)) == (hs.RemoveAttempt("a", 0),)


def test_a_released_host_quits_when_nothing_runs() -> None:
    play = Play()
    play(hs.DesiredReceived(listing("a"), 0.0))
    assert play(hs.DesiredReceived(listing(release=True), 1.0)) == ()
    assert play(hs.RunnerEnded("a", 0, True, 2.0)) == (
        hs.RemoveAttempt("a", 0),
        hs.ExitHost("the machine was released"),
    )
    assert play.tick(100.0) == ()


def test_an_unwanted_machine_quits_when_nothing_runs() -> None:
    play = Play()
    play(hs.DesiredReceived(listing("a"), 0.0))
    assert play(hs.MachineReleased(1.0)) == ()
    assert hs.ExitHost("the machine was released") in play(hs.RunnerEnded("a", 0, True, 2.0))


def test_an_idle_host_quits_after_a_silence() -> None:
    play = Play(idle=60.0)
    play(hs.DesiredReceived(listing(), 0.0))
    assert play.tick(50.0) == ()
    assert play.tick(20.0) == (hs.ExitHost("idle, and the control plane does not respond"),)


def test_a_contact_keeps_an_idle_host() -> None:
    play = Play(idle=60.0)
    play.tick(50.0)
    play(hs.ContactMade(50.0))
    assert play.tick(50.0) == ()


def test_a_busy_host_outlives_any_silence() -> None:
    play = Play(idle=60.0)
    play(hs.DesiredReceived(listing("a"), 0.0))
    assert play.tick(100_000.0) == ()
    assert play(hs.RunnerEnded("a", 0, True, play.now)) == (
        hs.ExitHost("idle, and the control plane does not respond"),
    )


def test_a_machine_that_slept_asks_once_before_it_believes_in_silence() -> None:
    play = Play(idle=60.0)
    assert play(hs.Tick(5000.0)) == ()
    assert play(hs.ContactLost(5001.0, began=10.0)) == ()
    assert play(hs.Tick(5040.0)) == ()
    assert play(hs.ContactLost(5041.0, began=5040.0)) == (hs.ExitHost("idle, and the control plane does not respond"),)


def test_without_its_folder_a_host_exits_whatever_it_runs() -> None:
    play = Play()
    play(hs.DesiredReceived(listing("a"), 1.0))
    assert [type(action) for action in play(hs.FolderLost(2.0))] == [hs.ExitHost]
