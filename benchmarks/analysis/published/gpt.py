"""Trains a decoder on a file of tokens. A step is `--tokens` tokens, however many GPUs share it."""

import argparse
import os

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--layers", type=int, default=12)
parser.add_argument("--heads", type=int, default=12)
parser.add_argument("--width", type=int, default=768)
parser.add_argument("--inner", type=int, default=3072)
parser.add_argument("--vocabulary", type=int, default=50304)
parser.add_argument("--length", type=int, default=1024)
parser.add_argument("--micro-batch", type=int, default=12)
parser.add_argument("--tokens", type=int, default=491_520)
parser.add_argument("--max-steps", type=int, default=600_000)
args = parser.parse_args()


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(args.width), nn.LayerNorm(args.width)
        self.queries = nn.Linear(args.width, 3 * args.width, bias=False)
        self.out = nn.Linear(args.width, args.width, bias=False)
        self.up = nn.Linear(args.width, args.inner, bias=False)
        self.down = nn.Linear(args.inner, args.width, bias=False)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.queries(self.before(x)).split(width, dim=2)
        q, k, v = (part.view(batch, length, args.heads, width // args.heads).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.after(x))))


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(args.vocabulary, args.width)
        self.places = nn.Embedding(args.length, args.width)
        self.blocks = nn.ModuleList([Block() for _ in range(args.layers)])
        self.last = nn.LayerNorm(args.width)
        self.head = nn.Linear(args.width, args.vocabulary, bias=False)

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.arange(args.length, device="cuda"))
        for block in self.blocks:
            x = block(x)
        return self.head(self.last(x))


def batch(data):
    starts = torch.randint(len(data) - args.length, (args.micro_batch,))
    return torch.stack([torch.from_numpy(data[i : i + args.length + 1].astype(np.int64)) for i in starts]).cuda()


def main() -> None:
    world = int(os.environ.get("WORLD_SIZE", "1"))
    torch.distributed.init_process_group("nccl")
    data = np.memmap("train.bin", dtype=np.uint16, mode="r")
    model = torch.compile(DistributedDataParallel(Decoder().cuda()))
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), fused=True)
    parts = args.tokens // (args.length * args.micro_batch * world)
    for step in range(args.max_steps):
        for _part in range(parts):
            tokens = batch(data)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                scores = model(tokens[:, :-1])
                loss = F.cross_entropy(scores.view(-1, args.vocabulary), tokens[:, 1:].reshape(-1))
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 1000 == 0:
            torch.save(model.state_dict(), "last.pt")


main()
