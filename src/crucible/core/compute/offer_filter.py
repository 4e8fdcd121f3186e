"""A filter for offers of the catalog, with the same fields in the API, the SDK and the command line.

An offer has to match every field; of a field with several values, any one. Amounts are minimums.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from crucible.core.compute.offers import Market
from crucible.core.compute.pricing import MICROS
from crucible.core.compute.resources import MAX_CPUS, MAX_GPUS, MAX_MEMORY, parse_memory
from crucible.core.errors import BadInput
from crucible.core.job.job_filter import Word, Words, split_commas

MOST_DOLLARS = 1_000_000


def _bytes(value: object) -> object:
    """Parse sizes such as `24GB`; other values pass unchanged."""
    if not isinstance(value, str):
        return value
    try:
        return parse_memory(value)
    except BadInput as error:
        raise ValueError(f"{error.what} {error.fix}") from error


def _separated(value: object) -> object:
    """Accept `["aws", "gcp"]` or `["aws,gcp"]`."""
    return split_commas(value) if isinstance(value, list | tuple) else value


def _market(value: object) -> object:
    """Accept `on-demand` for `on_demand`."""
    found = _separated(value)
    return tuple(str(one).replace("-", "_") for one in found) if isinstance(found, tuple) else found


Memory = Annotated[
    int, Field(ge=0, le=MAX_MEMORY), BeforeValidator(_bytes), WithJsonSchema({"type": ["integer", "string"]})
]
Several = Annotated[Words, BeforeValidator(_separated), Field(description="any of these; repeated, or with commas")]
Markets = Annotated[
    tuple[Market, ...],
    Field(max_length=len(Market), description=f"any of {', '.join(Market)}; repeated, or with commas"),
    BeforeValidator(_market),
]


class OfferFilter(BaseModel):
    """A filter for offers; an empty one matches every offer."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    gpu: Annotated[Word | None, Field(description="a GPU type, or a group of types such as A100")] = None
    gpus: Annotated[int, Field(ge=0, le=MAX_GPUS, description="minimum number of GPUs")] = 0
    gpu_memory: Annotated[Memory, Field(description="minimum memory of each GPU: bytes, or 24GB")] = 0
    cpus: Annotated[float, Field(ge=0, le=MAX_CPUS, description="minimum number of hardware threads")] = 0.0
    memory: Annotated[Memory, Field(description="minimum memory: bytes, or 64GB")] = 0
    provider: Several = ()
    region: Several = ()
    market: Markets = ()
    type: Annotated[Word | None, Field(description="exactly this instance type")] = None
    max_price: Annotated[
        Annotated[float, Field(ge=0, le=MOST_DOLLARS)] | None, Field(description="maximum price in dollars per hour")
    ] = None

    @property
    def max_rate(self) -> int | None:
        """The maximum rate in micro-dollars per hour, or None."""
        return None if self.max_price is None else round(self.max_price * MICROS)
