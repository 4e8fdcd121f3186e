"""Models of Keras: as many parameters as Keras itself counts.

The counts are of Keras 3.15.1, which built each of `keras_programs/` and summed its trainable weights.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.analysis.programs import read

from crucible.core.profile import Confidence

PROGRAMS = Path(__file__).parent / "keras_programs"
COUNTED = {"gpt": 3_244_168, "vit": 21_759_012, "weights": 363_509, "swin": 74_732}
HEAD = "import keras\nfrom keras import layers, ops\nimport tensorflow as tf\n"


@pytest.mark.parametrize("name", COUNTED)
def test_as_many_as_keras_counts(name: str) -> None:
    found = read((PROGRAMS / f"{name}.py").read_text(encoding="utf-8"))
    assert found.parameters.value == COUNTED[name]
    assert found.parameters.confidence is Confidence.HIGH
    assert found.parameters.evidence


def features(code: str, shape: str = "(4, 6)") -> int | None:
    """How many features `code` leaves of x for the layer after it."""
    code = f"{HEAD}x = keras.Input({shape})\n{code}\nmodel = keras.Model(x, layers.Dense(1, use_bias=False)(x))\n"
    return read(code).parameters.value


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x = ops.reshape(x, (-1, 24))", 24),
        ("x = ops.transpose(x, (0, 2, 1))", 4),
        ("x = tf.transpose(x, perm=[0, 2, 1])", 4),
        ("x = ops.concatenate([x, x], axis=-1)", 12),
        ("x = tf.concat([x, x], axis=1)", 6),
        ("x = ops.mean(x, axis=1)", 6),
        ("x = tf.reduce_sum(x, axis=-1)", 4),
        ("x = ops.mean(x, axis=-1, keepdims=True)", 1),
        ("x = ops.expand_dims(x, -1)", 1),
        ("x = ops.squeeze(ops.expand_dims(x, 1), 1)", 6),
        ("x = ops.stack([x, x, x], axis=-1)", 3),
        ("x = ops.matmul(x, ops.transpose(x, (0, 2, 1)))", 4),
        ("x = ops.einsum('bij,bkj->bik', x, x)", 4),
        ("a, b = ops.split(x, 2, axis=-1)\nx = a", 3),
        ("x = ops.relu(x) + tf.nn.gelu(x) * 2", 6),
        ("x = ops.take(x, ops.arange(3), axis=2)", 3),
        ("x = ops.swapaxes(x, 1, 2)", 4),
        ("x = layers.Permute((2, 1))(x)", 4),
        ("x = layers.Lambda(lambda each: ops.concatenate([each, each, each], -1))(x)", 18),
        ("x = layers.TimeDistributed(layers.Flatten())(x)", 6),
        ("x = layers.Flatten()(layers.ZeroPadding1D(1)(x))", 36),
        ("x = layers.Add()([x, x])", 6),
    ],
)
def test_shapes_between_layers(code: str, expected: int) -> None:
    assert features(code) == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x = layers.Flatten()(layers.Resizing(8, 8)(x))", 8 * 8 * 3),
        ("x = layers.Flatten()(layers.ZeroPadding2D(((1, 0), (2, 2)))(x))", 33 * 36 * 3),
        ("x = layers.Flatten()(layers.Cropping2D(2)(x))", 28 * 28 * 3),
        ("x = ops.image.extract_patches(x, 8)", 8 * 8 * 3),
        ("x = layers.Flatten()(ops.image.resize(x, (4, 4)))", 4 * 4 * 3),
        ("x = layers.Flatten()(layers.UpSampling2D(2)(x))", 64 * 64 * 3),
    ],
)
def test_shapes_of_pictures(code: str, expected: int) -> None:
    assert features(code, "(32, 32, 3)") == expected


def test_a_layer_that_is_used_twice_is_counted_once() -> None:
    assert features("d = layers.Dense(6, use_bias=False)\nx = d(d(x))") == 36 + 6


def test_own_layers_in_a_row() -> None:
    code = f"""{HEAD}
class Own(layers.Layer):
    def build(self, shape):
        self.w = self.add_weight(shape=(shape[-1], 5))
    def call(self, x):
        return ops.matmul(x, self.w)

net = keras.Sequential([Own(), layers.Dense(2, use_bias=False)])
y = net(keras.Input((3,)))
"""
    assert read(code).parameters.value == 15 + 10


def test_weights_that_do_not_learn_are_told_apart() -> None:
    code = f"""{HEAD}
class Own(layers.Layer):
    def __init__(self):
        super().__init__()
        self.mean = self.add_weight(shape=(4,), trainable=False)
        self.scale = tf.Variable(tf.ones((4,)))
    def call(self, x):
        return x * self.scale - self.mean

x = keras.Input((4,))
keras.Model(x, layers.Dense(1, use_bias=False)(Own()(x)))
"""
    found = read(code)
    assert (found.parameters.value, found.trainable_parameters.value) == (12, 8)


def test_a_shape_that_only_data_knows_is_said_to_be_missing() -> None:
    found = read(f"{HEAD}x = keras.Input((width,))\nkeras.Model(x, layers.Dense(3)(layers.Dense(4)(x)))\n")
    assert found.parameters.confidence is not Confidence.HIGH


@pytest.mark.parametrize(
    "code",
    [
        "x = ops.swapaxes(x, 1, 9)",
        "x = ops.concatenate([x, x], axis=-9)",
        "x = ops.split(x, -2, axis=7)",
        "x = ops.image.extract_patches(x, ())",
        "x = layers.Permute((-9, 4))(x)",
        "x = ops.transpose(x, (9, 9, 9))",
        "x = ops.reshape(x, (0, -1))",
        "x = ops.squeeze(x, 'a')",
        "x = ops.einsum(3, x)",
        "x = layers.ZeroPadding2D('a')(x)",
        "x = layers.Concatenate(axis=12)([x, x])",
    ],
)
def test_what_makes_no_sense_does_no_harm(code: str) -> None:
    assert read(f"{HEAD}x = keras.Input((4, 6))\n{code}\nkeras.Model(x, layers.Dense(1)(x))\n").frameworks.value
