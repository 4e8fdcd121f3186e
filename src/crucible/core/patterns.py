"""The patterns that texts of a request have to match, and what each demands, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crucible.core.people.identity import MAX_PROJECT, PROJECT_PATTERN
from crucible.core.people.project_secrets import MAX_SECRET_NAME, SECRET_PATTERN

SHA256_PATTERN = r"^[0-9a-f]{64}$"
NAME_PATTERN = r"^[^\x00-\x1f\x7f-\x9f/\\]+$"
TAG_PATTERN = r"^[^\x00-\x1f\x7f-\x9f]+$"
TEXT_PATTERN = r"^[^\x00]*$"
"""Not every database can store NUL characters."""
PLAN_PATTERN = r"^[A-Za-z0-9_.-]+$"
VERIFIER_PATTERN = r"^[A-Za-z0-9._~-]{43,128}$"
CHALLENGE_PATTERN = r"^[A-Za-z0-9_-]{43}$"
ECHO_PATTERN = r"^[A-Za-z0-9_-]{1,128}$"

PATTERN_RULES: Mapping[str, str] = {
    SHA256_PATTERN: "must be a SHA-256 of 64 hexadecimal digits",
    NAME_PATTERN: "must not contain slashes, backslashes or control characters",
    TAG_PATTERN: "must not contain control characters",
    TEXT_PATTERN: "must not contain NUL characters",
    PLAN_PATTERN: "must contain only letters, digits, _ . and -",
    PROJECT_PATTERN: f"must have 1 to {MAX_PROJECT} of a-z, 0-9, - and _, and begin with a letter or a digit",
    SECRET_PATTERN: f"must have 1 to {MAX_SECRET_NAME} letters, digits and _ . -, and begin with a letter or _",
    VERIFIER_PATTERN: "must have 43 to 128 letters, digits and - . _ ~",
    CHALLENGE_PATTERN: "must have 43 letters, digits and - _",
    ECHO_PATTERN: "must have 1 to 128 letters, digits and - _",
}
"""By pattern, what it demands of a text; follows the name of the field in an error."""


def broken_rule(error: Mapping[str, Any]) -> str:
    """Return what the pattern of a field demands, if that is pydantic's error; empty for other errors."""
    return PATTERN_RULES.get(str(error.get("ctx", {}).get("pattern")), "")
