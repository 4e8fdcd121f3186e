import keras
from keras import layers, ops


class Window(layers.Layer):
    def __init__(self, dim, size, heads):
        super().__init__()
        self.dim, self.size, self.heads = dim, size, heads
        self.qkv = layers.Dense(dim * 3, use_bias=True)
        self.proj = layers.Dense(dim)
        rows = (2 * size[0] - 1) * (2 * size[1] - 1)
        self.table = self.add_weight(shape=(rows, heads), initializer="zeros", trainable=True)

    def call(self, x):
        _, count, channels = x.shape
        head = channels // self.heads
        y = self.qkv(x)
        y = ops.reshape(y, (-1, count, 3, self.heads, head))
        y = ops.transpose(y, (2, 0, 3, 1, 4))
        q, k, v = y[0], y[1], y[2]
        q = q * head**-0.5
        k = ops.transpose(k, (0, 1, 3, 2))
        a = keras.activations.softmax(q @ k, axis=-1)
        z = ops.transpose(a @ v, (0, 2, 1, 3))
        z = ops.reshape(z, (-1, count, channels))
        return self.proj(z)


class Merge(layers.Layer):
    def __init__(self, many, dim):
        super().__init__()
        self.many, self.dim = many, dim
        self.linear = layers.Dense(2 * dim, use_bias=False)

    def call(self, x):
        h, w = self.many
        _, _, c = x.shape
        x = ops.reshape(x, (-1, h, w, c))
        a, b, d, e = x[:, 0::2, 0::2, :], x[:, 1::2, 0::2, :], x[:, 0::2, 1::2, :], x[:, 1::2, 1::2, :]
        x = ops.concatenate((a, b, d, e), axis=-1)
        x = ops.reshape(x, (-1, (h // 2) * (w // 2), 4 * c))
        return self.linear(x)


inputs = layers.Input((256, 192))
x = layers.Dense(64)(inputs)
x = Window(64, (2, 2), 8)(x)
x = Merge((16, 16), 64)(x)
x = layers.GlobalAveragePooling1D()(x)
model = keras.Model(inputs, layers.Dense(100, activation="softmax")(x))
