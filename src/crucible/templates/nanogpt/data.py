"""Text as numbers, and a sampler whose position can be saved."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from config import Refused

HERE = Path(__file__).parent
OWN_TEXT = HERE / "text.txt"
HELD_OUT = 0.1
"""The last tenth of the text is never trained on; val loss is measured there."""


@dataclass(frozen=True)
class Text:
    vocabulary: str
    sha256: str
    train: Tensor
    val: Tensor


def read_text(path: Path, block: int) -> Text:
    """Read a text. Raises Refused if it is missing, not UTF-8, or too short for windows of `block` characters."""
    try:
        content = path.read_bytes()
        text = content.decode("utf-8")
    except OSError as error:
        raise Refused(f"the text cannot be read: {error}") from error
    except UnicodeDecodeError as error:
        raise Refused(f"{path} is not a UTF-8 text: {error}") from error
    vocabulary = "".join(sorted(set(text)))
    tokens = encode(text, vocabulary)
    border = int(len(tokens) * (1 - HELD_OUT))
    if min(border, len(tokens) - border) < 2 * block + 2:
        raise Refused(f"{path} has {len(tokens)} characters: too few for windows of --block {block}")
    return Text(vocabulary, hashlib.sha256(content).hexdigest(), tokens[:border], tokens[border:])


def encode(text: str, vocabulary: str) -> Tensor:
    """Convert a text to numbers. Raises Refused for a character that is not in the vocabulary."""
    numbers = {character: number for number, character in enumerate(vocabulary)}
    unknown = set(text) - set(numbers)
    if unknown:
        raise Refused(f"the model does not know these characters: {''.join(sorted(unknown))!r}")
    return torch.tensor([numbers[character] for character in text], dtype=torch.long)


def decode(tokens: Tensor, vocabulary: str) -> str:
    return "".join(vocabulary[number] for number in tokens.tolist())


class Sampler:
    """Draws windows of the text in a new order every epoch, each window once.

    The order depends only on seed and epoch, so epoch and position are the whole state.
    """

    def __init__(self, tokens: Tensor, block: int, batch: int, seed: int) -> None:
        self._tokens, self._block, self._batch, self._seed = tokens, block, batch, seed
        self._epoch, self._position = 0, 0
        self._starts = self._order()

    def next(self) -> tuple[Tensor, Tensor]:
        """Return the next batch: characters, and for each the character that follows."""
        starts: list[int] = []
        while len(starts) < self._batch:
            if self._position == len(self._starts):
                self._epoch, self._position = self._epoch + 1, 0
                self._starts = self._order()
            taken = self._starts[self._position : self._position + self._batch - len(starts)]
            self._position += len(taken)
            starts += taken
        return windows(self._tokens, starts, self._block)

    def state(self) -> dict[str, int]:
        return {"epoch": self._epoch, "position": self._position}

    def restore(self, state: dict[str, int]) -> None:
        self._epoch, self._position = state["epoch"], state["position"]
        self._starts = self._order()

    def _order(self) -> list[int]:
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + self._epoch)
        # Start at another offset each epoch, so that windows are not always cut at the same positions.
        first = int(torch.randint(self._block, (1,), generator=generator))
        starts = torch.arange(first, len(self._tokens) - self._block, self._block)
        return starts[torch.randperm(len(starts), generator=generator)].tolist()


def windows(tokens: Tensor, starts: list[int], block: int) -> tuple[Tensor, Tensor]:
    cut = torch.stack([tokens[start : start + block + 1] for start in starts])
    return cut[:, :-1].contiguous(), cut[:, 1:].contiguous()
