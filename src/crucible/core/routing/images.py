"""Which image a job runs in, by what its code uses."""

from __future__ import annotations

from collections.abc import Collection

TORCH = "crucible/ml-pytorch-gpu:latest"
TENSORFLOW = "crucible/ml-tensorflow-gpu:latest"
PLAIN = "crucible/python:3.11-slim"


def image_for(frameworks: Collection[str], *, gpu: bool) -> str:
    """With a GPU the framework's own image, torch before tensorflow; the plain one for everything else."""
    if gpu and "torch" in frameworks:
        return TORCH
    if gpu and "tensorflow" in frameworks:
        return TENSORFLOW
    return PLAIN
