"""Classifies ImageNet with a network of torchvision or timm, on every GPU there is."""

import argparse

import timm
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision import datasets, transforms

parser = argparse.ArgumentParser()
parser.add_argument("--data", default="/data/imagenet")
parser.add_argument("--arch", default="resnet50")
parser.add_argument("--epochs", type=int, default=90)
parser.add_argument("--batch-size", type=int, default=256)
parser.add_argument("--size", type=int, default=224)
parser.add_argument("--amp", action="store_true")
parser.add_argument("--tf32", action="store_true")
args = parser.parse_args()


def main() -> None:
    if args.tf32:
        torch.set_float32_matmul_precision("high")
    torch.distributed.init_process_group("nccl")
    model = DistributedDataParallel(timm.create_model(args.arch).cuda())
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    scaler = torch.amp.GradScaler(enabled=args.amp)
    crop = transforms.Compose([transforms.RandomResizedCrop(args.size), transforms.ToTensor()])
    images = datasets.ImageNet(args.data, "train", transform=crop)
    loader = DataLoader(images, args.batch_size, sampler=DistributedSampler(images), num_workers=10, pin_memory=True)
    loss_of = nn.CrossEntropyLoss()
    for _epoch in range(args.epochs):
        for pictures, labels in loader:
            with torch.autocast("cuda", enabled=args.amp):
                loss = loss_of(model(pictures.cuda()), labels.cuda())
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        torch.save(model.state_dict(), "last.pt")


main()
