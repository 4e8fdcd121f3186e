"""Which image a job runs in, by what its code uses."""

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
"""A library that computes with torch unless the program says otherwise comes after those that say it."""


def image_for(frameworks: Collection[str], *, gpu: bool) -> str:
    """With a GPU the framework's own image, torch before tensorflow; the plain one for everything else."""
    found = (image for name, image in _RULES if gpu and name in frameworks)
    return next(found, PLAIN)
