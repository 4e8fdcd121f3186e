"""25 secrets leave a program in every way there is; none is found where it does not belong."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest
from tests.e2e.canaries import COUNT, PROGRAM, Canary, make_canaries
from tests.harness import Deployment, View, python, until
from tests.scale import Record
from tests.storage.servers import bucket_options, seaweedfs
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from crucible.storage import NotFound, open_store

pytestmark = [pytest.mark.timeout(240), pytest.mark.usefixtures("new_interpreters")]

PLACES: Mapping[str, Mapping[str, str]] = {
    "local": {},
    "rehearsal": {},
    "rehearsal through a bucket": {"CRUCIBLE_CHANNEL": "store"},
    "local through the store": {"CRUCIBLE_CHANNEL": "store"},
    "local through a store that others may read": {"CRUCIBLE_CHANNEL": "store"},
}
SERVERS = "a-password-of-the-server-itself"
ROUTES = ("", "/logs", "/metrics", "/events", "/artifacts", "/checkpoints")
GENERAL = ("jobs", "events", "machines", "audit", "projects", "projects/default/secrets", "backends", "server")


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def crucible(tmp_path: Path, place: str) -> Iterator[Deployment]:
    store = tmp_path / "store"
    store.mkdir()
    store.chmod(0o755 if "others" in place else 0o700)
    given = {"CRUCIBLE_BACKENDS": "local,rehearsal", "CLOUD_PASSWORD": SERVERS, "CRUCIBLE_STORE": str(store)}
    with seaweedfs() if "bucket" in place else nullcontext() as bucket:
        env = {**given, **PLACES[place], **(bucket.settings() if bucket else {})}
        with Deployment(tmp_path, env) as deployment:
            yield deployment


@pytest.fixture
def canaries(crucible: Deployment) -> list[Canary]:
    made = make_canaries(seed=5)
    with crucible.client() as client:
        for canary in made:
            path = f"/api/v1/projects/default/secrets/canary-{canary.number}"
            answer = client.put(path, json={"value": canary.value})
            assert answer.status_code == 201, answer.text
    return made


def spec(canaries: list[Canary], place: str, gate: Path) -> View:
    secrets = {canary.variable: f"canary-{canary.number}" for canary in canaries}
    return python(PROGRAM, secrets=secrets, env={"GATE": str(gate)}, backend=place.split()[0])


def test_none_is_found(
    crucible: Deployment, canaries: list[Canary], place: str, tmp_path: Path, record: Record
) -> None:
    gate = tmp_path / "gate"
    job = crucible.submit(spec(canaries, place, gate))
    until(
        lambda: any(path.match("outputs/ready") for path in paths(tmp_path)), 90, "the program to have let them all out"
    )
    seen = {"command lines": command_lines(), **files(tmp_path), **stored(crucible)}
    gate.touch()
    view = crucible.wait(job, 120)
    assert (view["status"], view["exit_code"]) == ("failed", 1), view
    seen.update({f"later {name}": data for name, data in {**files(tmp_path), **stored(crucible)}.items()})
    seen.update(answers(crucible, job))
    seen["stream"] = frames(crucible, job)
    seen["commands"] = commands(crucible, job)
    found = [(name, c.number, trace) for name, data in seen.items() for c in canaries for trace in c.traces_in(data)]
    found += [(name, 0, whose) for name, data in seen.items() for whose, value in ours(crucible, name) if value in data]
    record("canary secrets", place=place, canaries=len(canaries), looked_into=len(seen), found=len(found))
    assert found == []
    assert {"home/crucible.db", "home/server.log", "home/secrets.keys"} <= set(seen)
    mail = {name: data for name, data in seen.items() if name.endswith(("/alive", "/down", "/claim"))}
    assert bool(mail) == ("through" in place)
    form = b"signed" if place == "local through the store" else b"encrypted"
    assert all(data.startswith(form) for name, data in mail.items() if name.endswith(("/alive", "/claim")))

    log = crucible.log(job).decode()
    missing = [n for n in range(1, COUNT + 1) if f"way {n:02d}" not in log]
    assert missing == [], "what is around a secret is kept"
    assert log.count("***") >= COUNT - 3
    assert {item["path"] for item in crucible.get(f"/api/v1/jobs/{job}/artifacts")["items"]} == {"own.txt", "ready"}
    with crucible.client() as client:
        own = client.get(f"/api/v1/jobs/{job}/artifacts/own.txt").text
    assert own == canaries[0].value, "what a job stores by itself is its own"


def ours(crucible: Deployment, name: str) -> list[tuple[str, bytes]]:
    """Credentials of the server, and whose they are, that have no business in what is called `name`."""
    files = {whose: (crucible.home / whose).read_bytes().strip() for whose in ("key", "token", "secrets.keys")}
    held = {**files, "the server's environment": SERVERS.encode()}
    return [(whose, value) for whose, value in held.items() if not name.endswith(f"home/{whose}")]


def command_lines() -> bytes:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            found.append(Path("/proc", name, "cmdline").read_bytes())
        except OSError:
            continue
    return b"\n".join(found)


def paths(folder: Path) -> Iterator[Path]:
    """Of all files that are there, while others come and folders go."""
    for root, _, names in os.walk(folder):
        yield from (Path(root, name) for name in names)


def files(folder: Path) -> dict[str, bytes]:
    """All there are of the deployment: state, database, store, mailboxes, machines; but what the job itself wrote."""
    own = {"outputs", "artifacts", "report.jsonl"}
    found = {}
    for path in paths(folder):
        inside = path.relative_to(folder)
        try:
            if path.is_file() and not own & set(inside.parts) and not _is_own_blob(inside):
                found[str(inside)] = path.read_bytes()
        except OSError:
            continue
    return found


def stored(crucible: Deployment) -> dict[str, bytes]:
    """All that lies in the deployment's bucket, if it has one, but what the job itself wrote."""
    if "CRUCIBLE_STORE_ENDPOINT" not in crucible.env:
        return {}
    store, found = open_store(crucible.env["CRUCIBLE_STORE"], bucket_options(crucible.env)), {}
    for key, _ in store.list(""):
        if "/outputs/" not in key and not _is_own_blob(Path(key)):
            with suppress(NotFound):  # taken in meanwhile
                found[f"bucket/{key}"] = store.get(key)
    return found


def _is_own_blob(path: Path) -> bool:
    """An output on its way through a mailbox."""
    return path.name.startswith("artifact-")


def answers(crucible: Deployment, job: str) -> dict[str, bytes]:
    with crucible.client() as client:
        paths = [f"/api/v1/jobs/{job}{route}" for route in ROUTES] + [f"/api/v1/{name}" for name in GENERAL]
        return {path: client.get(path).raise_for_status().content for path in paths}


def frames(crucible: Deployment, job: str) -> bytes:
    url = crucible.discovery["url"].replace("http", "ws", 1)
    headers = {"Authorization": f"Bearer {crucible.token}"}
    taken = []
    with connect(f"{url}/api/v1/jobs/{job}/stream", additional_headers=headers, proxy=None) as socket:
        try:
            while True:
                taken.append(socket.recv(timeout=20))
        except ConnectionClosed:
            pass
    kinds = {json.loads(text)["stream"] for text in taken}
    assert {"log", "event"} <= kinds
    return "\n".join(str(text) for text in taken).encode()


def commands(crucible: Deployment, job: str) -> bytes:
    def out(*words: str) -> str:
        done: subprocess.CompletedProcess[str] = crucible.cli(*words)
        return done.stdout + done.stderr

    wanted = (("status", job), ("status", job, "--json"), ("logs", job), ("secrets", "--json"), ("audit", "--json"))
    return "".join(out(*words) for words in wanted).encode()
