"""Bodies of API requests."""

from __future__ import annotations

from pathlib import PurePath
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SkipValidation, field_validator, model_validator

from crucible.core.hooks import ENDS, HookEvent, HookFormat
from crucible.core.job.job_filter import MAX_VALUES, JobFilter, Word
from crucible.core.job.spec import JobName, JobSpec
from crucible.core.job.tags import MAX_KEY, MAX_TAGS, MAX_VALUE
from crucible.core.patterns import TEXT_PATTERN
from crucible.core.people.identity import (
    LONGEST_PASSWORD,
    MAX_EMAIL,
    MAX_PROJECT,
    MAX_USER,
    SHORTEST_PASSWORD,
    Permission,
    Role,
)
from crucible.core.people.openid import MAX_SUBJECT
from crucible.core.people.project_secrets import LONGEST_SECRET

DAY = 86400.0
LONGEST_DAYS = 3650.0
LONGEST_SHARE_HOURS = 24 * 90.0
LONGEST_AGE = 100 * 365 * DAY
MAX_ABOUT, MAX_NOTE, MAX_URL = 1000, 2000, 2000
LONGEST_SETTING = 32 * 1024
MOST_JOBS, MOST_CANCELLED = 500, 1000
"""Maximum numbers of jobs in one request."""

Password = Annotated[str, Field(max_length=LONGEST_PASSWORD, description=f"at least {SHORTEST_PASSWORD} characters")]
Email = Annotated[str, Field(max_length=MAX_EMAIL)]


BackendSettingValue = Annotated[
    bool
    | int
    | float
    | Annotated[str, Field(max_length=LONGEST_SETTING)]
    | list[Annotated[str, Field(max_length=1000)]]
    | None,
    Field(union_mode="left_to_right"),
]


class _Request(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Resumption(_Request):
    """The checkpoint and backend from which a job continues."""

    checkpoint: Annotated[
        str | None,
        Field(min_length=1, max_length=1024, description="id, short id, name, `latest` or `best`; default: latest"),
    ] = None
    backend: Annotated[str | None, Field(min_length=1, max_length=200, description="default: the job's own")] = None


class TrainingResumption(Resumption):
    """The checkpoint and executor from which a training job continues (default: the newest, and its own)."""

    checkpoint: Annotated[str | None, Field(min_length=1, max_length=1024, alias="resume_from")] = None
    backend: Annotated[str | None, Field(min_length=1, max_length=200, alias="executor")] = None


class BackendSettingsChange(_Request):
    """Settings of a backend, on top of those that are stored. One that is null or empty is removed."""

    settings: Annotated[
        dict[Annotated[str, Field(max_length=100)], BackendSettingValue],
        Field(max_length=100, repr=False, description="by name; `GET /api/v1/backends/{backend}` describes them"),
    ] = {}


class UserChange(_Request):
    """Fields that are left out do not change."""

    admin: bool | None = None
    disabled: Annotated[bool | None, Field(description="true also ends all of the user's tokens and sessions")] = None
    password: Annotated[Password | None, Field(repr=False)] = None
    old_password: Annotated[
        str | None, Field(max_length=LONGEST_PASSWORD, repr=False, description="needed to change one's own password")
    ] = None
    email: Annotated[Email | None, Field(description="an empty one removes it")] = None
    subject: Annotated[
        str | None, Field(max_length=MAX_SUBJECT, description="the user's subject (`sub`) at the OpenID provider")
    ] = None


class NewToken(_Request):
    """A new token; it never has more permissions than the token that makes it."""

    name: Annotated[str, Field(min_length=1, max_length=100, pattern=TEXT_PATTERN, description="what it is for")]
    scopes: Annotated[frozenset[Permission], Field(min_length=1)] = frozenset({Permission.READ, Permission.WRITE})
    days: Annotated[float | None, Field(gt=0, le=LONGEST_DAYS, description="null: until it is revoked")] = 90.0
    project: Annotated[
        str | None,
        Field(min_length=1, max_length=MAX_PROJECT, pattern=TEXT_PATTERN, description="restrict it to one project"),
    ] = None
    user: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=MAX_USER,
            pattern=TEXT_PATTERN,
            description="a token of this user; administrators only",
        ),
    ] = None

    @property
    def seconds(self) -> float | None:
        """The lifetime in seconds; None: it does not expire."""
        return None if self.days is None else self.days * DAY


class NewUser(_Request):
    name: Annotated[str, Field(min_length=1, max_length=MAX_USER)]
    admin: Annotated[bool, Field(description="may do everything, everywhere")] = False
    password: Password | None = None
    email: Annotated[Email | None, Field(description="the address of the user's account at the OpenID provider")] = None


class NewProject(_Request):
    name: Annotated[str, Field(min_length=1, max_length=MAX_PROJECT)]
    about: Annotated[str, Field(max_length=MAX_ABOUT, pattern=TEXT_PATTERN)] = ""


class Membership(_Request):
    role: Role


_Url = Annotated[str, Field(min_length=1, max_length=MAX_URL, description="https or http, on the open internet")]
_Events = Annotated[tuple[HookEvent, ...], Field(min_length=1, max_length=50)]


class NewHook(_Request):
    url: _Url
    events: _Events = ENDS
    format: Annotated[HookFormat, Field(description="`slack`: a text message as Slack expects it")] = HookFormat.JSON


class HookChange(_Request):
    """Fields that are left out do not change. A hook that is enabled again gets only later events."""

    url: _Url | None = None
    events: _Events | None = None
    enabled: bool | None = None


_TagTexts = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=MAX_KEY + MAX_VALUE + 1)]], Field(max_length=MAX_TAGS)
]


class JobRename(_Request):
    name: Annotated[JobName | None, Field(description="null removes the name")]


class TagChange(_Request):
    """`remove` comes first; a tag that is added replaces one with the same key."""

    add: _TagTexts = []
    remove: _TagTexts = []

    @model_validator(mode="after")
    def _something(self) -> TagChange:
        if not self.add and not self.remove:
            raise ValueError("give tags to add or to remove")
        return self


class NewNote(_Request):
    text: Annotated[str, Field(min_length=1, max_length=MAX_NOTE)]

    @field_validator("text")
    @classmethod
    def _readable(cls, value: str) -> str:
        if "\x00" in value or not value.strip():
            raise ValueError("it is empty or contains a NUL character")
        return value.strip()


class PruneRequest(_Request):
    """How long ago a job must have ended (default: 30 days)."""

    older_than_seconds: Annotated[float | None, Field(ge=0, le=LONGEST_AGE, allow_inf_nan=False)] = None
    dry_run: Annotated[bool, Field(description="only list what would be removed")] = False


class BackupRequest(_Request):
    path: Annotated[str, Field(min_length=1, max_length=4096, description="absolute, on the server's disk")]

    @field_validator("path")
    @classmethod
    def _absolute(cls, value: str) -> str:
        if "\x00" in value or not PurePath(value).is_absolute():
            raise ValueError("it must be an absolute path on the server's disk")
        return value


class NewSecretValue(_Request):
    value: Annotated[str, Field(max_length=LONGEST_SECRET, repr=False, description="never shown again")]


class NewShareLink(_Request):
    name: Annotated[str, Field(min_length=1, max_length=100, pattern=TEXT_PATTERN)] = "share link"
    hours: Annotated[float, Field(gt=0, le=LONGEST_SHARE_HOURS)] = 24.0


class RefreshRequest(_Request):
    provider: Word
    regions: Annotated[tuple[Word, ...], Field(max_length=MAX_VALUES, description="default: all known regions")] = ()


_Callback = Annotated[str, Field(min_length=1, max_length=500)]


class ModelJob(_Request):
    """A job for a model plugin. `job` holds other fields of the job: its name, backend, size and data."""

    method: Literal["train", "infer", "benchmark"] = "train"
    config: dict[str, Any] = Field(default_factory=dict, description="checked against the model's schema")
    inputs: Any = Field(default=None, description="the inputs of `infer`")
    callbacks: Annotated[tuple[_Callback, ...], Field(max_length=20, description="module:Class")] = ()
    job: dict[str, Any] = Field(default_factory=dict)


class BatchItem(_Request):
    """A job, with `key` as its Idempotency-Key. An invalid `spec` is reported in the item's own response."""

    spec: SkipValidation[JobSpec]
    key: str | None = None


class JobBatch(_Request):
    jobs: Annotated[list[BatchItem], Field(min_length=1, max_length=MOST_JOBS)]


class CancelRequest(_Request):
    """Jobs by `ids` (short ids and endings too) or by `filter`, as in the list of jobs; one of the two."""

    ids: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=100)]] | None, Field(min_length=1, max_length=MOST_CANCELLED)
    ] = None
    filter: JobFilter | None = None
    dry_run: Annotated[bool, Field(description="only list the matching jobs")] = False

    @model_validator(mode="after")
    def _one_way(self) -> CancelRequest:
        if (self.ids is None) == (self.filter is None):
            raise ValueError("give either ids or a filter")
        if self.filter is not None and self.filter.empty:
            raise ValueError('the filter is empty; to cancel every job use {"filter": {"active": true}}')
        return self
