"""Cats or dogs, by what another network has learned."""

import keras
from keras import layers

SIDE, BATCH = 160, 32
train = keras.utils.image_dataset_from_directory("pets/train", image_size=(SIDE, SIDE), batch_size=BATCH)
test = keras.utils.image_dataset_from_directory("pets/test", image_size=(SIDE, SIDE), batch_size=BATCH)
base = keras.applications.MobileNetV2(input_shape=(SIDE, SIDE, 3), include_top=False, weights="imagenet")
base.trainable = False
pictures = keras.Input((SIDE, SIDE, 3))
x = layers.RandomFlip("horizontal")(pictures)
x = layers.Rescaling(1 / 127.5, offset=-1)(x)
x = layers.GlobalAveragePooling2D()(base(x, training=False))
model = keras.Model(pictures, layers.Dense(1, activation="sigmoid")(layers.Dropout(0.2)(x)))
model.compile(keras.optimizers.Adam(1e-4), loss="binary_crossentropy", metrics=["accuracy"])
model.fit(train, validation_data=test, epochs=10, callbacks=[keras.callbacks.ModelCheckpoint("pets.keras")])
