"""Writes the words that were cut out of a text: an encoder and a decoder with gated layers, as T5 v1.1 has them."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=65_536)
parser.add_argument("--batch-size", type=int, default=128)
parser.add_argument("--parts", type=int, default=1)
parser.add_argument("--bf16", action="store_true")
parser.add_argument("--tf32", action="store_true")
parser.add_argument("--compile", action="store_true")
args = parser.parse_args()
VOCABULARY, WIDTH, HEADS, INNER, LAYERS, SOURCE, TARGET = 32_128, 768, 12, 2048, 12, 512, 114


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.v, self.out = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x, other):
        def heads(y):
            return y.view(y.shape[0], y.shape[1], HEADS, WIDTH // HEADS).transpose(1, 2)

        q, k, v = heads(self.q(x)), heads(self.k(other)), heads(self.v(other))
        shares = torch.softmax(q @ k.transpose(2, 3), dim=-1)
        mixed = F.dropout(shares, 0.1) @ v
        return self.out(mixed.transpose(1, 2).reshape(x.shape))


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(WIDTH, INNER, bias=False), nn.Linear(WIDTH, INNER, bias=False)
        self.down = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x):
        return self.down(F.gelu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, crossed: bool) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH) for _ in range(3)])
        self.mix, self.look, self.gated = Attention(), Attention() if crossed else None, Gated()

    def forward(self, x, source=None):
        y = self.norms[0](x)
        x = x + F.dropout(self.mix(y, y), 0.1)
        if source is not None:
            x = x + F.dropout(self.look(self.norms[1](x), source), 0.1)
        return x + F.dropout(self.gated(self.norms[2](x)), 0.1)


class Spans(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.encoder = nn.ModuleList([Block(False) for _ in range(LAYERS)])
        self.decoder = nn.ModuleList([Block(True) for _ in range(LAYERS)])
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, source, target):
        x, y = self.words(source), self.words(target)
        for block in self.encoder:
            x = block(x)
        for block in self.decoder:
            y = block(y, x)
        return self.head(y)


def main() -> None:
    if args.tf32:
        torch.set_float32_matmul_precision("high")
    model = Spans().cuda()
    if args.compile:
        model = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2)
    each = args.batch_size // args.parts
    for _step in range(args.steps):
        for _part in range(args.parts):
            source = torch.randint(VOCABULARY, (each, SOURCE), device="cuda")
            target = torch.randint(VOCABULARY, (each, TARGET), device="cuda")
            with torch.autocast("cuda", dtype=torch.bfloat16, enabled=args.bf16):
                scores = model(source, target)
                loss = F.cross_entropy(scores.view(-1, VOCABULARY), target.view(-1))
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()


main()
