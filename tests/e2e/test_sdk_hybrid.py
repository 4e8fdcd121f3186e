"""The documents' example of a hybrid run, its body unchanged, in a program of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.faults.rehearsal_deployment import LONG, RehearsalDeployment, rehearsed
from tests.harness import until

BODY = """\
from crucible import MLPlatform, Requirements

# Initialize platform
platform = MLPlatform()

# Define requirements
requirements = Requirements(
    gpu_memory_gb=16,
    duration_hours_estimated=3,
    checkpoint_frequency_minutes=30,
    interruptible=True,  # Allows spot instances
    max_cost_usd=10.00
)

# Submit with auto-selection
job = platform.submit(
    code=open('nanogpt_train.py').read(),
    requirements=requirements,
    preferences={
        'optimize_for': 'cost',  # or 'speed'
        'allowed_backends': None  # All backends
    }
)

# Monitor across backends
async for status in job.monitor():
    print(f"Backend: {status.backend}")
    print(f"Progress: {status.progress}%")
    print(f"Cost so far: ${status.cost:.2f}")
    
    if status.backend_changed:
        print(f"Migrated from {status.previous_backend} to {status.backend}")
"""  # noqa: W293  unchanged is unchanged

TRAINER = """\
import os, signal, sys, time

folder, found = os.environ["CRUCIBLE_CHECKPOINT_DIR"], os.environ.get("CRUCIBLE_RESUME_FROM")
stopping = []
signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
print("told to save every", os.environ["CHECKPOINT_FREQUENCY_MINUTES"], "minutes")
first = int(open(found).read()) + 1 if found else 1
print("begins with", first)
for step in range(first, 11):
    while step == 6 and not os.path.exists({gate!r}) and not stopping:
        time.sleep(0.05)
    if stopping:
        with open(os.path.join(folder, ".part"), "w") as file:
            file.write(str(step - 1))
        os.rename(os.path.join(folder, ".part"), os.path.join(folder, f"step-{{step - 1}}.txt"))
        sys.exit()
    print(f"step {{step}}/10 loss {{1 / step:.3f}}", flush=True)
"""

NVML = """\
class NVMLError(Exception): pass
class Memory: total = 24 * 1024**3
def nvmlInit(): pass
def nvmlShutdown(): pass
def nvmlDeviceGetCount(): return 1
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetMemoryInfo(handle): return Memory
def nvmlDeviceGetName(handle): return "A card of this computer"
def nvmlDeviceGetUUID(handle): return "GPU-0"
"""
"""A driver that shows one GPU, for a computer that has none."""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[RehearsalDeployment]:
    driver = tmp_path / "driver"
    driver.mkdir()
    (driver / "pynvml.py").write_text(NVML)
    with rehearsed(tmp_path, {"PYTHONPATH": str(driver)}) as world:
        yield world


@contextmanager
def example(world: RehearsalDeployment, folder: Path, **env: str) -> Iterator[subprocess.Popen[str]]:
    """The example, running in a folder with its training script."""
    program = f"import asyncio\n\nasync def main():\n{textwrap.indent(BODY, '    ')}\n\nasyncio.run(main())\n"
    (folder / "example.py").write_text(program)
    (folder / "nanogpt_train.py").write_text(TRAINER.format(gate=str(folder / "gate")))
    about = {**os.environ, "CRUCIBLE_HOME": str(world.crucible.home), "PYTHONUNBUFFERED": "1", **env}
    command = [sys.executable, "example.py"]
    with (
        (folder / "said").open("w") as said,
        subprocess.Popen(command, cwd=folder, env=about, stdout=said, stderr=subprocess.PIPE, text=True) as p,
    ):
        try:
            yield p
        finally:
            p.kill()


def lines_of(folder: Path) -> list[str]:
    """What the example has said so far."""
    return (folder / "said").read_text().splitlines()


def submitted(world: RehearsalDeployment) -> str:
    items = until(lambda: world.crucible.get("/api/v1/jobs")["items"], LONG, "the job")
    return str(items[0]["id"])


def test_a_spot_machine_taken_back_moves_it_to_this_computer(world: RehearsalDeployment, tmp_path: Path) -> None:
    world.crucible.start()
    with example(world, tmp_path, CRUCIBLE_PLACES="rehearsal,local") as running:
        job = submitted(world)
        instance = world.instance_of(job, 1)
        world.cloud.advance(1800)
        until(lambda: "Progress: 50.0%" in lines_of(tmp_path), LONG, "the fifth step")
        world.reclaim(instance, notice=60)
        until(lambda: world.crucible.job(job)["backend"] == "local", LONG, "the move")
        until(lambda: world.crucible.job(job)["cost"]["micros"] > 10_000, LONG, "the provider's bill")
        (tmp_path / "gate").touch()
        _, err = running.communicate(timeout=LONG)
    assert running.returncode == 0, err
    lines = lines_of(tmp_path)
    assert lines.count("Migrated from rehearsal to local") == 1
    moved = lines.index("Migrated from rehearsal to local")
    assert {line for line in lines[:moved] if line.startswith("Backend:")} == {"Backend: rehearsal", "Backend: local"}
    assert {line for line in lines[moved:] if line.startswith("Backend:")} == {"Backend: local"}
    view = world.crucible.job(job)
    cost = view["cost"]["micros"] / 1e6
    assert lines[-2:] == ["Progress: 100.0%", f"Cost so far: ${cost:.2f}"]
    assert cost > 0.01
    assert (view["status"], [a["backend"] for a in view["attempts"]]) == ("completed", ["rehearsal", "local"])
    assert view["attempts"][0]["market"] == "spot"
    assert b"begins with 6" in world.crucible.log(job)
    assert b"every 30 minutes" in world.crucible.log(job)
    world.nothing_lives()


def test_where_no_real_place_has_the_gpu_it_is_rehearsed_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "gate").touch()
    with rehearsed(tmp_path) as world:
        world.crucible.start()
        with example(world, tmp_path) as running:
            _, err = running.communicate(timeout=LONG)
        assert running.returncode == 0, err
        assert "simulated" in err
        lines = lines_of(tmp_path)
        assert {line for line in lines if line.startswith("Backend:")} == {"Backend: rehearsal"}
        assert "Progress: 100.0%" in lines
        view = world.crucible.job("last")
        assert (view["status"], view["resources"]["gpus"]) == ("completed", 1)
        assert re.search(r"for at most [\dhdms ]+, which \$10\.00 buys", view["placement"])
        world.nothing_lives()


def test_a_free_gpu_of_this_computer_is_the_cheapest(world: RehearsalDeployment, tmp_path: Path) -> None:
    (tmp_path / "gate").touch()
    world.crucible.start()
    with example(world, tmp_path) as running:
        _, err = running.communicate(timeout=LONG)
    assert running.returncode == 0, err
    assert {line for line in lines_of(tmp_path) if line.startswith("Backend:")} == {"Backend: local"}
    assert world.cloud.census() == {}
