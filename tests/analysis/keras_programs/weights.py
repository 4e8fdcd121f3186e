import keras
from keras import layers, ops


class Linear(layers.Layer):
    def __init__(self, units=32, **kwargs):
        super().__init__(**kwargs)
        self.units = units

    def build(self, input_shape):
        self.w = self.add_weight(shape=(input_shape[-1], self.units), initializer="random_normal", trainable=True)
        self.b = self.add_weight(shape=(self.units,), initializer="zeros")

    def call(self, x):
        return ops.relu(ops.matmul(x, self.w) + self.b)


class Scale(layers.Layer):
    def __init__(self, dim):
        super().__init__()
        self.gamma = self.add_weight(shape=(dim,), initializer="ones", name="gamma")

    def call(self, x):
        return x * self.gamma


inputs = keras.Input((28, 28, 1))
x = layers.Rescaling(1 / 255)(inputs)
x = layers.SeparableConv2D(32, 3, padding="same", activation="relu")(x)
x = layers.DepthwiseConv2D(5, padding="same", use_bias=False)(x)
x = layers.BatchNormalization()(x)
x = layers.Conv2DTranspose(16, 4, strides=2, padding="same")(x)
x = layers.MaxPooling2D(2)(x)
x = layers.Conv2D(8, 3, use_bias=False)(x)
x = layers.GroupNormalization(4)(x)
x = layers.Flatten()(x)
x = Linear(64)(x)
x = Scale(64)(x)
y = layers.Dense(64)(x)
x = ops.concatenate([x, y], axis=-1)
x = layers.Reshape((16, 8))(x)
x = layers.Bidirectional(layers.LSTM(12, return_sequences=True))(x)
x = layers.GRU(7)(x)
x = layers.PReLU()(x)
out = layers.Dense(10, activation="softmax")(x)
model = keras.Model(inputs, out)
