"""Families of transformers, with the default sizes of their configs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """Default sizes. `gated`: three feed-forward matrices and no biases. `tied`: the head shares the embedding."""

    layers: int
    width: int
    heads: int
    vocabulary: int
    block: int
    inner: int
    gated: bool = False
    tied: bool = True
    kv_heads: int = 0
    """Heads of keys and values; 0 means one for each head."""


FAMILIES: dict[str, Family] = {
    "GPT2": Family(12, 768, 12, 50257, 1024, 0),
    "GPTNeo": Family(24, 2048, 16, 50257, 2048, 0),
    "GPTNeoX": Family(44, 6144, 64, 50432, 0, 24576, tied=False),
    "OPT": Family(12, 768, 12, 50272, 2048, 3072),
    "Bert": Family(12, 768, 12, 30522, 512, 3072),
    "Roberta": Family(12, 768, 12, 50265, 512, 3072),
    "XLMRoberta": Family(12, 768, 12, 30522, 512, 3072),
    "DistilBert": Family(6, 768, 12, 30522, 512, 3072),
    "ViT": Family(12, 768, 12, 0, 197, 3072),
    "Llama": Family(32, 4096, 32, 32000, 0, 11008, gated=True, tied=False),
    "Mistral": Family(32, 4096, 32, 32000, 0, 14336, gated=True, tied=False, kv_heads=8),
    "Qwen2": Family(32, 4096, 32, 151936, 0, 22016, gated=True, tied=False, kv_heads=32),
    "Gemma": Family(28, 3072, 16, 256000, 0, 24576, gated=True, kv_heads=16),
}
