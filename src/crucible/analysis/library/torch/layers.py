"""Layers of torch: their weights from their arguments, and the results of calling them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Reversible
from functools import lru_cache

from crucible.analysis.interpreter.iteration import items_of
from crucible.analysis.interpreter.machine import Machine
from crucible.analysis.library.call import Asked
from crucible.analysis.library.torch import attention as torch_attention
from crucible.analysis.library.torch import forward_pass as torch_forward
from crucible.analysis.library.torch.weights import SIGNATURES, build, read
from crucible.analysis.values.tensors import lost, weight
from crucible.analysis.values.values import UNKNOWN, Either, Instance, Tensor, Thing, Value, is_network, settled


def _layer(asked: Asked) -> Value:
    thing = asked.thing()
    build(thing)
    return thing


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
    """Add to a module that holds others: `append`, `extend`, `add_module`, `register_parameter`."""
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
    """Return whether the value is a module of torch."""
    return isinstance(value, Thing) and value.path in MODULES


_IN_TURN = frozenset({"torch.nn.Sequential", "torch.nn.parallel.DistributedDataParallel", "torch.nn.DataParallel"})
"""Modules that pass their inputs to the first of their children, and each result to the next."""


def forward(machine: Machine, thing: Thing, args: tuple[Value, ...], kwargs: dict[str, Value]) -> Value:
    """Return the output of a layer for these inputs."""
    if thing.path in _IN_TURN:
        value: Value = args[0] if args else UNKNOWN
        for place, each in enumerate(thing.children):
            value = machine.call(
                each,
                (value,) if place or thing.path.endswith("Sequential") else args,
                kwargs,
                machine.nowhere(),
            )
        return value
    inputs = list(args or kwargs.values())
    if Either in map(type, inputs):
        inputs = [settled(each) for each in inputs]
    if not inputs or not isinstance(inputs[0], Tensor):
        return lost(machine, *inputs)
    given = read(thing)
    if kwargs:
        given.update(kwargs)
    return _act(thing.path)(machine, thing, given, inputs)


@lru_cache(maxsize=1024)
def _act(path: str) -> torch_forward.Act:
    name = path.rpartition(".")[2]
    return torch_attention.ACTS.get(name) or torch_forward.act_of(name)


def _wrapped(asked: Asked) -> Value:
    """Return the model inside a DataParallel, DDP or FSDP wrapper, one level down."""
    inner = asked.get(0, "module")
    thing = Thing("torch.nn.DataParallel", asked.args, asked.kwargs, asked.machine.line, {"module": inner}, [inner])
    return thing


def named_parameters(value: Value) -> list[tuple[str, Tensor]]:
    """Return every weight in or below the value, once each, with a name like torch's."""
    found: list[tuple[str, Tensor]] = []
    seen: set[int] = set()
    waiting: list[tuple[str, Value, int]] = [("", settled(value), 0)]
    while waiting:
        name, each, depth = waiting.pop()
        if depth > DEEPEST or id(each) in seen:
            continue
        if isinstance(each, Tensor):
            if each.store is not None and each.store.weight and id(each.store) not in seen:
                seen.add(id(each.store))
                found.append((name, each))
            continue
        seen.add(id(each))
        for key, inner in zip(_names_below(each), _values_below(each), strict=True):
            if type(inner) in _HOLDERS:
                waiting.append((f"{name}.{key}" if name else str(key), settled(inner), depth + 1))
    return found


_HOLDERS = frozenset({Tensor, Instance, Thing, Either, list, tuple, dict})
"""Types of values that may contain weights."""


DEEPEST = 60
"""Levels below a model to search for weights."""

MOST = 2_000
"""Items of a list to search for weights."""


def _names_below(value: Value) -> Iterable[Value]:
    """Return the names or indices of the values directly below."""
    kind = type(value)
    if kind is Thing and (value.path in MODULES or value.children):
        return (*value.attrs, *range(len(value.children)))
    if kind is Instance:
        return value.attrs  # type: ignore[no-any-return]
    if kind is list or kind is tuple:
        return range(min(len(value), MOST))
    return value if kind is dict else ()


def _values_below(value: Value) -> Reversible[Value]:
    """Return the values directly below, in the order of their names."""
    kind = type(value)
    if kind is Thing:
        if value.children:
            return (*value.attrs.values(), *value.children)
        return value.attrs.values() if value.path in MODULES else ()
    if kind is Instance:
        return value.attrs.values()  # type: ignore[no-any-return]
    if kind is list or kind is tuple:
        return value[:MOST]  # type: ignore[no-any-return]
    return value.values() if kind is dict else ()


def parameters_of(value: Value) -> list[Tensor]:
    """Return every weight in or below the value, once each, without the names, which take longer."""
    found: dict[int, Tensor] = {}
    _gather((value,), found, set(), 0)
    return list(found.values())


def _gather(values: Reversible[Value], found: dict[int, Tensor], seen: set[int], depth: int) -> None:
    """Add the weights in and below the values to `found`, by their memory."""
    for each in reversed(values):
        kind = type(each)
        if kind is Tensor:
            store = each.store
            if store is not None and store.weight:
                found.setdefault(id(store), each)
        elif kind is Either:
            _gather((settled(each),), found, seen, depth)
        elif kind in _HOLDERS and depth < DEEPEST and id(each) not in seen:
            seen.add(id(each))
            _gather(_values_below(each), found, seen, depth + 1)


MODULES = frozenset(
    f"torch.nn.{name}"
    for name in (*SIGNATURES, *_PLAIN, "Sequential", "ModuleList", "ModuleDict", "ParameterList", "DataParallel")
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
    **{f"torch.nn.{name}": _layer for name in (*SIGNATURES, *_PLAIN)},
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
