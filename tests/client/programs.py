"""A program whose time can be predicted, and jobs that ran it."""

from __future__ import annotations

from typing import Any

from tests.client.real_server import RealServer, RunningJob

from crucible.control.planning.accuracy import FRESH_SECONDS

_TRAIN = """
import torch
import torchvision
device = {device}
model = torch.nn.Sequential(torch.nn.Linear(784, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)).to(device)
optimizer = torch.optim.Adam(model.parameters())
data = {data}
loader = torch.utils.data.DataLoader(data, batch_size=64)
{loop}
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
_SAVE = '    torch.save(model.state_dict(), "model.pt")\n'
_RANDOM = "torch.utils.data.TensorDataset(torch.randn({0}, 784), torch.zeros({0}, dtype=torch.long))"
_MNIST = 'torchvision.datasets.MNIST("data", train=True)'
_ANY_DEVICE = '"cuda" if torch.cuda.is_available() else "cpu"'


def training(epochs: int | None = 30, *, device: str = "", samples: int | None = 60_000, saves: bool = False) -> str:
    """Return a program that trains on a GPU where there is one, unless a device is named.

    `epochs`: None for a loop without an end. `samples`: so many random ones, or None for MNIST.
    """
    loop = "while True:" if epochs is None else f"for epoch in range({epochs}):"
    data = _MNIST if samples is None else _RANDOM.format(samples)
    text = _TRAIN.format(device=f'"{device}"' if device else _ANY_DEVICE, data=data, loop=loop)
    return text + _SAVE if saves else text


def train(server: RealServer, program: str, ratio: float = 1.0, *, code: int = 0, **spec: Any) -> RunningJob:
    """Return an ended job whose program ran `ratio` times as long as was predicted."""
    job = server.submit_program(program, **spec)
    server.run(server.perform, job, code=code, seconds=ratio * predicted_seconds(server, job))
    server.harness.clock.move(FRESH_SECONDS)
    return job


def predicted_seconds(server: RealServer, job: RunningJob) -> float:
    predicted = server.view(job).predicted_seconds
    assert predicted is not None
    return predicted
