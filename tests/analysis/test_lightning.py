"""A module that is handed to Lightning's Trainer, beside the same training written out."""

from __future__ import annotations

import pytest
from tests.analysis.programs import read

from crucible.core.routing.profile import Confidence, Distribution, GpuNeed, Precision, Profile

NET = "nn.Sequential(nn.Flatten(), nn.Linear(3072, 4096), nn.ReLU(), nn.Linear(4096, 10))"
HEAD = """
import {package} as L
import torch
from torch import nn
from torch.nn import functional as F
from torchvision import transforms
from torchvision.datasets import CIFAR10

loader = torch.utils.data.DataLoader(CIFAR10(".", transform=transforms.ToTensor()), batch_size=500)
"""
LIT = f"""
class Lit(L.LightningModule):
    def __init__(self, rate=0.1):
        super().__init__()
        self.save_hyperparameters()
        self.net = {NET}

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, index):
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, index):
        self.log("loss", F.cross_entropy(self(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.rate, momentum=0.9)
"""
WRITTEN = f"""
net = {NET}.cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for epoch in range(3):
    for x, y in loader:
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled={{half}}):
            loss = F.cross_entropy(net(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
"""


def lit(trainer: str, fit: str = "trainer.fit(Lit(), loader)", more: str = "", package: str = "lightning") -> Profile:
    return read(HEAD.format(package=package) + LIT + more + f"\ntrainer = L.Trainer({trainer})\n{fit}\n")


@pytest.mark.parametrize("package", ["lightning", "lightning.pytorch", "pytorch_lightning"])
@pytest.mark.parametrize("half", [False, True])
def test_the_step_of_a_module_is_what_the_same_loop_is(package: str, half: bool) -> None:
    precision = "bf16-mixed" if half else "32-true"
    handed = lit(f"max_epochs=3, accelerator='gpu', devices=1, precision='{precision}'", package=package)
    written = read(HEAD.format(package=package) + WRITTEN.format(half=half))
    for name in ("parameters", "batch_size", "epochs", "steps", "flops_per_step", "optimizer", "precision"):
        assert getattr(handed, name).value == getattr(written, name).value, name
    assert handed.memory.value == written.memory.value
    assert handed.flops_per_step.confidence is Confidence.HIGH


def test_a_trainer_says_where_and_on_how_many() -> None:
    found = lit("accelerator='gpu', devices=4, num_nodes=2, strategy='fsdp', precision='16-mixed', max_epochs=1")
    assert (found.gpu.value, found.gpus.value) == (GpuNeed.REQUIRED, 8)
    assert (found.distribution.value, found.precision.value) == (Distribution.FSDP, Precision.FP16)


@pytest.mark.parametrize(
    ("trainer", "steps"),
    [
        ("max_epochs=3", 300),
        ("max_steps=250, max_epochs=-1", 250),
        ("max_steps=70", 70),
        ("max_steps=70, accumulate_grad_batches=4", 280),
        ("max_epochs=3, accumulate_grad_batches=4", 300),
        ("max_steps=10_000, max_epochs=3", 300),
        ("max_epochs=3, limit_train_batches=20", 60),
        ("max_epochs=3, limit_train_batches=0.5", 150),
        ("", 100_000),
    ],
)
def test_how_many_batches_it_goes_through(trainer: str, steps: int) -> None:
    assert lit(trainer).steps.value == steps


DATA = """
class Data(L.LightningDataModule):
    def setup(self, stage):
        self.train = CIFAR10(".", transform=transforms.ToTensor())

    def train_dataloader(self):
        return torch.utils.data.DataLoader(self.train, batch_size=250)
"""


@pytest.mark.parametrize("fit", ["trainer.fit(Lit(), datamodule=Data())", "trainer.fit(Lit(), Data())"])
def test_a_data_module_gives_the_batches(fit: str) -> None:
    found = lit("max_epochs=2", fit, DATA)
    assert (found.batch_size.value, found.steps.value) == (250, 400)


def test_weights_in_half_precision_take_half() -> None:
    mixed, pure = (lit(f"precision='{kind}', accelerator='gpu', max_epochs=1") for kind in ("bf16-mixed", "bf16-true"))
    assert mixed.memory.value is not None
    assert pure.memory.value is not None
    assert mixed.memory.value.weights == 2 * pure.memory.value.weights


MANUAL = """
class Own(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.net = nn.Linear(3072, 10)

    def training_step(self, batch):
        loss = F.cross_entropy(self.net(batch[0].flatten(1)), batch[1])
        self.manual_backward(loss)
        self.optimizers().step()
"""


def test_a_module_may_go_backward_itself() -> None:
    found = lit("max_epochs=1", "trainer.fit(Own(), loader)", MANUAL)
    assert found.flops_per_step.value == pytest.approx(3 * 2 * 500 * 3072 * 10, rel=0.05)


@pytest.mark.parametrize(
    "fit", ["trainer.fit(unknown, loader)", "trainer.fit()", "trainer.fit(Lit())", "L.Trainer.fit"]
)
def test_what_cannot_be_followed_breaks_nothing(fit: str) -> None:
    assert "lightning" in (lit("max_epochs=1", fit).frameworks.value or ())
