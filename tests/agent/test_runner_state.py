from __future__ import annotations

import signal

import hypothesis.strategies as st
from hypothesis import given

from crucible.agent import runner_state as rs
from crucible.wire.messages import Cause, Kind

TERM, KILL = rs.Signal(signal.SIGTERM), rs.Signal(signal.SIGKILL)


class Play:
    def __init__(self, grace: float = 10.0, seconds: float | None = None) -> None:
        self.state, self.done = rs.begin(grace, seconds, 0.0)

    def __call__(self, *events: rs.Event) -> list[rs.Action]:
        """Feed the events; what the last one led to."""
        actions: rs.Actions = ()
        for event in events:
            self.state, actions = rs.step(self.state, event)
            self.done += actions
        return list(actions)

    def started(self) -> Play:
        self(rs.Staged(), rs.Spawned(7))
        return self

    @property
    def exits(self) -> list[rs.Say]:
        return [a for a in self.done if isinstance(a, rs.Say) and a.kind is Kind.EXITED]


def ended(code: int | None = 0, number: int | None = None, oom: bool = False) -> rs.ProcessEnded:
    return rs.ProcessEnded(code, number, oom, 1.0, 2)


def test_the_plain_way() -> None:
    play = Play()
    assert play.done == (rs.Stage(),)
    assert play(rs.Staged()) == [rs.Spawn()]
    (started,) = play(rs.Spawned(7, (("python", "p"),)))
    assert started == rs.Say(Kind.STARTED, {"pid": 7, "pgid": 7, "python": "p"})
    exited, store = play(ended(3))
    assert isinstance(exited, rs.Say)
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
    assert said == rs.Say(Kind.ENDED, {"complete": True, "text": ""})
    assert finish == rs.Finish()


def test_a_failed_stage_is_reported() -> None:
    play = Play()
    exited, store = play(rs.StageFailed("no python"))
    assert isinstance(exited, rs.Say)
    assert (exited.data["cause"], exited.data["text"]) == (Cause.STAGING_FAILED.value, "no python")
    assert store == rs.StoreOutputs()


def test_a_command_that_cannot_be_executed() -> None:
    play = Play()
    exited, _ = play(rs.Staged(), rs.SpawnFailed(127, "cannot run 'x'"))
    assert isinstance(exited, rs.Say)
    assert (exited.data["code"], exited.data["cause"]) == (127, Cause.STAGING_FAILED.value)


def test_a_stop_before_the_start() -> None:
    play = Play()
    abandon, exited, _ = play(rs.StopWanted())
    assert abandon == rs.AbandonStage()
    assert isinstance(exited, rs.Say)
    assert exited.data["cause"] == Cause.NOT_STARTED.value
    assert play(rs.Staged()) == []


def test_a_stop_between_spawn_and_spawned_reaches_the_process() -> None:
    play = Play()
    assert play(rs.Staged(), rs.StopWanted()) == []
    started, *rest = play(rs.Spawned(7))
    assert isinstance(started, rs.Say)
    assert rest == [rs.WriteStopFile(), TERM]


def test_stop_sends_term_then_kill_after_the_grace_and_again() -> None:
    play = Play(grace=10.0).started()
    assert play(rs.Tick(5.0), rs.StopWanted()) == [rs.WriteStopFile(), TERM]
    assert play(rs.StopWanted()) == []
    assert play(rs.Tick(14.9)) == []
    assert play(rs.Tick(15.0)) == [KILL]
    assert play(rs.Tick(15.1)) == []
    assert play(rs.Tick(20.0)) == [KILL]
    play(ended(None, signal.SIGKILL))
    assert play.exits[0].data["cause"] == Cause.STOPPED.value


def test_no_grace_kills_at_once() -> None:
    assert Play(grace=0.0).started()(rs.StopWanted()) == [rs.WriteStopFile(), KILL]


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
    assert play(rs.LeaseEnded()) == [rs.WriteStopFile(), TERM]
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
    assert play(rs.AttemptGone()) == [rs.WriteStopFile(), TERM]
    assert play(rs.AttemptGone()) == []
    assert play(rs.Tick(5.0)) == [KILL]
    assert play(ended(None, signal.SIGKILL)) == [rs.Finish(deliver=False)]
    assert play.exits == []


def test_a_settled_attempt_does_not_begin() -> None:
    assert Play()(rs.AttemptGone()) == [rs.AbandonStage(), rs.Finish(deliver=False)]
    play = Play()
    play(rs.Staged(), rs.AttemptGone())
    assert play(rs.Spawned(7))[1:] == [rs.WriteStopFile(), TERM]


def test_a_settled_attempt_stops_delivering() -> None:
    play = Play().started()
    play(ended(0))
    assert play(rs.AttemptGone()) == [rs.Finish(deliver=False)]
    play = Play().started()
    play(ended(0), rs.OutputsStored(True))
    assert play(rs.AttemptGone()) == [rs.Finish(deliver=False)]


events = st.one_of(
    st.sampled_from(
        [
            rs.Staged(),
            rs.StageFailed("x"),
            rs.Spawned(7),
            rs.SpawnFailed(127, "x"),
            ended(0),
            ended(None, 9, True),
            rs.StopWanted(),
            rs.LeaseEnded(),
            rs.OutputsStored(True),
        ]
    ),
    st.floats(0, 1000).map(rs.Tick),
)


@given(st.lists(events, max_size=30))
def test_whatever_happens_in_whatever_order_the_story_is_told_once(story: list[rs.Event]) -> None:
    play = Play(grace=1.0, seconds=50.0)
    play(*story)
    said = [action.kind for action in play.done if isinstance(action, rs.Say)]
    order = [Kind.STARTED, Kind.EXITED, Kind.ENDED]
    assert said == sorted(set(said), key=order.index)
    assert sum(isinstance(action, rs.Spawn) for action in play.done) <= 1
    assert sum(isinstance(action, rs.StoreOutputs) for action in play.done) <= 1
    if play.state.phase is rs.Phase.ENDED:
        assert said[-2:] == [Kind.EXITED, Kind.ENDED]
