"""What a plan costs: reading a long program, choosing over the whole catalog, and asking while somebody types."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial

from benchmarks.analysis.snippets import long_program
from benchmarks.analysis.whole import whole_program
from benchmarks.figures.deployment import Running
from benchmarks.figures.figure import Figure, median, percentile
from crucible.analysis import Reader, Sources, analyse
from crucible.catalog import Library
from crucible.core.profile import GpuNeed
from crucible.core.resources import Resources
from crucible.core.routing.knowledge import DataSheets
from crucible.core.routing.plan import route
from crucible.core.routing.wishes import Wishes
from crucible.core.routing.work import Compute, Work

LINES = 2000
TYPED = """\
import torch
from torchvision import datasets, models
model = models.resnet50().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr={})
loader = torch.utils.data.DataLoader(datasets.CIFAR10("data"), batch_size=64)
for epoch in range(10):
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
        optimizer.step()
"""
JOB = Work(
    Resources(gpus=1, gpu_memory_bytes=12 * 10**9),
    GpuNeed.REQUIRED,
    Compute(3 * 3600, "T4"),
    checkpoint_seconds=600,
    interruptible=True,
)


def plans(server: Running, times: int) -> list[Figure]:
    return [*_read(times), _chosen(times), _typed(server, times)]


def _read(times: int) -> list[Figure]:
    """From question to answer as a server asks, in a fork of a warm process; and the reading alone."""
    texts = {"one program": whole_program(LINES), "trainings": long_program(LINES)}
    programs = {name: Sources({"main.py": text.encode()}, "main.py") for name, text in texts.items()}
    with Reader() as reader:
        asked = [(name, _timed(partial(reader.profile, each), times)) for name, each in programs.items()]
    with _uncollected():
        bare = [(name, _timed(partial(analyse, each), times)) for name, each in programs.items()]
    figures = [_figure(f"{LINES:,} lines of {name}, p95", took, 50) for name, took in asked]
    return [*figures, *(_figure(f"the same of {name}, bare, p95", took, 50) for name, took in bare)]


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without a collector of garbage, as in the processes that read: each ends before collecting would pay."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _chosen(times: int) -> Figure:
    offers = Library().stock(datetime.now(UTC).date()).catalog.offers()
    took = _timed(lambda: route(JOB, Wishes(), offers, DataSheets()), times)
    return _figure(f"choice of {len(offers):,} offers, p95", took, 10)


def _typed(server: Running, times: int) -> Figure:
    """Over HTTP, each text a little different from the one before; from the second on the reader is warm."""
    with server.client() as client:
        texts = iter(range(times + 1))

        def ask() -> None:
            body = {"code": TYPED.format(next(texts)), "limit": 10}
            client.post("/api/v1/plan", json=body).raise_for_status()

        return _figure("a plan while typing, p95", _timed(ask, times), 200)


def _timed(work: Callable[[], object], times: int) -> list[float]:
    """Milliseconds of each but the first, which only warms up."""
    took = []
    for _ in range(times + 1):
        began = time.perf_counter()
        work()
        took.append((time.perf_counter() - began) * 1000)
    return took[1:]


def _figure(name: str, took: list[float], bound: float) -> Figure:
    also = {"p50": median(took), "least": min(took)}
    return Figure(name=name, value=percentile(took, 0.95), bound=bound, unit="ms", also=also)
