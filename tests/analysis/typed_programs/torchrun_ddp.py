"""Started by torchrun on every GPU."""

import os

import torch
import torch.distributed as dist
import torchvision
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("nccl")
place = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(place)
crop = torchvision.transforms.Compose(
    [torchvision.transforms.RandomResizedCrop(224), torchvision.transforms.ToTensor()]
)
data = torchvision.datasets.ImageFolder("/data/flowers", transform=crop)
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=64, sampler=sampler, num_workers=8, pin_memory=True)
net = DDP(torchvision.models.resnet50(num_classes=102).cuda(place), device_ids=[place])
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-5)
scaler = torch.amp.GradScaler()
begun = 0
if os.path.exists("last.pt"):
    kept = torch.load("last.pt", map_location=f"cuda:{place}")
    net.module.load_state_dict(kept["net"])
    optimizer.load_state_dict(kept["optimizer"])
    begun = kept["epoch"] + 1
for epoch in range(begun, 90):
    sampler.set_epoch(epoch)
    for pictures, labels in loader:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = torch.nn.functional.cross_entropy(net(pictures.cuda(place)), labels.cuda(place))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    if place == 0:
        torch.save({"net": net.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, "last.pt")
dist.destroy_process_group()
