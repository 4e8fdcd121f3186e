"""Notifications as people use them: a real receiver on this computer, the real server, command and agent."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.e2e.terminal import Terminal
from tests.harness import Deployment, shell, until
from tests.webhook_receiver import Answer, Receiver

from crucible.client import verify_webhook
from crucible.core.errors import NotAllowed

ALLOWED = {"CRUCIBLE_WEBHOOK_HOSTS": "127.0.0.1"}
PAGE = Path(__file__).parents[2] / "docs" / "notifications.md"
METADATA = "http://169.254.169.254/latest/meta-data/"


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    with Terminal(tmp_path_factory.mktemp("notifications"), **ALLOWED) as terminal:
        terminal.crucible.start()
        yield terminal


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def hook(terminal: Terminal, receiver: Receiver) -> Iterator[dict[str, Any]]:
    made = terminal.json("notifications", "add", receiver.url("localhost"))
    yield made
    terminal.run("notifications", "remove", made["id"], "--yes")


def test_the_end_of_a_job_arrives_signed(terminal: Terminal, receiver: Receiver, hook: dict[str, Any]) -> None:
    assert terminal.run("run", "--shell", "exit 3", "--name", "nightly").returncode == 3
    until(lambda: receiver.received, 20, "the message")
    (got,) = receiver.received
    message = verify_webhook(hook["secret"], got.headers, got.body)
    job = terminal.json("status", "last")
    assert message["type"] == "job.failed"
    told = message["data"]["job"]
    assert {name: told[name] for name in ("id", "name", "status", "exit_code", "reason", "project")} == {
        name: job[name] for name in ("id", "name", "status", "exit_code", "reason", "project")
    }
    with pytest.raises(NotAllowed):
        verify_webhook(hook["secret"], got.headers, got.body + b" ")
    listed = until(lambda: terminal.json("notifications", "deliveries", hook["id"])["items"], 20, "the record")
    assert [(item["outcome"], item["status"], item["job"]) for item in listed] == [("delivered", 200, job["id"])]


def test_a_new_hook_prints_its_secret_alone_and_says_the_rest_to_people(terminal: Terminal, receiver: Receiver) -> None:
    done = terminal.run("notifications", "add", receiver.url(), "--event", "started,failed", "--event", "checkpoint")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("whsec_")
    assert done.stdout.count("\n") == 1
    assert "not shown again" in done.stderr
    (shown,) = terminal.json("notifications")["items"]
    assert shown["events"] == ["started", "checkpoint", "failed"]
    assert "whsec_" not in terminal.ok("notifications", "show", shown["id"]) + json.dumps(shown)
    tried = terminal.run("notifications", "test", shown["id"][-6:])
    assert (tried.returncode, "delivered (200)" in tried.stderr) == (0, True), tried.stderr
    assert [one["type"] for one in receiver.verified(done.stdout.strip())] == ["ping"]
    assert terminal.run("notifications", "remove", shown["id"]).returncode == 2, "nobody can be asked here"
    assert "is removed" in terminal.run("notifications", "remove", shown["id"], "--yes").stderr
    assert "has no webhooks" in terminal.run("notifications").stderr


def test_rotate_change_disable_and_enable(terminal: Terminal, receiver: Receiver, hook: dict[str, Any]) -> None:
    fresh = terminal.ok("notifications", "rotate", hook["id"]).strip()
    terminal.ok("notifications", "test", hook["id"])
    (got,) = receiver.received
    for secret in (hook["secret"], fresh):
        assert got.verified(secret)["type"] == "ping"
    assert terminal.json("notifications", "disable", hook["id"])["state"] == "disabled"
    terminal.ok("run", "--shell", "true")
    changed = terminal.json("notifications", "change", hook["id"], "--event", "completed", "--url", receiver.url())
    assert (changed["events"], changed["url"]) == (["completed"], receiver.url())
    terminal.ok("notifications", "enable", hook["id"])
    terminal.ok("run", "--shell", "true", "--name", "after")
    until(lambda: len(receiver.received) == 2, 20, "the message")
    assert receiver.received[1].verified(fresh)["data"]["job"]["name"] == "after"
    assert "completed" in terminal.ok("notifications")
    assert "job.completed" in terminal.ok("notifications", "deliveries", hook["id"])


@pytest.mark.parametrize(
    ("url", "code", "said"),
    [
        ("http://169.254.169.254/latest", 7, "webhook_hosts"),
        ("http://[::ffff:127.0.0.1]/", 7, "webhook_hosts"),
        ("http://2130706433/", 2, "usual form"),
        ("https://user:hunter2@example.org/", 2, "name or a password"),
    ],
)
def test_addresses_that_may_not_be_called(terminal: Terminal, url: str, code: int, said: str) -> None:
    done = terminal.run("notifications", "add", url)
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    assert "hunter2" not in done.stderr + (terminal.home / "server.log").read_text()


def test_mistakes_are_told_with_what_was_meant(terminal: Terminal, receiver: Receiver) -> None:
    for arguments, said in (
        (("add", receiver.url(), "--event", "complete"), "Did you mean 'completed'?"),
        (("add", receiver.url(), "--format", "slak"), "Did you mean 'slack'?"),
        (("show", "hook-zzzzzz"), "crucible notifications"),
        (("change", "hook-zzzzzz"), "--event"),
    ):
        done = terminal.run("notifications", *arguments)
        assert done.returncode in (2, 3)
        assert said in done.stderr


def test_a_redirect_to_where_secrets_are_is_not_followed(
    terminal: Terminal, receiver: Receiver, hook: dict[str, Any]
) -> None:
    receiver.answers = [Answer(307, {"location": METADATA})]
    done = terminal.run("notifications", "test", hook["id"])
    assert done.returncode == 1
    assert "failed (307)" in done.stderr
    assert "redirect" in done.stderr


def test_slack_gets_a_text(terminal: Terminal, receiver: Receiver) -> None:
    made = terminal.json("notifications", "add", receiver.url(), "--format", "slack")
    terminal.ok("run", "--shell", "true", "--name", "nightly")
    until(lambda: receiver.received, 20, "the message")
    told = json.loads(receiver.received[0].body)
    assert list(told) == ["text"]
    assert told["text"].startswith("nightly (job-")
    assert told["text"].endswith("in default: completed")
    terminal.ok("notifications", "remove", made["id"], "--yes")


def added(crucible: Deployment, receiver: Receiver) -> dict[str, Any]:
    with crucible.client() as client:
        answer = client.post("/api/v1/projects/default/hooks", json={"url": receiver.url()})
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def shown(crucible: Deployment, hook: str) -> dict[str, Any]:
    return dict(crucible.get(f"/api/v1/projects/default/hooks/{hook}"))


def test_a_receiver_that_was_down_is_told_when_it_is_up_again(tmp_path: Path) -> None:
    with Deployment(tmp_path, ALLOWED) as crucible:
        with Receiver() as receiver:
            hook = added(crucible, receiver)
        first = crucible.submit(shell("true"))
        crucible.wait(first)
        view = until(lambda: (v := shown(crucible, hook["id"]))["failures"] and v, 20, "a failure")
        assert (view["state"], view["last"]["status"]) == ("failing", None)
        crucible.restart()
        second = crucible.submit(shell("exit 1"))
        crucible.wait(second)
        with Receiver(receiver.port) as again:
            until(lambda: len(again.received) == 2, 30, "both messages")
            told = again.verified(hook["secret"])
        assert [(one["type"], one["data"]["job"]["id"]) for one in told] == [
            ("job.completed", first),
            ("job.failed", second),
        ]
        until(lambda: shown(crucible, hook["id"])["state"] == "enabled", 20, "the hook to be well")


@pytest.mark.parametrize(("point", "times"), [("hook.before_call", 1), ("hook.after_call", 2)])
def test_a_server_that_is_killed_around_a_call_loses_none(tmp_path: Path, point: str, times: int) -> None:
    with Deployment(tmp_path, ALLOWED) as crucible, Receiver() as receiver:
        hook = added(crucible, receiver)
        crucible.kill()
        crucible.start(CRUCIBLE_CRASHPOINT=point)
        job = crucible.submit(shell("true"))
        server = crucible.server
        assert server is not None
        until(lambda: server.poll() is not None, 30, "the server to die")
        crucible.start()
        until(lambda: len(receiver.received) == times, 30, "the message")
        crucible.wait(crucible.submit(shell("true")))
        until(lambda: len(receiver.received) == times + 1, 30, "the next message")
        assert len({one.id for one in receiver.received}) == 2
        told = receiver.verified(hook["secret"])
        assert [one["data"]["job"]["id"] for one in told[:times]] == [job] * times


def test_a_receiver_that_hangs_holds_up_nobody(tmp_path: Path) -> None:
    with Deployment(tmp_path, ALLOWED) as crucible, Receiver() as stuck, Receiver() as well:
        stuck.usual = Answer(silent=True)
        added(crucible, stuck)
        added(crucible, well)
        for count in (1, 2):
            assert crucible.wait(crucible.submit(shell("true")))["status"] == "completed"
            until(lambda count=count: len(well.received) == count, 8, "the other's message")
        assert len(stuck.received) == 1


def test_the_pages_own_receiver_takes_what_is_signed(terminal: Terminal, tmp_path: Path) -> None:
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "do_POST" in block]
    with Receiver() as free:
        made = terminal.json("notifications", "add", free.url())
    env = {**terminal.crucible.env, "HOOK_SECRET": made["secret"], "PORT": str(free.port)}
    script = tmp_path / "receiver.py"
    script.write_text(code)
    with subprocess.Popen([sys.executable, str(script)], env=env, stdout=subprocess.PIPE, text=True) as receiver:
        until(lambda: terminal.run("notifications", "test", made["id"]).returncode == 0, 30, "the ping to be taken")
        assert httpx2.post(free.url(), content=b"{}").status_code == 401
        receiver.terminate()
        assert receiver.stdout is not None
        assert receiver.stdout.read().startswith("ping {")
    terminal.ok("notifications", "remove", made["id"], "--yes")
