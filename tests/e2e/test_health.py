"""Health, comparing and the training routes on a real server with real jobs."""

from __future__ import annotations

import json
from typing import Any

from tests.harness import Deployment, python
from websockets.sync.client import connect

CURVE = "print(*(f'step {n}/40 loss={VALUE}' for n in range(1, 41)), sep='\\n')"
FALLING = CURVE.replace("VALUE", "4 / n")
BROKEN = CURVE.replace("VALUE", "4 / n if n < 30 else 1e999 - 1e999")


def said(crucible: Deployment, *arguments: str) -> Any:
    ran = crucible.cli(*arguments, "--json")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_a_real_job_is_judged_and_compared(crucible: Deployment) -> None:
    well, ill = (crucible.submit(python(code, name="curve")) for code in (FALLING, BROKEN))
    health = crucible.wait(well)["health"]
    assert (health["verdict"], health["findings"][0]["evidence"]["points"]) == ("finished_well", 40)
    crucible.wait(ill)
    found = said(crucible, "check", ill)
    assert (found["verdict"], found["findings"][0]["step"]) == ("not_finite", 30)
    assert said(crucible, "status", ill)["health"]["advice"] == found["advice"]
    assert crucible.cli("health", ill, "--strict").returncode == 1
    compared = said(crucible, "compare", well, ill)
    assert [job["verdict"] for job in compared["jobs"]] == ["finished_well", "not_finite"]
    best = next(line for line in compared["metrics"]["best"] if line["name"] == "loss")
    assert best["winner"] == 0


def test_a_frontend_trains_follows_and_goes_on(crucible: Deployment) -> None:
    """What the documents' frontend does: post a config, follow the socket, resume what failed."""
    saving = (
        "import crucible, os; crucible.checkpoint.save(b'x', step=7); resumed = os.environ.get('CRUCIBLE_RESUME_FROM')"
    )
    code = f"{saving}\nprint('epoch 1/2 loss=0.5', flush=True)\nraise SystemExit(0 if resumed else 3)"
    with crucible.client() as client:
        made = client.post("/api/v1/training", json={"model_name": "net", "config": {"code": code, "epochs": 2}}).json()
        last = followed(crucible, made["job_id"])
        assert (last["status"], last["health"]["verdict"]) == ("failed", "failed")
        record = client.get(f"/api/v1/training/{made['execution_id']}").json()
        assert (record["current_epoch"], record["current_metrics"]["loss"]) == (1, 0.5)
        again = client.post(f"/api/v1/training/{made['job_id']}/resume").json()
        assert followed(crucible, made["job_id"])["status"] == "completed"
        record = client.get(f"/api/v1/training/{made['job_id']}").json()
        assert record["config"] == {"epochs": 2, "resume_from": again["resume_from"]}
        task = client.get("/status", params={"task_id": made["job_id"]}).json()
        assert (task["status"], task["progress"]["progress_percent"]) == ("completed", 100)


def followed(crucible: Deployment, job: str) -> Any:
    """The job as the last frame of its stream tells it."""
    url = crucible.discovery["url"].replace("http", "ws", 1)
    headers = {"Authorization": f"Bearer {crucible.token}"}
    with connect(f"{url}/api/v1/training/{job}/stream", additional_headers=headers, close_timeout=5) as socket:
        frames = [json.loads(frame) for frame in socket]
    assert frames[-1]["stream"] == "job"
    return frames[-1]["job"]
