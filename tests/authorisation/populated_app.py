"""A real control plane with users: two projects, a running job in one of them, and a token for every identity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fastapi import FastAPI
from tests.control.harness import ControlHarness, job_spec, pieces, secret, sha
from tests.control.scoped import ScopedControl
from tests.openid_provider import CLIENT, ISSUER, SECRET, OpenIdProvider, transport

from crucible.control.control_plane import ControlPlane
from crucible.core.job.job_filter import JobFilter
from crucible.core.people.identity import OWNER, Identity, Permission, Role
from crucible.core.people.openid import OpenIdClient
from crucible.core.requests import NewToken
from crucible.core.secret import Secret
from crucible.core.views.jobs import JobView
from crucible.server.api import build_api
from crucible.server.streams.follow import StreamTiming
from crucible.wire.documents.messages import MessageKind

OWNERS = "o" * 64
CODE = b"print('hello')"
MODEL = b"weights"
TIMING = StreamTiming(send=1.0, close=0.05, look=5.0, points=0.0, settle=0.05, look_at_end=0.01, recheck=60.0)

PEOPLE: Mapping[str, tuple[str, Role] | None] = {
    "stranger": ("beta", Role.MEMBER),
    "viewer": ("alpha", Role.VIEWER),
    "member": ("alpha", Role.MEMBER),
    "manager": ("alpha", Role.ADMIN),
    "admin": None,
}


@dataclass(frozen=True)
class PopulatedApp:
    """`tokens` are by identity; anonymous callers have none."""

    harness: ControlHarness
    control: ControlPlane
    api: FastAPI
    job: str
    tokens: Mapping[str, str]
    stops: list[None]
    provider: OpenIdProvider

    def headers(self, identity: str) -> dict[str, str]:
        token = self.tokens.get(identity)
        return {"authorization": f"Bearer {token}"} if token else {}

    async def identity(self, name: str) -> Identity:
        found = await self.control.tokens.identify(self.tokens[name])
        assert found is not None
        return found

    async def scoped(self, *names: str) -> list[ScopedControl]:
        """Return the control plane scoped to each of these identities."""
        return [ScopedControl(self.control, await self.identity(name)) for name in names]

    async def seen_by(self, name: str) -> Sequence[JobView]:
        """Return the jobs in this identity's list."""
        who = await self.identity(name)
        return (await self.control.jobs.list_jobs(who, JobFilter(), limit=50, cursor=None)).items


async def populate(harness: ControlHarness) -> PopulatedApp:
    provider = OpenIdProvider(now=harness.clock.now)
    client = OpenIdClient(ISSUER, CLIENT, Secret(SECRET), "Example ID")
    deployment = replace(harness.deployment, shared_computer=True, openid=client, openid_transport=transport(provider))
    control = ControlPlane(harness.ports, harness.backends, deployment)
    await control._services.offers.refresh()
    await control._services.duties.renew(harness.ports.db, harness.clock)
    await _settle(control)
    tokens = {name: await token_of(control, name) for name in PEOPLE}
    tokens["revoked"] = await token_of(control, "member", revoked=True)
    tokens["owner"] = OWNERS
    member = await control.tokens.identify(tokens["member"])
    assert member is not None
    await control.bundles.put(member, sha(CODE), pieces(CODE))
    job = (await control.jobs.submit(member, job_spec(project="alpha", bundle=sha(CODE)), None)).view.id
    tokens["agent"] = await _run(harness, control, job)
    tokens["share"] = str((await control.jobs.share(member, job, name="for a friend", seconds=3600)).token)
    stops: list[None] = []
    api = build_api(
        control, token=OWNERS, nonce="n", version="1", home="/h", on_stop=lambda: stops.append(None), timing=TIMING
    )
    return PopulatedApp(harness, control, api, job, tokens, stops, provider)


async def _settle(control: ControlPlane) -> None:
    for project in ("alpha", "beta"):
        await control.people.add_project(OWNER, project)
    for name, place in PEOPLE.items():
        await control.people.add_user(OWNER, name, admin=place is None)
        if place is not None:
            await control.people.set_member(OWNER, place[0], name, place[1])


async def token_of(control: ControlPlane, user: str, *, revoked: bool = False, **more: Any) -> str:
    given = {"scopes": frozenset(Permission), "days": 30.0, **more}
    made = await control.tokens.create(OWNER, NewToken(name="test", user=user, **given))
    if revoked:
        await control.tokens.revoke(OWNER, made.id)
    return str(made.token)


async def _run(harness: ControlHarness, control: ControlPlane, job: str) -> str:
    """Let the job run, log and store outputs; return the secret of its attempt."""
    await harness.host_up()
    runner = await harness.runner(job)
    await runner.say(MessageKind.STARTED, pid=7)
    await runner.log(0, 0, b"the first line\n")
    await runner.say(MessageKind.POINTS, series={"loss": [[1, 0.5, 2]]})
    await control.agents.put_artifact(runner.attempt, 0, "model.pt", sha(MODEL), pieces(MODEL))
    await runner.say(MessageKind.ARTIFACT, path="model.pt", size=len(MODEL), sha256=sha(MODEL))
    await control.agents.put_checkpoint(runner.attempt, 0, sha(MODEL), pieces(MODEL))
    told = {"name": "step_1.pt", "form": "file", "size": len(MODEL), "sha256": sha(MODEL), "step": 1}
    await runner.say(MessageKind.CHECKPOINT, **told)
    return secret("attempt", runner.attempt).decode()
