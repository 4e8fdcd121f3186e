"""Kinds of jobs and of their sources: the words of a spec that commands need without the spec itself."""

from __future__ import annotations

import enum

PYTHON = "{python}"
"""As the first item of a command: the job's own Python, whichever the environment gives."""


class Kind(enum.StrEnum):
    """A label with defaults; the life of a job is decided by its shape."""

    TRAIN = "train"
    INFERENCE = "inference"
    BENCHMARK = "benchmark"
    SERVE = "serve"


class Shape(enum.StrEnum):
    TASK = "task"
    SERVICE = "service"


class SourceKind(enum.StrEnum):
    SCRIPT = "script"
    DIRECTORY = "directory"
    GIT = "git"
    NOTEBOOK = "notebook"
    CODE = "code"
    SHELL = "shell"
    PLUGIN = "plugin"
