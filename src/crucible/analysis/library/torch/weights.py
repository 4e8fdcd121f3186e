"""Weights of torch layers, from the arguments that the layers are made with."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from crucible.analysis.library.python.standard import copied
from crucible.analysis.values.tensors import weight
from crucible.analysis.values.values import UNKNOWN, Either, Tensor, Thing, Value, settled, whole

SIGNATURES = {
    "Linear": "in_features out_features bias",
    "Bilinear": "in1_features in2_features out_features bias",
    "Embedding": "num_embeddings embedding_dim",
    "EmbeddingBag": "num_embeddings embedding_dim",
    "LayerNorm": "normalized_shape eps elementwise_affine bias",
    "RMSNorm": "normalized_shape eps elementwise_affine",
    "GroupNorm": "num_groups num_channels eps affine",
    "PReLU": "num_parameters",
    "MultiheadAttention": "embed_dim num_heads dropout bias add_bias_kv add_zero_attn kdim vdim batch_first",
    "TransformerEncoderLayer": "d_model nhead dim_feedforward dropout activation layer_norm_eps batch_first norm_first",
    "TransformerDecoderLayer": "d_model nhead dim_feedforward dropout activation layer_norm_eps batch_first norm_first",
    "TransformerEncoder": "encoder_layer num_layers norm",
    "TransformerDecoder": "decoder_layer num_layers norm",
    "Transformer": "d_model nhead num_encoder_layers num_decoder_layers dim_feedforward dropout",
    **{
        f"{kind}{size}d": "in_channels out_channels kernel_size stride padding " + rest
        for size in (1, 2, 3)
        for kind, rest in (("Conv", "dilation groups bias"), ("ConvTranspose", "output_padding groups bias dilation"))
    },
    **{f"BatchNorm{size}d": "num_features eps momentum affine" for size in (1, 2, 3)},
    "SyncBatchNorm": "num_features eps momentum affine",
    **{f"InstanceNorm{size}d": "num_features eps momentum affine" for size in (1, 2, 3)},
    **dict.fromkeys(("LSTM", "GRU"),
        "input_size hidden_size num_layers bias batch_first dropout bidirectional proj_size"),
    "RNN": "input_size hidden_size num_layers nonlinearity bias batch_first dropout bidirectional",
    **dict.fromkeys(("LSTMCell", "GRUCell", "RNNCell"), "input_size hidden_size bias"),
    **dict.fromkeys(("MaxPool1d", "MaxPool2d", "MaxPool3d"), "kernel_size stride padding dilation return_indices"),
    **dict.fromkeys(("AvgPool1d", "AvgPool2d", "AvgPool3d"), "kernel_size stride padding"),
    **{f"Adaptive{kind}Pool{size}d": "output_size" for kind in ("Avg", "Max") for size in (1, 2, 3)},
    "Flatten": "start_dim end_dim", "Unflatten": "dim unflattened_size", "Dropout": "p inplace", "ReLU": "inplace",
    "Upsample": "size scale_factor mode", "PixelShuffle": "upscale_factor", "Softmax": "dim", "LogSoftmax": "dim",
    "LeakyReLU": "negative_slope inplace", "ELU": "alpha inplace", "SiLU": "inplace", "ReLU6": "inplace",
    "Hardswish": "inplace",
    "CrossEntropyLoss": "weight", "ZeroPad2d": "padding", "ReflectionPad2d": "padding",
    "UpsamplingNearest2d": "size scale_factor",
}  # fmt: skip
_ARGUMENTS = {name: tuple(words.split()) for name, words in SIGNATURES.items()}
_FUSED = {"LSTM": 4, "GRU": 3, "RNN": 1}


def read(thing: Thing) -> dict[str, Value]:
    """Return the arguments of a layer by name."""
    given = dict(zip(_arguments(thing.path), thing.args, strict=False))
    if thing.kwargs:
        given.update(thing.kwargs)
    return given


@lru_cache(maxsize=1024)
def _arguments(path: str) -> tuple[str, ...]:
    return _ARGUMENTS.get(path.rpartition(".")[2], ())


def sizes(value: Value, count: int) -> tuple[Value, ...]:
    """Return a kernel size or the like for each dimension."""
    value = settled(value)
    if isinstance(value, (list, tuple)):
        return tuple(value)
    return (value,) * count


def build(thing: Thing) -> None:
    """Give the layer its weights; unknown dimensions stay unknown."""
    name, maker = _maker(thing.path)
    given, attrs = read(thing), thing.attrs
    if Either in map(type, given.values()):
        given = {key: settled(each) for key, each in given.items()}
    if maker is not None:
        for key, each in maker(given, name).items():
            if type(each) is Tensor:
                attrs[key] = each
            else:
                thing.children.append(each)
    attrs.setdefault("in_features", given.get("in_features", UNKNOWN))
    attrs.setdefault("out_features", given.get("out_features", UNKNOWN))


@lru_cache(maxsize=1024)
def _maker(path: str) -> tuple[str, Maker | None]:
    """Return the name of a layer's class, and the function that makes its weights, if any."""
    name = path.rpartition(".")[2]
    families = [act for start, act in _FAMILIES if name.startswith(start)]
    return name, _WEIGHTS.get(name) or (families[-1] if families else None)


Given = dict[str, Value]
Made = dict[str, Value]
Maker = Callable[[Given, str], Made]


def _linear(given: Given, name: str) -> Made:
    outs, ins = given.get("out_features", UNKNOWN), given.get("in_features", UNKNOWN)
    return {"weight": weight(outs, ins), **_bias(given, outs)}


def _bias(given: Given, size: Value, key: str = "bias") -> Made:
    return {} if given.get(key, True) is False else {"bias": weight(size)}


def _bilinear(given: Given, name: str) -> Made:
    outs = given.get("out_features", UNKNOWN)
    return {
        "weight": weight(outs, given.get("in1_features", UNKNOWN), given.get("in2_features", UNKNOWN)),
        **_bias(given, outs),
    }


def _conv(given: Given, name: str) -> Made:
    count = int(name[-2])
    kernel = sizes(given.get("kernel_size", UNKNOWN), count)
    ins, outs, groups = given.get("in_channels", UNKNOWN), given.get("out_channels", UNKNOWN), given.get("groups", 1)
    first, second = (ins, outs) if "Transpose" in name else (outs, ins)
    per_group = second // groups if isinstance(second, int) and isinstance(groups, int) and groups else second
    return {"weight": weight(first, per_group, *kernel), **_bias(given, outs)}


def _embedding(given: Given, name: str) -> Made:
    return {"weight": weight(given.get("num_embeddings", UNKNOWN), given.get("embedding_dim", UNKNOWN))}


def _norm(given: Given, name: str) -> Made:
    size = given.get("num_features", given.get("num_channels", given.get("normalized_shape", UNKNOWN)))
    affine = given.get("affine", given.get("elementwise_affine", not name.startswith("Instance")))
    if affine is False:
        return {}
    shape = sizes(size, 1)
    made: Made = {"weight": weight(*shape)}
    if name != "RMSNorm" and given.get("bias", True) is not False:
        made["bias"] = weight(*shape)
    return made


def _recurrent(given: Given, name: str) -> Made:
    gates, hidden, size = _FUSED[name], given.get("hidden_size", UNKNOWN), given.get("input_size", UNKNOWN)
    layers, both = whole(given.get("num_layers", 1)) or 1, 2 if given.get("bidirectional") is True else 1
    made: Made = {}
    wide = gates * hidden if isinstance(hidden, int) else UNKNOWN
    for layer in range(min(layers, 64)):
        inner = size if layer == 0 else both * hidden if isinstance(hidden, int) else UNKNOWN
        for direction in range(both):
            mark = f"l{layer}_{direction}"
            made[f"weight_ih_{mark}"], made[f"weight_hh_{mark}"] = weight(wide, inner), weight(wide, hidden)
            if given.get("bias", True) is not False:
                made[f"bias_ih_{mark}"], made[f"bias_hh_{mark}"] = weight(wide), weight(wide)
    return made


def _cell(given: Given, name: str) -> Made:
    return _recurrent({**given, "num_layers": 1}, name.removesuffix("Cell"))


def _attention(given: Given, name: str) -> Made:
    width = given.get("embed_dim", UNKNOWN)
    bias = {"bias": given.get("bias", True)}
    wide = 3 * width if isinstance(width, int) else UNKNOWN
    made: Made = {"in_proj_weight": weight(wide, width), "out_proj_weight": weight(width, width)}
    if bias["bias"] is not False:
        made |= {"in_proj_bias": weight(wide), "out_proj_bias": weight(width)}
    return made


def _encoder_layer(given: Given, name: str) -> Made:
    width, wide = given.get("d_model", UNKNOWN), given.get("dim_feedforward", 2048)
    heads = given.get("nhead", 8)
    made: Made = {"attention": _made("MultiheadAttention", width, heads)}
    if "Decoder" in name:
        made["cross"] = _made("MultiheadAttention", width, heads)
        made["norm3"] = _made("LayerNorm", width)
    made |= {"first": _made("Linear", width, wide), "second": _made("Linear", wide, width)}
    return {**made, "norm1": _made("LayerNorm", width), "norm2": _made("LayerNorm", width)}


def _made(name: str, *args: Value, **kwargs: Value) -> Thing:
    thing = Thing(f"torch.nn.{name}", args, kwargs)
    build(thing)
    return thing


def _stack(given: Given, name: str) -> Made:
    layer = given.get("encoder_layer", given.get("decoder_layer"))
    count = min(whole(given.get("num_layers")) or 1, 256)
    made: Made = {f"layer{number}": copied(layer) for number in range(count)}
    if given.get("norm") is not None:
        made["norm"] = given["norm"]
    return made


def _transformer(given: Given, name: str) -> Made:
    width, heads, wide = given.get("d_model", 512), given.get("nhead", 8), given.get("dim_feedforward", 2048)
    made: Made = {}
    for kind, count in (
        ("Encoder", given.get("num_encoder_layers", 6)),
        ("Decoder", given.get("num_decoder_layers", 6)),
    ):
        for number in range(min(whole(count) or 0, 256)):
            made[f"{kind}{number}"] = _made(f"Transformer{kind}Layer", width, heads, wide)
        made[f"{kind}norm"] = _made("LayerNorm", width)
    return made


_WEIGHTS: dict[str, Maker] = {
    "Linear": _linear, "Bilinear": _bilinear, "Embedding": _embedding, "EmbeddingBag": _embedding, "LayerNorm": _norm,
    "RMSNorm": _norm, "GroupNorm": _norm, "SyncBatchNorm": _norm, "LSTM": _recurrent, "GRU": _recurrent,
    "RNN": _recurrent,
    "LSTMCell": _cell, "GRUCell": _cell, "RNNCell": _cell, "MultiheadAttention": _attention,
    "TransformerEncoderLayer": _encoder_layer, "TransformerDecoderLayer": _encoder_layer, "TransformerEncoder": _stack,
    "TransformerDecoder": _stack, "Transformer": _transformer,
    "PReLU": lambda given, name: {"weight": weight(given.get("num_parameters", 1))},
}  # fmt: skip
_FAMILIES: tuple[tuple[str, Maker], ...] = (
    ("Conv", _conv), ("BatchNorm", _norm), ("InstanceNorm", _norm),
)  # fmt: skip
