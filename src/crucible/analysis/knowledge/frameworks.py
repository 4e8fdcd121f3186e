"""Frameworks by the packages that belong to them."""

from __future__ import annotations

from functools import lru_cache

FRAMEWORKS: dict[str, tuple[str, ...]] = {
    "torch": ("torch",), "torchvision": ("torch",), "torchaudio": ("torch",), "torchtext": ("torch",),
    "torchrl": ("torch",),
    "torch_geometric": ("torch",), "torchmetrics": ("torch",), "functorch": ("torch",), "torchtune": ("torch",),
    **dict.fromkeys(
        ("torchdata", "torcheval", "torchao", "torchinfo", "torchsummary", "torchdiffeq", "torchsde", "torch_xla",
         "torch_scatter", "torch_sparse", "torch_cluster", "torch_optimizer", "torch_ema", "torch_fidelity"),
        ("torch",),
    ),
    "timm": ("torch", "timm"), "fairscale": ("torch",), "apex": ("torch",), "bitsandbytes": ("torch",),
    "tensorflow": ("tensorflow",), "tensorflow_datasets": ("tensorflow",), "tensorflow_hub": ("tensorflow",),
    "tensorflow_addons": ("tensorflow",), "tensorflow_probability": ("tensorflow",), "tensorflow_text": ("tensorflow",),
    "tensorflow_decision_forests": ("tensorflow",), "tensorflow_similarity": ("tensorflow",),
    "tf_keras": ("tensorflow", "keras"),
    "keras": ("keras",), "keras_nlp": ("keras",), "keras_cv": ("keras",), "keras_hub": ("keras",),
    "keras_tuner": ("keras",),
    "kerastuner": ("keras",), "keras_core": ("keras",), "keras_rs": ("keras",),
    "jax": ("jax",), "jaxlib": ("jax",), "flax": ("jax", "flax"), "optax": ("jax",), "orbax": ("jax",),
    "numpyro": ("jax",),
    "haiku": ("jax", "haiku"), "equinox": ("jax", "equinox"),
    "transformers": ("transformers",), "diffusers": ("diffusers",), "accelerate": ("accelerate",), "peft": ("peft",),
    "trl": ("trl",), "sentence_transformers": ("sentence_transformers",), "lightning": ("torch", "lightning"),
    "pytorch_lightning": ("torch", "lightning"), "lightning_fabric": ("torch", "lightning"),
    "deepspeed": ("deepspeed",),
    "fastai": ("torch", "fastai"), "stable_baselines3": ("stable_baselines3",), "ultralytics": ("ultralytics",),
    "xgboost": ("xgboost",), "lightgbm": ("lightgbm",), "catboost": ("catboost",), "sklearn": ("sklearn",),
    "spacy": ("spacy",),
    "cuml": ("rapids",), "cudf": ("rapids",), "dask_cudf": ("rapids",), "cupy": ("cupy",), "mxnet": ("mxnet",),
    "paddle": ("paddle",), "horovod": ("horovod",), "ray": ("ray",), "onnxruntime": ("onnxruntime",), "vllm": ("vllm",),
}  # fmt: skip

ONLY_GPU = frozenset(
    {
        "cupy", "cuml", "cudf", "dask_cudf", "dask_cuda", "rmm", "apex", "bitsandbytes", "vllm", "triton", "pycuda",
        "flash_attn", "unsloth", "xformers", "tensorrt", "cugraph",
    }
)  # fmt: skip
"""Packages that do nothing without a GPU."""

PLAIN = frozenset(
    {
        "numpy", "pandas", "scipy", "polars", "pyarrow", "h5py", "matplotlib", "seaborn", "plotly", "PIL", "yaml",
        "tqdm", "rich", "tabulate", "requests", "psutil", "absl", "click", "typer", "fire", "tyro", "loguru", "gym",
        "gymnasium", "tensorboard", "wandb", "joblib", "networkx", "statsmodels", "sympy", "bs4", "pydantic", "dotenv",
        "boto3", "imageio", "skimage", "streamlit", "gradio", "datasets", "tokenizers", "tiktoken", "sentencepiece",
        "nltk", "jiwer", "sacrebleu", "rouge_score", "seqeval", "soundfile", "huggingface_hub", "omegaconf",
        "ml_collections",
    }
)  # fmt: skip
"""Packages that never use a GPU."""

GRADIENTS = frozenset(
    {"torch", "tensorflow", "keras", "jax", "transformers", "mxnet", "paddle", "diffusers", "deepspeed", "accelerate"}
)
"""Frameworks in which models learn by gradients, step by step."""

_FAMILIES = (("tensorflow_", "tensorflow"), ("keras", "keras"), ("torch", "torch"))
"""Prefixes of packages that belong to a framework, for those that are not listed."""


@lru_cache(maxsize=1024)
def frameworks_of_module(module: str) -> tuple[str, ...]:
    """Return the frameworks that an import of this module brings in."""
    top, _, rest = module.partition(".")
    found = FRAMEWORKS.get(top, ())
    if top == "tensorflow" and (rest == "keras" or rest.startswith(("keras.", "python.keras", "compat.v1.keras"))):
        return ("tensorflow", "keras")
    if top == "xgboost" and rest.startswith("sklearn"):
        return ("xgboost",)
    if top.startswith("torch_"):
        return found  # people name their own modules like this
    return found or tuple(name for start, name in _FAMILIES if top.startswith(start))
