"""Programs whose settings are objects: classes as commands, and config files that are programs."""

from __future__ import annotations

import pytest
from tests.analysis.programs import read

from crucible.core.routing.profile import GpuNeed

FIRE = """
import fire, torch
class Runner:
    def __init__(self, device="cuda:0", batch_size=64):
        self.device, self.batch_size = device, batch_size
    def train(self, epochs=10):
        net = torch.nn.Linear(3, 4).to(self.device)
        for epoch in range(epochs):
            net(torch.randn(self.batch_size, 3).to(self.device)).sum().backward()
    def show(self):
        print(torch.zeros(3))
fire.Fire({})
"""


def test_methods_of_a_class_are_commands() -> None:
    found = read(FIRE.format("Runner"))
    assert found.gpu.value is GpuNeed.REQUIRED
    assert found.epochs.value == 10
    assert read(FIRE.format("Runner()"), "train", "--epochs", "4").epochs.value == 4


def test_entries_of_a_dict_are_commands() -> None:
    found = read(FIRE.format("{'fit': Runner(device='cpu').train, 'show': Runner.show}"), "fit", "--epochs=2")
    assert found.epochs.value == 2


@pytest.mark.parametrize("words", [(), ("1",)])
def test_commands_may_be_numbers(words: tuple[str, ...]) -> None:
    assert read(FIRE.format("{1: Runner(device='cpu').train}"), *words, "--epochs=2").epochs.value == 2


MAIN = """
from absl import app, flags
from ml_collections import config_flags
import jax, train
FLAGS = flags.FLAGS
config_flags.DEFINE_config_file("config", {}, "settings")
def main(argv):
    train.run(FLAGS.config)
app.run(main)
"""
TRAIN = """
import jax
def run(config):
    for epoch in range(config.num_epochs):
        for step in range(config.data.size // config.batch_size):
            params = jax.grad(loss)(params)
"""
CONFIG = """
import ml_collections
def get_config():
    config = ml_collections.ConfigDict()
    config.batch_size = 128
    config.num_epochs = 12
    config.data = ml_collections.ConfigDict({"size": 1280})
    return config
"""
SMALL = """
from configs import default
def get_config(kind="tiny"):
    config = default.get_config()
    config.update({"batch_size": 8 if kind == "tiny" else 16, "num_epochs": 2})
    return config
"""


def test_a_config_file_is_a_program_of_its_own() -> None:
    found = read(MAIN.format("'configs/default.py'"), entry="main.py", train_py=TRAIN, configs__default_py=CONFIG)
    assert (found.batch_size.value, found.epochs.value) == (128, 12)
    assert found.gpu.value is GpuNeed.OPTIONAL


def test_the_command_line_chooses_the_file_and_changes_what_is_in_it() -> None:
    code = MAIN.format("None")
    files = {"train_py": TRAIN, "configs__default_py": CONFIG, "configs__small_py": SMALL}
    assert read(code, entry="main.py", **files).batch_size.value == 128
    assert read(code, "--config=configs/small.py", entry="main.py", **files).batch_size.value == 8
    assert read(code, "--config=configs/small.py:big", entry="main.py", **files).batch_size.value == 16
    assert (
        read(code, "--config.batch_size=32", "--config.num_epochs=1", entry="main.py", **files).batch_size.value == 32
    )


def test_settings_of_pydantic_are_made_with_their_defaults() -> None:
    code = """
    import torch
    from pydantic import Field
    from pydantic_settings import BaseSettings
    class Settings(BaseSettings):
        epochs: int = 20
        device: str = Field(default_factory=lambda: "cuda" if torch.cuda.is_available() else "cpu")
    s = Settings()
    net = torch.nn.Linear(3, 4).to(s.device)
    """
    found = read(code)
    assert found.gpu.value is GpuNeed.OPTIONAL
    assert found.epochs.value == 20
