"""Finds things with queries: a ResNet-50, an encoder and a decoder over what it sees. Two pictures a GPU."""

import argparse

import torch
import torchvision
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=300)
parser.add_argument("--batch-size", type=int, default=2)
parser.add_argument("--height", type=int, default=800)
parser.add_argument("--width", type=int, default=1066)
args = parser.parse_args()

PICTURES, QUERIES, CLASSES = 118_287, 100, 92


class Queries(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = torchvision.models.resnet50()
        self.narrow = nn.Conv2d(2048, 256, 1)
        self.both = nn.Transformer(256, 8, 6, 6, 2048, batch_first=True)
        self.asked = nn.Embedding(QUERIES, 256)
        self.classes, self.boxes = nn.Linear(256, CLASSES), nn.Linear(256, 4)

    def seen(self, x):
        body = self.body
        x = body.maxpool(body.relu(body.bn1(body.conv1(x))))
        return body.layer4(body.layer3(body.layer2(body.layer1(x))))

    def forward(self, pictures):
        places = self.narrow(self.seen(pictures)).flatten(2).transpose(1, 2)
        asked = self.asked.weight.unsqueeze(0).expand(pictures.shape[0], -1, -1)
        found = self.both(places, asked)
        return self.classes(found), self.boxes(found).sigmoid()


def main() -> None:
    torch.distributed.init_process_group("nccl")
    model = DistributedDataParallel(Queries().cuda())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _step in range(args.epochs * PICTURES // args.batch_size):
        pictures = torch.randn(args.batch_size, 3, args.height, args.width, device="cuda")
        classes, boxes = model(pictures)
        loss = classes.logsumexp(dim=2).mean() + boxes.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main()
