"""Layers of torch: their weights from their arguments, and what a call of one gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from crucible.analysis.definitions import is_network
from crucible.analysis.iteration import items_of
from crucible.analysis.library import torch_forward
from crucible.analysis.library.asked import Asked
from crucible.analysis.library.standard import copied
from crucible.analysis.tensors import lost, weight
from crucible.analysis.values import UNKNOWN, Instance, Tensor, Thing, Value, settled, whole

if TYPE_CHECKING:
    from crucible.analysis.machine import Machine
    from crucible.analysis.scope import Scope

_SIGNATURES = {
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
_FUSED = {"LSTM": 4, "GRU": 3, "RNN": 1}


def read(thing: Thing) -> dict[str, Value]:
    """The arguments of a layer by name."""
    names = _SIGNATURES.get(thing.path.rpartition(".")[2], "").split()
    return {**dict(zip(names, thing.args, strict=False)), **thing.kwargs}


def sizes(value: Value, count: int) -> tuple[Value, ...]:
    """A kernel size or its like for each dimension."""
    value = settled(value)
    if isinstance(value, list | tuple):
        return tuple(value)
    return (value,) * count


def _layer(asked: Asked) -> Value:
    thing = asked.thing()
    build(thing)
    return thing


def build(thing: Thing) -> None:
    """Gives the layer its weights; a dimension that is not known stays unknown."""
    name = thing.path.rpartition(".")[2]
    given = {key: settled(each) for key, each in read(thing).items()}
    maker = _WEIGHTS.get(name)
    if maker is None:
        for start, act in _FAMILIES:
            if name.startswith(start):
                maker = act
    if maker is not None:
        for key, each in maker(given, name).items():
            if isinstance(each, Tensor):
                thing.attrs[key] = each
            else:
                thing.children.append(each)
    thing.attrs.setdefault("in_features", given.get("in_features", UNKNOWN))
    thing.attrs.setdefault("out_features", given.get("out_features", UNKNOWN))


Given = dict[str, Value]
Made = dict[str, Value]


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


_WEIGHTS: dict[str, Callable[[Given, str], Made]] = {
    "Linear": _linear, "Bilinear": _bilinear, "Embedding": _embedding, "EmbeddingBag": _embedding, "LayerNorm": _norm,
    "RMSNorm": _norm, "GroupNorm": _norm, "SyncBatchNorm": _norm, "LSTM": _recurrent, "GRU": _recurrent,
    "RNN": _recurrent,
    "LSTMCell": _cell, "GRUCell": _cell, "RNNCell": _cell, "MultiheadAttention": _attention,
    "TransformerEncoderLayer": _encoder_layer, "TransformerDecoderLayer": _encoder_layer, "TransformerEncoder": _stack,
    "TransformerDecoder": _stack, "Transformer": _transformer,
    "PReLU": lambda given, name: {"weight": weight(given.get("num_parameters", 1))},
}  # fmt: skip
_FAMILIES: tuple[tuple[str, Callable[[Given, str], Made]], ...] = (
    ("Conv", _conv), ("BatchNorm", _norm), ("InstanceNorm", _norm),
)  # fmt: skip
_PLAIN = [
    "Identity",
    "GELU",
    "Tanh",
    "Sigmoid",
    "Softplus",
    "Mish",
    "GLU",
    "Hardsigmoid",
    "Hardtanh",
    "Softsign",
    "LogSigmoid",
    "Dropout1d",
    "Dropout2d",
    "Dropout3d",
    "AlphaDropout",
    "MSELoss",
    "L1Loss",
    "NLLLoss",
    "BCELoss",
    "BCEWithLogitsLoss",
    "SmoothL1Loss",
    "HuberLoss",
    "KLDivLoss",
    "CosineEmbeddingLoss",
    "TripletMarginLoss",
    "CTCLoss",
    "MarginRankingLoss",
    "CosineSimilarity",
    "PairwiseDistance",
    "Unfold",
    "Fold",
    "ReplicationPad2d",
    "ConstantPad2d",
    "UpsamplingBilinear2d",
    "LocalResponseNorm",
    "ChannelShuffle",
    "PixelUnshuffle",
    "Softmax2d",
    "LazyLinear",
    "LazyConv2d",
    "GaussianNLLLoss",
    "PoissonNLLLoss",
    "SELU",
    "CELU",
    "Threshold",
    "NLLLoss2d",
    "SoftMarginLoss",
    "MultiLabelSoftMarginLoss",
]


def _sequential(asked: Asked) -> Value:
    thing = asked.thing()
    first = settled(asked.args[0]) if asked.args else None
    if len(asked.args) == 1 and isinstance(first, dict):
        thing.children = list(first.values())
    elif len(asked.args) == 1 and isinstance(first, Thing) and first.path == "collections.OrderedDict":
        pairs = items_of(first.argument(0, "items")) or []
        thing.children = [pair[1] for pair in pairs if isinstance(pair, tuple) and len(pair) == 2]
    else:
        thing.children = list(asked.args)
    return thing


def _module_list(asked: Asked) -> Value:
    thing = asked.thing()
    source = asked.args[0] if asked.args else []
    if isinstance(source, dict):
        thing.children, thing.attrs = list(source.values()), dict(source)
    else:
        items = items_of(source)
        thing.children = items if items is not None else []
        if items is None:
            thing.attrs["incomplete"] = True
            thing.attrs["like"] = source.attrs.get("like", UNKNOWN) if isinstance(source, Thing) else UNKNOWN
    return thing


def _parameter(asked: Asked) -> Value:
    source = settled(asked.get(0, "data"))
    if isinstance(source, Tensor) and source.shape is not None:
        made = weight(*source.shape)
        made.grad = asked.get(1, "requires_grad", True) is not False
        return made
    return weight(UNKNOWN)


def _grow(asked: Asked) -> Value:
    """`append`, `extend`, `add_module`, `register_parameter` of a module that holds others."""
    owner = asked.owner
    if isinstance(owner, Thing):
        if asked.name == "extend":
            owner.children += items_of(asked.args[0]) or [] if asked.args else []
        elif asked.args:
            owner.children.append(asked.args[-1])
            if len(asked.args) == 2 and isinstance(asked.args[0], str):
                owner.attrs[asked.args[0]] = asked.args[1]
    elif isinstance(owner, Instance) and len(asked.args) == 2 and isinstance(asked.args[0], str):
        owner.attrs[asked.args[0]] = asked.args[1]
    return owner


def _buffer(asked: Asked) -> Value:
    if isinstance(asked.owner, Instance) and isinstance(asked.get(0, "name"), str):
        asked.owner.attrs[asked.get(0, "name")] = asked.get(1, "tensor")
    return None


def _requires_grad(asked: Asked) -> Value:
    learns = asked.get(0, "requires_grad", True) is not False
    for each in parameters_of(asked.owner):
        each.grad = learns
    return asked.owner


def _parameters(asked: Asked) -> Value:
    return list(parameters_of(asked.owner))


def _named_parameters(asked: Asked) -> Value:
    return [(name, each) for name, each in named_parameters(asked.owner)]


def _children(asked: Asked) -> Value:
    owner = asked.owner
    if isinstance(owner, Thing):
        return list(owner.children)
    if isinstance(owner, Instance):
        return [each for each in owner.attrs.values() if is_module(each) or is_network(each)]
    return UNKNOWN


def _itself(asked: Asked) -> Value:
    return asked.owner


def is_module(value: Value) -> bool:
    return isinstance(value, Thing) and value.path in MODULES


def forward(machine: Machine, thing: Thing, args: tuple[Value, ...], kwargs: dict[str, Value]) -> Value:
    """What a layer gives for these inputs."""
    if thing.path in ("torch.nn.Sequential", "torch.nn.parallel.DistributedDataParallel", "torch.nn.DataParallel"):
        from crucible.analysis.calling import call

        value: Value = args[0] if args else UNKNOWN
        for place, each in enumerate(thing.children):
            value = call(
                machine,
                each,
                (value,) if place or thing.path.endswith("Sequential") else args,
                kwargs,
                nowhere(machine),
            )
        return value
    inputs = [settled(each) for each in args] or [settled(each) for each in kwargs.values()]
    if not inputs or not isinstance(inputs[0], Tensor):
        return lost(machine, *inputs)
    return torch_forward.layer(machine, thing, read(thing), inputs, kwargs)


def _wrapped(asked: Asked) -> Value:
    """DataParallel, DDP, FSDP: the model itself, a level down."""
    inner = asked.get(0, "module")
    thing = Thing("torch.nn.DataParallel", asked.args, asked.kwargs, asked.machine.line, {"module": inner}, [inner])
    return thing


def nowhere(machine: Machine) -> Scope:
    from crucible.analysis.scope import Scope

    return Scope(machine.line[0])


def named_parameters(value: Value) -> list[tuple[str, Tensor]]:
    """Every weight below, once each, with a name like torch's."""
    found: list[tuple[str, Tensor]] = []
    seen: set[int] = set()
    waiting: list[tuple[str, Value, int]] = [("", settled(value), 0)]
    while waiting:
        name, each, depth = waiting.pop()
        if depth > 60 or id(each) in seen:
            continue
        if isinstance(each, Tensor):
            if each.store is not None and each.store.weight and id(each.store) not in seen:
                seen.add(id(each.store))
                found.append((name, each))
            continue
        seen.add(id(each))
        for key, inner in _below(each):
            waiting.append((f"{name}.{key}" if name else key, settled(inner), depth + 1))
    return found


def _below(value: Value) -> list[tuple[str, Value]]:
    if isinstance(value, Instance):
        return list(value.attrs.items())
    if isinstance(value, Thing) and (value.path in MODULES or value.children):
        return [*value.attrs.items(), *((str(place), each) for place, each in enumerate(value.children))]
    if isinstance(value, list | tuple):
        return [(str(place), each) for place, each in enumerate(value[:2_000])]
    if isinstance(value, dict):
        return [(str(key), each) for key, each in value.items()]
    return []


def parameters_of(value: Value) -> list[Tensor]:
    return [each for _, each in named_parameters(value)]


MODULES = frozenset(
    f"torch.nn.{name}"
    for name in (*_SIGNATURES, *_PLAIN, "Sequential", "ModuleList", "ModuleDict", "ParameterList", "DataParallel")
)
MODULE_METHODS: dict[str, Callable[[Asked], Value]] = {
    "parameters": _parameters, "named_parameters": _named_parameters, "children": _children, "modules": _children,
    "append": _grow, "extend": _grow, "add_module": _grow, "register_module": _grow, "register_parameter": _grow,
    "register_buffer": _buffer, "requires_grad_": _requires_grad,
    "items": lambda asked: list(asked.owner.attrs.items()),
    "values": lambda asked: list(asked.owner.children), "keys": lambda asked: list(asked.owner.attrs),
    **dict.fromkeys(("to", "cuda", "cpu", "train", "eval", "half", "float", "double", "bfloat16", "apply", "compile"),
        _itself),
}  # fmt: skip
HANDLERS: dict[str, Callable[[Asked], Value]] = {
    **{f"torch.nn.{name}": _layer for name in (*_SIGNATURES, *_PLAIN)},
    "torch.nn.Sequential": _sequential, "torch.nn.ModuleList": _module_list, "torch.nn.ModuleDict": _module_list,
    "torch.nn.ParameterList": _module_list, "torch.nn.Parameter": _parameter,
    "torch.nn.parameter.Parameter": _parameter,
    "torch.nn.DataParallel": _wrapped, "torch.nn.parallel.DistributedDataParallel": _wrapped,
    "torch.distributed.fsdp.FullyShardedDataParallel": _wrapped, "torch.nn.parallel.DataParallel": _wrapped,
    "torch.compile": lambda asked: asked.get(0, "model"), "torch.jit.script": lambda asked: asked.get(0, "obj"),
    "torch.nn.utils.weight_norm": lambda asked: asked.get(0, "module"),
    "torch.nn.utils.spectral_norm": lambda asked: asked.get(0, "module"),
    "torch.nn.utils.parametrizations.weight_norm": lambda asked: asked.get(0, "module"),
    "torch.nn.SyncBatchNorm.convert_sync_batchnorm": lambda asked: asked.get(0, "module"),
    **{f"{base}.{name}": act for base in ("torch.nn.Module", "lightning.LightningModule") for name,
        act in MODULE_METHODS.items()},
    "torch.nn.Module.__init__": lambda asked: None, "lightning.LightningModule.__init__": lambda asked: None,
}  # fmt: skip
