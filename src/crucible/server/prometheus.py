"""`/metrics`: the service's own numbers, in the format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from crucible.control.views import View
from crucible.server.context import Control, Who
from crucible.server.meters import Meters

router = APIRouter(tags=["server"])


@router.get("/metrics", response_class=Response)
async def service_metrics(request: Request, control: Control, who: Who) -> Response:
    """Jobs, queue, machines, launches, agents, webhooks, and how long requests, writes and the event loop take."""
    meters: Meters = request.app.state.meters
    snapshot = CollectorRegistry()
    snapshot.register(Snapshot(await control.maintenance.gauges(who)))
    text = generate_latest(snapshot) + generate_latest(meters.registry)
    return Response(text, headers={"Content-Type": CONTENT_TYPE_LATEST})


class Snapshot(Collector):
    """What control said, once."""

    def __init__(self, view: View) -> None:
        self._view = view

    def collect(self) -> Iterator[Metric]:
        yield from self._gauges()
        yield from self._counters()
        yield from self._webhooks()
        writes = self._view["writes"]
        if writes is not None:
            yield _histogram("crucible_db_write_seconds", "Time until a write was durable.", writes)

    def _gauges(self) -> Iterator[Metric]:
        view = self._view
        jobs = GaugeMetricFamily("crucible_jobs", "Jobs that have not ended, by status.", labels=["status"])
        for status, count in view["jobs"].items():
            jobs.add_metric([status], count)
        yield jobs
        yield GaugeMetricFamily("crucible_queue_length", "Jobs that wait for a place.", view["queue"])
        machines = GaugeMetricFamily("crucible_machines", "Machines that are not gone.", labels=["backend", "state"])
        for row in view["machines"]:
            machines.add_metric([row["backend"], row["state"]], row["count"])
        yield machines
        yield GaugeMetricFamily(
            "crucible_agents_connected", "Machines whose agent was heard of lately.", view["agents"]
        )

    def _counters(self) -> Iterator[Metric]:
        view = self._view
        for name, text in (("submitted", "submitted"), ("placed", "given a place"), ("retried", "queued again")):
            yield CounterMetricFamily(f"crucible_jobs_{name}", f"Jobs {text} since this server started.", view[name])
        ended = CounterMetricFamily(
            "crucible_jobs_ended", "Jobs that ended since this server started.", labels=["status"]
        )
        for status, count in view["ended"].items():
            ended.add_metric([status], count)
        yield ended
        launches = CounterMetricFamily(
            "crucible_launches", "Calls to launch a machine since this server started.", labels=["backend", "outcome"]
        )
        for row in view["launches"]:
            launches.add_metric([row["backend"], row["outcome"]], row["count"])
        yield launches

    def _webhooks(self) -> Iterator[Metric]:
        view = self._view["webhooks"]
        calls = CounterMetricFamily(
            "crucible_webhooks", "Messages sent to hooks since this server started.", labels=["outcome"]
        )
        for outcome in ("delivered", "failed"):
            calls.add_metric([outcome], view[outcome])
        yield calls
        yield GaugeMetricFamily(
            "crucible_webhooks_waiting",
            "Hooks whose receiver did not take its last message, and is tried again.",
            self._view["hooks_waiting"],
        )
        yield _histogram("crucible_webhook_seconds", "Time until a receiver had answered, or had not.", view["times"])


def _histogram(name: str, text: str, times: View) -> Metric:
    bounds = [*map(str, times["bounds"]), "+Inf"]
    family = HistogramMetricFamily(name, text)
    family.add_metric([], list(zip(bounds, times["counts"], strict=True)), times["sum"])
    return family
