"""What every operation answers when all is well, for the OpenAPI document. Read when that is asked for, and not before.

The views are described once, in core/views; here stands which operation answers with which. An operation that answers
JSON and has no row here fails a test. Answers are not checked while they are served: tests ask every operation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import TypeAdapter

from crucible.core.views import (
    comparisons,
    found,
    jobs,
    places,
    plans,
    predictions,
    records,
    training,
)
from crucible.core.views.base import SOMETIMES

JSON = "application/json"
REFERENCE = "#/components/schemas/{model}"
Schema = dict[str, Any]

JOB, JOBS, ONE = "/api/v1/jobs", "/api/v1/jobs/{id}", jobs.JobView
TRAINING = "/api/v1/training"

ANSWERS: Mapping[str, Any] = {
    f"POST {JOB}": ONE,
    f"GET {JOB}": jobs.JobPage,
    f"POST {JOB}/bulk": found.SubmittedPage,
    f"POST {JOB}/cancel": found.CancelledPage,
    f"GET {JOBS}": ONE,
    f"PATCH {JOBS}": ONE,
    f"POST {JOBS}/cancel": ONE,
    f"POST {JOBS}/resume": ONE,
    f"POST {JOBS}/rerun": ONE,
    f"POST {JOBS}/checkpoint": ONE,
    f"GET {JOBS}/health": jobs.HealthView,
    "GET /api/v1/compare": comparisons.ComparisonView,
    f"GET {JOBS}/logs/search": found.HitPage,
    f"GET {JOBS}/metrics": records.MetricsView,
    f"GET {JOBS}/events": records.EventPage,
    "GET /api/v1/events": records.EventPage,
    f"GET {JOBS}/artifacts": records.ArtifactPage,
    f"GET {JOBS}/checkpoints": jobs.CheckpointPage,
    f"GET {JOBS}/checkpoints/{{checkpoint}}": jobs.CheckpointView,
    "POST /api/v1/plan": plans.PlanView,
    "GET /api/v1/predictions": predictions.PredictionPage,
    "GET /api/v1/tiers": places.TierPage,
    "POST /api/v1/models/{name}/jobs": ONE,
    f"POST {TRAINING}": training.ExecutionView,
    f"POST {TRAINING}/create": training.ExecutionView,
    f"GET {TRAINING}/{{job_id}}": training.RecordView,
    f"POST {TRAINING}/{{job_id}}/resume": training.ExecutionView,
    f"POST {TRAINING}/{{job_id}}/cancel": training.EndingView,
    f"GET {TRAINING}/{{job_id}}/logs": training.OutputView,
    f"GET {TRAINING}/{{job_id}}/metrics": training.NewestView,
    "POST /orchestrate": training.TaskView,
    "GET /status": training.TaskView,
}


def tell(document: Schema) -> None:
    """Writes into an OpenAPI document what its operations answer."""
    told, shared = TypeAdapter.json_schemas(
        [(row, "serialization", TypeAdapter(kind)) for row, kind in ANSWERS.items()], ref_template=REFERENCE
    )
    schemas = document["components"]["schemas"]
    for name, schema in shared["$defs"].items():
        schemas.setdefault(name, _promised(schema))
    for path, item in document["paths"].items():
        for method, operation in item.items():
            schema = told.get((f"{method.upper()} {path}", "serialization"))
            for answer in _good(operation) if schema is not None else ():
                answer["content"] = {JSON: {"schema": schema}}


def _good(operation: Schema) -> Iterator[Schema]:
    return (told for status, told in operation["responses"].items() if status < "300")


def _promised(schema: Schema) -> Schema:
    """Without those fields among the required ones that only some answers have, and without the client's defaults."""
    properties = schema.get("properties", {})
    rare = {name for name, told in properties.items() if told.pop(SOMETIMES, False)}
    for told in properties.values():
        told.pop("default", None)
    if "required" in schema:
        schema["required"] = [name for name in schema["required"] if name not in rare]
    return schema
