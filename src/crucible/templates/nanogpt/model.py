"""A small GPT: embeddings, blocks of causal attention and a feed-forward network, one output head over characters."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from config import Config


class Attention(nn.Module):
    """Causal self-attention: each position attends to itself and those before it."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.query_key_value = nn.Linear(config.width, 3 * config.width, bias=False)
        self.output = nn.Linear(config.width, config.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        split = self.query_key_value(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        result: Tensor = self.output(seen.transpose(1, 2).reshape(batch, length, width))
        return result


class Block(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.before_attention = nn.LayerNorm(config.width)
        self.attention = Attention(config)
        self.before_feed = nn.LayerNorm(config.width)
        self.feed = nn.Sequential(
            nn.Linear(config.width, 4 * config.width, bias=False),
            nn.GELU(),
            nn.Linear(4 * config.width, config.width, bias=False),
        )
        self.drop = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        attended: Tensor = x + self.drop(self.attention(self.before_attention(x)))
        result: Tensor = attended + self.drop(self.feed(self.before_feed(attended)))
        return result


class GPT(nn.Module):
    """Takes characters as numbers, (batch, length), and returns scores for the character after each of them."""

    def __init__(self, config: Config, characters: int) -> None:
        super().__init__()
        self.block = config.block
        self.characters = nn.Embedding(characters, config.width)
        self.positions = nn.Embedding(config.block, config.width)
        self.drop = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.last_norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, characters, bias=False)
        self.apply(_start_small)
        self.head.weight = self.characters.weight  # weight tying: one embedding to read and to write characters
        for name, weight in self.named_parameters():
            if name.endswith(("attention.output.weight", "feed.2.weight")):
                # Every block adds twice to the residual stream: smaller initial weights keep its scale.
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * config.layers))

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.drop(self.characters(tokens) + self.positions(positions))
        for block in self.blocks:
            x = block(x)
        scores: Tensor = self.head(self.last_norm(x))
        return scores

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        scores = self(tokens)
        return functional.cross_entropy(scores.flatten(0, 1), targets.flatten())

    @torch.no_grad()
    def write(self, tokens: Tensor, length: int, temperature: float, generator: torch.Generator) -> Tensor:
        """Return `tokens` (1, n) with `length` more. Draws only from `generator`, which is on the CPU."""
        was_training = self.training
        self.eval()
        for _ in range(length):
            scores = self(tokens[:, -self.block :])[:, -1, :].float().cpu()
            chances = functional.softmax(scores / max(temperature, 1e-4), dim=-1)
            drawn = torch.multinomial(chances, 1, generator=generator)
            tokens = torch.cat([tokens, drawn.to(tokens.device)], dim=1)
        self.train(was_training)
        return tokens


def count_parameters(model: nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters())


def _start_small(module: nn.Module) -> None:
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
