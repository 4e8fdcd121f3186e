from __future__ import annotations

import signal

import hypothesis.strategies as st
import pytest
from hypothesis import given

from crucible.agent.clock import Deadline
from crucible.agent.runner import runner_state as rs
from crucible.wire.documents.messages import Cause, MessageKind

TERM, KILL = rs.SendSignal(signal.SIGTERM), rs.SendSignal(signal.SIGKILL)


class Play:
    def __init__(
        self, grace: float = 10.0, seconds: float | None = None, ends: Deadline | None = None, checkpoint: int = 0
    ) -> None:
        self.state, self.done = rs.begin(grace, seconds, 0.0, ends, checkpoint)

    def __call__(self, *events: rs.Event) -> list[rs.Action]:
        """Feed the events; what the last one led to."""
        actions: rs.Actions = ()
        for event in events:
            self.state, actions = rs.step(self.state, event)
            self.done += actions
        return list(actions)

    def started(self) -> Play:
        self(rs.StagingDone(), rs.ProcessStarted(7))
        return self

    @property
    def exits(self) -> list[rs.SendMessage]:
        return self.said(MessageKind.EXITED)

    @property
    def cause(self) -> Cause:
        (exited,) = self.exits
        return Cause(exited.data["cause"])

    def said(self, kind: MessageKind) -> list[rs.SendMessage]:
        return [a for a in self.done if isinstance(a, rs.SendMessage) and a.kind is kind]


def ended(code: int | None = 0, number: int | None = None, oom: bool = False) -> rs.ProcessEnded:
    return rs.ProcessEnded(code, number, oom, 1.0, 2)


def test_the_plain_way() -> None:
    play = Play()
    assert play.done == (rs.StartStaging(),)
    assert play(rs.StagingDone()) == [rs.StartProcess()]
    (started,) = play(rs.ProcessStarted(7, (("python", "p"),)))
    assert started == rs.SendMessage(MessageKind.STARTED, {"pid": 7, "pgid": 7, "python": "p"})
    exited, store = play(ended(3))
    assert isinstance(exited, rs.SendMessage)
    assert exited.data == {
        "code": 3,
        "signal": None,
        "cause": "exit",
        "text": "",
        "cpu_seconds": 1.0,
        "peak_memory": 2,
    }
    assert store == rs.StoreOutputs()
    said, finish = play(rs.OutputsStored(True))
    assert said == rs.SendMessage(MessageKind.ENDED, {"complete": True, "text": ""})
    assert finish == rs.Finish()


def test_a_failed_stage_is_reported() -> None:
    play = Play()
    exited, store = play(rs.StagingFailed("no python"))
    assert isinstance(exited, rs.SendMessage)
    assert (exited.data["cause"], exited.data["text"]) == (Cause.STAGING_FAILED.value, "no python")
    assert store == rs.StoreOutputs()


def test_a_command_that_cannot_be_executed() -> None:
    play = Play()
    exited, _ = play(rs.StagingDone(), rs.StartFailed(127, "cannot run 'x'"))
    assert isinstance(exited, rs.SendMessage)
    assert (exited.data["code"], exited.data["cause"]) == (127, Cause.STAGING_FAILED.value)


def test_a_stop_before_the_start() -> None:
    play = Play()
    abandon, exited, _ = play(rs.StopRequested())
    assert abandon == rs.AbortStaging()
    assert isinstance(exited, rs.SendMessage)
    assert exited.data["cause"] == Cause.NOT_STARTED.value
    assert play(rs.StagingDone()) == []


def test_a_stop_between_spawn_and_spawned_reaches_the_process() -> None:
    play = Play()
    assert play(rs.StagingDone(), rs.StopRequested()) == []
    started, *rest = play(rs.ProcessStarted(7))
    assert isinstance(started, rs.SendMessage)
    assert rest == [rs.WriteStopFile(), TERM]


def test_stop_sends_term_then_kill_after_the_grace_and_again() -> None:
    play = Play(grace=10.0).started()
    assert play(rs.Tick(5.0), rs.StopRequested()) == [rs.WriteStopFile(), TERM]
    assert play(rs.StopRequested()) == []
    assert play(rs.Tick(14.9)) == []
    assert play(rs.Tick(15.0)) == [KILL]
    assert play(rs.Tick(15.1)) == []
    assert play(rs.Tick(20.0)) == [KILL]
    play(ended(None, signal.SIGKILL))
    assert play.exits[0].data["cause"] == Cause.STOPPED.value


def test_no_grace_kills_at_once() -> None:
    assert Play(grace=0.0).started()(rs.StopRequested()) == [rs.WriteStopFile(), KILL]


def test_the_time_limit_counts_from_the_start() -> None:
    play = Play(seconds=60.0)
    play(rs.Tick(100.0))
    play.started()
    assert play(rs.Tick(159.0)) == []
    assert play(rs.Tick(160.0)) == [rs.WriteStopFile(), TERM]
    play(ended(0))
    assert play.exits[0].data["cause"] == Cause.TIME_LIMIT.value
    assert "60 seconds" in str(play.exits[0].data["text"])


def test_the_end_of_the_lease_stops_and_says_why() -> None:
    play = Play().started()
    assert play(rs.LeaseExpired()) == [rs.WriteStopFile(), TERM]
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
    assert play(rs.AttemptReleased()) == [rs.WriteStopFile(), TERM]
    assert play(rs.AttemptReleased()) == []
    assert play(rs.Tick(5.0)) == [KILL]
    assert play(ended(None, signal.SIGKILL)) == [rs.Finish(deliver=False)]
    assert play.exits == []


def test_a_settled_attempt_does_not_begin() -> None:
    assert Play()(rs.AttemptReleased()) == [rs.AbortStaging(), rs.Finish(deliver=False)]
    play = Play()
    play(rs.StagingDone(), rs.AttemptReleased())
    assert play(rs.ProcessStarted(7))[1:] == [rs.WriteStopFile(), TERM]


def test_a_settled_attempt_stops_delivering() -> None:
    play = Play().started()
    play(ended(0))
    assert play(rs.AttemptReleased()) == [rs.Finish(deliver=False)]
    play = Play().started()
    play(ended(0), rs.OutputsStored(True))
    assert play(rs.AttemptReleased()) == [rs.Finish(deliver=False)]


# The place takes the machine back


def test_a_notice_is_told_and_stops_in_time_to_send_what_is_saved() -> None:
    play = Play(grace=100.0).started()
    notice, *rest = play(rs.Tick(5.0), rs.InterruptionNoticed(120.0))
    assert notice == rs.SendMessage(
        MessageKind.NOTICE, {"seconds": 120.0, "text": "the place takes the machine back in 120 seconds"}
    )
    assert rest == [rs.WriteStopFile(), TERM]
    assert play(rs.Tick(94.9)) == []
    assert play(rs.Tick(95.0)) == [KILL]


def test_the_grace_is_kept_where_there_is_time() -> None:
    play = Play(grace=10.0).started()
    play(rs.InterruptionNoticed(120.0))
    assert play(rs.Tick(9.9)) == []
    assert play(rs.Tick(10.0)) == [KILL]


@pytest.mark.parametrize(
    "end",
    [ended(0), ended(3), ended(None, signal.SIGTERM), ended(None, signal.SIGKILL), ended(None, signal.SIGKILL, True)],
)
def test_after_a_notice_any_end_is_an_interruption(end: rs.ProcessEnded) -> None:
    play = Play().started()
    play(rs.InterruptionNoticed(30.0), end)
    assert play.cause is Cause.INTERRUPTED


@pytest.mark.parametrize("why", [rs.InterruptionNoticed(30.0), rs.StopRequested(), rs.LeaseExpired(), rs.Tick(50.0)])
def test_a_program_that_had_ended_before_the_signal_ended_by_itself(why: rs.Event) -> None:
    play = Play(seconds=50.0).started()
    play(why, rs.ProcessEnded(0, None, by_itself=True))
    assert play.cause is Cause.EXIT


def test_a_notice_before_the_start() -> None:
    play = Play()
    notice, abandon, exited, store = play(rs.InterruptionNoticed(30.0))
    assert isinstance(notice, rs.SendMessage)
    assert notice.kind is MessageKind.NOTICE
    assert (abandon, store) == (rs.AbortStaging(), rs.StoreOutputs())
    assert isinstance(exited, rs.SendMessage)
    assert play.cause is Cause.INTERRUPTED


def test_a_notice_between_spawn_and_spawned_reaches_the_process() -> None:
    play = Play(grace=10.0)
    play(rs.StagingDone(), rs.InterruptionNoticed(8.0))
    assert play(rs.Tick(1.0), rs.ProcessStarted(7))[1:] == [rs.WriteStopFile(), TERM]
    assert play(rs.Tick(6.0)) == [KILL]
    play(ended(0))
    assert play.cause is Cause.INTERRUPTED


def test_a_second_notice_only_shortens_and_is_not_told() -> None:
    play = Play(grace=100.0).started()
    play(rs.InterruptionNoticed(40.0))
    assert play(rs.InterruptionNoticed(400.0)) == []
    assert play(rs.Tick(10.0), rs.InterruptionNoticed(8.0)) == []
    assert play(rs.Tick(15.9)) == []
    assert play(rs.Tick(16.0)) == [KILL]
    assert len(play.said(MessageKind.NOTICE)) == 1


@pytest.mark.parametrize("first", [rs.InterruptionNoticed(30.0), rs.DeadlineChanged(Deadline(0.0, 100.0))])
def test_a_wanted_stop_beats_an_end_that_would_be_made_good(first: rs.Event) -> None:
    for order in ((rs.StopRequested(), first), (first, rs.StopRequested())):
        play = Play().started()
        play(*order)
        assert play.done.count(TERM) == 1
        play(ended(0))
        assert play.cause is Cause.STOPPED


@pytest.mark.parametrize(("first", "cause"), [(rs.LeaseExpired(), Cause.FENCED), (rs.Tick(50.0), Cause.TIME_LIMIT)])
def test_a_notice_shortens_a_stop_and_leaves_its_cause(first: rs.Event, cause: Cause) -> None:
    play = Play(grace=100.0, seconds=50.0).started()
    play(rs.Tick(49.0), first)
    (notice,) = play(rs.InterruptionNoticed(4.0))
    assert isinstance(notice, rs.SendMessage)
    assert play(rs.Tick(53.0)) == [KILL]
    play(ended(None, signal.SIGKILL))
    assert play.cause is cause


def test_a_notice_after_the_end_changes_nothing() -> None:
    play = Play().started()
    play(ended(0))
    assert play(rs.InterruptionNoticed(30.0)) == []
    assert play.cause is Cause.EXIT


def test_a_notice_to_a_settled_attempt_is_not_told() -> None:
    play = Play(grace=100.0).started()
    play(rs.AttemptReleased())
    assert play(rs.InterruptionNoticed(4.0)) == []
    assert play(rs.Tick(2.0)) == [KILL]


# The machine's time is nearly over


def test_it_is_suspended_with_a_lead_before_the_end() -> None:
    play = Play(grace=10.0, ends=Deadline(3600.0, 3600.0)).started()
    assert play(rs.Tick(3409.0)) == []
    assert play(rs.Tick(3410.0)) == [rs.WriteStopFile(), TERM]
    assert play(rs.Tick(3420.0)) == [KILL]
    play(ended(0))
    assert play.cause is Cause.SUSPENDED


@pytest.mark.parametrize(
    ("seconds", "cause"), [(100.0, Cause.TIME_LIMIT), (3410.0, Cause.TIME_LIMIT), (3500.0, Cause.SUSPENDED)]
)
@pytest.mark.parametrize("jump", [False, True])
def test_what_comes_first_of_time_limit_and_suspension(seconds: float, cause: Cause, jump: bool) -> None:
    play = Play(grace=10.0, seconds=seconds, ends=Deadline(3600.0, 3600.0)).started()
    for now in [5000.0] if jump else range(0, 5000, 10):
        play(rs.Tick(float(now)))
    play(ended(0))
    assert play.cause is cause


def test_the_machine_may_be_given_another_time() -> None:
    play = Play(grace=10.0, ends=Deadline(3600.0, 3600.0)).started()
    play(rs.Tick(3000.0), rs.DeadlineChanged(Deadline(7200.0, 4200.0)))
    assert play(rs.Tick(6979.0)) == []
    play(rs.DeadlineChanged(None))
    assert play(rs.Tick(9000.0)) == []
    assert play(rs.DeadlineChanged(Deadline(9005.0, 5.0))) == []
    assert play(rs.Tick(9003.0)) == [rs.WriteStopFile(), TERM]


def test_a_deadline_told_again_does_not_shorten_the_lead() -> None:
    play = Play(grace=10.0, ends=Deadline(3600.0, 3600.0)).started()
    play(rs.Tick(3400.0), rs.DeadlineChanged(Deadline(3600.0, 200.0)))
    assert play(rs.Tick(3410.0)) == [rs.WriteStopFile(), TERM]


def test_suspended_before_the_start() -> None:
    play = Play(ends=Deadline(100.0, 100.0))
    assert rs.AbortStaging() in play(rs.Tick(70.0))
    assert play.cause is Cause.SUSPENDED
    play = Play(ends=Deadline(100.0, 100.0))
    assert play(rs.StagingDone(), rs.Tick(70.0)) == []
    assert play(rs.ProcessStarted(7))[1:] == [rs.WriteStopFile(), TERM]


# A checkpoint is asked for


def test_a_checkpoint_is_asked_for_once_per_request() -> None:
    play = Play(checkpoint=2).started()
    assert play(rs.CheckpointRequested(2)) == []
    assert play(rs.CheckpointRequested(3)) == [rs.RequestCheckpoint()]
    assert play(rs.CheckpointRequested(3)) == []
    assert play(rs.CheckpointRequested(5)) == [rs.RequestCheckpoint()]


def test_nobody_is_asked_who_does_not_run_or_is_stopping() -> None:
    play = Play()
    assert play(rs.CheckpointRequested(1)) == []
    play.started()
    assert play(rs.CheckpointRequested(1)) == []
    play(rs.StopRequested())
    assert play(rs.CheckpointRequested(2)) == []
    play(ended(0))
    assert play(rs.CheckpointRequested(3)) == []


events = st.one_of(
    st.sampled_from(
        [
            rs.StagingDone(),
            rs.StagingFailed("x"),
            rs.ProcessStarted(7),
            rs.StartFailed(127, "x"),
            ended(0),
            ended(None, 9, True),
            rs.StopRequested(),
            rs.LeaseExpired(),
            rs.OutputsStored(True),
        ]
    ),
    st.floats(0, 1000).map(rs.Tick),
    st.floats(-10, 200).map(rs.InterruptionNoticed),
    st.integers(0, 5).map(rs.CheckpointRequested),
    st.one_of(st.none(), st.builds(Deadline, st.floats(0, 1000), st.floats(0, 1000))).map(rs.DeadlineChanged),
)


@given(st.lists(events, max_size=30))
def test_whatever_happens_in_whatever_order_the_story_is_told_once(story: list[rs.Event]) -> None:
    play = Play(grace=1.0, seconds=50.0)
    play(*story)
    everything = [action.kind for action in play.done if isinstance(action, rs.SendMessage)]
    assert everything.count(MessageKind.NOTICE) <= 1
    assert (
        MessageKind.NOTICE not in everything[everything.index(MessageKind.EXITED) :]
        if MessageKind.EXITED in everything
        else True
    )
    said = [kind for kind in everything if kind is not MessageKind.NOTICE]
    order = [MessageKind.STARTED, MessageKind.EXITED, MessageKind.ENDED]
    assert said == sorted(set(said), key=order.index)
    assert sum(isinstance(action, rs.StartProcess) for action in play.done) <= 1
    assert sum(isinstance(action, rs.StoreOutputs) for action in play.done) <= 1
    if play.state.phase is rs.Phase.ENDED:
        assert said[-2:] == [MessageKind.EXITED, MessageKind.ENDED]


@given(st.lists(events, max_size=30), st.floats(0, 30), st.floats(0, 200))
def test_after_a_notice_the_program_is_killed_in_time(story: list[rs.Event], grace: float, seconds: float) -> None:
    play = Play(grace=grace)
    play(*story)
    if play.state.phase is not rs.Phase.RUNNING:
        return
    play(rs.InterruptionNoticed(seconds))
    assert play.state.kill_at is not None
    assert play.state.kill_at <= play.state.now + max(seconds, 1.0, rs.KILL_AGAIN_SECONDS if grace == 0 else 0.0)
    assert rs.WriteStopFile() in play.done
    play(ended(0))
    assert play.cause is not Cause.EXIT


@given(st.lists(st.one_of(events, st.just(rs.AttemptReleased())), max_size=30))
def test_a_settled_attempt_tells_nothing_more(story: list[rs.Event]) -> None:
    play = Play(grace=1.0, seconds=50.0)
    gone = False
    for event in story:
        kinds = {action.kind for action in play(event) if isinstance(action, rs.SendMessage)}
        assert not gone or kinds <= {MessageKind.STARTED}
        gone = gone or isinstance(event, rs.AttemptReleased)
