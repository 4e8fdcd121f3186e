"""Models by name: torchvision, timm, Keras applications, `from_pretrained`, and configs of transformers."""

from __future__ import annotations

from collections.abc import Callable

from crucible.analysis.knowledge.architectures import CLASSES, Architecture, architecture
from crucible.analysis.library.call import Asked
from crucible.analysis.values.values import Instance, Member, Thing, Value, settled, whole

MODEL = "model"
"""The path of an object that is a known model; its attribute `name` says which one."""

_NOT_MODELS = ("Tokenizer", "Processor", "FeatureExtractor", "Config", "ImageProcessor", "Scheduler")


def _named(asked: Asked, name: Value, **more: Value) -> Thing:
    return Thing(
        MODEL, asked.args, asked.kwargs, asked.machine.line, {"name": settled(name), "path": asked.path, **more}
    )


def named(asked: Asked) -> Value:
    """Return the model of `torchvision.models.resnet50(...)` and its like: the function's name is the model's."""
    if asked.name == "get_model":
        return _named(asked, asked.get(0, "name"))
    if (
        asked.name.endswith("_Weights")
        or asked.name in ("preprocess_input", "decode_predictions", "get_weight")
        or "_Weights." in asked.path
    ):
        return asked.thing()
    if architecture(asked.name) is None and not asked.name[:1].isalpha():
        return asked.thing()
    return _named(asked, asked.name, weights=asked.get(0, "weights", asked.kwargs.get("pretrained")))


def _by_argument(place: int, name: str) -> Callable[[Asked], Value]:
    return lambda asked: _named(asked, asked.get(place, name))


def transformers_call(asked: Asked) -> Value:
    """Return the model that is made from a name or a config; other objects of the library are only noted."""
    if asked.name == "from_pretrained":
        owner = asked.path.split(".")[-2]
        name = asked.get(0, "pretrained_model_name_or_path")
        if owner.endswith("Config"):
            return Thing("config", asked.args, asked.kwargs, asked.machine.line, {"name": settled(name)})
        if not any(word in owner for word in _NOT_MODELS):
            return _named(asked, name, dtype=asked.kwargs.get("torch_dtype", asked.kwargs.get("dtype")))
        return asked.thing()
    if asked.name == "from_config":
        return _from_config(asked, asked.get(0, "config"))
    if asked.name.endswith("Config") and asked.name not in ("BitsAndBytesConfig", "GenerationConfig"):
        return Thing(
            "config",
            asked.args,
            asked.kwargs,
            asked.machine.line,
            {**asked.kwargs, "family": asked.name.removesuffix("Config")},
        )
    first = settled(asked.args[0]) if asked.args else asked.kwargs.get("config")
    if isinstance(first, Thing) and first.path == "config":
        return _from_config(asked, first)
    if asked.name == "pipeline":
        return _named(asked, asked.get(1, "model"))
    return asked.thing()


def _from_config(asked: Asked, config: Value) -> Value:
    config = settled(config)
    attrs = config.attrs if isinstance(config, Thing | Instance) else {}
    return _named(asked, attrs.get("name"), config=dict(attrs))


def diffusers_call(asked: Asked) -> Value:
    """Return a pipeline or a part of one; Flax pipelines come with their weights beside them."""
    owner = asked.path.split(".")[-2]
    if asked.name != "from_pretrained" or any(word in owner for word in _NOT_MODELS):
        return asked.thing()
    model = _named(asked, asked.get(0, "pretrained_model_name_or_path"))
    return (model, asked.thing()) if owner.startswith("Flax") else model


def _requires_grad(asked: Asked) -> Value:
    if isinstance(asked.owner, Thing):
        asked.owner.attrs["frozen"] = asked.get(0, "requires_grad", True) is False
    return asked.owner


def _peft(asked: Asked) -> Value:
    """Return the model with adapters: only they learn."""
    return _adapted(settled(asked.get(0, "model")), settled(asked.get(1, "peft_config")))


def _adapted(model: Value, config: Value) -> Value:
    if isinstance(model, Thing) and model.path == MODEL:
        rank = config.argument(-1, "r", 8) if isinstance(config, Thing) else 8
        targets = config.argument(-1, "target_modules") if isinstance(config, Thing) else None
        model.attrs["lora"] = settled(rank)
        model.attrs["lora_targets"] = settled(targets)
    return model


def _low_rank(asked: Asked) -> Value:
    """Give a Keras model adapters."""
    model = asked.owner.owner if isinstance(asked.owner, Member) else asked.owner
    if isinstance(model, Thing):
        model.attrs["lora"] = settled(asked.get(0, "rank"))
    return None


def trl_call(asked: Asked) -> Value:
    """Load the model that a Trainer is given by name; with settings of peft it gets adapters."""
    config = settled(asked.get(-1, "peft_config"))
    adapts = isinstance(config, Thing) and config.path.startswith("peft.")
    if asked.name == "from_pretrained":
        model = transformers_call(asked)
        return _adapted(model, config) if adapts else model
    if asked.name.endswith("Trainer"):
        model = settled(asked.get(0, "model"))
        if isinstance(model, str):
            loaded, model = (model,), _named(asked, model)
            asked.machine.note_call("transformers.AutoModel.from_pretrained", loaded, {}, None, model)
        if adapts:
            _adapted(model, config)
    return asked.thing()


HEADS = ("fc", "classifier", "head", "heads")
"""Attributes that hold the classifier of an image model in various libraries."""
LAST = "last layer"
"""The attribute of a known model that holds the replacement of the last layer of its classifier."""


def shape_of(model: Thing) -> Architecture | None:
    """Return the known architecture, in the version of the library that makes it, or None."""
    name = model.attrs.get("name")
    library = str(model.attrs.get("path", "")).partition(".")[0]
    return architecture(name, library) if isinstance(name, str) else None


def head_features(value: Value) -> int | None:
    """Return the inputs of a known model's last layer, for a layer in `model.fc.in_features`; None if unknown."""
    while isinstance(value, Member):
        if value.name in HEADS and isinstance(value.owner, Thing) and value.owner.path == MODEL:
            shape = shape_of(value.owner)
            return shape.features or None if shape is not None else None
        value = value.owner
    return None


def classes_of(model: Thing) -> int | None:
    """Return the classes of the model's own last layer, 0 if another layer replaced it, None without a classifier."""
    if settled(model.kwargs.get("include_top")) is False or any(_is_layer(model.attrs.get(name)) for name in HEADS):
        return None
    if _is_layer(model.attrs.get(LAST)):
        return 0
    given = whole(model.kwargs.get("num_classes", model.kwargs.get("classes")))
    return CLASSES if given is None else given


def _is_layer(value: Value) -> bool:
    return isinstance(settled(value), Thing | Instance)


HANDLERS: dict[str, Callable[[Asked], Value]] = {
    "timm.create_model": _by_argument(0, "model_name"),
    "timm.models.create_model": _by_argument(0, "model_name"),
    "torch.hub.load": _by_argument(1, "model"),
    "sentence_transformers.SentenceTransformer": _by_argument(0, "model_name_or_path"),
    "sentence_transformers.CrossEncoder": _by_argument(0, "model_name"),
    "torchvision.models.detection.fasterrcnn_resnet50_fpn": named,
    "vllm.LLM": _by_argument(0, "model"),
    "peft.get_peft_model": _peft,
    f"{MODEL}.enable_lora": _low_rank,
    f"{MODEL}.backbone.enable_lora": _low_rank,
    "peft.prepare_model_for_kbit_training": lambda asked: asked.get(0, "model"),
    "unsloth.FastLanguageModel.from_pretrained": lambda asked: (
        _named(asked, asked.get(0, "model_name")),
        asked.thing(),
    ),
    "unsloth.FastLanguageModel.get_peft_model": _peft,
    f"{MODEL}.requires_grad_": _requires_grad,
    f"{MODEL}.add_adapter": lambda asked: _adapted(asked.owner, settled(asked.get(0, "adapter_config"))),
    **{
        f"{package}.models.{name}.from_preset": _by_argument(0, "preset")
        for package in ("keras_nlp", "keras_hub")
        for name in (
            "BertClassifier",
            "GPT2CausalLM",
            "GemmaCausalLM",
            "BertBackbone",
            "RobertaClassifier",
            "CausalLM",
            "DistilBertClassifier",
        )
    },
}
