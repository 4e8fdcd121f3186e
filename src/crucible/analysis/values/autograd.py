"""Tape: what a forward pass leaves behind for the backward pass, and the work it takes."""

from __future__ import annotations

from dataclasses import dataclass, field

from crucible.analysis.values.values import Store, Tensor


@dataclass(slots=True)
class Tape:
    """`recording` is off where no gradients are wanted; `half` is the kind that autocast works in, if any."""

    kept: dict[int, Store] = field(default_factory=dict)
    casts: dict[tuple[int, str], Store] = field(default_factory=dict)
    flops: float = 0.0
    convolved: float = 0.0
    """Those of them that are in convolutions."""

    complete: bool = True
    recording: bool = True
    checkpoint: bool = False
    """Inside activation checkpointing nothing is kept."""

    half: str | None = None

    def save(self, tensor: Tensor) -> None:
        """The backward pass needs this tensor. One store is kept once, weights are not counted here."""
        if not self.recording or self.checkpoint:
            return
        if tensor.store is None:
            self.complete = False
        elif not tensor.store.weight:
            self.kept[id(tensor.store)] = tensor.store

    def save_bytes(self, amount: float) -> None:
        if self.recording and not self.checkpoint:
            store = Store(amount)
            self.kept[id(store)] = store

    def convolve(self, flops: float) -> None:
        self.flops += flops
        self.convolved += flops

    def lost(self) -> None:
        """Something was done with a tensor that cannot be followed."""
        self.complete = False

    @property
    def saved(self) -> float:
        return sum([store.bytes for store in self.kept.values()])

    def clear(self) -> None:
        self.kept, self.casts, self.flops, self.convolved, self.complete = {}, {}, 0.0, 0.0, True
