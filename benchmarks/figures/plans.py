"""What a plan costs: reading a long program, choosing over the whole catalog, and asking while somebody types."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

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

Numbered = Callable[[int], object]
"""What is timed; it is told which time it is."""

LINES = 2000
BETWEEN = 0.1
"""Seconds between people who come for the first time; whoever types is not given any."""
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
    """From question to answer as a server asks, of somebody who types and of people who come once; the reading alone.

    Each text is a little different from the one before.
    """
    texts = {"one program": whole_program(LINES), "trainings": long_program(LINES)}
    with Reader() as reader:
        typing = [(name, _timed(_asked(reader, text, "a person"), times)) for name, text in texts.items()]
        coming = [(name, _timed(_asked(reader, text, "person {}"), times, BETWEEN)) for name, text in texts.items()]
    with _uncollected():
        bare = [(name, _timed(_read_here(text), times)) for name, text in texts.items()]
    return [
        *(_figure(f"{LINES:,} lines of {name}, p95", took, 50) for name, took in typing),
        *(_figure(f"the same of {name}, newcomers, p95", took, 50) for name, took in coming),
        *(_figure(f"the same of {name}, bare, p95", took, 50) for name, took in bare),
    ]


def _asked(reader: Reader, text: str, whose: str) -> Numbered:
    return lambda number: reader.profile(_program(text, number), whose=whose.format(number))


def _read_here(text: str) -> Numbered:
    return lambda number: analyse(_program(text, number))


def _program(text: str, number: int) -> Sources:
    return Sources({"main.py": f"{text}# {number}\n".encode()}, "main.py")


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
    took = _timed(lambda _: route(JOB, Wishes(), offers, DataSheets()), times)
    return _figure(f"choice of {len(offers):,} offers, p95", took, 10)


def _typed(server: Running, times: int) -> Figure:
    """Over HTTP, each text a little different from the one before; from the second on the reader is warm."""
    with server.client() as client:

        def ask(number: int) -> None:
            body = {"code": TYPED.format(number), "limit": 10}
            client.post("/api/v1/plan", json=body).raise_for_status()

        return _figure("a plan while typing, p95", _timed(ask, times), 200)


def _timed(work: Numbered, times: int, between: float = 0.0) -> list[float]:
    """Milliseconds of each but the first, which only warms up; with so many seconds before each."""
    took = []
    for number in range(times + 1):
        time.sleep(between)
        began = time.perf_counter()
        work(number)
        took.append((time.perf_counter() - began) * 1000)
    return took[1:]


def _figure(name: str, took: list[float], bound: float) -> Figure:
    also = {"p50": median(took), "least": min(took)}
    return Figure(name=name, value=percentile(took, 0.95), bound=bound, unit="ms", also=also)
