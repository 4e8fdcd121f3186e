"""Sessions in the control plane: who may enter, and how his wish and the agent find each other."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.control.harness import ControlHarness, FakeRunner, service

from crucible.backends.base import Reach
from crucible.control.agents import sessions
from crucible.control.agents.sessions import Sessions, SessionTarget
from crucible.control.control_plane import ControlPlane
from crucible.control.db import schema as t
from crucible.control.resources.exec_access import MAX_COMMAND_AUDITED, PORT_AUDIT_SECONDS
from crucible.control.runtime.system_ports import LocalWakeups
from crucible.core.channels import Channel
from crucible.core.errors import Conflict, Forbidden, NotFound, RefusedByPolicy, TimedOut, TooManyAttempts, Unreachable
from crucible.core.people.identity import OWNER, Identity, LoginMethod, Permission, Role
from crucible.core.views.agents import SessionCallView
from crucible.wire.documents.messages import MessageKind
from crucible.wire.http import sessions as s

LS = s.Command(("ls", "-l"))
VISIT = SessionTarget("usr-1", "job-1", "att-1", "mch-1")
SOON, LONG = 0.05, 30.0


class FakeAgentSocket:
    """What an agent's socket is to the control plane: something to hand over."""

    async def send(self, frame: bytes) -> None:
        raise AssertionError("nobody relays here")

    async def receive(self) -> bytes | None:
        raise AssertionError("nobody relays here")


def somebody(role: Role, *, scopes: frozenset[Permission] = frozenset(Permission), **more: Any) -> Identity:
    return Identity("usr-1", "ada", LoginMethod.TOKEN, roles={"default": role}, scopes=scopes, token="tok-1", **more)


async def audited(harness: ControlHarness) -> list[tuple[str, str, str]]:
    rows = await harness.rows(t.audit)
    return [(row["name"], row["action"], row["data"]) for row in rows if row["action"].startswith("job.")]


async def called(control: ControlPlane, attempt: str, *known: str) -> list[str]:
    found = await control.agents.attempt_desired(attempt, 0, False, 0, 0, known)
    return [] if found is None else [session.id for session in found.sessions]


async def until_called(control: ControlPlane, attempt: str) -> str:
    while not (found := await called(control, attempt)):
        await asyncio.sleep(0)
    return found[0]


# Meeting


async def test_an_agent_that_waits_hears_of_a_session_at_once(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    control = service(harness)
    waiting = asyncio.create_task(control.agents.attempt_desired(runner.attempt, 0, False, 0, LONG, ()))
    await asyncio.sleep(0)
    entrance = await control.sessions.enter(OWNER, job)
    line = FakeAgentSocket()

    async def visit() -> object:
        async with entrance.session(LS) as agent:
            return agent

    visiting = asyncio.create_task(visit())
    told: Any = await asyncio.wait_for(waiting, 5)
    ((id, at),) = [(session.id, session.at) for session in told.sessions]
    assert at is None
    with control.agents.accept_session(runner.attempt, id) as meeting:
        meeting.agent_stream.set_result(line)
        assert await asyncio.wait_for(visiting, 5) is line
        assert meeting.closed.is_set()
    assert await called(control, runner.attempt) == []


async def test_a_runner_is_told_again_until_it_says_that_it_knows(harness: ControlHarness) -> None:
    _, runner = await harness.running()
    control = service(harness)
    registry = control._services.sessions
    visit = replace(VISIT, attempt=runner.attempt)
    with registry.open("ses-1", visit), registry.open("ses-2", visit):
        assert await called(control, runner.attempt) == ["ses-1", "ses-2"]
        assert await called(control, runner.attempt, "ses-1") == ["ses-1", "ses-2"]
        assert await called(control, runner.attempt, "ses-1", "ses-2") == []
    assert await called(control, runner.attempt) == []


async def test_only_the_first_rank_and_an_agent_that_knows_of_sessions_is_told(harness: ControlHarness) -> None:
    _, runner = await harness.running()
    control = service(harness)
    with control._services.sessions.open("ses-1", replace(VISIT, attempt=runner.attempt)):
        assert await control.agents.attempt_desired(runner.attempt, 0, False, 0, 0) is None
        assert await control.agents.attempt_desired(runner.attempt, 1, False, 0, 0, ()) is None


async def test_an_agent_that_does_not_come_is_not_waited_for(
    harness: ControlHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "DIAL_SECONDS", 0.01)
    job, _ = await harness.running()
    control = service(harness)
    with pytest.raises(TimedOut, match="did not open a connection"):
        async with (await control.sessions.enter(OWNER, job)).session(LS):
            raise AssertionError("nobody came")
    assert not control._services.sessions._open


async def test_a_session_belongs_to_one_attempt_and_is_taken_once(harness: ControlHarness) -> None:
    registry = Sessions(harness.ports, "http://here")
    with registry.open("ses-1", VISIT):
        for attempt, id in (("att-2", "ses-1"), ("att-1", "ses-2")):
            with pytest.raises(NotFound), registry.accept(attempt, id):
                raise AssertionError("it is not there")
        with registry.accept("att-1", "ses-1") as meeting:
            meeting.agent_stream.set_result(FakeAgentSocket())
            with pytest.raises(NotFound), registry.accept("att-1", "ses-1"):
                raise AssertionError("it is taken")
    with pytest.raises(NotFound), registry.accept("att-1", "ses-1"):
        raise AssertionError("it is over")


async def test_an_agent_that_breaks_off_before_it_came_lets_nobody_wait(harness: ControlHarness) -> None:
    registry = Sessions(harness.ports, "http://here")
    with registry.open("ses-1", VISIT) as meeting:
        with registry.accept("att-1", "ses-1"):
            pass
        with pytest.raises(Unreachable, match="opened the connection for the session and closed it"):
            await meeting.wait_for_agent()


@pytest.mark.parametrize(
    ("limit", "other", "where"),
    [
        ("MOST_OF_JOB", replace(VISIT, user="usr-2"), "on this job"),
        ("MOST_OF_USER", replace(VISIT, job="job-2"), "of yours"),
        ("MOST", replace(VISIT, job="job-2", user="usr-2"), "on this server"),
    ],
)
async def test_sessions_are_bounded(
    harness: ControlHarness, monkeypatch: pytest.MonkeyPatch, limit: str, other: SessionTarget, where: str
) -> None:
    monkeypatch.setattr(sessions, limit, 1)
    registry = Sessions(harness.ports, "http://here")
    with registry.open("ses-1", VISIT), pytest.raises(TooManyAttempts, match=where), registry.open("ses-2", other):
        raise AssertionError("there is no room")
    with registry.open("ses-3", other):
        assert registry.pending_calls(other.attempt)


# A program that has not begun


async def starting(harness: ControlHarness, control: ControlPlane) -> tuple[str, FakeRunner]:
    """A job whose machine is up and whose runner gets ready; what it says wakes those who wait at `control`."""
    job = await harness.submit()
    await harness.host_up()
    runner = FakeRunner(control.agents, (await harness.attempt(job)).id)
    await runner.say(MessageKind.STAGING, what="preparing")
    return job, runner


async def enters(control: ControlPlane, job: str) -> object:
    async with (await control.sessions.enter(OWNER, job)).session(LS) as agent:
        return agent


async def until_early(control: ControlPlane) -> None:
    while not control._services.sessions._reserved:
        await asyncio.sleep(0)


async def test_a_session_waits_until_the_program_has_begun(harness: ControlHarness) -> None:
    control = service(harness)
    job, runner = await starting(harness, control)
    entering = asyncio.create_task(enters(control, job))
    await until_early(control)
    assert await called(control, runner.attempt) == [], "the agent has nothing to enter yet"
    assert await audited(harness) == []
    await runner.say(MessageKind.STARTED, pid=77)
    id = await asyncio.wait_for(until_called(control, runner.attempt), 5)
    line = FakeAgentSocket()
    with control.agents.accept_session(runner.attempt, id) as meeting:
        meeting.agent_stream.set_result(line)
        assert await asyncio.wait_for(entering, 5) is line
    assert not control._services.sessions._reserved


async def test_a_program_that_does_not_begin_is_not_waited_for_for_long(
    harness: ControlHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s, "BEGIN_SECONDS", 0.01)
    control = service(harness)
    job, _ = await starting(harness, control)
    with pytest.raises(Conflict, match="has not begun") as refused:
        await enters(control, job)
    assert "was not ready within" in refused.value.why
    assert not control._services.sessions._reserved


async def test_a_job_that_ends_while_its_program_is_waited_for(harness: ControlHarness) -> None:
    control = service(harness)
    job, runner = await starting(harness, control)
    entering = asyncio.create_task(enters(control, job))
    await until_early(control)
    await runner.end(code=1)
    with pytest.raises(Conflict, match="has ended: it is failed"):
        await asyncio.wait_for(entering, 5)


async def test_those_who_wait_for_a_program_count_among_the_sessions(
    harness: ControlHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MOST_OF_JOB", 1)
    control = service(harness)
    job, _ = await starting(harness, control)
    entering = asyncio.create_task(enters(control, job))
    await until_early(control)
    with pytest.raises(TooManyAttempts, match="on this job"):
        await enters(control, job)
    entering.cancel()
    await asyncio.gather(entering, return_exceptions=True)
    assert not control._services.sessions._reserved


# Several processes


async def test_another_process_says_where_the_session_waits(harness: ControlHarness) -> None:
    registry = Sessions(harness.ports, "http://here")
    registry._on_remote_call("session:att-1:ses-9:mch-1:http://[::1]:81/x")
    assert registry.pending_calls("att-1") == [SessionCallView(id="ses-9", at="http://[::1]:81/x")]
    assert registry.pending_calls("att-2") == []
    harness.clock.move(sessions.DIAL_SECONDS + 1)
    assert registry.pending_calls("att-1") == []
    registry._on_remote_call(None)


class ForwardingWakeups(LocalWakeups):
    """The wake-ups of a process that another one overhears."""

    def __init__(self) -> None:
        super().__init__()
        self.others: list[Sessions] = []

    def wake(self, topic: str) -> None:
        super().wake(topic)
        for other in self.others if topic.startswith("session:") else ():
            other._on_remote_call(topic)


async def test_a_session_asked_for_at_one_process_is_told_by_another(harness: ControlHarness) -> None:
    wakeups = ForwardingWakeups()
    here = Sessions(replace(harness.ports, wakeups=wakeups), "https://here.example:8443/agents")
    there = Sessions(harness.ports, "https://there.example")
    wakeups.others = [there]
    with harness.ports.wakeups.listening("machine:mch-1") as listener, here.open("ses-1", VISIT):
        assert await listener.wait(SOON), "the runner that waits there is woken"
        assert there.pending_calls("att-1") == [SessionCallView(id="ses-1", at="https://here.example:8443/agents")]
        with pytest.raises(NotFound), there.accept("att-1", "ses-1"):
            raise AssertionError("it waits elsewhere")


async def test_what_others_wait_for_is_bounded(harness: ControlHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_REMOTE_CALLS", 3)
    registry = Sessions(harness.ports, "http://here")
    for number in range(9):
        registry._on_remote_call(f"session:att-1:ses-{number}:mch-1:http://there")
    assert len(registry.pending_calls("att-1")) == 3


# Who may enter


async def test_who_may_only_look_may_not_enter(harness: ControlHarness) -> None:
    job, _ = await harness.running()
    control = ControlPlane(harness.ports, harness.backends, replace(harness.deployment, shared_computer=True))
    assert await control.sessions.enter(somebody(Role.MEMBER), job)
    for who in (somebody(Role.VIEWER), somebody(Role.MEMBER, scopes=frozenset({Permission.READ}))):
        with pytest.raises(Forbidden):
            await control.sessions.enter(who, job)
    with pytest.raises(NotFound):
        await control.sessions.enter(replace(somebody(Role.MEMBER), roles={"other": Role.MEMBER}), job)


async def test_the_servers_own_computer_is_entered_by_those_who_may_run_there(harness: ControlHarness) -> None:
    assert harness.backend.capabilities.reach is Reach.SAME_COMPUTER
    job, _ = await harness.running()
    control = service(harness)
    with pytest.raises(RefusedByPolicy, match="several users"):
        await control.sessions.enter(somebody(Role.MEMBER), job)
    assert await control.sessions.enter(somebody(Role.MEMBER, admin=True), job)


async def test_a_job_that_does_not_run_has_no_entrance(harness: ControlHarness) -> None:
    control = service(harness)
    job = await harness.submit()
    with pytest.raises(Conflict, match="is not running: the job is"):
        await control.sessions.enter(OWNER, job)
    await harness.host_up()
    runner = await harness.runner(job)
    await runner.end()
    with pytest.raises(Conflict, match="has ended: it is"):
        await control.sessions.enter(OWNER, job)


async def test_through_the_store_no_line_leads_to_a_job(harness: ControlHarness) -> None:
    job, _ = await harness.running()
    deployment = replace(harness.deployment, store_url="/somewhere", channel=Channel.STORE)
    with pytest.raises(Conflict, match="machine cannot be reached") as refused:
        await ControlPlane(harness.ports, harness.backends, deployment).sessions.enter(OWNER, job)
    assert "agents_url" in refused.value.fix


# What is written down


async def visit(control: ControlPlane, job: str, attempt: str, wanted: s.Opening, who: Identity = OWNER) -> None:
    entrance = await control.sessions.enter(who, job)

    async def stay() -> None:
        async with entrance.session(wanted):
            pass

    staying = asyncio.create_task(stay())
    with control.agents.accept_session(attempt, await until_called(control, attempt)) as meeting:
        meeting.agent_stream.set_result(FakeAgentSocket())
        await asyncio.wait_for(staying, 5)


async def test_who_ran_what_is_written_down(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    control = service(harness)
    await visit(control, job, runner.attempt, LS)
    admin = somebody(Role.MEMBER, admin=True)
    await visit(control, job, runner.attempt, s.Command(terminal=s.Size()), admin)
    assert await audited(harness) == [
        (OWNER.name, "job.exec", '{"command": ["ls", "-l"], "terminal": false}'),
        ("ada", "job.exec", '{"command": [], "terminal": true}'),
    ]


async def test_a_long_command_is_written_down_as_far_as_it_goes(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    await visit(service(harness), job, runner.attempt, s.Command(("x" * 9000, "y", "\udc80")))
    ((_, _, data),) = await audited(harness)
    assert MAX_COMMAND_AUDITED < len(data) < MAX_COMMAND_AUDITED + 100


async def test_of_many_connections_the_first_is_written_down(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    control = service(harness)
    for port in (8888, 8888, 9999):
        await visit(control, job, runner.attempt, s.Connection(port))
    harness.clock.move(PORT_AUDIT_SECONDS + 1)
    await visit(control, job, runner.attempt, s.Connection(8888))
    await visit(control, job, runner.attempt, s.Ports())
    assert [data for _, _, data in await audited(harness)] == ['{"port": 8888}', '{"port": 9999}', '{"port": 8888}']
