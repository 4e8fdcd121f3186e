"""Baselines: regular expressions over the text, and the most frequent answer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

_IMPORT = re.compile(r"^\s*(?:import|from)\s+([A-Za-z_]\w*)", re.MULTILINE)
_KNOWN = frozenset(
    {
        "torch", "tensorflow", "keras", "jax", "flax", "transformers", "diffusers", "accelerate", "peft", "trl",
        "lightning",
        "deepspeed", "xgboost", "lightgbm", "catboost", "sklearn", "timm", "sentence_transformers", "fastai",
        "horovod", "ray",
        "onnxruntime", "haiku", "equinox", "stable_baselines3", "spacy",
    }
)  # fmt: skip
_DEEP = _KNOWN - {"xgboost", "lightgbm", "catboost", "sklearn", "ray", "onnxruntime", "spacy"}


def frameworks(text: str) -> frozenset[str]:
    return frozenset(_IMPORT.findall(text)) & _KNOWN


def gpu(text: str) -> str:
    if "cuda" in text:
        return "required"
    return "optional" if frameworks(text) & _DEEP else "none"


def majority(answers: Iterable[str]) -> str:
    return Counter(answers).most_common(1)[0][0]
