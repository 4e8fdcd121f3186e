"""Frameworks by the packages that belong to them."""

from __future__ import annotations

FRAMEWORKS: dict[str, tuple[str, ...]] = {
    "torch": ("torch",), "torchvision": ("torch",), "torchaudio": ("torch",), "torchtext": ("torch",),
    "torchrl": ("torch",),
    "torch_geometric": ("torch",), "torchmetrics": ("torch",), "functorch": ("torch",), "torchtune": ("torch",),
    "timm": ("torch", "timm"),
    "tensorflow": ("tensorflow",), "tensorflow_datasets": ("tensorflow",), "tensorflow_hub": ("tensorflow",),
    "tensorflow_addons": ("tensorflow",),
    "tensorflow_probability": ("tensorflow",), "tensorflow_text": ("tensorflow",),
    "tensorflow_decision_forests": ("tensorflow",),
    "keras": ("keras",), "keras_nlp": ("keras",), "keras_cv": ("keras",), "keras_hub": ("keras",),
    "keras_tuner": ("keras",), "kerastuner": ("keras",),
    "keras_core": ("keras",), "keras_rs": ("keras",), "tf_keras": ("tensorflow", "keras"),
    "jax": ("jax",), "flax": ("jax", "flax"), "optax": ("jax",), "haiku": ("jax", "haiku"),
    "equinox": ("jax", "equinox"), "orbax": ("jax",), "numpyro": ("jax",), "jaxlib": ("jax",),
    "transformers": ("transformers",), "diffusers": ("diffusers",), "accelerate": ("accelerate",), "peft": ("peft",),
    "trl": ("trl",),
    "sentence_transformers": ("sentence_transformers",), "lightning": ("torch", "lightning"),
    "pytorch_lightning": ("torch", "lightning"),
    "lightning_fabric": ("torch", "lightning"), "deepspeed": ("deepspeed",), "fairscale": ("torch",),
    "apex": ("torch",), "bitsandbytes": ("torch",),
    "xgboost": ("xgboost",), "lightgbm": ("lightgbm",), "catboost": ("catboost",), "sklearn": ("sklearn",),
    "cuml": ("rapids",), "cudf": ("rapids",),
    "fastai": ("torch", "fastai"), "mxnet": ("mxnet",), "paddle": ("paddle",), "spacy": ("spacy",),
    "horovod": ("horovod",), "ray": ("ray",),
    "onnxruntime": ("onnxruntime",), "cupy": ("cupy",), "stable_baselines3": ("torch", "stable_baselines3"),
    "vllm": ("torch", "vllm"), "theano": ("theano",),
    "mlx": ("mlx",), "tinygrad": ("tinygrad",), "statsmodels": ("statsmodels",), "gluonts": ("gluonts",),
    "composer": ("torch", "composer"),
    "ultralytics": ("torch", "ultralytics"), "unsloth": ("torch", "unsloth"), "triton": ("triton",),
}  # fmt: skip

PLACES_ITSELF = frozenset({"tensorflow", "keras", "jax", "flax", "haiku", "equinox"})
"""They take a GPU that is there without being told."""

TRAINERS = frozenset(
    {
        "transformers",
        "accelerate",
        "lightning",
        "fastai",
        "stable_baselines3",
        "sentence_transformers",
        "trl",
        "diffusers",
        "ultralytics",
        "composer",
    }
)
"""Their loops or pipelines move the model to a GPU where there is one."""

ONLY_GPU = frozenset(
    {
        "cupy",
        "cuml",
        "cudf",
        "apex",
        "bitsandbytes",
        "vllm",
        "triton",
        "pycuda",
        "flash_attn",
        "unsloth",
        "xformers",
        "tensorrt",
        "cugraph",
    }
)
"""Packages that do nothing without a GPU."""


def of_module(module: str) -> tuple[str, ...]:
    """The frameworks that an import of this module brings."""
    top, _, rest = module.partition(".")
    found = FRAMEWORKS.get(top, ())
    if top == "tensorflow" and (rest == "keras" or rest.startswith(("keras.", "python.keras", "compat.v1.keras"))):
        return ("tensorflow", "keras")
    if top == "xgboost" and rest.startswith("sklearn"):
        return ("xgboost",)
    return found
