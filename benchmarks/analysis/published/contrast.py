"""Learns pictures without labels: one network, and a slow copy of it that gives the keys."""

import copy

import torch
import torch.nn.functional as F
import torchvision
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

EPOCHS, BATCH, KEYS = 200, 256, 65_536


def main() -> None:
    torch.distributed.init_process_group("nccl")
    query = DistributedDataParallel(torchvision.models.resnet50(num_classes=128).cuda())
    key = copy.deepcopy(query)
    queue = F.normalize(torch.randn(128, KEYS, device="cuda"), dim=0)
    optimizer = torch.optim.SGD(query.parameters(), 0.03, momentum=0.9, weight_decay=1e-4)
    crop = transforms.Compose([transforms.RandomResizedCrop(224), transforms.ToTensor()])
    loader = DataLoader(datasets.ImageNet("/data", "train", transform=crop), BATCH, num_workers=32)
    for _epoch in range(EPOCHS):
        for pictures, _ in loader:
            q = F.normalize(query(pictures.cuda()), dim=1)
            with torch.no_grad():
                for slow, fast in zip(key.parameters(), query.parameters(), strict=True):
                    slow.data = slow.data * 0.999 + fast.data * 0.001
                k = F.normalize(key(pictures.cuda()), dim=1)
            same = (q * k).sum(dim=1, keepdim=True)
            scores = torch.cat([same, q @ queue], dim=1) / 0.07
            loss = F.cross_entropy(scores, torch.zeros(BATCH, dtype=torch.long, device="cuda"))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


main()
