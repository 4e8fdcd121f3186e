import keras
from keras import layers, ops

SIZE, PATCH, WIDTH, HEADS, DEPTH = 72, 6, 64, 4, 8
COUNT = (SIZE // PATCH) ** 2


def mlp(x, units, rate):
    for each in units:
        x = layers.Dense(each, activation=keras.activations.gelu)(x)
        x = layers.Dropout(rate)(x)
    return x


class Patches(layers.Layer):
    def __init__(self, size):
        super().__init__()
        self.size = size

    def call(self, images):
        shape = ops.shape(images)
        batch, height, width, channels = shape[0], shape[1], shape[2], shape[3]
        down, across = height // self.size, width // self.size
        patches = keras.ops.image.extract_patches(images, size=self.size)
        return ops.reshape(patches, (batch, down * across, self.size * self.size * channels))


class Encoder(layers.Layer):
    def __init__(self, count, width):
        super().__init__()
        self.count = count
        self.projection = layers.Dense(units=width)
        self.place = layers.Embedding(input_dim=count, output_dim=width)

    def call(self, patch):
        places = ops.expand_dims(ops.arange(start=0, stop=self.count, step=1), axis=0)
        return self.projection(patch) + self.place(places)


def make():
    inputs = keras.Input(shape=(32, 32, 3))
    augment = keras.Sequential([layers.Normalization(), layers.Resizing(SIZE, SIZE), layers.RandomFlip("horizontal")])
    x = augment(inputs)
    x = Patches(PATCH)(x)
    x = Encoder(COUNT, WIDTH)(x)
    for _ in range(DEPTH):
        x1 = layers.LayerNormalization(epsilon=1e-6)(x)
        att = layers.MultiHeadAttention(num_heads=HEADS, key_dim=WIDTH, dropout=0.1)(x1, x1)
        x2 = layers.Add()([att, x])
        x3 = layers.LayerNormalization(epsilon=1e-6)(x2)
        x3 = mlp(x3, [WIDTH * 2, WIDTH], 0.1)
        x = layers.Add()([x3, x2])
    out = layers.LayerNormalization(epsilon=1e-6)(x)
    out = layers.Flatten()(out)
    out = layers.Dropout(0.5)(out)
    feats = mlp(out, [2048, 1024], 0.5)
    logits = layers.Dense(100)(feats)
    return keras.Model(inputs=inputs, outputs=logits)


model = make()
