"""The line to the bucket is cut, drops answers and meets storms: what was acknowledged is there, whole."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.proxy import Fault, FaultProxy, Rule, fault_proxy, storm
from tests.harness import Deployment, View, until
from tests.storage.servers import Server, seaweedfs

from crucible.core.job.spec import KeepPolicy

LONG = 180.0
OUTAGE_SECONDS = 2.0
LINES = 5_000
SIZES = (10_000, 1_000_000, 9_000_000, 500_000)
"""Of the checkpoints. The third travels in parts."""
NOISE = (
    Rule(Fault.DELAY, 0.3, seconds=0.1),
    Rule(Fault.DROP_ANSWER, 0.06, "PUT|POST|DELETE"),
    Rule(Fault.CUT_REQUEST, 0.06, "PUT|POST"),
    Rule(Fault.DUPLICATE, 0.06, "PUT"),
    Rule(Fault.TRUNCATE, 0.08, "GET"),
    Rule(Fault.CUT_ANSWER, 0.03),
    Rule(Fault.RESET, 0.03),
    *storm(0.1),
)

PROGRAM = """\
import hashlib, os, random, sys, time

gate, lines, *sizes = sys.argv[1:]
folder, found = os.environ["CRUCIBLE_CHECKPOINT_DIR"], os.environ.get("CRUCIBLE_RESUME_FROM")

def wait(step):
    open(f"{gate}.{step}.reached", "w").close()
    while not os.path.exists(f"{gate}.{step}"):
        time.sleep(0.05)

if found:
    with open(found, "rb") as file:
        print("resumed", hashlib.sha256(file.read()).hexdigest(), flush=True)
    sys.exit(0)
for number in range(int(lines)):
    print("line", number)
for step, size in enumerate(map(int, sizes), 1):
    data = random.Random(step).randbytes(size)
    part = os.path.join(folder, f".step-{step}.part")
    with open(part, "wb") as file:
        file.write(data)
    os.rename(part, os.path.join(folder, f"step-{step}.bin"))
    print("saved", step, hashlib.sha256(data).hexdigest(), flush=True)
    if step in (2, 4):
        wait(step)
with open(os.path.join(os.environ["CRUCIBLE_OUTPUT_DIR"], "result.bin"), "wb") as file:
    file.write(data)
sys.exit(3)
"""


@pytest.fixture(scope="module")
def bucket() -> Iterator[Server]:
    with seaweedfs() as server:
        yield server


@pytest.fixture
def line(bucket: Server) -> Iterator[FaultProxy]:
    with fault_proxy(str(bucket.options.endpoint)) as line:
        yield line


@pytest.fixture(params=["https", "store"])
def crucible(request: pytest.FixtureRequest, tmp_path: Path, bucket: Server, line: FaultProxy) -> Iterator[Deployment]:
    """Its bucket is at the far end of the line: for the server alone, or for the agents too."""
    options = bucket.options
    assert options.access_key is not None
    assert options.secret_key is not None
    env = {
        "CRUCIBLE_CHANNEL": request.param,
        "CRUCIBLE_STORE": bucket.url(),
        "CRUCIBLE_STORE_ENDPOINT": line.url,
        "CRUCIBLE_STORE_REGION": "us-east-1",
        "CRUCIBLE_STORE_ACCESS_KEY": options.access_key.reveal(),
        "CRUCIBLE_STORE_SECRET_KEY": options.secret_key.reveal(),
    }
    deployment = Deployment(tmp_path, env)
    try:
        deployment.start(seconds=LONG)
        yield deployment
    finally:
        deployment.close()


@pytest.mark.timeout(600)
def test_what_was_acknowledged_is_there(crucible: Deployment, line: FaultProxy, tmp_path: Path) -> None:
    line.rules(*NOISE)
    job = run(crucible, line, tmp_path / "gate")
    view = crucible.wait(job, 2 * LONG)
    assert (view["status"], view["attempt"]) == ("completed", 2), view["reason"]
    line.rules()
    first = crucible.log(job, 1).decode().splitlines()
    assert first[:LINES] == [f"line {number}" for number in range(LINES)]
    saved = {int(step): sha for _, step, sha in map(str.split, first[LINES:])}
    assert list(saved) == [1, 2, 3, 4]
    assert crucible.log(job, 2).decode().split() == ["resumed", saved[4]]
    until(lambda: len(checkpoints(crucible, job)) <= KeepPolicy().latest, LONG, "what is beyond the rule is removed")
    kept = checkpoints(crucible, job)
    assert saved[4] in {item["sha256"] for item in kept}
    for item in kept:
        assert sha_of(crucible, f"/api/v1/jobs/{job}/checkpoints/{item['id']}/content") == item["sha256"]
    (result,) = crucible.get(f"/api/v1/jobs/{job}/artifacts")["items"]
    assert sha_of(crucible, f"/api/v1/jobs/{job}/artifacts/result.bin") == result["sha256"] == saved[4]
    met = line.counts()
    assert met["drop_answer PUT"], met
    assert met["busy"], met


def run(crucible: Deployment, line: FaultProxy, gate: Path) -> str:
    """A job that saves, loses its store for a while, saves more, fails once its last is acknowledged, and resumes."""
    words = [str(gate), str(LINES), *map(str, SIZES)]
    retries = {"user": 1, "wait_seconds": 0}
    job = crucible.submit({"command": ["{python}", "-c", PROGRAM, *words], "retries": retries})
    until(lambda: Path(f"{gate}.2.reached").exists(), LONG, "the first gate")
    with line.refusing():
        Path(f"{gate}.2").touch()
        end = time.monotonic() + OUTAGE_SECONDS
        until(lambda: time.monotonic() > end, LONG)
    until(lambda: 4 in [item["step"] for item in checkpoints(crucible, job)], LONG, "the last checkpoint")
    Path(f"{gate}.4").touch()
    return job


def checkpoints(crucible: Deployment, job: str) -> list[View]:
    """Those that are said to be there."""
    return [item for item in crucible.get(f"/api/v1/jobs/{job}/checkpoints")["items"] if item["kept"]]


def sha_of(crucible: Deployment, path: str) -> str:
    with crucible.client(LONG) as client:
        answer = client.get(path)
        answer.raise_for_status()
        return hashlib.sha256(answer.content).hexdigest()
