"""The arguments of Keras layers, by name."""

from __future__ import annotations

from crucible.analysis.values.values import UNKNOWN, Thing, Value, settled

Shape = tuple[Value, ...]
_SIGNATURES = {
    "Dense": "units activation use_bias", "Embedding": "input_dim output_dim",
    "Conv1D": "filters kernel_size strides padding",
    "Conv2D": "filters kernel_size strides padding", "Conv3D": "filters kernel_size strides padding",
    "Convolution2D": "filters kernel_size strides padding",
    "Conv2DTranspose": "filters kernel_size strides padding", "Conv1DTranspose": "filters kernel_size strides padding",
    "SeparableConv2D": "filters kernel_size strides padding", "DepthwiseConv2D": "kernel_size strides padding",
    "LSTM": "units", "GRU": "units", "SimpleRNN": "units", "Bidirectional": "layer", "TimeDistributed": "layer",
    "MaxPooling2D": "pool_size strides padding", "AveragePooling2D": "pool_size strides padding",
    "MaxPooling1D": "pool_size strides padding",
    "MaxPool2D": "pool_size strides padding", "AveragePooling1D": "pool_size strides padding",
    "MaxPooling3D": "pool_size strides padding",
    "Reshape": "target_shape", "UpSampling2D": "size", "RepeatVector": "n", "Resizing": "height width",
    "RandomCrop": "height width", "CenterCrop": "height width", "Permute": "dims", "Lambda": "function",
    "CategoryEncoding": "num_tokens", "SeparableConv1D": "filters kernel_size strides padding", "PReLU": "",
    "UpSampling1D": "size", "UpSampling3D": "size", "ZeroPadding1D": "padding",
    "MultiHeadAttention": "num_heads key_dim value_dim",
    "BatchNormalization": "axis", "LayerNormalization": "axis", "ZeroPadding2D": "padding", "Cropping2D": "cropping",
}  # fmt: skip


def kind_of(thing: Thing) -> str:
    """Return the name of the layer's class."""
    return thing.path.rpartition(".")[2]


def read(thing: Thing) -> dict[str, Value]:
    """Return the arguments of a layer by name."""
    names = _SIGNATURES.get(kind_of(thing), "").split()
    return {key: settled(each) for key, each in {**dict(zip(names, thing.args, strict=False)), **thing.kwargs}.items()}


def sizes(value: Value, count: int) -> tuple[Value, ...]:
    """Return one size for each of `count` axes."""
    value = settled(value)
    return tuple(value) if isinstance(value, list | tuple) else (value,) * count


def times(one: Value, other: Value) -> Value:
    """Return the product, or UNKNOWN if one factor is not known."""
    return one * other if isinstance(one, int) and isinstance(other, int) else UNKNOWN
