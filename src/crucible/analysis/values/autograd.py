"""Tape: what a forward pass keeps for the backward pass, and the work it takes."""

from __future__ import annotations

from dataclasses import dataclass, field

from crucible.analysis.values.values import Store, Tensor


@dataclass(slots=True)
class Tape:
    """The record of a forward pass. `recording` is off without gradients; `half` is the dtype of autocast, if any."""

    kept: dict[int, Store] = field(default_factory=dict)
    casts: dict[tuple[int, str], Store] = field(default_factory=dict)
    flops: float = 0.0
    convolved: float = 0.0
    """FLOPs of convolutions, included in `flops`."""

    complete: bool = True
    recording: bool = True
    checkpoint: bool = False
    """Inside activation checkpointing, where nothing is kept."""

    half: str | None = None

    def save(self, tensor: Tensor) -> None:
        """Keep this tensor for the backward pass: each store once, and no weights, which are counted elsewhere."""
        if not self.recording or self.checkpoint:
            return
        if tensor.store is None:
            self.complete = False
        elif not tensor.store.weight:
            self.kept[id(tensor.store)] = tensor.store

    def save_bytes(self, amount: float) -> None:
        """Keep a buffer of this many bytes for the backward pass."""
        if self.recording and not self.checkpoint:
            store = Store(amount)
            self.kept[id(store)] = store

    def convolve(self, flops: float) -> None:
        """Add the work of a convolution."""
        self.flops += flops
        self.convolved += flops

    def lost(self) -> None:
        """Mark the record as incomplete: a tensor went through something that cannot be followed."""
        self.complete = False

    @property
    def saved(self) -> float:
        """Bytes kept for the backward pass."""
        return sum([store.bytes for store in self.kept.values()])

    def clear(self) -> None:
        """Forget what was kept, as after a backward pass."""
        self.kept, self.casts, self.flops, self.convolved, self.complete = {}, {}, 0.0, 0.0, True
