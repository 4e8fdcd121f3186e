"""Choose the container image of a job by the libraries that its code imports."""

from __future__ import annotations

from collections.abc import Collection

TORCH = "crucible/ml-pytorch-gpu:latest"
TENSORFLOW = "crucible/ml-tensorflow-gpu:latest"
PLAIN = "crucible/python:3.11-slim"
_FIRST = (("torch", TORCH), ("tensorflow", TENSORFLOW), ("keras", TENSORFLOW))
_ON_TORCH = (
    "transformers", "accelerate", "peft", "trl", "diffusers", "deepspeed", "sentence_transformers", "ultralytics",
    "stable_baselines3",
)  # fmt: skip
_RULES = (*_FIRST, *((name, TORCH) for name in _ON_TORCH))
"""In order of precedence: the frameworks themselves come before libraries that use torch by default."""


def image_for(frameworks: Collection[str], *, gpu: bool) -> str:
    """Return the image of the framework if the job uses a GPU (torch before tensorflow), else the plain one."""
    found = (image for name, image in _RULES if gpu and name in frameworks)
    return next(found, PLAIN)
