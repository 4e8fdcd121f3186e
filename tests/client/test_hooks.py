"""Hooks from Python: what each method asks for, and how its answer is read."""

from __future__ import annotations

import pytest
from tests.client.real_server import RealServer
from tests.control.fakes import FakePost

from crucible.client.api import Api
from crucible.client.api.people import Hooks
from crucible.core.errors import NotFound, Trouble
from crucible.core.hooks import HookEvent, HookFormat, Reply
from crucible.core.people.identity import OWNER

pytestmark = pytest.mark.enable_socket

URL = "https://hooks.example/x"
BELOW = "/api/v1/projects/vision/hooks"


@pytest.fixture
def post(real: RealServer) -> FakePost:
    """What is sent to receivers."""
    assert isinstance(real.harness.deployment.post, FakePost)
    return real.harness.deployment.post


@pytest.fixture
def hooks(real: RealServer, real_api: Api) -> Hooks:
    real.run(real.app.control.people.ensure_project, OWNER, "vision")
    return real_api.hooks


async def notify(real: RealServer) -> None:
    await real.harness.duties.renew(real.harness.ports.db, real.harness.clock)
    await real.harness.services.notifier.round()
    await real.harness.services.notifier.wait_idle()


def test_the_list_says_how_each_does(hooks: Hooks, real: RealServer, post: FakePost) -> None:
    made = hooks.add("vision", URL)
    post.replies[URL] = [Reply(None, "nobody answers")] * 2
    real.complete(1, spec={"project": "vision"})
    real.run(notify, real)
    real.harness.clock.move(60)
    real.run(notify, real)
    (hook,) = hooks.list_hooks("vision")
    assert (hook.id, hook.state, hook.failures) == (made.id, "failing", 2)
    assert hook.last is not None
    assert (hook.last.answer, hook.last.delivered) == ("nobody answers", False)


def test_a_new_one_comes_with_its_secret_which_is_not_printed(hooks: Hooks, real: RealServer) -> None:
    made = hooks.add("vision", URL, events=[HookEvent.FAILED, "started"], format=HookFormat.SLACK)
    assert made.secret is not None
    assert made.secret.startswith("whsec_")
    assert made.secret not in repr(made)
    assert made.as_json()["secret"] == made.secret
    assert (set(made.events), made.format) == ({"failed", "started"}, "slack")
    assert real.sent == [(BELOW, {"url": URL, "events": ["failed", "started"], "format": "slack"})]


def test_without_a_secret_there_is_no_word_of_one(hooks: Hooks) -> None:
    made = hooks.add("vision", URL)
    assert "secret" not in hooks.get("vision", made.id[-6:]).as_json()


def test_a_change_names_what_changes_and_nothing_else(hooks: Hooks, real: RealServer) -> None:
    made = hooks.add("vision", URL)
    assert not hooks.change("vision", made.id, enabled=False).enabled
    changed = hooks.change("vision", made.id, url=f"{URL}/2", events=["failed"])
    assert (changed.url, changed.events, changed.enabled) == (f"{URL}/2", ("failed",), False)
    bodies = [body for path, body in real.sent if path == f"{BELOW}/{made.id}"]
    assert bodies == [{"enabled": False}, {"url": f"{URL}/2", "events": ["failed"]}]


def test_the_others_go_where_they_should(hooks: Hooks, real: RealServer, post: FakePost) -> None:
    made = hooks.add("vision", URL)
    assert hooks.rotate("vision", made.id).secret not in (None, made.secret)
    post.replies[URL] = [Reply(200, "thanks"), Reply(500, "no")]
    first, second = hooks.test("vision", made.id), hooks.test("vision", made.id)
    assert (first.delivered, first.answer, second.delivered) == (True, "thanks", False)
    assert [one.status for one in hooks.deliveries("vision", made.id, limit=1)] == [500]
    assert [one.status for one in hooks.deliveries("vision", made.id)] == [500, 200]
    hooks.remove("vision", made.id)
    with pytest.raises(NotFound):
        hooks.get("vision", made.id)


def test_an_answer_that_is_none_is_told(hooks: Hooks, real: RealServer) -> None:
    hooks.add("vision", URL)
    real.faults.change(BELOW, lambda page: {"items": [{}]})
    with pytest.raises(Trouble):
        hooks.list_hooks("vision")
