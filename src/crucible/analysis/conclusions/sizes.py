"""Sizes of a transformer by the names that configs give them, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from crucible.analysis.knowledge.pretrained import GATED, UNTIED
from crucible.analysis.values import Value, whole

_NAMES = {
    "layers": ("n_layer", "num_layers", "num_hidden_layers", "n_layers", "depth", "layers", "num_blocks", "nlayers",
        "encoder_layers"),
    "width": ("n_embd", "hidden_size", "d_model", "embed_dim", "dim", "width", "n_embed", "emb_dim", "d_embed",
        "hidden_dim"),
    "heads": ("n_head", "num_heads", "num_attention_heads", "n_heads", "heads", "nhead"),
    "vocabulary": ("vocab_size", "n_vocab", "ntoken", "num_tokens", "vocabulary_size"),
    "block": ("block_size", "n_positions", "max_position_embeddings", "context_length", "seq_len", "max_seq_len",
        "n_ctx", "block", "max_len"),
    "shared": ("num_key_value_heads", "n_kv_heads", "n_kv_head"),
    "inner": ("intermediate_size", "dim_feedforward", "ffn_dim", "n_inner", "mlp_dim", "d_ff"),
}  # fmt: skip


@dataclass(frozen=True)
class Sizes:
    layers: int
    width: int
    heads: int = 0
    vocabulary: int = 0
    block: int = 0
    inner: int = 0
    shared: int = 0
    """Heads of keys and values, where several heads of queries share one."""
    gated: bool = False
    untied: bool = False
    """The head has weights of its own; else it shares those of the embedding."""

    @property
    def parameters(self) -> int:
        """Embeddings, blocks of attention and feed-forward, one norm at the end."""
        inner = self.inner or 4 * self.width
        words = self.vocabulary * (2 if self.untied else 1) + self.block
        block = self._matrices + 9 * self.width + inner
        return words * self.width + self.layers * block + 2 * self.width

    @property
    def _matrices(self) -> int:
        """Of one block."""
        inner = self.inner or 4 * self.width
        keys = self.width * self.shared // self.heads if self.shared and self.heads else self.width
        return 2 * self.width * (self.width + keys) + (3 if self.gated else 2) * self.width * inner

    def kept(self, tokens: float, item: float) -> float:
        """Bytes that the backward pass needs: inputs of every matrix and norm, the attention's, and the scores."""
        inner = (self.inner or 4 * self.width) * (2 if self.gated else 1)
        per_token = self.layers * (9 * self.width + 2 * inner + self.heads) + 2 * self.width
        return tokens * (per_token * item + self.vocabulary * 4)

    def flops(self, tokens: float, length: int) -> float:
        """Of a forward pass."""
        matrices = self.layers * self._matrices + self.vocabulary * self.width
        return 2 * tokens * matrices + 4 * tokens * length * self.width * self.layers


def sizes_in(given: Mapping[str, Value]) -> Sizes | None:
    """None unless it says at least how deep and how wide."""
    found: dict[str, int] = {}
    for field, names in _NAMES.items():
        for name in names:
            number = whole(given.get(name))
            if number is not None and number > 0:
                found[field] = number
                break
    if "layers" not in found or "width" not in found or found["layers"] > 1_000 or found["width"] > 200_000:
        return None
    if "heads" not in found and "vocabulary" not in found:
        return None
    family = given.get("family")
    tied = given.get("tie_word_embeddings")
    return Sizes(**found, gated=family in GATED, untied=tied is False or (tied is None and family in UNTIED))


def sizes_in_order(args: tuple[Value, ...]) -> Sizes | None:
    """`GPT(50257, 12, 12, 768)`: vocabulary, layers, heads, width."""
    numbers = [whole(each) for each in args[:4]]
    if len(numbers) < 4 or None in numbers:
        return None
    vocabulary, layers, heads, width = (each or 0 for each in numbers)
    fits = layers > 0 and heads > 0 and width % heads == 0 and width > layers
    return Sizes(layers, width, heads, vocabulary) if fits else None
