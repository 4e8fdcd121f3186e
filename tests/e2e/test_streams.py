"""WebSockets: what was missed, then what happens, each thing once, also over a server's death."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from urllib.parse import urlencode

import pytest
from tests.e2e.support import wait_for
from tests.harness import TERMINAL, Deployment, View, python, shell
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

NORMAL = 1000
STEPS = """
    import pathlib, sys, time
    folder = pathlib.Path(sys.argv[1])
    for step in range(40):
        print(f"step {step}/40 loss={1 / (step + 1):.3f} äöü ☃", flush=True)
        if step in (10, 20, 30):
            (folder / f"reached-{step}").touch()
            while not (folder / f"pass-{step}").exists():
                time.sleep(0.01)
    """


@dataclass
class Reader:
    """Takes frames in and keeps what a client needs to go on: the cursors."""

    frames: list[View] = field(default_factory=list)
    event: int = 0
    attempt: int | None = None
    offset: int = 0

    def take(self, text: str | bytes) -> View:
        frame: View = json.loads(text)
        if frame["stream"] == "event":
            assert frame["cursor"] > self.event
            self.event = frame["cursor"]
        if frame["stream"] == "log":
            assert frame["attempt"] != self.attempt or frame["cursor"] > self.offset
            self.attempt, self.offset = frame["attempt"], frame["cursor"]
        self.frames.append(frame)
        return frame

    @property
    def cursors(self) -> View:
        attempt = {} if self.attempt is None else {"attempt": self.attempt}
        return {"after": self.event, "offset": self.offset, **attempt}

    @property
    def log(self) -> str:
        return "".join(frame["text"] for frame in self.of("log"))

    @property
    def events(self) -> list[int]:
        return [frame["cursor"] for frame in self.of("event")]

    def of(self, stream: str) -> list[View]:
        return [frame for frame in self.frames if frame["stream"] == stream]


@contextmanager
def socket(crucible: Deployment, path: str, token: str | None = None, **query: object) -> Iterator[ClientConnection]:
    url = f"ws{crucible.discovery['url'].removeprefix('http')}{path}?{urlencode(query)}"
    headers = {"Authorization": f"Bearer {token or crucible.token}"}
    with connect(url, additional_headers=headers, proxy=None, open_timeout=10, close_timeout=5) as found:
        yield found


def until_closed(stream: ClientConnection, reader: Reader) -> int | None:
    """Reads until the server closes; the code it gave, None when it just went away."""
    while True:
        try:
            reader.take(stream.recv(timeout=30))
        except ConnectionClosed as closed:
            return closed.rcvd.code if closed.rcvd else None


def to_the_end(crucible: Deployment, job: str, reader: Reader) -> int | None:
    with socket(crucible, f"/api/v1/jobs/{job}/stream", **reader.cursors) as stream:
        return until_closed(stream, reader)


def until_text(stream: ClientConnection, reader: Reader, text: str) -> None:
    while text not in reader.log:
        reader.take(stream.recv(timeout=30))


def steps(folder: Path) -> View:
    """A job that says what it does and waits at three gates in `folder`."""
    spec = python(dedent(STEPS))
    return {**spec, "command": [*spec["command"], str(folder)]}


def open_gates(folder: Path, *numbers: int) -> None:
    for number in numbers or (10, 20, 30):
        (folder / f"pass-{number}").touch()


def check_whole(crucible: Deployment, job: str, reader: Reader) -> None:
    assert reader.log.encode() == crucible.log(job)
    assert reader.log.count("\n") == 40
    assert reader.events == [event["n"] for event in crucible.events(job)]


def test_live_from_the_start_to_the_end(crucible: Deployment, tmp_path: Path) -> None:
    job = crucible.submit(steps(tmp_path))
    reader = Reader()
    with socket(crucible, f"/api/v1/jobs/{job}/stream") as stream:
        until_text(stream, reader, "step 10/40")
        assert "step 11/40" not in reader.log
        open_gates(tmp_path)
        assert until_closed(stream, reader) == NORMAL
    last = reader.frames[-1]
    assert (last["stream"], last["job"]["status"]) == ("job", "completed")
    assert [frame["job"]["phase"] in TERMINAL for frame in reader.of("job")].count(True) == 1
    check_whole(crucible, job, reader)
    assert reader.of("progress")[-1]["progress"]["step"] == 39
    points = [point for frame in reader.of("points") for point in frame["series"].get("loss", {})["points"]]
    assert [step for step, _value, _at in points] == list(range(40))


def test_replay_of_a_job_that_is_over(crucible: Deployment, tmp_path: Path) -> None:
    open_gates(tmp_path)
    job = crucible.submit(steps(tmp_path))
    crucible.wait(job)
    reader = Reader()
    assert to_the_end(crucible, job, reader) == NORMAL
    check_whole(crucible, job, reader)
    nothing_new = Reader(event=reader.event, attempt=reader.attempt, offset=reader.offset)
    to_the_end(crucible, job, nothing_new)
    assert (nothing_new.events, nothing_new.log) == ([], "")
    assert nothing_new.frames[-1]["job"]["status"] == "completed"


def test_a_reader_that_comes_back_misses_and_doubles_nothing(crucible: Deployment, tmp_path: Path) -> None:
    job = crucible.submit(steps(tmp_path))
    reader = Reader()
    for gate in (10, 20, 30):
        with socket(crucible, f"/api/v1/jobs/{job}/stream", **reader.cursors) as stream:
            until_text(stream, reader, f"step {gate}/40")
        open_gates(tmp_path, gate)
    to_the_end(crucible, job, reader)
    check_whole(crucible, job, reader)


def test_a_server_that_is_killed_in_the_middle(crucible: Deployment, tmp_path: Path) -> None:
    job = crucible.submit(steps(tmp_path))
    reader = Reader()
    for gate in (10, 20):
        with socket(crucible, f"/api/v1/jobs/{job}/stream", **reader.cursors) as stream:
            until_text(stream, reader, f"step {gate}/40")
            crucible.kill()
            open_gates(tmp_path, gate)
            assert until_closed(stream, reader) is None
        crucible.start()
    open_gates(tmp_path, 30)
    to_the_end(crucible, job, reader)
    assert crucible.wait(job)["status"] == "completed"
    assert len(crucible.job(job)["attempts"]) == 1
    check_whole(crucible, job, reader)


def test_all_attempts_of_a_job(crucible: Deployment, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    code = f"if [ -e '{mark}' ]; then echo second; else touch '{mark}'; echo first; exit 1; fi"
    holder = crucible.submit(shell(wait_for(tmp_path / "gate")))
    job = crucible.submit(shell(code, retries={"user": 1, "wait_seconds": 0}))
    reader = Reader()
    with socket(crucible, f"/api/v1/jobs/{job}/stream") as stream:
        reader.take(stream.recv(timeout=10))
        (tmp_path / "gate").touch()
        assert until_closed(stream, reader) == NORMAL
    crucible.wait(holder)
    assert [(frame["attempt"], frame["text"]) for frame in reader.of("log")] == [
        (1, "first\n"),
        (2, "second\n"),
    ]


def test_all_jobs_in_one_stream(crucible: Deployment) -> None:
    seen = crucible.get("/api/v1/events", after=0, limit=1000)["items"]
    start = seen[-1]["cursor"] if seen else 0
    first = crucible.submit(shell("true"))
    reader = Reader()
    over: set[str] = set()
    with socket(crucible, "/api/v1/stream", after=start) as stream:
        jobs = {first, crucible.submit(shell("true")), crucible.submit(shell("exit 1"))}
        while over != jobs:
            event = reader.take(stream.recv(timeout=30))["event"]
            over |= {event["job"]} if event["type"] in TERMINAL else set()
    assert reader.events == sorted(reader.events)
    for job in jobs:
        mine = [frame["event"]["n"] for frame in reader.of("event") if frame["event"]["job"] == job]
        assert mine == [event["n"] for event in crucible.events(job)]
    middle = reader.events[len(reader.events) // 2]
    again = Reader(event=middle)
    with socket(crucible, "/api/v1/stream", after=middle) as stream:
        while again.event < reader.event:
            again.take(stream.recv(timeout=10))
    assert again.events == [cursor for cursor in reader.events if cursor > middle]


def test_a_wrong_token_is_refused(crucible: Deployment) -> None:
    job = crucible.submit(shell("true"))
    for path in (f"/api/v1/jobs/{job}/stream", "/api/v1/stream"):
        with pytest.raises(InvalidStatus) as refused, socket(crucible, path, token="wrong"):
            pass
        assert refused.value.response.status_code == 401
    crucible.wait(job)


def test_a_job_that_is_not_there(crucible: Deployment) -> None:
    with (
        pytest.raises(InvalidStatus) as refused,
        socket(crucible, "/api/v1/jobs/job-00000000000000000000000000/stream"),
    ):
        pass
    assert refused.value.response.status_code == 404


def test_a_socket_that_is_not_there_says_so_and_no_refusal_is_an_error_of_the_servers(crucible: Deployment) -> None:
    log = crucible.home / "server.log"
    before = log.read_text().count('"level": "error"')
    for path, token, status in (("/api/v1/nothing", None, 404), ("/api/v1/stream", "wrong", 401)):
        with pytest.raises(InvalidStatus) as refused, socket(crucible, path, token=token):
            pass
        answer = refused.value.response
        assert (answer.status_code, json.loads(answer.body or b"{}")["status"]) == (status, status)
    assert log.read_text().count('"level": "error"') == before


def test_a_token_as_subprotocol(crucible: Deployment) -> None:
    job = crucible.submit(shell("true"))
    url = f"ws{crucible.discovery['url'].removeprefix('http')}/api/v1/jobs/{job}/stream"
    offered = ["crucible.v1", f"crucible.bearer.{crucible.token}"]
    with connect(url, subprotocols=offered, proxy=None) as stream:  # type: ignore[arg-type]
        assert stream.subprotocol == "crucible.v1"
        assert json.loads(stream.recv(timeout=10))["stream"] in ("event", "job")
    crucible.wait(job)
