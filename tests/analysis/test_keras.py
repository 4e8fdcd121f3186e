"""Models of Keras: as many parameters as Keras itself counts.

The counts are of Keras 3.15.1, which built each of `keras_programs/` and summed its trainable weights.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.analysis.programs import read

from crucible.core.routing.profile import Confidence

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


def test_what_is_compared_with_plain_numbers_is_decided() -> None:
    code = f"""{HEAD}
def block(x, filters, strides):
    y = layers.Conv2D(filters, 3, strides=strides, padding="same", use_bias=False)(x)
    if ops.equal(x.shape[-1], filters) and strides == 1:
        return layers.Add()([y, x])
    return y

x = keras.Input((32, 32, 8))
x = layers.GlobalAvgPool2D()(block(block(x, 16, 2), 16, 1))
model = keras.Model(x, layers.Dense(2, use_bias=False)(x))
"""
    assert read(code).parameters.value == 9 * 8 * 16 + 9 * 16 * 16 + 32


def test_a_network_that_was_told_not_to_learn_does_not() -> None:
    inner = "x = keras.Input((4,))\ninner = keras.Model(x, layers.Dense(5, use_bias=False)(x))\n"
    outer = "y = keras.Input((4,))\nkeras.Model(y, layers.Dense(2, use_bias=False)(inner(y)))\n"
    found = read(f"{HEAD}{inner}inner.trainable = False\n{outer}")
    assert (found.parameters.value, found.trainable_parameters.value) == (30, 10)


def test_a_layer_that_is_made_not_to_learn_does_not() -> None:
    found = read(f"{HEAD}x = keras.Input((4,))\nkeras.Model(x, layers.Dense(5, use_bias=False, trainable=False)(x))\n")
    assert (found.parameters.value, found.trainable_parameters.value) == (20, 0)


BASE = """
base = keras.applications.VGG16(include_top=False, weights="imagenet", input_shape=(224, 224, 3))
{frozen}
x = keras.Input((224, 224, 3))
model = keras.Model(x, layers.Dense(2)(layers.GlobalAveragePooling2D()(base(x))))
model.compile("adam", "mse")
model.fit(pictures, batch_size=32, epochs=3)
"""


@pytest.mark.parametrize("frozen", ["base.trainable = False", "for layer in base.layers:\n    layer.trainable = False"])
def test_of_a_known_model_that_does_not_learn_backward_keeps_little(frozen: str) -> None:
    all_of_it, head = read(HEAD + BASE.format(frozen="")), read(HEAD + BASE.format(frozen=frozen))
    assert all_of_it.parameters.value == head.parameters.value == pytest.approx(14.71e6, rel=0.01)
    assert (head.trainable_parameters.value or 0) < 2_000 < 14e6 < (all_of_it.trainable_parameters.value or 0)
    assert (head.gpu_memory_gb.value or 0) < 0.4 * (all_of_it.gpu_memory_gb.value or 0)
    assert (head.runtime_hours.value or 0) < 0.5 * (all_of_it.runtime_hours.value or 0)


OPEN = """
x = keras.Input(({side}, {side}, 3))
y = layers.Conv2D(32, 3, padding="same")(x)
y = layers.Conv2D(64, 3, strides=2, padding="same")(y)
model = keras.Model(x, layers.Conv2D(3, 1)(layers.UpSampling2D()(y)))
IMAGE_SIZE = 256
model.compile("adam", "mse")
model.fit(pictures, batch_size=16)
"""


def test_a_side_that_the_network_leaves_open_is_that_of_the_pictures() -> None:
    left_open, told = read(HEAD + OPEN.format(side=None)), read(HEAD + OPEN.format(side=256))
    assert left_open.gpu_memory_gb.value == told.gpu_memory_gb.value
    assert left_open.flops_per_step.value == told.flops_per_step.value


INSIDE = """
def encoder():
    x = keras.Input((64, 64, 3))
    y = layers.Conv2D(64, 3, padding="same")(x)
    return keras.Model(x, layers.Conv2D(64, 3, padding="same")(y))

x = keras.Input((64, 64, 3))
y = {middle}
model = keras.Model(x, layers.Conv2D(3, 3, padding="same")(y))
model.compile("adam", "mse")
model.fit(pictures, batch_size=64)
"""


def test_what_a_network_inside_of_another_keeps_counts() -> None:
    flat = 'layers.Conv2D(64, 3, padding="same")(layers.Conv2D(64, 3, padding="same")(x))'
    inside, plain = read(HEAD + INSIDE.format(middle="encoder()(x)")), read(HEAD + INSIDE.format(middle=flat))
    assert inside.parameters.value == plain.parameters.value
    assert inside.gpu_memory_gb.value == pytest.approx(plain.gpu_memory_gb.value, rel=0.05)
    assert inside.flops_per_step.value == plain.flops_per_step.value


def test_the_scores_of_attention_grow_with_the_square_of_the_length() -> None:
    code = """
x = keras.Input(({length}, 64))
y = layers.MultiHeadAttention(8, 8)(x, x)
model = keras.Model(x, y)
model.compile("adam", "mse")
model.fit(texts, batch_size=8)
"""
    short, long = (read(HEAD + code.format(length=each)).memory.value for each in (512, 2048))
    assert short is not None
    assert long is not None
    assert long.activations > 8 * short.activations


def test_a_network_that_is_made_twice_by_one_line_is_trained_once() -> None:
    code = """
def net():
    x = keras.Input((64, 64, 3))
    return keras.Model(x, layers.Conv2D(256, 3, padding="same")(x))

{first}
model = net()
model.compile("adam", "mse")
model.fit(pictures, batch_size=64)
"""
    once, twice = (read(HEAD + code.format(first=each)) for each in ("", "net().summary()"))
    assert twice.parameters.value == 2 * (once.parameters.value or 0)
    assert twice.flops_per_step.value == once.flops_per_step.value


SEQUENCE = """
x = keras.Input((200,))
y = layers.Embedding(20_000, 64)(x)
y = {layer}(y)
model = keras.Model(x, layers.Dense(1)(y))
model.compile("adam", "mse")
model.fit(texts, batch_size=32)
"""


def test_words_that_are_looked_up_are_no_arithmetic() -> None:
    flops = read(HEAD + SEQUENCE.format(layer="layers.GlobalMaxPool1D()")).flops_per_step.value
    assert flops == 3 * 2 * 65 * 32


def test_a_layer_that_goes_over_a_sequence_works_at_every_place_of_it() -> None:
    flops = read(HEAD + SEQUENCE.format(layer="layers.LSTM(64)")).flops_per_step.value
    assert flops == pytest.approx(3 * 2 * 32 * (200 * (4 * 64 * 128 + 4 * 64) + 65), rel=1e-6)
