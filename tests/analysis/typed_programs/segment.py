"""Finds edges of cells with a U-Net; takes a GPU where there is one."""

import argparse
import itertools
from pathlib import Path

import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import functional as T


def pair(ins, outs):
    return nn.Sequential(
        nn.Conv2d(ins, outs, 3, padding=1),
        nn.BatchNorm2d(outs),
        nn.ReLU(),
        nn.Conv2d(outs, outs, 3, padding=1),
        nn.ReLU(),
    )


class UNet(nn.Module):
    def __init__(self, widths=(32, 64, 128, 256)):
        super().__init__()
        self.down = nn.ModuleList([pair(a, b) for a, b in zip((3, *widths), widths, strict=False)])
        self.up = nn.ModuleList([pair(a + b, a) for a, b in itertools.pairwise(widths)])
        self.last = nn.Conv2d(widths[0], 1, 1)

    def forward(self, x):
        kept = []
        for layer in self.down:
            x = layer(x)
            kept.append(x)
            x = nn.functional.max_pool2d(x, 2)
        x = kept.pop()
        for layer in reversed(self.up):
            x = nn.functional.interpolate(x, scale_factor=2)
            x = layer(torch.cat([kept.pop(), x], dim=1))
        return self.last(x)


class Cells(Dataset):
    def __init__(self, folder, side):
        self.files, self.side = sorted(Path(folder).glob("*.png")), side

    def __len__(self):
        return len(self.files)

    def __getitem__(self, place):
        picture = T.to_tensor(T.resize(Image.open(self.files[place]).convert("RGB"), [self.side, self.side]))
        mask = T.to_tensor(T.resize(Image.open(str(self.files[place]).replace("png", "mask")), [self.side, self.side]))
        return picture, mask


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--side", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=60)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net = UNet().to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
    for _epoch in range(args.epochs):
        for pictures, masks in DataLoader(Cells("cells", args.side), batch_size=8, shuffle=True):
            loss = nn.functional.binary_cross_entropy_with_logits(net(pictures.to(device)), masks.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        torch.save(net.state_dict(), "unet.pt")
