"""Requests: bodies of the API that control receives as they are."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from crucible.core.people.identity import (
    LONGEST_PASSWORD,
    MAX_EMAIL,
    MAX_PROJECT,
    MAX_USER,
    SHORTEST_PASSWORD,
    Permission,
)
from crucible.core.people.openid import MAX_SUBJECT

PLAIN = r"^[^\x00]*$"
"""Texts that every database can hold."""
DAY = 86400.0
LONGEST_DAYS = 3650.0

Password = Annotated[str, Field(max_length=LONGEST_PASSWORD, description=f"at least {SHORTEST_PASSWORD} characters")]
Email = Annotated[str, Field(max_length=MAX_EMAIL)]


class _Request(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Resumption(_Request):
    """From where and at which place a job goes on."""

    checkpoint: Annotated[
        str | None,
        Field(min_length=1, max_length=1024, description="id, short id, name, `latest` or `best`; latest unless given"),
    ] = None
    backend: Annotated[str | None, Field(min_length=1, max_length=200, description="the job's own unless given")] = None


class TrainingResumption(Resumption):
    """From where a training job goes on, and on which executor; the newest checkpoint and its own unless given."""

    checkpoint: Annotated[str | None, Field(min_length=1, max_length=1024, alias="resume_from")] = None
    backend: Annotated[str | None, Field(min_length=1, max_length=200, alias="executor")] = None


class UserChange(_Request):
    """What is left out stays."""

    admin: bool | None = None
    disabled: Annotated[bool | None, Field(description="true also ends all of the user's tokens and sessions")] = None
    password: Annotated[Password | None, Field(repr=False)] = None
    old_password: Annotated[
        str | None, Field(max_length=LONGEST_PASSWORD, repr=False, description="for a new password of one's own")
    ] = None
    email: Annotated[Email | None, Field(description="an empty one takes it away")] = None
    subject: Annotated[
        str | None, Field(max_length=MAX_SUBJECT, description="the OpenID provider's own name for him")
    ] = None


class NewToken(_Request):
    """It never reaches further than the token it is made with."""

    name: Annotated[str, Field(min_length=1, max_length=100, pattern=PLAIN, description="what it is for")]
    scopes: Annotated[frozenset[Permission], Field(min_length=1)] = frozenset({Permission.READ, Permission.WRITE})
    days: Annotated[float | None, Field(gt=0, le=LONGEST_DAYS, description="null: until it is revoked")] = 90.0
    project: Annotated[
        str | None, Field(min_length=1, max_length=MAX_PROJECT, pattern=PLAIN, description="hold it to one")
    ] = None
    user: Annotated[
        str | None, Field(min_length=1, max_length=MAX_USER, pattern=PLAIN, description="for administrators")
    ] = None

    @property
    def seconds(self) -> float | None:
        """How long it is good; None: it does not expire."""
        return None if self.days is None else self.days * DAY
