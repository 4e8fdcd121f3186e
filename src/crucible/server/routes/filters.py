"""Filters of lists, with the page that is wanted, as they stand in a query."""

from __future__ import annotations

from typing import Any, Self

from pydantic import ConfigDict, model_validator

from crucible.core.compute.offer_filter import OfferFilter
from crucible.core.errors import UnknownName
from crucible.core.job.job_filter import JobFilter
from crucible.server.security.size_limits import Cursor, PageSize


def validate_filter(wanted: JobFilter) -> JobFilter:
    """The filter, once its names and tags are known to make sense."""
    wanted.states(), wanted.kinds(), wanted.tags
    return wanted


class JobQuery(JobFilter):
    model_config = ConfigDict(defer_build=False)

    limit: PageSize = 50
    cursor: Cursor = None

    @model_validator(mode="before")
    @classmethod
    def _check_names(cls, given: dict[str, Any]) -> dict[str, Any]:
        """A filter that was mistyped must not show every job."""
        for name in given:
            if name not in cls.model_fields:
                raise UnknownName("parameter", name, cls.model_fields)
        return given

    @model_validator(mode="after")
    def _check_words(self) -> Self:
        validate_filter(self)
        return self


class OfferQuery(OfferFilter):
    model_config = ConfigDict(extra="ignore")

    limit: PageSize = 50
    cursor: Cursor = None
