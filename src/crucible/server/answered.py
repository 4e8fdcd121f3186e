"""What every operation answers when all is well, for the OpenAPI document. Read when that is asked for, and not before.

The views are described once, in core/views; here stands which operation answers with which. An operation that answers
JSON and has no row here fails a test. Answers are not checked while they are served: tests ask every operation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import TypeAdapter

from crucible.core.views import (
    catalog,
    hooks,
    people,
    places,
    plans,
    predictions,
    server,
)
from crucible.core.views.base import SOMETIMES

JSON = "application/json"
REFERENCE = "#/components/schemas/{model}"
Schema = dict[str, Any]

PROJECT, HOOK = "/api/v1/projects/{project}", "/api/v1/projects/{project}/hooks/{hook}"

ANSWERS: Mapping[str, Any] = {
    "POST /api/v1/jobs/{id}/share": people.TokenView,
    "PUT /api/v1/bundles/{sha256}": server.BundleView,
    "POST /api/v1/plan": plans.PlanView,
    "GET /api/v1/predictions": predictions.PredictionPage,
    "GET /api/v1/tiers": places.TierPage,
    "GET /api/v1/catalog": catalog.PricePage,
    "GET /api/v1/catalog/gpus": catalog.GpuPage,
    "GET /api/v1/catalog/types/{type}": catalog.TypeView,
    "GET /api/v1/catalog/audit": catalog.PriceAuditView,
    "POST /api/v1/catalog/audit": catalog.PriceComparisonView,
    "POST /api/v1/catalog/refresh": catalog.RefreshView,
    "GET /api/v1/models": server.ModelPage,
    "GET /api/v1/models/{name}": server.ModelView,
    "POST /api/v1/prune": server.PruneView,
    "POST /api/v1/db/backup": server.BackupView,
    "POST /api/v1/db/confirm": server.ConfirmedView,
    "GET /api/v1/me": people.MeView,
    "GET /api/v1/users": people.UserPage,
    "POST /api/v1/users": people.UserView,
    "PATCH /api/v1/users/{name}": people.UserView,
    "GET /api/v1/projects": people.ProjectPage,
    "POST /api/v1/projects": people.ProjectView,
    f"GET {PROJECT}/members": people.MemberPage,
    f"PUT {PROJECT}/members/{{name}}": people.MemberView,
    "GET /api/v1/audit": people.DeedPage,
    "GET /api/v1/tokens": people.TokenPage,
    "POST /api/v1/tokens": people.TokenView,
    "DELETE /api/v1/tokens/{token}": people.RevokedView,
    f"GET {PROJECT}/secrets": people.SecretPage,
    f"PUT {PROJECT}/secrets/{{name}}": people.SecretView,
    "POST /api/v1/secrets/rotate": people.RotationView,
    f"GET {PROJECT}/hooks": hooks.HookPage,
    f"POST {PROJECT}/hooks": hooks.HookView,
    f"GET {HOOK}": hooks.HookView,
    f"PATCH {HOOK}": hooks.HookView,
    f"POST {HOOK}/test": hooks.DeliveryView,
    f"POST {HOOK}/rotate": hooks.HookView,
    f"GET {HOOK}/deliveries": hooks.DeliveryPage,
    "GET /api/v1/login": people.WaysView,
    "POST /api/v1/login": people.TokenView,
    "POST /api/v1/login/links": people.LinkView,
    "GET /healthz": server.AliveView,
    "GET /readyz": server.ReadyView,
    "GET /api/v1/server": server.ServerView,
    "POST /api/v1/server/stop": server.StoppingView,
    "GET /api/v1/schema/job": dict[str, object],
    "GET /api/v1/schema/job-file": dict[str, object],
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
