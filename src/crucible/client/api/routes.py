"""The table of the server's routes: method, path, response model, and whether a request may be retried.

A test compares it with the server's OpenAPI document, in both directions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from crucible.core.views.backends import BackendCheckView, BackendDisconnectView, BackendSettingsView
from crucible.core.views.base import View
from crucible.core.views.catalog import (
    GpuPage,
    PriceAuditView,
    PriceComparisonView,
    PricePage,
    RefreshView,
    TypeView,
)
from crucible.core.views.comparisons import ComparisonView
from crucible.core.views.compute import BackendPage, MachinePage, OrphanPage
from crucible.core.views.hooks import DeliveryPage, DeliveryView, HookPage, HookView
from crucible.core.views.jobs import CheckpointPage, CheckpointView, HealthView, JobPage, JobView, NoteView
from crucible.core.views.people import (
    AuditPage,
    LinkView,
    MemberPage,
    MemberView,
    MeView,
    ProjectPage,
    ProjectView,
    RevokedView,
    RotationView,
    SecretPage,
    SecretView,
    TokenPage,
    TokenView,
    UserPage,
    UserView,
    WaysView,
)
from crucible.core.views.plans import PlanView
from crucible.core.views.predictions import PredictionPage
from crucible.core.views.records import ArtifactPage, EventPage, MetricsView
from crucible.core.views.search import CancelledPage, HitPage, NotePage, SubmittedPage, TagPage
from crucible.core.views.server import BackupView, ConfirmedView, ModelPage, ModelView, PruneView, ServerView
from crucible.core.views.training import TaskView

V = TypeVar("V", bound=View)


@dataclass(frozen=True)
class Route(Generic[V]):
    """`repeat`: the request may be retried (None: if it is a read). `seconds`: timeout (None: the client's default)."""

    method: str
    path: str
    answer: type[V]
    repeat: bool | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class RawRoute:
    """A route whose answer is not JSON, or is ignored."""

    method: str
    path: str
    repeat: bool | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class WebSocketRoute:
    path: str


UPLOAD_SECONDS = 600.0
PLAN_SECONDS = 60.0
BULK_SECONDS = 120.0
MODEL_SECONDS = 180.0
"""The server describes a model plugin in a process that may import a large framework."""
ORPHANS_SECONDS = 120.0
"""The server queries every backend."""
HOOK_TEST_SECONDS = 60.0
"""A receiver has ten seconds; its DNS lookup may take as long."""
COMPARE_SECONDS = 120.0
CONNECT_SECONDS = 180.0
"""The server checks the backend, which asks a provider or hosts."""
REFRESH_SECONDS = 960.0
MAINTENANCE_SECONDS = 600.0

_JOBS = "/api/v1/jobs"
_JOB = "/api/v1/jobs/{job}"
_PROJECT = "/api/v1/projects/{project}"
_BACKEND = "/api/v1/backends/{backend}"
_HOOK = "/api/v1/projects/{project}/hooks/{hook}"

# Jobs
SUBMIT = Route("POST", _JOBS, JobView, repeat=True)
SUBMIT_MANY = Route("POST", f"{_JOBS}/bulk", SubmittedPage, repeat=True, seconds=BULK_SECONDS)
CANCEL_MANY = Route("POST", f"{_JOBS}/cancel", CancelledPage, repeat=True, seconds=BULK_SECONDS)
LIST_JOBS = Route("GET", _JOBS, JobPage)
JOB = Route("GET", _JOB, JobView)
RENAME = Route("PATCH", _JOB, JobView, repeat=True)
CANCEL = Route("POST", f"{_JOB}/cancel", JobView, repeat=True)
RESUME = Route("POST", f"{_JOB}/resume", JobView)
RERUN = Route("POST", f"{_JOB}/rerun", JobView, repeat=True)
HEALTH = Route("GET", f"{_JOB}/health", HealthView)
COMPARE = Route("GET", "/api/v1/compare", ComparisonView)
SHARE = Route("POST", f"{_JOB}/share", TokenView)
TAGS = Route("GET", f"{_JOB}/tags", TagPage)
CHANGE_TAGS = Route("POST", f"{_JOB}/tags", TagPage, repeat=True)
NOTES = Route("GET", f"{_JOB}/notes", NotePage)
ADD_NOTE = Route("POST", f"{_JOB}/notes", NoteView)
DELETE_NOTE = Route("DELETE", f"{_JOB}/notes/{{note}}", NoteView)

# What a job wrote
LOGS = RawRoute("GET", f"{_JOB}/logs")
SEARCH_LOGS = Route("GET", f"{_JOB}/logs/search", HitPage)
METRICS = Route("GET", f"{_JOB}/metrics", MetricsView)
EVENTS = Route("GET", f"{_JOB}/events", EventPage)
ARTIFACTS = Route("GET", f"{_JOB}/artifacts", ArtifactPage)
ARTIFACT = RawRoute("GET", f"{_JOB}/artifacts/{{path}}")
CHECKPOINTS = Route("GET", f"{_JOB}/checkpoints", CheckpointPage)
CHECKPOINT = Route("GET", f"{_JOB}/checkpoints/{{checkpoint}}", CheckpointView)
CHECKPOINT_CONTENT = RawRoute("GET", f"{_JOB}/checkpoints/{{checkpoint}}/content")
ASK_CHECKPOINT = Route("POST", f"{_JOB}/checkpoint", JobView, repeat=True)
STREAM = WebSocketRoute(f"{_JOB}/stream")
SESSION = WebSocketRoute(f"{_JOB}/session")
HAS_BUNDLE = RawRoute("HEAD", "/api/v1/bundles/{sha256}")
PUT_BUNDLE = RawRoute("PUT", "/api/v1/bundles/{sha256}", repeat=True, seconds=UPLOAD_SECONDS)

# Where jobs run
PLAN = Route("POST", "/api/v1/plan", PlanView, repeat=True, seconds=PLAN_SECONDS)
PREDICTIONS = Route("GET", "/api/v1/predictions", PredictionPage)
BACKENDS = Route("GET", "/api/v1/backends", BackendPage)
BACKEND = Route("GET", _BACKEND, BackendSettingsView)
CHECK_BACKEND = Route("POST", f"{_BACKEND}/check", BackendCheckView, repeat=True, seconds=CONNECT_SECONDS)
CONNECT_BACKEND = Route("POST", f"{_BACKEND}/connect", BackendCheckView, seconds=CONNECT_SECONDS)
DISCONNECT_BACKEND = Route("POST", f"{_BACKEND}/disconnect", BackendDisconnectView, seconds=CONNECT_SECONDS)
MACHINES = Route("GET", "/api/v1/machines", MachinePage)
ORPHANS = Route("GET", "/api/v1/machines/orphans", OrphanPage, seconds=ORPHANS_SECONDS)
TERMINATE = RawRoute("POST", "/api/v1/machines/{machine}/terminate", repeat=True)
CATALOG = Route("GET", "/api/v1/catalog", PricePage)
CATALOG_TYPE = Route("GET", "/api/v1/catalog/types/{type}", TypeView)
CATALOG_GPUS = Route("GET", "/api/v1/catalog/gpus", GpuPage)
CATALOG_AUDIT = Route("GET", "/api/v1/catalog/audit", PriceAuditView)
CATALOG_COMPARE = Route("POST", "/api/v1/catalog/audit", PriceComparisonView, repeat=True, seconds=COMPARE_SECONDS)
CATALOG_REFRESH = Route("POST", "/api/v1/catalog/refresh", RefreshView, seconds=REFRESH_SECONDS)

# Models and tasks
MODELS = Route("GET", "/api/v1/models", ModelPage, seconds=MODEL_SECONDS)
MODEL = Route("GET", "/api/v1/models/{name}", ModelView, seconds=MODEL_SECONDS)
SUBMIT_MODEL = Route("POST", "/api/v1/models/{name}/jobs", JobView, repeat=True, seconds=MODEL_SECONDS)
ORCHESTRATE = Route("POST", "/orchestrate", TaskView, repeat=True, seconds=MODEL_SECONDS)
TASK_STATUS = Route("GET", "/status", TaskView)

# People
ME = Route("GET", "/api/v1/me", MeView)
USERS = Route("GET", "/api/v1/users", UserPage)
ADD_USER = Route("POST", "/api/v1/users", UserView)
CHANGE_USER = Route("PATCH", "/api/v1/users/{name}", UserView)
PROJECTS = Route("GET", "/api/v1/projects", ProjectPage)
ADD_PROJECT = Route("POST", "/api/v1/projects", ProjectView)
MEMBERS = Route("GET", f"{_PROJECT}/members", MemberPage)
SET_MEMBER = Route("PUT", f"{_PROJECT}/members/{{name}}", MemberView)
REMOVE_MEMBER = RawRoute("DELETE", f"{_PROJECT}/members/{{name}}")
AUDIT = Route("GET", "/api/v1/audit", AuditPage)
TOKENS = Route("GET", "/api/v1/tokens", TokenPage)
MAKE_TOKEN = Route("POST", "/api/v1/tokens", TokenView)
REVOKE_TOKEN = Route("DELETE", "/api/v1/tokens/{token}", RevokedView, repeat=True)
LOGIN = Route("POST", "/api/v1/login", TokenView)
LOGIN_WAYS = Route("GET", "/api/v1/login", WaysView)
LOGIN_OPENID = RawRoute("GET", "/api/v1/login/oidc")
"""Opened in a browser."""
LOGIN_LINK = Route("POST", "/api/v1/login/links", LinkView)
LOGOUT = RawRoute("POST", "/api/v1/logout", repeat=True)
SECRETS = Route("GET", f"{_PROJECT}/secrets", SecretPage)
SET_SECRET = Route("PUT", f"{_PROJECT}/secrets/{{name}}", SecretView, repeat=True)
REMOVE_SECRET = RawRoute("DELETE", f"{_PROJECT}/secrets/{{name}}")
ROTATE_SECRETS = Route("POST", "/api/v1/secrets/rotate", RotationView, seconds=MAINTENANCE_SECONDS)
HOOKS = Route("GET", f"{_PROJECT}/hooks", HookPage)
ADD_HOOK = Route("POST", f"{_PROJECT}/hooks", HookView)
HOOK = Route("GET", _HOOK, HookView)
CHANGE_HOOK = Route("PATCH", _HOOK, HookView)
REMOVE_HOOK = RawRoute("DELETE", _HOOK)
ROTATE_HOOK = Route("POST", f"{_HOOK}/rotate", HookView)
TEST_HOOK = Route("POST", f"{_HOOK}/test", DeliveryView, seconds=HOOK_TEST_SECONDS)
DELIVERIES = Route("GET", f"{_HOOK}/deliveries", DeliveryPage)

# The server
LIVE = RawRoute("GET", "/healthz")
READY = RawRoute("GET", "/readyz")
SERVER = Route("GET", "/api/v1/server", ServerView)
STOP_SERVER = RawRoute("POST", "/api/v1/server/stop")
PRUNE = Route("POST", "/api/v1/prune", PruneView, repeat=True, seconds=MAINTENANCE_SECONDS)
BACKUP = Route("POST", "/api/v1/db/backup", BackupView, seconds=MAINTENANCE_SECONDS)
CONFIRM_RESTORE = Route("POST", "/api/v1/db/confirm", ConfirmedView, repeat=True)
