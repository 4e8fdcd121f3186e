"""Sizes of a transformer, by the names they have in configs, and the parameters and work that follow from them."""

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
"""Names for the depth; without one of them a model has no known size."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of a transformer; 0 means unknown or not present. `gated`: no biases, and norms with one weight vector."""

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
    """Most tokens that it accepts; says nothing about how many it gets."""

    @property
    def parameters(self) -> int:
        """Parameters of embeddings, attention, feed-forward parts, the last norm, and the head if it is separate.

        Gated models have no biases, and norms with one weight vector.
        """
        small = 2 * self.width if self.gated else 9 * self.width + self._inner
        tables = self.vocabulary * (1 if self.tied else 2) + self.block
        return tables * self.width + self.layers * (self._matrices + small) + (1 if self.gated else 2) * self.width

    def kept(self, tokens: float, item: float, *, recomputed: bool = False) -> float:
        """Return the bytes that the backward pass needs: inputs of all matrices and norms, attention, and the scores.

        With `recomputed` blocks only the inputs of blocks are kept, and all of one block.
        """
        block = 9 * self.width + (4 if self.gated else 2) * self._inner + self.heads
        per_token = self.layers * self.width + block if recomputed else self.layers * block
        return tokens * ((per_token + 2 * self.width) * item + self.vocabulary * 4)

    def flops(self, tokens: float, length: int) -> float:
        """Return the FLOPs of a forward pass."""
        matrices = self.layers * self._matrices + self.vocabulary * self.width
        return 2 * tokens * matrices + 4 * tokens * length * self.width * self.layers

    @property
    def _inner(self) -> int:
        return self.inner or 4 * self.width

    @property
    def _matrices(self) -> int:
        """Weights of a block: query and output, key and value, and feed-forward matrices."""
        shared = self.kv_heads / self.heads if self.kv_heads and self.heads else 1.0
        return round((2 + 2 * shared) * self.width**2) + (3 if self.gated else 2) * self.width * self._inner


def sizes_in(config: Mapping[str, Value]) -> Sizes | None:
    """Return the sizes in a config, or None unless it has depth and width or belongs to a family with defaults."""
    family = _family(config)
    found = {} if family is None else {name: getattr(family, name) for name in _NAMES}
    for field, names in _NAMES.items():
        for name in names:
            number = whole(config.get(name))
            if number is not None and number > 0:
                found[field] = number
                break
            if config.get(name) is not None:
                found.pop(field, None)  # set to an unknown value, so the family's default does not apply
    if "layers" not in found or "width" not in found or found["layers"] > 1_000 or found["width"] > 200_000:
        return None
    if "heads" not in found and "vocabulary" not in found:
        return None
    tied = config.get("tie_word_embeddings")
    shared = tied if isinstance(tied, bool) else family is None or family.tied
    return Sizes(**found, gated=family is not None and family.gated, tied=shared)


def _family(config: Mapping[str, Value]) -> Family | None:
    """Return the family that the config belongs to, or None."""
    name = config.get("family")
    return FAMILIES.get(name) if isinstance(name, str) else None


def sizes_in_order(args: tuple[Value, ...]) -> Sizes | None:
    """Return the sizes from positional arguments like `GPT(50257, 12, 12, 768)`: vocabulary, layers, heads, width."""
    numbers = [whole(each) for each in args[:4]]
    if len(numbers) < 4 or None in numbers:
        return None
    vocabulary, layers, heads, width = (each or 0 for each in numbers)
    fits = layers > 0 and heads > 0 and width % heads == 0 and width > layers
    return Sizes(layers, width, heads, vocabulary) if fits else None
