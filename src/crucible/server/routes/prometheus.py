"""`/metrics`: metrics of the server in Prometheus format."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from crucible.control.runtime.durations import DurationHistogram
from crucible.control.runtime.gauges import ServiceMetrics
from crucible.core.job.states import Status
from crucible.server.context import Control, Who
from crucible.server.http.server_metrics import ServerMetrics

router = APIRouter(tags=["server"])

COUNTED = (
    ("submitted", "submitted", "submitted"),
    ("placed", "placed", "placed"),
    ("retried", "retrying", "queued again"),
)
"""Counters of jobs: name, counted event, and the word in the help text."""


class PrometheusResponse(Response):
    media_type = CONTENT_TYPE_LATEST


@router.get("/metrics", response_class=PrometheusResponse)
async def service_metrics(request: Request, control: Control, who: Who) -> PrometheusResponse:
    """Return metrics of jobs, queue, machines, launches, webhooks, requests, database writes and the event loop."""
    meters: ServerMetrics = request.app.state.meters
    snapshot = CollectorRegistry()
    snapshot.register(GaugeCollector(await control.maintenance.gauges(who)))
    text = generate_latest(snapshot) + generate_latest(meters.registry)
    return PrometheusResponse(text)


class GaugeCollector(Collector):
    """Collector over one snapshot of the control plane's gauges."""

    def __init__(self, gauges: ServiceMetrics) -> None:
        self._now = gauges

    def collect(self) -> Iterator[Metric]:
        yield from self._gauges()
        yield from self._counters()
        yield from self._webhooks()
        if self._now.writes is not None:
            yield _histogram("crucible_db_write_seconds", "Time until a write was durable.", self._now.writes)

    def _gauges(self) -> Iterator[Metric]:
        stored = self._now.stored
        jobs = GaugeMetricFamily("crucible_jobs", "Jobs that have not ended, by status.", labels=["status"])
        for status, count in stored.jobs.items():
            jobs.add_metric([status], count)
        yield jobs
        yield GaugeMetricFamily("crucible_queue_length", "Jobs that wait for a machine.", stored.queue)
        machines = GaugeMetricFamily("crucible_machines", "Machines that are not gone.", labels=["backend", "state"])
        for labels, count in stored.machines.items():
            machines.add_metric(labels, count)
        yield machines
        yield GaugeMetricFamily(
            "crucible_agents_connected", "Machines whose agent has reported recently.", stored.agents
        )

    def _counters(self) -> Iterator[Metric]:
        events = self._now.events
        for name, event, text in COUNTED:
            total = events.get(event, 0)
            yield CounterMetricFamily(f"crucible_jobs_{name}", f"Jobs {text} since this server started.", total)
        ended = CounterMetricFamily(
            "crucible_jobs_ended", "Jobs that ended since this server started.", labels=["status"]
        )
        for status in (Status.COMPLETED, Status.FAILED, Status.CANCELLED):
            ended.add_metric([status.value], events.get(status.value, 0))
        yield ended
        launches = CounterMetricFamily(
            "crucible_launches", "Calls to launch a machine since this server started.", labels=["backend", "outcome"]
        )
        for labels, count in sorted(self._now.launches.items()):
            launches.add_metric(labels, count)
        yield launches

    def _webhooks(self) -> Iterator[Metric]:
        calls = self._now.webhooks
        sent = CounterMetricFamily(
            "crucible_webhooks", "Messages sent to hooks since this server started.", labels=["outcome"]
        )
        sent.add_metric(["delivered"], calls.delivered)
        sent.add_metric(["failed"], calls.failed)
        yield sent
        yield GaugeMetricFamily(
            "crucible_webhooks_waiting",
            "Hooks that wait to retry a failed delivery.",
            self._now.stored.hooks_waiting,
        )
        yield _histogram("crucible_webhook_seconds", "Time until a receiver responded or the call failed.", calls.times)


def _histogram(name: str, text: str, times: DurationHistogram) -> Metric:
    bounds = [*map(str, times.bounds), "+Inf"]
    family = HistogramMetricFamily(name, text)
    family.add_metric([], list(zip(bounds, times.counts, strict=True)), times.total)
    return family
