"""Valid bodies with all fields, and mutations that no generator of valid JSON makes."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Iterator
from typing import Any

from tests.authorisation.populated_app import CODE
from tests.authorisation.test_matrix import BODIES
from tests.control.harness import sha

JSON = {"content-type": "application/json"}
DEEP = 10_000

SPEC: dict[str, Any] = {
    "command": ["python", "train.py"],
    "name": "a job",
    "project": "alpha",
    "kind": "train",
    "shape": "task",
    "bundle": sha(CODE),
    "environment": {"requirements": ["numpy"], "python": "3.11", "origin": "asked for"},
    "env": {"A": "b"},
    "secrets": {"KEY": "API_KEY"},
    "data": [{"name": "set", "source": "/data"}],
    "backend": "local",
    "fallback": ["local"],
    "market": None,
    "regions": [],
    "tier": None,
    "resources": {"cpus": 1, "memory_bytes": 2**30, "gpus": 0, "seconds": 60},
    "retries": {"interruption": 1, "infrastructure": 1, "user": 0, "wait_seconds": 1.5},
    "keep": {"latest": 1, "best": 1, "every": 10, "higher_is_better": True},
    "seed": 7,
    "resume_from": None,
    "rerun_of": None,
    "grace_seconds": 1.5,
    "tags": ["a=b"],
    "source": {"kind": "git", "path": "train.py", "url": "https://x/y", "ref": "main", "commit": "c", "diff": "+a"},
}
PROGRAM = {"epochs": 3, "nested": {"rate": 0.1, "words": ["a"]}, "code": "print(1)", "args": ["x"]}
TRAINING = {
    "model_name": "x",
    "tenant_id": "alpha",
    "name": "a job",
    "tags": ["a"],
    "config": {**PROGRAM, "executor": "local", "requirements": ["numpy"], "seed": 7, "max_retries": 1},
}

SOUND: dict[str, Any] = {
    **BODIES,
    "POST /api/v1/jobs": SPEC,
    "POST /api/v1/plan": {"command": ["true"], "backend": "local", "regions": [], "resources": {"cpus": 1}},
    "POST /api/v1/jobs/bulk": {
        "jobs": [{"spec": {"command": ["true"], "name": "a job", "env": {"A": "b"}}, "key": "a-key"}]
    },
    "POST /api/v1/jobs/cancel": {"filter": {"project": ["alpha"], "name": "a*", "tag": ["a=b"]}, "dry_run": True},
    "POST /api/v1/jobs/{id}/tags": {"add": ["a=b"], "remove": ["c"]},
    "POST /api/v1/jobs/{id}/resume": {"checkpoint": "latest", "backend": "local"},
    "POST /api/v1/jobs/{id}/share": {"name": "a friend", "hours": 1.5},
    "POST /api/v1/models/{name}/jobs": {
        "method": "infer",
        "config": {"rate": 0.1, "words": ["a"]},
        "inputs": {"text": "hello", "numbers": [1.5]},
        "callbacks": ["module:Class"],
        "job": {"name": "a job", "tags": ["a"]},
    },
    "POST /api/v1/training": TRAINING,
    "POST /api/v1/training/create": TRAINING,
    "POST /api/v1/training/{job_id}/resume": {"resume_from": "latest", "executor": "local"},
    "POST /orchestrate": {
        "tenant_id": "alpha",
        "training_params": PROGRAM,
        "model_params": {"architecture": "x", "size": [1, 2]},
    },
    "POST /api/v1/prune": {"older_than_seconds": 1.5, "dry_run": True},
    "POST /api/v1/users": {"name": "new", "admin": False, "password": "a long password"},
    "PATCH /api/v1/users/{name}": {"admin": True, "disabled": False, "password": None},
    "POST /api/v1/projects": {"name": "gamma", "about": "what it is"},
    "POST /api/v1/tokens": {"name": "mine", "scopes": ["read"], "days": 1.5, "project": "alpha", "user": "member"},
    "POST /api/v1/login": {"name": "member", "password": "a wrong password"},
}
"""A valid body for each operation, by its row in the table of routes."""

VALUES: tuple[Any, ...] = (
    "a\x00b",
    "\ud800",
    "\udfff x",
    "",
    " ",
    "\u202e\u2066",
    "\x1b[2J",
    "x" * 100_000,
    "NaN",
    10**400,
    -(10**400),
    2**63,
    -(2**63) - 1,
    2**53 + 1,
    1e308,
    -1e308,
    5e-324,
    float("nan"),
    float("inf"),
    -1,
    True,
    None,
    [],
    {},
    [None],
    {"": ""},
    {"\x00": "\ud800"},
    [[[[[]]]]],
    {"a\udc80": 1},
)
"""Replacements for a leaf of a body."""


def leaves(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Return the paths to everything below the top of a body."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*at, key)
        yield from leaves(item, (*at, key))


def replaced(body: Any, at: tuple[Any, ...], value: Any) -> bytes:
    found = copy.deepcopy(body)
    inner = found
    for key in at[:-1]:
        inner = inner[key]
    inner[at[-1]] = value
    return json.dumps(found).encode()


def renamed(body: Any, at: tuple[Any, ...], name: str) -> bytes:
    """Return the body with the key at `at` replaced, and with an additional key."""
    found = copy.deepcopy(body)
    inner = found
    for key in at[:-1]:
        inner = inner[key]
    if isinstance(inner, dict):
        inner[name] = inner.pop(at[-1])
    return json.dumps(found).encode()


def unreadable() -> dict[str, tuple[bytes, dict[str, str]]]:
    """Return unreadable bodies with their headers, by what is wrong with them."""
    sound = json.dumps({"name": "x"}).encode()
    bodies: dict[str, bytes] = {
        "half an object": b'{"a": ',
        "a word": b"nope",
        "markup": b"<a/>",
        "deep lists": b"[" * DEEP + b"]" * DEEP,
        "deep objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
        "deep and never closed": b"[" * 1_000_000,
        "a list": b"[]",
        "a number": b"1",
        "a number of many digits": b"1" * 10_000,
        "a field of many digits": b'{"name": ' + b"9" * 10_000 + b"}",
        "not a number": b"NaN",
        "infinity": b'{"name": -Infinity}',
        "a lone surrogate": b'"\\ud800"',
        "a lone surrogate as a key": b'{"\\udfff": 1}',
        "a NUL": b"\x00",
        "invalid UTF-8": b'{"name": "\xff\xfe"}',
        "an overlong form": b'{"name": "\xc0\x80"}',
        "a surrogate in UTF-8": b'{"name": "\xed\xa0\x80"}',
        "two documents": sound + sound,
        "unknown fields": b'{"no such field": 1}',
    }
    found = {what: (body, JSON) for what, body in bodies.items()}
    for said in (
        "text/plain",
        "application/xml",
        "multipart/form-data; boundary=x",
        "\xff",
        "application/json; charset=utf-7",
    ):
        found[f"Content-Type {said!r}"] = (b"\xff" if "utf-7" in said else sound, {"content-type": said})
    found["gzip"] = (gzip.compress(sound), {**JSON, "content-encoding": "gzip"})
    found["an encoding nobody knows"] = (b"\x00", {**JSON, "content-encoding": "secret"})
    found["too large"] = (b" " * (8 * 1024**2 + 1), JSON)
    return found
