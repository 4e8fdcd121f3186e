"""A harness for hooks: add some, let jobs end, check the messages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.control.fakes import FakePost, Posted
from tests.control.harness import ControlHarness, other_worker

from crucible.control.hooks import rows
from crucible.control.hooks.rows import Hook
from crucible.core.hooks import ENDS, HookEvent, HookFormat, Reply
from crucible.core.people.identity import OWNER
from crucible.core.secret import Secret
from crucible.core.signing import signing_secret
from crucible.core.views.hooks import DeliveryView, HookView

URL = "https://hooks.example/one"
SECRET = signing_secret(b"k" * 32)
DOWN = Reply(None, "nobody answers")


@dataclass(frozen=True)
class HookHarness:
    harness: ControlHarness
    post: FakePost

    async def hook(
        self,
        url: str = URL,
        events: Sequence[HookEvent] = ENDS,
        project: str = "default",
        format: HookFormat = HookFormat.JSON,
        secret: Secret = SECRET,
    ) -> str:
        hooks = self.harness.services.hooks
        return (await hooks.add(OWNER, project, url, events=events, format=format, secret=secret)).id

    async def row(self, hook: str) -> Hook:
        found = await self.harness.read(lambda conn: rows.get_hook(conn, hook))
        assert found is not None
        return found

    async def view(self, hook: str, project: str = "default") -> HookView:
        return await self.harness.services.hooks.get(OWNER, project, hook)

    async def tries(self, hook: str) -> tuple[DeliveryView, ...]:
        return (await self.harness.services.hooks.list_deliveries(OWNER, "default", hook, limit=100)).items

    async def end_a_job(self, code: int = 0, **more: Any) -> str:
        """Run a job to its end."""
        job = await self.harness.submit(**more)
        await self.harness.host_up()
        await (await self.harness.runner(job)).end(code)
        return job

    async def notify(self) -> float:
        """Run a round of the notifier to its end; return the seconds until the next."""
        await self.harness.duties.renew(self.harness.ports.db, self.harness.clock)
        wait = await self.harness.services.notifier.round()
        await self.harness.services.notifier.wait_idle()
        return wait

    async def until_sent(self, count: int, url: str = URL) -> None:
        """Wait until `count` calls were made to the URL, answered or not."""
        async with asyncio.timeout(20):
            while len(self.sent(url)) < count:
                await asyncio.sleep(0.001)

    async def restarted(self) -> HookHarness:
        """Return the harness of a process with the same name that starts after this one died."""
        twin = await other_worker(self.harness, self.harness.ports.worker)
        await twin.duties.renew(twin.ports.db, twin.clock)
        return HookHarness(twin, self.post)

    def messages(self, url: str = URL) -> list[dict[str, Any]]:
        return [json.loads(one.body) for one in self.sent(url)]

    def sent(self, url: str = URL) -> list[Posted]:
        return [one for one in self.post.posted if one.url == url]

    def types(self, url: str = URL) -> list[str]:
        return [one["type"] for one in self.messages(url)]
