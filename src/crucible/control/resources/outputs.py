"""The outputs of a job: logs, metrics, events and artifacts."""

from __future__ import annotations

from crucible.control.jobs import queries
from crucible.control.objects.bundles import StoredFile
from crucible.control.runtime.services import Services
from crucible.control.telemetry.log_search import Query
from crucible.core.errors import NotFound
from crucible.core.ids import short
from crucible.core.people.identity import Identity
from crucible.core.views.records import ArtifactPage, EventPage, LogPage, MetricsView
from crucible.core.views.search import HitPage


class Outputs:
    def __init__(self, services: Services) -> None:
        self._db = services.ports.db
        self._logs = services.logs
        self._logsearch = services.logsearch
        self._access = services.access

    async def logs(
        self, who: Identity, ref: str, *, attempt: int | None, offset: int, limit: int, since: float | None
    ) -> LogPage:
        return await self._logs.page(await self._access.readable_job(who, ref), attempt, offset, limit, since)

    async def search_logs(self, who: Identity, ref: str, query: Query) -> HitPage:
        """Return a page of the lines that match, in order. Cancelling this call ends the search.

        Raises BadInput for an invalid cursor.
        """
        return await self._logsearch.find(await self._access.readable_job(who, ref), query)

    async def metrics(self, who: Identity, ref: str, *, series: list[str], points: int) -> MetricsView:
        """Return series (default: all) of the latest attempt that has any.

        Each has about `points` points, to draw it, or if `points` is negative, exactly its last `-points` points.
        """
        job = await self._access.readable_job(who, ref)
        return await self._db.read(lambda conn: queries.read_metrics(conn, job, series, points))

    async def events(self, who: Identity, ref: str | None, *, after: int, limit: int) -> EventPage:
        """Return events of one job, or of all jobs that the caller may see if `ref` is None."""
        job = None if ref is None else await self._access.readable_job(who, ref)
        return await self._db.read(lambda conn: queries.list_events(conn, job, after, limit, who))

    async def artifacts(self, who: Identity, ref: str) -> ArtifactPage:
        job = await self._access.readable_job(who, ref)
        return await self._db.read(lambda conn: queries.list_artifacts(conn, job))

    async def artifact(self, who: Identity, ref: str, path: str) -> StoredFile:
        job = await self._access.readable_job(who, ref)
        found = await self._db.read(lambda conn: queries.find_artifact(conn, job, path))
        if found is not None:
            return found
        raise NotFound(
            f"Job {short(job)} has no artifact {path!r}.",
            fix=f"crucible download {short(job)} fetches all of its artifacts.",
        )
