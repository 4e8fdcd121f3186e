from __future__ import annotations

import pytest
from tests.analysis.programs import read

from crucible.core.routing.profile import Entrypoint, Profile

HEAD = "import torch\nnet = torch.nn.Linear(3, 4)\nopt = torch.optim.SGD(net.parameters(), lr=0.1)\n"
LOOP = "for epoch in range(1000000):\n    net(torch.randn(8, 3)).sum().backward()\n    opt.step()\n"


def saving(code: str) -> Profile:
    return read(HEAD + code)


def test_a_program_that_saves_as_it_goes_and_goes_on_is_interruptible() -> None:
    code = (
        ("state = torch.load('c.pt')\nnet.load_state_dict(state['net'])\nopt.load_state_dict(state['opt'])\n")
        + LOOP
        + "    torch.save({'net': net.state_dict()}, 'c.pt')\n"
    )
    found = saving(code)
    assert found.checkpointing.value
    assert found.resume.value
    assert found.interruptible.value
    assert len(found.interruptible.evidence) >= 2


def test_saving_once_at_the_end_is_no_checkpointing() -> None:
    found = saving(LOOP + "torch.save(net.state_dict(), 'm.pt')\n")
    assert found.checkpointing.value is False
    assert "once" in found.checkpointing.why
    assert found.interruptible.value is False


def test_loading_weights_alone_is_no_resuming() -> None:
    found = saving("net.load_state_dict(torch.load('pretrained.pt'))\n" + LOOP)
    assert found.resume.value is False
    assert "not the training state" in found.resume.why


def test_a_short_program_may_be_interrupted_anyway() -> None:
    found = saving(LOOP.replace("1000000", "10"))
    assert found.interruptible.value
    assert "soon" in found.interruptible.why


@pytest.mark.parametrize(
    "code",
    [
        "import keras\nkeras.callbacks.ModelCheckpoint('m.keras')",
        "import lightning as L\nL.Trainer(max_epochs=3)",
        "from transformers import TrainingArguments\nTrainingArguments('o')",
        "import crucible\nfor i in range(9):\n    crucible.checkpoint.save(f, step=i)",
    ],
)
def test_libraries_that_save(code: str) -> None:
    assert read(code).checkpointing.value


@pytest.mark.parametrize(
    "code",
    [
        "import keras\nkeras.callbacks.BackupAndRestore('d')",
        "from transformers import Trainer\nTrainer(model=m).train(resume_from_checkpoint=True)",
        "import crucible\ncrucible.checkpoint.latest()",
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--resume', default='')\np.parse_args()",
    ],
)
def test_libraries_and_flags_that_go_on(code: str) -> None:
    assert read(code).resume.value


@pytest.mark.parametrize(
    ("code", "needed"),
    [
        ("import requests\nrequests.get('https://example.org')", True),
        ("from transformers import AutoModel\nAutoModel.from_pretrained('gpt2')", True),
        ("from transformers import AutoModel\nAutoModel.from_pretrained('./mine')", False),
        ("import wandb\nwandb.init()", True),
        ("from torchvision import datasets\ndatasets.MNIST('d', download=True)", True),
        ("from torchvision import datasets\ndatasets.MNIST('d')", False),
        ("from keras.applications import ResNet50\nResNet50()", True),
        ("from keras.applications import ResNet50\nResNet50(weights=None)", False),
        ("url = 'https://example.org'", False),
    ],
)
def test_the_network(code: str, needed: bool) -> None:
    assert read(code).network.value is needed


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("def f():\n    pass\n", Entrypoint.MODULE),
        ("def f():\n    pass\nif __name__ == '__main__':\n    f()\n", Entrypoint.SCRIPT),
        ("import torch\ntorch.manual_seed(1)\n", Entrypoint.SCRIPT),
        ("import uvicorn\nuvicorn.run('app:app')\n", Entrypoint.SERVICE),
    ],
)
def test_how_it_is_started(code: str, kind: Entrypoint) -> None:
    assert read(code).entrypoint.value is kind


SNAPSHOT = """
import os
import sys

class Trainer:
    def __init__(self, path):
        self.path, self.done = path, 0
        if os.path.exists(path):
            self.load()

    def load(self):
        state = torch.load(self.path)
        net.load_state_dict(state["net"])
        self.done = state["done"]

    def train(self):
        for epoch in range(self.done, 1000000):
            net(torch.randn(8, 3)).sum().backward()
            opt.step()
            torch.save({"net": net.state_dict(), "done": epoch}, self.path)

Trainer("snapshot.pt").train()
"""


def test_a_program_that_loads_what_it_saves_goes_on_from_there() -> None:
    found = saving(SNAPSHOT)
    assert found.resume.value
    assert found.interruptible.value


def test_loading_the_best_weights_after_training_is_no_resuming() -> None:
    code = LOOP + "    torch.save(net.state_dict(), 'best.pt')\nnet.load_state_dict(torch.load('best.pt'))\n"
    assert saving(code).resume.value is False


KERAS = """
import keras
model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
model.compile("adam", "mse")
{before}
model.fit(x, y, epochs=9, callbacks=[keras.callbacks.ModelCheckpoint("best.weights.h5", save_weights_only=True)])
{after}
"""


@pytest.mark.parametrize(
    ("before", "after", "goes_on"),
    [
        ("", "model.load_weights('best.weights.h5')", False),
        ("model.load_weights('pretrained.weights.h5')", "", False),
        ("model.load_weights('best.weights.h5')", "", True),
    ],
)
def test_keras_goes_on_where_it_loads_what_it_saves_before_it_trains(before: str, after: str, goes_on: bool) -> None:
    assert read(KERAS.format(before=before, after=after)).resume.value is goes_on


@pytest.mark.parametrize(
    "code",
    [
        "import xgboost as xgb\nxgb.train({}, d, callbacks=[xgb.callback.TrainingCheckPoint(directory='c')])",
        "from stable_baselines3.common.callbacks import CheckpointCallback as C\nmodel.learn(9, callback=C(1000, 'c'))",
        "from catboost import CatBoost\nCatBoost({}).fit(d, save_snapshot=True)",
    ],
)
def test_callbacks_of_libraries_save_as_they_go(code: str) -> None:
    assert read(code).checkpointing.value


def test_only_snapshots_are_gone_on_from_by_themselves() -> None:
    assert read("from catboost import CatBoost\nCatBoost({}).fit(d, save_snapshot=True)").resume.value
    assert not read("from catboost import CatBoost\nCatBoost({}).fit(d)").resume.value


def test_arrays_that_are_written_before_training_are_no_checkpoints() -> None:
    written = "import numpy as np\nfor i in range(9):\n    np.save(f'{i}.npy', x)\n"
    assert not saving(written + LOOP).checkpointing.value
    assert saving("import numpy as np\n" + LOOP + "    np.save('w.npy', x)\n").checkpointing.value


def test_pictures_are_no_checkpoints() -> None:
    drawn = "from diffusers import DiffusionPipeline as D\npipe = D.from_pretrained('x')\n"
    assert read(drawn + "for i in range(4):\n    pipe('a').images[0].save(f'{i:03d}.png')").checkpointing.value is False
    assert saving(LOOP + "    image.save(f'epoch-{epoch}.png')\n").checkpointing.value is False
    assert saving(LOOP + "    engine.save(name)\n").checkpointing.value


def test_a_program_that_only_evaluates_resumes_nothing() -> None:
    code = "import jax, orbax.checkpoint as ocp\nparams = ocp.PyTreeCheckpointer().restore('c')\n"
    assert read(code + "print(jax.numpy.sum(params))").resume.value is False
    assert read(code + "g = jax.grad(loss)(params)").resume.value


def test_a_picture_beside_a_checkpoint_hides_it_not() -> None:
    both = LOOP + "    torch.save(model.state_dict(), f'{epoch}.pt'); figure.savefig(f'{epoch}.png')\n"
    assert saving(both).checkpointing.value
