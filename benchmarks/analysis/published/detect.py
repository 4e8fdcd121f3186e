"""Finds things in COCO's pictures. A step is 16 pictures, however many GPUs share them."""

import argparse
import os

import torch
import torchvision
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="fasterrcnn_resnet50_fpn")
parser.add_argument("--max-steps", type=int, default=90_000)
args = parser.parse_args()


def main() -> None:
    torch.distributed.init_process_group("nccl")
    each = 16 // int(os.environ.get("WORLD_SIZE", "1"))
    model = DistributedDataParallel(torchvision.models.get_model(args.model, num_classes=91, min_size=800).cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    coco = torchvision.datasets.CocoDetection("/data/coco/train2017", "/data/coco/train2017.json")
    pictures = iter(DataLoader(coco, each, num_workers=4, collate_fn=lambda rows: tuple(zip(*rows, strict=True))))
    for _step in range(args.max_steps):
        images, boxes = next(pictures)
        losses = model([one.cuda() for one in images], boxes)
        optimizer.zero_grad()
        sum(losses.values()).backward()
        optimizer.step()


main()
