"""A variational autoencoder with a training loop of its own."""

import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

LATENT, EPOCHS, BATCH = 16, 40, 256


def encoder():
    x = keras.Input((28, 28, 1))
    y = layers.Conv2D(32, 3, strides=2, padding="same", activation="relu")(x)
    y = layers.Conv2D(64, 3, strides=2, padding="same", activation="relu")(y)
    y = layers.Flatten()(y)
    return keras.Model(x, [layers.Dense(LATENT)(y), layers.Dense(LATENT)(y)], name="encoder")


def decoder():
    z = keras.Input((LATENT,))
    y = layers.Reshape((7, 7, 64))(layers.Dense(7 * 7 * 64, activation="relu")(z))
    y = layers.Conv2DTranspose(32, 3, strides=2, padding="same", activation="relu")(y)
    return keras.Model(
        z, layers.Conv2DTranspose(1, 3, strides=2, padding="same", activation="sigmoid")(y), name="decoder"
    )


look, draw = encoder(), decoder()
optimizer = keras.optimizers.Adam(1e-3)


@tf.function
def step(pictures):
    with tf.GradientTape() as tape:
        mean, spread = look(pictures, training=True)
        z = mean + tf.exp(0.5 * spread) * tf.random.normal(tf.shape(mean))
        seen = draw(z, training=True)
        off = tf.reduce_mean(tf.reduce_sum(keras.losses.binary_crossentropy(pictures, seen), axis=(1, 2)))
        loss = off - 0.5 * tf.reduce_mean(1 + spread - mean**2 - tf.exp(spread))
    weights = look.trainable_variables + draw.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
    return loss


(x, _), _ = keras.datasets.mnist.load_data()
data = tf.data.Dataset.from_tensor_slices((x[..., None] / 255.0).astype("float32")).shuffle(10_000).batch(BATCH)
for epoch in range(EPOCHS):
    for pictures in data:
        loss = step(pictures)
    print(epoch, float(loss))
    draw.save_weights("draw.weights.h5")
