"""Batches and epochs that a library's own way to train is called with."""

from __future__ import annotations

import pytest
from tests.analysis.programs import read

from crucible.core.routing.profile import Confidence

BATCHES = {
    "an agent": ("from stable_baselines3 import SAC\nSAC('MlpPolicy', env, batch_size=256).learn(10)", 256),
    "fastai": ("from fastai.vision.all import *\ndls = ImageDataLoaders.from_folder(p, bs=48)", 48),
    "fastai's own": ("from fastai.vision.all import *\ndls = ImageDataLoaders.from_folder(p)", 64),
    "a block of fastai": ("from fastai.vision.all import *\ndls = DataBlock(b).dataloaders(p)", 64),
    "a detector": ("from ultralytics import YOLO\nYOLO('yolov8n.pt').train(data='d.yaml', batch=16)", 16),
    "for each device": (
        "import jax, ml_collections\nc = ml_collections.ConfigDict()\nc.per_device_batch_size = 12\n"
        "n = c.per_device_batch_size * jax.device_count()",
        12,
    ),
    "a pipeline": ("from transformers import pipeline\npipeline('text-generation', batch_size=4)", 4),
    "padded": ("import tensorflow as tf\nds = tf.data.Dataset.from_generator(g).padded_batch(20)", 20),
    "a sampler of batches": (
        "from torch.utils.data import BatchSampler, DataLoader, RandomSampler\n"
        "for x in DataLoader(d, batch_sampler=BatchSampler(RandomSampler(d), 5, False)):\n    x.sum().backward()",
        5,
    ),
    "a dataset from somewhere": ("import tensorflow as tf\nfrom data import ds\nds = ds.map(f).batch(24)", 24),
    "a command's default": (
        "import fire, jax\ndef main(batch_size=32):\n    x[:batch_size]\nfire.Fire(main)",
        32,
    ),
    "sentences": (
        "from sentence_transformers import SentenceTransformerTrainingArguments as A\n"
        "A('o', per_device_train_batch_size=64)",
        64,
    ),
}


@pytest.mark.parametrize(("code", "batch"), BATCHES.values(), ids=BATCHES)
def test_batches(code: str, batch: int) -> None:
    assert read(code).batch_size.value == batch


EPOCHS = {
    "fastai": ("from fastai.vision.all import *\nlearn = vision_learner(dls, resnet18)\nlearn.fine_tune(3)", 3),
    "one cycle": ("from fastai.vision.all import *\nlearn = Learner(dls, net)\nlearn.fit_one_cycle(5, 1e-3)", 5),
    "a detector": ("from ultralytics import YOLO\nYOLO('yolov8n.pt').train(data='d.yaml', epochs=100)", 100),
    "skorch": ("from skorch import NeuralNetClassifier\nNeuralNetClassifier(Net, max_epochs=20).fit(x, y)", 20),
}


@pytest.mark.parametrize(("code", "epochs"), EPOCHS.values(), ids=EPOCHS)
def test_epochs(code: str, epochs: int) -> None:
    assert read(code).epochs.value == epochs


def test_a_loop_around_one_over_data_counts_epochs_whatever_its_counter_is_called() -> None:
    code = """
    import torch
    net = torch.nn.Linear(3, 4)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    rows = torch.utils.data.DataLoader(data, batch_size=8)
    for _ in range(7):
        for x in rows:
            net(x).sum().backward()
            opt.step()
    """
    found = read(code).epochs
    assert found.value == 7
    assert found.confidence is Confidence.MEDIUM


def test_a_loop_of_steps_alone_counts_no_epochs() -> None:
    code = "import torch\nnet = torch.nn.Linear(3, 4)\nfor i in range(50):\n    net(torch.randn(8, 3)).sum().backward()"
    assert read(code).epochs.value is None


def test_a_loop_that_says_it_counts_epochs_does_so_whatever_ends_its_steps() -> None:
    code = "import jax\nfor epoch in range(4):\n    for x in rows:\n        state = update(state, jax.device_put(x))"
    assert read(code).epochs.value == 4
