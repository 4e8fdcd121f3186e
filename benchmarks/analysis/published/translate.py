"""Translates with an encoder and a decoder. A step is `--sentences` pairs, however many GPUs share them."""

import argparse
import os

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=512)
parser.add_argument("--inner", type=int, default=2048)
parser.add_argument("--heads", type=int, default=8)
parser.add_argument("--steps", type=int, default=100_000)
parser.add_argument("--sentences", type=int, default=896)
parser.add_argument("--length", type=int, default=28)
args = parser.parse_args()
VOCABULARY = 37_000


class Translator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, args.width)
        self.both = nn.Transformer(args.width, args.heads, 6, 6, args.inner, batch_first=True)
        self.head = nn.Linear(args.width, VOCABULARY, bias=False)
        self.head.weight = self.words.weight

    def forward(self, source, target):
        return self.head(self.both(self.words(source), self.words(target)))


def main() -> None:
    torch.distributed.init_process_group("nccl")
    each = args.sentences // int(os.environ.get("WORLD_SIZE", "1"))
    model = DistributedDataParallel(Translator().cuda())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98))
    loss_of = nn.CrossEntropyLoss(label_smoothing=0.1)
    for _step in range(args.steps):
        source = torch.randint(VOCABULARY, (each, args.length), device="cuda")
        target = torch.randint(VOCABULARY, (each, args.length), device="cuda")
        scores = model(source, target)
        loss = loss_of(scores.view(-1, VOCABULARY), target.view(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main()
