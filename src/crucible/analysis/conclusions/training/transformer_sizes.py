"""Sizes of a transformer by the names that configs give them, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from crucible.analysis.knowledge.families import FAMILIES, Family
from crucible.analysis.values.values import Value, whole

_NAMES = {
    "layers": ("n_layer", "num_layers", "num_hidden_layers", "n_layers", "depth", "layers", "num_blocks", "nlayers",
        "encoder_layers"),
    "width": ("n_embd", "hidden_size", "d_model", "embed_dim", "dim", "width", "n_embed", "emb_dim", "d_embed",
        "hidden_dim"),
    "heads": ("n_head", "num_heads", "num_attention_heads", "n_heads", "heads", "nhead"),
    "vocabulary": ("vocab_size", "n_vocab", "ntoken", "num_tokens", "vocabulary_size"),
    "block": ("block_size", "n_positions", "max_position_embeddings", "context_length", "seq_len", "max_seq_len",
        "n_ctx", "block", "max_len"),
    "inner": ("intermediate_size", "dim_feedforward", "ffn_dim", "n_inner", "mlp_dim", "d_ff"),
    "kv_heads": ("num_key_value_heads", "n_kv_heads"),
}  # fmt: skip


DEPTHS = _NAMES["layers"]
"""Without one of these nothing has a size."""


@dataclass(frozen=True)
class Sizes:
    layers: int
    width: int
    heads: int = 0
    vocabulary: int = 0
    block: int = 0
    inner: int = 0
    kv_heads: int = 0
    gated: bool = False
    tied: bool = True
    longest: int = 0
    """Tokens that it takes at the most, where that says nothing about how many it is given."""

    @property
    def parameters(self) -> int:
        """Embeddings, blocks of attention and feed-forward, one norm at the end, and the head if it is one of its own.

        What is gated has no biases, and norms of one weight.
        """
        small = 2 * self.width if self.gated else 9 * self.width + self._inner
        tables = self.vocabulary * (1 if self.tied else 2) + self.block
        return tables * self.width + self.layers * (self._matrices + small) + (1 if self.gated else 2) * self.width

    def kept(self, tokens: float, item: float, *, recomputed: bool = False) -> float:
        """Bytes that the backward pass needs: inputs of every matrix and norm, the attention's, and the scores.

        With blocks that are `recomputed`, what goes into each, and all of one.
        """
        block = 9 * self.width + (4 if self.gated else 2) * self._inner + self.heads
        per_token = self.layers * self.width + block if recomputed else self.layers * block
        return tokens * ((per_token + 2 * self.width) * item + self.vocabulary * 4)

    def flops(self, tokens: float, length: int) -> float:
        """Of a forward pass."""
        matrices = self.layers * self._matrices + self.vocabulary * self.width
        return 2 * tokens * matrices + 4 * tokens * length * self.width * self.layers

    @property
    def _inner(self) -> int:
        return self.inner or 4 * self.width

    @property
    def _matrices(self) -> int:
        """Weights of a block: queries and results, keys and values, and the feed-forward part."""
        shared = self.kv_heads / self.heads if self.kv_heads and self.heads else 1.0
        return round((2 + 2 * shared) * self.width**2) + (3 if self.gated else 2) * self.width * self._inner


def sizes_in(given: Mapping[str, Value]) -> Sizes | None:
    """None unless it says at least how deep and how wide, or is the config of a family that has a size of its own."""
    family = _family(given)
    found = {} if family is None else {name: getattr(family, name) for name in _NAMES}
    for field, names in _NAMES.items():
        for name in names:
            number = whole(given.get(name))
            if number is not None and number > 0:
                found[field] = number
                break
            if given.get(name) is not None:
                found.pop(field, None)  # it is said, and what it says is not known
    if "layers" not in found or "width" not in found or found["layers"] > 1_000 or found["width"] > 200_000:
        return None
    if "heads" not in found and "vocabulary" not in found:
        return None
    tied = given.get("tie_word_embeddings")
    shared = tied if isinstance(tied, bool) else family is None or family.tied
    return Sizes(**found, gated=family is not None and family.gated, tied=shared)


def _family(given: Mapping[str, Value]) -> Family | None:
    name = given.get("family")
    return FAMILIES.get(name) if isinstance(name, str) else None


def sizes_in_order(args: tuple[Value, ...]) -> Sizes | None:
    """`GPT(50257, 12, 12, 768)`: vocabulary, layers, heads, width."""
    numbers = [whole(each) for each in args[:4]]
    if len(numbers) < 4 or None in numbers:
        return None
    vocabulary, layers, heads, width = (each or 0 for each in numbers)
    fits = layers > 0 and heads > 0 and width % heads == 0 and width > layers
    return Sizes(layers, width, heads, vocabulary) if fits else None
