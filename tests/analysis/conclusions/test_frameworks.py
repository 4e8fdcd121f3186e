from __future__ import annotations

import pytest
from tests.analysis.programs import read

from crucible.core.routing.profile import GpuNeed


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("import torch", ("torch",)),
        ("from torchvision import models", ("torch",)),
        ("import tensorflow as tf", ("tensorflow",)),
        ("import tensorflow as tf\ntf.keras.layers.Dense(3)", ("tensorflow", "keras")),
        ("from tensorflow import keras", ("tensorflow", "keras")),
        ("from tensorflow.keras import layers", ("tensorflow", "keras")),
        ("import keras", ("keras",)),
        ("from tensorflow_docs.vis import embed", ("tensorflow",)),
        ("import keras_of_theirs", ("keras",)),
        ("import torchdata, torch_scatter", ("torch",)),
        ("import tensorflow as tf\nclass M(tf.keras.Model):\n    pass\nM()", ("tensorflow", "keras")),
        ("import jax.numpy as jnp", ("jax",)),
        ("from flax import linen as nn", ("jax", "flax")),
        ("import optax", ("jax",)),
        ("from transformers import AutoModel", ("transformers",)),
        ("import pytorch_lightning as pl", ("torch", "lightning")),
        ("import lightning.pytorch as pl", ("torch", "lightning")),
        ("from accelerate import Accelerator", ("accelerate",)),
        ("import xgboost as xgb\nfrom sklearn import svm", ("xgboost", "sklearn")),
        ("import lightgbm", ("lightgbm",)),
        ("try:\n    import torch\nexcept ImportError:\n    torch = None", ("torch",)),
        ("def f():\n    import deepspeed", ("deepspeed",)),
        ("import numpy, pandas, os", ()),
        ("import torch_of_mine\nfrom mytorch import torch_", ()),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch", ()),
        ("text = 'import torch'", ()),
    ],
)
def test_frameworks_are_what_is_imported(code: str, names: tuple[str, ...]) -> None:
    assert read(code).frameworks.value == names


def test_each_has_the_line_that_brings_it() -> None:
    found = read("import os\nimport torch\nimport sklearn").frameworks
    assert [line.line for line in found.evidence] == [2, 3]


@pytest.mark.parametrize(
    ("module", "name"),
    [("torchcodec", "torch"), ("keras_something", "keras"), ("kerasify", "keras"), ("tensorflow_x", "tensorflow")],
)
def test_packages_of_a_family_belong_to_it(module: str, name: str) -> None:
    assert read(f"import {module}").frameworks.value == (name,)


FLAGGED = """
import argparse, xgboost
p = argparse.ArgumentParser()
p.add_argument("--plot", action="store_true")
p.add_argument("--bare", action="store_true")
args = p.parse_args()
if args.plot:
    import cupy
    from transformers import pipeline
    from helpers import torch
if False:
    import jax
"""


def test_a_package_that_a_flag_brings_counts_as_one_that_is_imported() -> None:
    found = read(FLAGGED, helpers_py="torch = 1").frameworks.value
    assert set(found or ()) == {"xgboost", "cupy", "transformers"}
    assert read(FLAGGED).gpu.value is GpuNeed.OPTIONAL
