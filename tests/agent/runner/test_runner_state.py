from __future__ import annotations

import signal

import hypothesis.strategies as st
import pytest
from hypothesis import given

from crucible.agent.clock import Deadline
from crucible.agent.runner import runner_events as ev
from crucible.agent.runner import runner_state as rs
from crucible.agent.runner.runner_state import kill_delay, merge_deadlines, suspend_time
from crucible.wire.documents.messages import Cause, MessageKind

TERM, KILL = ev.SendSignal(signal.SIGTERM), ev.SendSignal(signal.SIGKILL)


class Play:
    def __init__(
        self, grace: float = 10.0, seconds: float | None = None, ends: Deadline | None = None, checkpoint: int = 0
    ) -> None:
        self.state, self.done = rs.begin(grace, seconds, 0.0, ends, checkpoint)

    def __call__(self, *events: ev.Event) -> list[ev.Action]:
        """Feed the events, and return the actions of the last one."""
        actions: ev.Actions = ()
        for event in events:
            self.state, actions = rs.step(self.state, event)
            self.done += actions
        return list(actions)

    def started(self) -> Play:
        self(ev.StagingDone(), ev.ProcessStarted(7))
        return self

    @property
    def exits(self) -> list[ev.SendMessage]:
        return self.said(MessageKind.EXITED)

    @property
    def cause(self) -> Cause:
        (exited,) = self.exits
        return Cause(exited.data["cause"])

    def said(self, kind: MessageKind) -> list[ev.SendMessage]:
        return [a for a in self.done if isinstance(a, ev.SendMessage) and a.kind is kind]


def ended(code: int | None = 0, number: int | None = None, oom: bool = False) -> ev.ProcessEnded:
    return ev.ProcessEnded(code, number, oom, 1.0, 2)


def test_the_plain_way() -> None:
    play = Play()
    assert play.done == (ev.StartStaging(),)
    assert play(ev.StagingDone()) == [ev.StartProcess()]
    (started,) = play(ev.ProcessStarted(7, (("python", "p"),)))
    assert started == ev.SendMessage(MessageKind.STARTED, {"pid": 7, "pgid": 7, "python": "p"})
    exited, store = play(ended(3))
    assert isinstance(exited, ev.SendMessage)
    assert exited.data == {
        "code": 3,
        "signal": None,
        "cause": "exit",
        "text": "",
        "cpu_seconds": 1.0,
        "peak_memory": 2,
    }
    assert store == ev.StoreOutputs()
    said, finish = play(ev.OutputsStored(True))
    assert said == ev.SendMessage(MessageKind.ENDED, {"complete": True, "text": ""})
    assert finish == ev.Finish()


def test_a_failed_stage_is_reported() -> None:
    play = Play()
    exited, store = play(ev.StagingFailed("no python"))
    assert isinstance(exited, ev.SendMessage)
    assert (exited.data["cause"], exited.data["text"]) == (Cause.STAGING_FAILED.value, "no python")
    assert store == ev.StoreOutputs()


def test_a_command_that_cannot_be_executed() -> None:
    play = Play()
    exited, _ = play(ev.StagingDone(), ev.StartFailed(127, "cannot run 'x'"))
    assert isinstance(exited, ev.SendMessage)
    assert (exited.data["code"], exited.data["cause"]) == (127, Cause.STAGING_FAILED.value)


def test_a_stop_before_the_start() -> None:
    play = Play()
    abandon, exited, _ = play(ev.StopRequested())
    assert abandon == ev.AbortStaging()
    assert isinstance(exited, ev.SendMessage)
    assert exited.data["cause"] == Cause.NOT_STARTED.value
    assert play(ev.StagingDone()) == []


def test_a_stop_between_spawn_and_spawned_reaches_the_process() -> None:
    play = Play()
    assert play(ev.StagingDone(), ev.StopRequested()) == []
    started, *rest = play(ev.ProcessStarted(7))
    assert isinstance(started, ev.SendMessage)
    assert rest == [ev.WriteStopFile(), TERM]


def test_stop_sends_term_then_kill_after_the_grace_and_again() -> None:
    play = Play(grace=10.0).started()
    assert play(ev.Tick(5.0), ev.StopRequested()) == [ev.WriteStopFile(), TERM]
    assert play(ev.StopRequested()) == []
    assert play(ev.Tick(14.9)) == []
    assert play(ev.Tick(15.0)) == [KILL]
    assert play(ev.Tick(15.1)) == []
    assert play(ev.Tick(20.0)) == [KILL]
    play(ended(None, signal.SIGKILL))
    assert play.exits[0].data["cause"] == Cause.STOPPED.value


def test_no_grace_kills_at_once() -> None:
    assert Play(grace=0.0).started()(ev.StopRequested()) == [ev.WriteStopFile(), KILL]


def test_the_time_limit_counts_from_the_start() -> None:
    play = Play(seconds=60.0)
    play(ev.Tick(100.0))
    play.started()
    assert play(ev.Tick(159.0)) == []
    assert play(ev.Tick(160.0)) == [ev.WriteStopFile(), TERM]
    play(ended(0))
    assert play.exits[0].data["cause"] == Cause.TIME_LIMIT.value
    assert "60 seconds" in str(play.exits[0].data["text"])


def test_the_end_of_the_lease_stops_and_says_why() -> None:
    play = Play().started()
    assert play(ev.LeaseExpired()) == [ev.WriteStopFile(), TERM]
    play(ended(None, signal.SIGTERM))
    assert play.exits[0].data["cause"] == Cause.FENCED.value


def test_out_of_memory_and_signals_are_told_apart() -> None:
    play = Play().started()
    play(ended(None, signal.SIGKILL, oom=True))
    assert play.exits[0].data["cause"] == Cause.OUT_OF_MEMORY.value
    play = Play().started()
    play(ended(None, signal.SIGSEGV))
    assert (play.exits[0].data["cause"], play.exits[0].data["text"]) == ("signal", "ended by SIGSEGV")
    play = Play().started()
    play(ended(0, None, oom=True))
    assert play.exits[0].data["cause"] == "exit"


def test_a_settled_attempt_ends_its_process_and_tells_nobody() -> None:
    play = Play(grace=5.0).started()
    assert play(ev.AttemptReleased()) == [ev.WriteStopFile(), TERM]
    assert play(ev.AttemptReleased()) == []
    assert play(ev.Tick(5.0)) == [KILL]
    assert play(ended(None, signal.SIGKILL)) == [ev.Finish(deliver=False)]
    assert play.exits == []


def test_a_settled_attempt_does_not_begin() -> None:
    assert Play()(ev.AttemptReleased()) == [ev.AbortStaging(), ev.Finish(deliver=False)]
    play = Play()
    play(ev.StagingDone(), ev.AttemptReleased())
    assert play(ev.ProcessStarted(7))[1:] == [ev.WriteStopFile(), TERM]


def test_a_settled_attempt_stops_delivering() -> None:
    play = Play().started()
    play(ended(0))
    assert play(ev.AttemptReleased()) == [ev.Finish(deliver=False)]
    play = Play().started()
    play(ended(0), ev.OutputsStored(True))
    assert play(ev.AttemptReleased()) == [ev.Finish(deliver=False)]


# The provider reclaims the machine


def test_a_notice_is_told_and_stops_in_time_to_send_what_is_saved() -> None:
    play = Play(grace=100.0).started()
    notice, *rest = play(ev.Tick(5.0), ev.InterruptionNoticed(120.0))
    assert notice == ev.SendMessage(
        MessageKind.NOTICE, {"seconds": 120.0, "text": "the provider will reclaim the machine in 120 seconds"}
    )
    assert rest == [ev.WriteStopFile(), TERM]
    assert play(ev.Tick(94.9)) == []
    assert play(ev.Tick(95.0)) == [KILL]


def test_the_grace_is_kept_where_there_is_time() -> None:
    play = Play(grace=10.0).started()
    play(ev.InterruptionNoticed(120.0))
    assert play(ev.Tick(9.9)) == []
    assert play(ev.Tick(10.0)) == [KILL]


@pytest.mark.parametrize(
    "end",
    [ended(0), ended(3), ended(None, signal.SIGTERM), ended(None, signal.SIGKILL), ended(None, signal.SIGKILL, True)],
)
def test_after_a_notice_any_end_is_an_interruption(end: ev.ProcessEnded) -> None:
    play = Play().started()
    play(ev.InterruptionNoticed(30.0), end)
    assert play.cause is Cause.INTERRUPTED


@pytest.mark.parametrize("why", [ev.InterruptionNoticed(30.0), ev.StopRequested(), ev.LeaseExpired(), ev.Tick(50.0)])
def test_a_program_that_had_ended_before_the_signal_ended_by_itself(why: ev.Event) -> None:
    play = Play(seconds=50.0).started()
    play(why, ev.ProcessEnded(0, None, by_itself=True))
    assert play.cause is Cause.EXIT


def test_a_notice_before_the_start() -> None:
    play = Play()
    notice, abandon, exited, store = play(ev.InterruptionNoticed(30.0))
    assert isinstance(notice, ev.SendMessage)
    assert notice.kind is MessageKind.NOTICE
    assert (abandon, store) == (ev.AbortStaging(), ev.StoreOutputs())
    assert isinstance(exited, ev.SendMessage)
    assert play.cause is Cause.INTERRUPTED


def test_a_notice_between_spawn_and_spawned_reaches_the_process() -> None:
    play = Play(grace=10.0)
    play(ev.StagingDone(), ev.InterruptionNoticed(8.0))
    assert play(ev.Tick(1.0), ev.ProcessStarted(7))[1:] == [ev.WriteStopFile(), TERM]
    assert play(ev.Tick(6.0)) == [KILL]
    play(ended(0))
    assert play.cause is Cause.INTERRUPTED


def test_a_second_notice_only_shortens_and_is_not_told() -> None:
    play = Play(grace=100.0).started()
    play(ev.InterruptionNoticed(40.0))
    assert play(ev.InterruptionNoticed(400.0)) == []
    assert play(ev.Tick(10.0), ev.InterruptionNoticed(8.0)) == []
    assert play(ev.Tick(15.9)) == []
    assert play(ev.Tick(16.0)) == [KILL]
    assert len(play.said(MessageKind.NOTICE)) == 1


@pytest.mark.parametrize("first", [ev.InterruptionNoticed(30.0), ev.DeadlineChanged(Deadline(0.0, 100.0))])
def test_a_wanted_stop_beats_an_end_that_would_be_made_good(first: ev.Event) -> None:
    for order in ((ev.StopRequested(), first), (first, ev.StopRequested())):
        play = Play().started()
        play(*order)
        assert play.done.count(TERM) == 1
        play(ended(0))
        assert play.cause is Cause.STOPPED


@pytest.mark.parametrize(("first", "cause"), [(ev.LeaseExpired(), Cause.FENCED), (ev.Tick(50.0), Cause.TIME_LIMIT)])
def test_a_notice_shortens_a_stop_and_leaves_its_cause(first: ev.Event, cause: Cause) -> None:
    play = Play(grace=100.0, seconds=50.0).started()
    play(ev.Tick(49.0), first)
    (notice,) = play(ev.InterruptionNoticed(4.0))
    assert isinstance(notice, ev.SendMessage)
    assert play(ev.Tick(53.0)) == [KILL]
    play(ended(None, signal.SIGKILL))
    assert play.cause is cause


def test_a_notice_after_the_end_changes_nothing() -> None:
    play = Play().started()
    play(ended(0))
    assert play(ev.InterruptionNoticed(30.0)) == []
    assert play.cause is Cause.EXIT


def test_a_notice_to_a_settled_attempt_is_not_told() -> None:
    play = Play(grace=100.0).started()
    play(ev.AttemptReleased())
    assert play(ev.InterruptionNoticed(4.0)) == []
    assert play(ev.Tick(2.0)) == [KILL]


# The machine's time is nearly over


def test_it_is_suspended_with_a_lead_before_the_end() -> None:
    play = Play(grace=10.0, ends=Deadline(3600.0, 3600.0)).started()
    assert play(ev.Tick(3409.0)) == []
    assert play(ev.Tick(3410.0)) == [ev.WriteStopFile(), TERM]
    assert play(ev.Tick(3420.0)) == [KILL]
    play(ended(0))
    assert play.cause is Cause.SUSPENDED


@pytest.mark.parametrize(
    ("seconds", "cause"), [(100.0, Cause.TIME_LIMIT), (3410.0, Cause.TIME_LIMIT), (3500.0, Cause.SUSPENDED)]
)
@pytest.mark.parametrize("jump", [False, True])
def test_what_comes_first_of_time_limit_and_suspension(seconds: float, cause: Cause, jump: bool) -> None:
    play = Play(grace=10.0, seconds=seconds, ends=Deadline(3600.0, 3600.0)).started()
    for now in [5000.0] if jump else range(0, 5000, 10):
        play(ev.Tick(float(now)))
    play(ended(0))
    assert play.cause is cause


def test_the_machine_may_be_given_another_time() -> None:
    play = Play(grace=10.0, ends=Deadline(3600.0, 3600.0)).started()
    play(ev.Tick(3000.0), ev.DeadlineChanged(Deadline(7200.0, 4200.0)))
    assert play(ev.Tick(6979.0)) == []
    play(ev.DeadlineChanged(None))
    assert play(ev.Tick(9000.0)) == []
    assert play(ev.DeadlineChanged(Deadline(9005.0, 5.0))) == []
    assert play(ev.Tick(9003.0)) == [ev.WriteStopFile(), TERM]


def test_a_deadline_told_again_does_not_shorten_the_lead() -> None:
    play = Play(grace=10.0, ends=Deadline(3600.0, 3600.0)).started()
    play(ev.Tick(3400.0), ev.DeadlineChanged(Deadline(3600.0, 200.0)))
    assert play(ev.Tick(3410.0)) == [ev.WriteStopFile(), TERM]


def test_suspended_before_the_start() -> None:
    play = Play(ends=Deadline(100.0, 100.0))
    assert ev.AbortStaging() in play(ev.Tick(70.0))
    assert play.cause is Cause.SUSPENDED
    play = Play(ends=Deadline(100.0, 100.0))
    assert play(ev.StagingDone(), ev.Tick(70.0)) == []
    assert play(ev.ProcessStarted(7))[1:] == [ev.WriteStopFile(), TERM]


# A checkpoint is asked for


def test_a_checkpoint_is_asked_for_once_per_request() -> None:
    play = Play(checkpoint=2).started()
    assert play(ev.CheckpointRequested(2)) == []
    assert play(ev.CheckpointRequested(3)) == [ev.RequestCheckpoint()]
    assert play(ev.CheckpointRequested(3)) == []
    assert play(ev.CheckpointRequested(5)) == [ev.RequestCheckpoint()]


def test_nobody_is_asked_who_does_not_run_or_is_stopping() -> None:
    play = Play()
    assert play(ev.CheckpointRequested(1)) == []
    play.started()
    assert play(ev.CheckpointRequested(1)) == []
    play(ev.StopRequested())
    assert play(ev.CheckpointRequested(2)) == []
    play(ended(0))
    assert play(ev.CheckpointRequested(3)) == []


events = st.one_of(
    st.sampled_from(
        [
            ev.StagingDone(),
            ev.StagingFailed("x"),
            ev.ProcessStarted(7),
            ev.StartFailed(127, "x"),
            ended(0),
            ended(None, 9, True),
            ev.StopRequested(),
            ev.LeaseExpired(),
            ev.OutputsStored(True),
        ]
    ),
    st.floats(0, 1000).map(ev.Tick),
    st.floats(-10, 200).map(ev.InterruptionNoticed),
    st.integers(0, 5).map(ev.CheckpointRequested),
    st.one_of(st.none(), st.builds(Deadline, st.floats(0, 1000), st.floats(0, 1000))).map(ev.DeadlineChanged),
)


@given(st.lists(events, max_size=30))
def test_whatever_happens_in_whatever_order_the_story_is_told_once(story: list[ev.Event]) -> None:
    play = Play(grace=1.0, seconds=50.0)
    play(*story)
    everything = [action.kind for action in play.done if isinstance(action, ev.SendMessage)]
    assert everything.count(MessageKind.NOTICE) <= 1
    assert (
        MessageKind.NOTICE not in everything[everything.index(MessageKind.EXITED) :]
        if MessageKind.EXITED in everything
        else True
    )
    said = [kind for kind in everything if kind is not MessageKind.NOTICE]
    order = [MessageKind.STARTED, MessageKind.EXITED, MessageKind.ENDED]
    assert said == sorted(set(said), key=order.index)
    assert sum(isinstance(action, ev.StartProcess) for action in play.done) <= 1
    assert sum(isinstance(action, ev.StoreOutputs) for action in play.done) <= 1
    if play.state.phase is rs.Phase.ENDED:
        assert said[-2:] == [MessageKind.EXITED, MessageKind.ENDED]


@given(st.lists(events, max_size=30), st.floats(0, 30), st.floats(0, 200))
def test_after_a_notice_the_program_is_killed_in_time(story: list[ev.Event], grace: float, seconds: float) -> None:
    play = Play(grace=grace)
    play(*story)
    if play.state.phase is not rs.Phase.RUNNING:
        return
    play(ev.InterruptionNoticed(seconds))
    assert play.state.kill_at is not None
    assert play.state.kill_at <= play.state.now + max(seconds, 1.0, rs.KILL_AGAIN_SECONDS if grace == 0 else 0.0)
    assert ev.WriteStopFile() in play.done
    play(ended(0))
    assert play.cause is not Cause.EXIT


@given(st.lists(st.one_of(events, st.just(ev.AttemptReleased())), max_size=30))
def test_a_settled_attempt_tells_nothing_more(story: list[ev.Event]) -> None:
    play = Play(grace=1.0, seconds=50.0)
    gone = False
    for event in story:
        kinds = {action.kind for action in play(event) if isinstance(action, ev.SendMessage)}
        assert not gone or kinds <= {MessageKind.STARTED}
        gone = gone or isinstance(event, ev.AttemptReleased)


@pytest.mark.parametrize(
    ("grace", "left", "expected"),
    [
        (10.0, 120.0, 10.0),
        (100.0, 120.0, 90.0),
        (10.0, 8.0, 6.0),
        (10.0, 4.0, 2.0),
        (10.0, 2.0, 1.0),
        (10.0, 0.0, 1.0),
        (10.0, -5.0, 1.0),
        (0.0, 120.0, 0.0),
    ],
)
def test_a_part_of_what_is_left_is_kept_for_sending(grace: float, left: float, expected: float) -> None:
    assert kill_delay(grace, 1000.0, [None, 1000.0 + left]) == expected


def test_the_nearest_end_counts() -> None:
    assert kill_delay(10.0, 0.0, []) == 10.0
    assert kill_delay(10.0, 0.0, [None, None]) == 10.0
    assert kill_delay(10.0, 0.0, [4.0, 1000.0]) == 2.0


@pytest.mark.parametrize(
    ("total", "grace", "lead"),
    [
        (24 * 3600.0, 10.0, 310.0),
        (3600.0, 10.0, 190.0),
        (300.0, 10.0, 40.0),
        (40.0, 10.0, 20.0),
        (0.0, 10.0, 0.0),
    ],
)
def test_the_lead_before_the_end(total: float, grace: float, lead: float) -> None:
    assert suspend_time(Deadline(5000.0, total), grace) == 5000.0 - lead


def test_a_deadline_told_again_keeps_the_longest_total() -> None:
    assert merge_deadlines(Deadline(100.0, 50.0), Deadline(99.0, 3600.0)) == Deadline(100.0, 3600.0)
    assert merge_deadlines(Deadline(9000.0, 9000.0), Deadline(99.0, 3600.0)) == Deadline(9000.0, 9000.0)
    assert merge_deadlines(None, Deadline(99.0, 3600.0)) is None
    assert merge_deadlines(Deadline(1.0, 1.0), None) == Deadline(1.0, 1.0)
