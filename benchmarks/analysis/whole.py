"""One long program as people write them: settings, data, models, metrics, a loop with checkpoints, and a main."""

from __future__ import annotations

HEAD = '''"""Train a classifier of pictures. Run with --help for the options."""

import argparse
import json
import logging
import math
import os
import random
import time
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from torchvision import datasets, transforms

logger = logging.getLogger(__name__)


def set_seed(seed):
    """Make a run repeatable, as far as the hardware lets us."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)


@dataclass
class Config:
    data: str = "data"
    output: str = "runs"
    model: str = "net0"
    width: int = 64
    depth: int = 4
    epochs: int = 30
    batch_size: int = 128
    lr: float = 3e-4
    weight_decay: float = 0.05
    warmup: int = 500
    clip: float = 1.0
    amp: bool = True
    classes: int = 10


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="data", help="folder of the dataset")
    parser.add_argument("--output", default="runs")
    parser.add_argument("--model", default="net0", help="one of MODELS")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--weight-decay", type=float, default=0.05)
    parser.add_argument("--warmup", type=int, default=500)
    parser.add_argument("--resume", default="", help="checkpoint to go on from")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-amp", action="store_true")
    return parser.parse_args()
'''
BLOCK = '''

class Block{n}(nn.Module):
    """A residual block: norm, attention over channels, and two convolutions.

    The second norm starts at zero, so that the block begins as the identity.
    """

    def __init__(self, width, expand={expand}, drop=0.1):
        super().__init__()
        hidden = width * expand
        self.norm1 = nn.BatchNorm2d(width)
        self.conv1 = nn.Conv2d(width, hidden, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(hidden)
        self.conv2 = nn.Conv2d(hidden, width, 3, padding=1, bias=False)
        self.squeeze = nn.Linear(width, max(8, width // 4))
        self.excite = nn.Linear(max(8, width // 4), width)
        self.drop = nn.Dropout(drop)

    def forward(self, x):
        y = self.conv1(F.relu(self.norm1(x)))
        y = self.conv2(F.relu(self.norm2(y)))
        # one weight for each channel, from its mean over the picture
        scale = torch.sigmoid(self.excite(F.relu(self.squeeze(y.mean(dim=(2, 3))))))
        return x + self.drop(y * scale.unsqueeze(-1).unsqueeze(-1))


class Net{n}(nn.Module):
    def __init__(self, width=64, depth=4, classes=10):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList([Block{n}(width) for _ in range(depth)])
        self.norm = nn.BatchNorm2d(width)
        self.head = nn.Linear(width, classes)
        self.apply(self._init)

    def _init(self, module):
        if isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=0.02)
            if module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        x = F.relu(self.norm(x)).mean(dim=(2, 3))
        return self.head(x)
'''
DATA = '''

class Jitter{n}:
    """Change brightness and contrast a little, each picture by itself."""

    def __init__(self, strength={expand} / 10, probability=0.5):
        self.strength = strength
        self.probability = probability

    def __call__(self, image):
        if random.random() > self.probability:
            return image
        factor = 1.0 + random.uniform(-self.strength, self.strength)
        return torch.clamp(image * factor, 0.0, 1.0)


class Listed{n}(Dataset):
    """Pictures named in a file, one line each: path, tab, label."""

    def __init__(self, listing, root, transform=None):
        self.root = root
        self.transform = transform
        self.rows = []
        with open(listing) as lines:
            for line in lines:
                path, label = line.rstrip("\\n").split("\\t")
                self.rows.append((os.path.join(root, path), int(label)))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        path, label = self.rows[index]
        image = torch.from_numpy(np.load(path)).float() / 255
        if self.transform is not None:
            image = self.transform(image)
        return image, label
'''
METRIC = '''

class Meter{n}:
    """Mean and last value of something measured at every step."""

    def __init__(self, name, window={expand}0):
        self.name = name
        self.window = window
        self.values = []
        self.total = 0.0
        self.count = 0

    def update(self, value, amount=1):
        self.values.append(value)
        self.total += value * amount
        self.count += amount
        if len(self.values) > self.window:
            self.values.pop(0)

    @property
    def mean(self):
        return self.total / max(1, self.count)

    def __str__(self):
        return f"{{self.name}} {{self.mean:.4f}} ({{self.values[-1] if self.values else 0:.4f}})"


def accuracy{n}(scores, labels, top=({expand},)):
    """Shares of samples whose label is among the first k scores."""
    with torch.no_grad():
        most = max(top)
        _, guessed = scores.topk(most, 1, True, True)
        hits = guessed.t().eq(labels.view(1, -1))
        found = []
        for k in top:
            found.append(hits[:k].reshape(-1).float().sum().item() / labels.size(0))
    return found


def summary{n}(history, path):
    rows = defaultdict(list)
    for entry in history:
        for key, value in entry.items():
            rows[key].append(value)
    result = {{key: sum(values) / len(values) for key, values in rows.items()}}
    if path:
        with open(path, "w") as file:
            json.dump(result, file, indent=2)
    return result
'''
TAIL = '''

def schedule(step, warmup, total):
    """Linear warm-up, then half a cosine."""
    if step < warmup:
        return step / max(1, warmup)
    done = (step - warmup) / max(1, total - warmup)
    return 0.5 * (1.0 + math.cos(math.pi * done))


def loaders(args):
    train = transforms.Compose([transforms.RandomCrop(32, padding=4), transforms.ToTensor()])
    plain = transforms.Compose([transforms.ToTensor()])
    kept = datasets.CIFAR10(args.data, train=True, download=True, transform=train)
    held = datasets.CIFAR10(args.data, train=False, download=True, transform=plain)
    return (
        DataLoader(kept, batch_size=args.batch_size, shuffle=True, num_workers=4, pin_memory=True),
        DataLoader(held, batch_size=args.batch_size, num_workers=4),
    )


def train_epoch(model, loader, optimizer, scheduler, scaler, device, epoch):
    model.train()
    loss_meter, right = Meter0("loss"), Meter0("accuracy")
    begun = time.time()
    for step, (images, labels) in enumerate(loader):
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad()
        with torch.autocast(device_type="cuda", dtype=torch.float16, enabled=scaler.is_enabled()):
            scores = model(images)
            loss = F.cross_entropy(scores, labels, label_smoothing=0.1)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        loss_meter.update(loss.item(), labels.size(0))
        right.update(accuracy0(scores, labels)[0], labels.size(0))
        if step % 50 == 0:
            logger.info("epoch %d step %d %s %s %.1fs", epoch, step, loss_meter, right, time.time() - begun)
    return {"loss": loss_meter.mean, "accuracy": right.mean}


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    right = Meter0("accuracy")
    for images, labels in loader:
        scores = model(images.to(device))
        right.update(accuracy0(scores, labels.to(device))[0], labels.size(0))
    return right.mean


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO)
    set_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_loader, test_loader = loaders(args)
    model = MODELS[args.model](args.width, args.depth).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=args.weight_decay)
    total = args.epochs * len(train_loader)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: schedule(step, args.warmup, total))
    scaler = torch.cuda.amp.GradScaler(enabled=not args.no_amp and device.type == "cuda")
    first, best, history = 0, 0.0, []
    if args.resume:
        state = torch.load(args.resume, map_location="cpu")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first, best = state["epoch"] + 1, state["best"]
    os.makedirs(args.output, exist_ok=True)
    for epoch in range(first, args.epochs):
        measured = train_epoch(model, train_loader, optimizer, scheduler, scaler, device, epoch)
        measured["test"] = evaluate(model, test_loader, device)
        history.append(measured)
        best = max(best, measured["test"])
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch, "best": best}
        torch.save(state, os.path.join(args.output, "last.pt"))
    summary0(history, os.path.join(args.output, "summary.json"))


if __name__ == "__main__":
    main()
'''


def whole_program(lines: int) -> str:
    """One training with everything around it, in so many lines: what is not the loop and its model are variants of
    models, data and metrics that a program collects over the years, some of them to be chosen by name, and one run
    does not use.
    """
    text, number = HEAD + METRIC.format(n=0, expand=5) + BLOCK.format(n=0, expand=2), 1
    kinds = (BLOCK, DATA, METRIC)
    while (more := text + kinds[number % 3].format(n=number, expand=number % 4 + 1)).count("\n") < lines - _COUNT:
        text, number = more, number + 1
    padding = lines - _COUNT - text.count("\n")
    return text + "# A note on what was tried.\n" * padding + _registry(number) + TAIL


def _registry(count: int) -> str:
    models = ", ".join(f'"net{n}": Net{n}' for n in range(0, count, 3))
    datasets = ", ".join(f'"listed{n}": Listed{n}' for n in range(1, count, 3))
    return f"\n\nMODELS = {{{models}}}\nDATASETS = {{{datasets}}}\n"


_COUNT = (_registry(1) + TAIL).count("\n")
