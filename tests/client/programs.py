"""A program whose time can be predicted, and jobs that ran it."""

from __future__ import annotations

from typing import Any

from tests.client.real_server import RealServer, RunningJob

from crucible.control.planning.accuracy import FRESH_SECONDS

_TRAIN = """
import torch
device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Sequential(torch.nn.Linear(784, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)).to(device)
optimizer = torch.optim.Adam(model.parameters())
data = torch.utils.data.TensorDataset(torch.randn(60000, 784), torch.zeros(60000, dtype=torch.long))
loader = torch.utils.data.DataLoader(data, batch_size=64)
for epoch in range(EPOCHS):
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def training(epochs: int = 30, *, device: str = "") -> str:
    """Return a program that trains on a GPU where there is one, unless a device is named."""
    text = _TRAIN.replace("EPOCHS", str(epochs))
    return text.replace('"cuda" if torch.cuda.is_available() else "cpu"', f'"{device}"') if device else text


def train(server: RealServer, program: str, ratio: float = 1.0, *, code: int = 0, **spec: Any) -> RunningJob:
    """Return an ended job whose program ran `ratio` times as long as was predicted."""
    job = server.submit_program(program, **spec)
    server.run(server.perform, job, code=code, seconds=ratio * predicted_seconds(server, job))
    server.rig.clock.move(FRESH_SECONDS)
    return job


def predicted_seconds(server: RealServer, job: RunningJob) -> float:
    predicted = server.view(job).predicted_seconds
    assert predicted is not None
    return predicted
