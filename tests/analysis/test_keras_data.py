"""Networks of Keras that are told no shape: they are built on the data that they get."""

from __future__ import annotations

import pytest
from tests.analysis.programs import read

from crucible.core.routing.profile import Confidence

HEAD = """
import keras, numpy as np, tensorflow as tf, tensorflow_datasets as tfds
from keras import layers
(x, y), (x_test, y_test) = keras.datasets.mnist.load_data()
"""
ROW = "model = keras.Sequential([layers.Dense(64), layers.Dense(10)])\nmodel.compile('adam', 'mse')\n"
PICTURES = (
    "model = keras.Sequential([layers.Rescaling(1 / 255), layers.Conv2D(8, 3), layers.Flatten(), layers.Dense(10)])\n"
    "model.compile('adam', 'mse')\n"
)
ROWS = 784 * 64 + 64 + 64 * 10 + 10


def pictures(high: int, wide: int, colours: int) -> int:
    return 9 * colours * 8 + 8 + (high - 2) * (wide - 2) * 8 * 10 + 10


@pytest.mark.parametrize(
    "program",
    [
        f"x = x.reshape(60000, 784).astype('float32') / 255\n{ROW}model.fit(x, y)",
        f"x = np.reshape(x, (-1, 784))\n{ROW}model.fit(x=x, y=y, epochs=2)",
        f"x = np.reshape(np.concatenate([x, x_test]), (-1, 784))\n{ROW}model.fit(x, y)",
        f"data = tf.data.Dataset.from_tensor_slices((x.reshape(-1, 784), y)).batch(64)\n{ROW}model.fit(data)",
        "data = tf.data.Dataset.from_tensor_slices((x.reshape(-1, 784), y))\ndata = tf.data.Dataset.shuffle(data, 9)\n"
        f"data = tf.data.Dataset.batch(tf.data.Dataset.map(data, lambda x, y: (x, y)), 64)\n{ROW}model.fit(data)",
        f"{ROW}model.build((None, 784))",
        f"{ROW}model.build(input_shape=(None, 784))",
        f"{ROW}model(np.zeros((1, 784)))",
        f"{ROW}model.predict(np.random.rand(5, 784))",
        f"{ROW}model.fit(np.random.normal(size=(100, 784)), np.zeros(100))",
        f"{ROW}model.train_on_batch(np.random.uniform(0, 1, (100, 784)), np.zeros(100))",
    ],
)
def test_rows_of_numbers_say_how_wide_the_first_layer_is(program: str) -> None:
    found = read(HEAD + program).parameters
    assert (found.value, found.confidence) == (ROWS, Confidence.HIGH)


@pytest.mark.parametrize(
    ("program", "shape"),
    [
        (f"x = x[..., np.newaxis]\n{PICTURES}model.fit(x, y)", (28, 28, 1)),
        (f"x = x[:, :, :, None]\n{PICTURES}model.fit(x[5000:], y)", (28, 28, 1)),
        (f"x = np.expand_dims(x, -1)\n{PICTURES}model.fit(x, y)", (28, 28, 1)),
        (
            "data = keras.utils.image_dataset_from_directory('photos', image_size=(180, 160))\n"
            f"{PICTURES}model.fit(data)",
            (180, 160, 3),
        ),
        (
            "data = tf.keras.utils.image_dataset_from_directory('photos', color_mode='grayscale')\n"
            f"data = data.map(lambda x, y: (x / 255.0, y)).prefetch(2)\n{PICTURES}model.fit(data)",
            (256, 256, 1),
        ),
        (
            "data, more = keras.utils.image_dataset_from_directory('photos', subset='both', image_size=(64, 64))\n"
            f"{PICTURES}model.fit(data, validation_data=more)",
            (64, 64, 3),
        ),
        (
            f"data = tfds.load('cifar10', split='train', as_supervised=True).batch(32)\n{PICTURES}model.fit(data)",
            (32, 32, 3),
        ),
    ],
)
def test_pictures_say_how_large_they_are(program: str, shape: tuple[int, int, int]) -> None:
    found = read(HEAD + program).parameters
    assert (found.value, found.confidence) == (pictures(*shape), Confidence.HIGH)


def test_shapes_of_data_are_numbers_for_the_layers_too() -> None:
    program = """
    x = np.expand_dims(x, -1)
    classes = keras.utils.to_categorical(y, 10)
    inputs = keras.Input(shape=x.shape[1:])
    outputs = layers.Dense(classes.shape[1])(layers.Flatten()(inputs))
    model = keras.Model(inputs, outputs)
    """
    assert read(HEAD + program.replace("\n    ", "\n")).parameters.value == 784 * 10 + 10


def test_a_layer_of_its_own_is_built_on_data_too() -> None:
    program = """
class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.first, self.second = layers.Dense(64), layers.Dense(10)

    def call(self, x):
        return self.second(self.first(x))

model = Net()
model.compile("adam", "mse")
model.fit(x.reshape(-1, 784), y)
"""
    assert read(HEAD + program).parameters.value == ROWS


def test_texts_are_as_long_as_they_are_padded() -> None:
    program = """
import keras
from keras import layers
(x, y), _ = keras.datasets.imdb.load_data(num_words=5000)
x = keras.utils.pad_sequences(x, maxlen=200)
model = keras.Sequential([layers.Embedding(5000, 32), layers.LSTM(16), layers.Dense(1)])
model.compile("adam", "mse")
model.fit(x, y, batch_size=50, epochs=2)
"""
    found = read(program)
    assert found.parameters.value == 5000 * 32 + 4 * (32 + 16 + 1) * 16 + 17
    assert found.steps.value == 2 * 25_000 // 50


def test_an_adapted_normalization_lets_the_shape_through() -> None:
    program = "x = x.reshape(-1, 784)\nnorm = layers.Normalization()\nnorm.adapt(x)\n"
    program += "model = keras.Sequential([norm, layers.Dense(10)])\nmodel.fit(x, y)"
    assert read(HEAD + program).parameters.value == 784 * 10 + 10


def test_an_input_layer_says_its_shape() -> None:
    program = "model = keras.Sequential([keras.layers.InputLayer((784,)), layers.Dense(64), layers.Dense(10)])"
    assert read(HEAD + program).parameters.value == ROWS


BY_CLASS = ("tf.data.Dataset.batch(unknown, 3)", "tf.data.Dataset.batch()", "tf.data.Dataset.map(3, f)")


def test_data_that_nobody_knows_leaves_the_layers_open() -> None:
    for data in ("np.load('x.npy')", "unknown", "tf.data.Dataset.from_tensor_slices(unknown).batch(3)", *BY_CLASS):
        assert not read(f"{HEAD}{ROW}model.fit({data})").parameters.known


def test_maps_of_features_are_smaller_than_the_picture_they_are_of() -> None:
    program = "model = keras.Sequential([keras.Input((None, None, {channels})), layers.Conv2D(8, 3, padding='same')])\n"
    program += "model.compile('adam', 'mse')\nmodel.fit(unknown)"
    flops = [read(HEAD + program.format(channels=channels)).flops_per_step.value or 0 for channels in (4, 8)]
    assert flops[1] == pytest.approx(2 * flops[0] / 64, rel=0.05)
