"""Sample: a program such as people write, read before the first question comes.

Python makes code that has run a few times faster for itself, and what a process has learned so its forks have too.
"""

from __future__ import annotations

SAMPLE = '''\
"""Fine-tune a network. Names beyond ASCII have Python load a module: modèle."""
import argparse, os
from dataclasses import dataclass
import numpy as np
import tensorflow as tf
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from torchvision import datasets, models, transforms
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments

@dataclass
class Settings:
    width: int = 64
    rate: float = 1e-3
    name: str = "small"

class Block(nn.Module):
    def __init__(self, inner, outer, stride=1):
        super().__init__()
        self.first = nn.Conv2d(inner, outer, 3, stride=stride, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(outer)
        self.skip = nn.Identity() if inner == outer else nn.Conv2d(inner, outer, 1)

    def forward(self, x):
        return F.relu(self.norm(self.first(x)) + self.skip(x))

class Network(nn.Module):
    def __init__(self, settings, classes=10):
        super().__init__()
        self.blocks = nn.Sequential(*[Block(3 if i == 0 else settings.width, settings.width) for i in range(3)])
        self.attention = nn.MultiheadAttention(settings.width, 4, batch_first=True)
        self.heads = nn.ModuleList([nn.Linear(settings.width, classes)])

    def forward(self, x):
        x = self.blocks(x).mean(dim=(2, 3))
        for head in self.heads:
            x = head(x)
        return x.view(x.size(0), -1)

class Pairs(Dataset):
    def __init__(self, path, length=1000):
        self.rows = np.load(path, mmap_mode="r")
        self.length = length

    def __len__(self):
        return min(self.length, len(self.rows))

    def __getitem__(self, index):
        return torch.from_numpy(self.rows[index][:-1].copy()), int(self.rows[index][-1])

def evaluate(model, loader, device):
    model.eval()
    right, seen = 0, 0
    with torch.no_grad():
        for images, labels in loader:
            scores = model(images.to(device))
            right += (scores.argmax(1).cpu() == labels).sum().item()
            seen += labels.shape[0]
    return {"accuracy": right / max(seen, 1), "seen": seen}

def warmed(step, steps=100, least=0.1):
    if step < steps:
        return least + (1 - least) * step / steps
    return 1.0 if step % 2 == 0 else least

def tune(name):
    tokens = AutoTokenizer.from_pretrained(name)
    model = AutoModelForSequenceClassification.from_pretrained(name, num_labels=2)
    asked = TrainingArguments(output_dir="out", per_device_train_batch_size=16, num_train_epochs=3)
    Trainer(model=model, args=asked, tokenizer=tokens).train()

def classic(width):
    model = tf.keras.Sequential([tf.keras.layers.Dense(width, activation="relu"), tf.keras.layers.Dense(10)])
    model.compile(optimizer="adam", loss="mse", metrics=["accuracy"])
    model.fit(np.zeros((100, 8)), np.zeros((100, 10)), epochs=5, batch_size=32)

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64, help="of each step")
    parser.add_argument("--resume", default="", choices=["", "last"])
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    modèle = Network(Settings(width=32)).to(device)
    if torch.cuda.device_count() > 1 and os.environ.get("RANK", "0") == "0":
        modèle = nn.DataParallel(modèle)
    pictures = datasets.CIFAR10("data", train=True, transform=transforms.Compose([transforms.ToTensor()]))
    loader = DataLoader(pictures, batch_size=args.batch_size, shuffle=True, num_workers=4)
    optimizer = torch.optim.AdamW(modèle.parameters(), lr=Settings.rate, weight_decay=0.05)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: warmed(step))
    scaler = torch.cuda.amp.GradScaler()
    if args.resume:
        modèle.load_state_dict(torch.load(os.path.join("out", f"{args.resume}.pt"))["model"])
    best, history = 0.0, []
    for epoch in range(args.epochs):
        modèle.train()
        for step, (images, labels) in enumerate(loader):
            with torch.autocast("cuda", dtype=torch.float16):
                loss = F.cross_entropy(modèle(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
            if step % 50 == 0 and not epoch < 0:
                print(f"epoch {epoch} step {step}: {loss.item():.4f}")
        try:
            found = evaluate(modèle, loader, device)
        except RuntimeError as error:
            raise SystemExit(str(error))
        history.append({"epoch": epoch, **{k: v for k, v in found.items() if v}})
        if found["accuracy"] > best:
            best = found["accuracy"]
            torch.save({"model": modèle.state_dict(), "epoch": epoch}, "out/best.pt")

if __name__ == "__main__":
    main()
'''
