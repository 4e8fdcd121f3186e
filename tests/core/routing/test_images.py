"""The documents' rules for images."""

from __future__ import annotations

import pytest

from crucible.core.routing.images import image_for


@pytest.mark.parametrize(
    ("frameworks", "gpu", "image"),
    [
        (("torch",), True, "crucible/ml-pytorch-gpu:latest"),
        (("tensorflow",), True, "crucible/ml-tensorflow-gpu:latest"),
        (("tensorflow", "torch"), True, "crucible/ml-pytorch-gpu:latest"),
        (("transformers", "peft"), True, "crucible/ml-pytorch-gpu:latest"),
        (("transformers", "tensorflow"), True, "crucible/ml-tensorflow-gpu:latest"),
        (("keras",), True, "crucible/ml-tensorflow-gpu:latest"),
        (("torch",), False, "crucible/python:3.11-slim"),
        (("sklearn",), True, "crucible/python:3.11-slim"),
        ((), False, "crucible/python:3.11-slim"),
    ],
)
def test_an_image_by_framework_and_gpu(frameworks: tuple[str, ...], gpu: bool, image: str) -> None:
    assert image_for(frameworks, gpu=gpu) == image
