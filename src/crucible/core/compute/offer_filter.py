"""OfferFilter: which offers of the catalog are meant. The same words on every face.

Of a field with several values any one fits; an offer has to fit every field. Amounts are the least that will do.
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
    """`24GB` as people write it, or bytes."""
    if not isinstance(value, str):
        return value
    try:
        return parse_memory(value)
    except BadInput as error:
        raise ValueError(f"{error.what} {error.fix}") from error


def _separated(value: object) -> object:
    """`["aws", "gcp"]` or `["aws,gcp"]`."""
    return split_commas(value) if isinstance(value, list | tuple) else value


def _market(value: object) -> object:
    """`on-demand` is as good as `on_demand`."""
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
    """Without any field it fits every offer."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    gpu: Annotated[Word | None, Field(description="a GPU type, or a group of types such as A100")] = None
    gpus: Annotated[int, Field(ge=0, le=MAX_GPUS, description="at least so many")] = 0
    gpu_memory: Annotated[Memory, Field(description="of each GPU, at least: bytes, or 24GB")] = 0
    cpus: Annotated[float, Field(ge=0, le=MAX_CPUS, description="hardware threads, at least")] = 0.0
    memory: Annotated[Memory, Field(description="at least: bytes, or 64GB")] = 0
    provider: Several = ()
    region: Several = ()
    market: Markets = ()
    type: Annotated[Word | None, Field(description="exactly this instance type")] = None
    max_price: Annotated[
        Annotated[float, Field(ge=0, le=MOST_DOLLARS)] | None, Field(description="dollars an hour, at most")
    ] = None

    @property
    def max_rate(self) -> int | None:
        """Micro-dollars an hour."""
        return None if self.max_price is None else round(self.max_price * MICROS)
