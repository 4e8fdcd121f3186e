import keras
from keras import layers, ops

VOCAB, LENGTH, WIDTH = 5000, 80, 256


def causal(batch, length):
    i = ops.arange(length)[:, None]
    j = ops.arange(length)
    return ops.cast(i >= j, "bool")


class Block(layers.Layer):
    def __init__(self, width, heads, inner, rate=0.1):
        super().__init__()
        self.att = layers.MultiHeadAttention(heads, width)
        self.ffn = keras.Sequential([layers.Dense(inner, activation="relu"), layers.Dense(width)])
        self.norm1 = layers.LayerNormalization(epsilon=1e-6)
        self.norm2 = layers.LayerNormalization(epsilon=1e-6)
        self.drop1 = layers.Dropout(rate)
        self.drop2 = layers.Dropout(rate)

    def call(self, inputs):
        out = self.drop1(self.att(inputs, inputs))
        out1 = self.norm1(inputs + out)
        ffn = self.drop2(self.ffn(out1))
        return self.norm2(out1 + ffn)


class Embed(layers.Layer):
    def __init__(self, length, vocab, width):
        super().__init__()
        self.token = layers.Embedding(input_dim=vocab, output_dim=width)
        self.place = layers.Embedding(input_dim=length, output_dim=width)

    def call(self, x):
        length = ops.shape(x)[-1]
        places = self.place(ops.arange(0, length, 1))
        return self.token(x) + places


def build():
    inputs = layers.Input(shape=(LENGTH,), dtype="int32")
    x = Embed(LENGTH, VOCAB, WIDTH)(inputs)
    x = Block(WIDTH, 2, 256)(x)
    out = layers.Dense(VOCAB)(x)
    model = keras.Model(inputs=inputs, outputs=[out, x])
    model.compile("adam", loss=["sparse_categorical_crossentropy", None])
    return model


model = build()
