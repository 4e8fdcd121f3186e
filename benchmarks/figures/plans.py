"""Measure plans: the choice among the whole catalog, and plans of a short and a long program."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

from benchmarks.analysis.whole import whole_program
from benchmarks.figures.deployment import Running
from benchmarks.figures.figure import Figure, median, percentile
from crucible.catalog import Library
from crucible.core.compute.resources import Resources
from crucible.core.routing.machine_speed import DataSheetSpeeds
from crucible.core.routing.plan import route
from crucible.core.routing.plan_request import PlanRequest
from crucible.core.routing.profile import GpuNeed
from crucible.core.routing.workload import ComputeTime, Workload

Numbered = Callable[[int], object]
"""The function to time; it gets the number of the repetition."""

LINES = 2000
TYPED = """\
import torch
from torchvision import datasets, models
model = models.resnet50().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
loader = torch.utils.data.DataLoader(datasets.CIFAR10("data"), batch_size=64)
for epoch in range(10):
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
        optimizer.step()
"""
JOB = Workload(
    Resources(gpus=1, gpu_memory_bytes=12 * 10**9),
    GpuNeed.REQUIRED,
    ComputeTime(3 * 3600, "T4"),
    checkpoint_seconds=600,
    interruptible=True,
)


def plans(server: Running, times: int) -> list[Figure]:
    return [
        _chosen(times),
        _plan(server, "a plan while typing, p95", TYPED, 200, times),
        _plan(server, f"a plan of {LINES:,} lines, p95", whole_program(LINES), 500, times),
    ]


def _chosen(times: int) -> Figure:
    offers = Library().stock(datetime.now(UTC).date()).catalog.offers()
    took = _timed(lambda _: route(JOB, PlanRequest(), offers, DataSheetSpeeds()), times)
    return _figure(f"choice of {len(offers):,} offers, p95", took, 10)


def _plan(server: Running, name: str, program: str, bound: float, times: int) -> Figure:
    """Measure plans over HTTP, each with a slightly different text."""
    with server.client() as client:

        def ask(number: int) -> None:
            body = {"code": f"{program}# {number}\n", "limit": 10}
            client.post("/api/v1/plan", json=body).raise_for_status()

        return _figure(name, _timed(ask, times), bound)


def _timed(work: Numbered, times: int) -> list[float]:
    """Return the milliseconds of each call except the first, which warms up."""
    took = []
    for number in range(times + 1):
        began = time.perf_counter()
        work(number)
        took.append((time.perf_counter() - began) * 1000)
    return took[1:]


def _figure(name: str, took: list[float], bound: float) -> Figure:
    also = {"p50": median(took), "least": min(took)}
    return Figure(name=name, value=percentile(took, 0.95), bound=bound, unit="ms", also=also)
