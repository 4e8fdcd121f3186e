"""Generate snippets to analyse: random words, and mutations of a valid program."""

from __future__ import annotations

import random

WORDS = [
    "import torch", "from torch import nn", "model", "=", "(", ")", "[", "]", "{", "}", ":", "\n", "\n    ",
    "\n        ", "def f(x)",
    "class A(nn.Module)", "self.a", ".cuda()", "nn.Linear(3, 4)", "nn.Conv2d(3, 8, 3)", "for i in range(10)",
    "while True", "if x",
    "else", "elif y", "try", "except Exception", "finally", "with torch.no_grad()", "return", "yield", "lambda a: a",
    "**", "*", ",",
    "1", "0", "-3", "1e9", "10 ** 9", "'cuda'", "'''", '"', "# note", "@torch.no_grad()", "global x", "nonlocal y",
    "del x", "async", "await",
    "import os", "os.environ['A']", "x[1:2]", "x[::-1]", "f'{x}'", "argparse.ArgumentParser()",
    ".add_argument('--a', default=3)",
    ".parse_args()", ".view(-1, 3)", ".transpose(0, 1)", ".backward()", "torch.randn(2, 3)", "torch.cat([x, x])",
    "and", "or", "not",
    "in", "is None", "==", "<", ":=", "->", "\\", ";", "...", "super().__init__()", "setattr(x, 'a', 1)",
    "exec('x = 1')", "zip(a, b)",
    "nn.Sequential(*x)", "**kwargs", "[i for i in x]", "{k: v for k, v in x}", "\t", "\x0c", "é", "match x", "case 1",
    "type X = int",
    "raise", "assert x", "torch.nn.functional.softmax(x, 1)", "keras.Sequential()", ".add(layers.Dense(3))",
    "keras.Input((3, 3))",
    "import keras", "from keras import layers", "-1", "2 ** 63", "x @ y", "x.shape", "range(len(x))", "int(x)",
    "sum(x)", "globals()",
]  # fmt: skip
WHOLE = """
import argparse
import os
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width=8, depth=3):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)])
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x)) + x
        return self.head(x).view(-1, 2)

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=8)
args = parser.parse_args()
device = "cuda" if torch.cuda.is_available() else "cpu"
net = Net(args.width).to(device)
optimizer = torch.optim.Adam(net.parameters())
for epoch in range(3):
    for batch in range(10):
        loss = net(torch.randn(4, args.width)).sum()
        loss.backward()
        optimizer.step()
"""


def snippet(chance: random.Random) -> str:
    """Return random words, or a mutation of a valid program."""
    if chance.random() < 0.5:
        return " ".join(chance.choice(WORDS) for _ in range(chance.randrange(1, 60)))
    text = list(WHOLE)
    for _ in range(chance.randrange(1, 8)):
        place = chance.randrange(len(text))
        kind = chance.randrange(4)
        if kind == 0:
            del text[place : place + chance.randrange(1, 40)]
        elif kind == 1:
            text.insert(place, chance.choice(WORDS))
        elif kind == 2:
            text[place] = chr(chance.randrange(1, 0x250))
        else:
            other = chance.randrange(len(text))
            text[place:place] = text[other : other + chance.randrange(1, 60)]
    return "".join(text)


def long_program(lines: int) -> str:
    """Return a program of several trainings, each in its own function, all called at the end."""
    body = WHOLE.replace("\n", "\n    ")
    count = max(1, lines // (body.count("\n") + 2))
    text = "\n".join([f"def part{n}():{body}" for n in range(count)] + [f"part{n}()" for n in range(count)])
    return text + "\n#" * (lines - text.count("\n") - 1)
