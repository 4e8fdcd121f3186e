from __future__ import annotations

import pytest
from tests.analysis.programs import read

from crucible.core.routing.profile import Confidence

HEAD = "import torch\nnet = torch.nn.Linear(3, 4)\nopt = torch.optim.SGD(net.parameters(), lr=0.1)\n"
STEP = "    loss = net(torch.randn(8, 3)).sum()\n    loss.backward()\n    opt.step()\n"


@pytest.mark.parametrize(
    ("loop", "steps"),
    [
        ("for i in range(50):\n" + STEP, 50),
        ("n = 20\nfor i in range(5, n):\n" + STEP, 15),
        ("step = 0\nwhile step < 700:\n" + STEP + "    step += 1\n", 700),
        ("i = 0\nwhile True:\n" + STEP + "    i += 1\n    if i > 300:\n        break\n", 300),
        ("def train():\n" + STEP + "for epoch in range(6):\n    for i in range(10):\n        train()\n", 60),
        ("k = 4\nfor i in range(100):\n  if i > 5 and i % k == 0:\n" + STEP, 25),
        ("for i in range(5):\n  for part in torch.randperm(n).chunk(4):\n" + STEP, 20),
        (
            ("for epoch in range(3):\n  for x in torch.utils.data.DataLoader([1] * 100, batch_size=8):\n")
            + STEP.replace("    ", "      "),
            39,
        ),
    ],
)
def test_steps_are_the_loops_around_them(loop: str, steps: int) -> None:
    found = read(HEAD + loop).steps
    assert found.value == steps
    assert found.confidence is Confidence.HIGH
    assert found.evidence


def test_what_is_prepared_by_accelerate_is_what_it_was() -> None:
    code = """
    import torch
    from accelerate import Accelerator
    accelerator = Accelerator()
    net = torch.nn.Linear(3, 4)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(100, 3)), batch_size=8)
    net, opt, data = accelerator.prepare(net, opt, data)
    for _ in range(3):
        for (x,) in data:
            accelerator.backward(net(x).sum())
            opt.step()
    """
    found = read(code)
    assert (found.steps.value, found.batch_size.value) == (39, 8)
    assert "Followed through the training step" in found.memory.why


def test_steps_of_jax_are_the_loops_around_their_updates() -> None:
    code = """
    import jax, optax
    @jax.jit
    def step(params, state, x):
        loss, gradients = jax.value_and_grad(lambda p: (p * x).sum())(params)
        updates, state = optax.sgd(0.1).update(gradients, state)
        return optax.apply_updates(params, updates), state
    for _ in range(250):
        params, state = step(params, state, 1.0)
    """
    assert read(code).steps.value == 250


def test_epochs_and_a_known_dataset() -> None:
    code = """
    import torch
    from torchvision import datasets, transforms
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    data = datasets.MNIST('data', train=True, download=True, transform=transforms.ToTensor())
    loader = torch.utils.data.DataLoader(data, batch_size=64)
    for epoch in range(1, 15):
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(net(x), y)
            loss.backward()
            opt.step()
    """
    found = read(code)
    assert found.epochs.value == 14
    assert found.steps.value == 14 * 938
    assert found.dataset.value is not None
    assert (found.dataset.value.name, found.dataset.value.samples) == ("mnist", 60_000)
    assert found.network.value


@pytest.mark.parametrize(
    ("code", "epochs"),
    [
        ("import keras\nm = keras.Sequential([])\nm.fit(x, y, epochs=7)", 7),
        ("import pytorch_lightning as pl\npl.Trainer(max_epochs=12)", 12),
        ("from transformers import TrainingArguments\nTrainingArguments('o')", 3),
        ("num_epochs = 30", 30),
    ],
)
def test_epochs_that_are_told(code: str, epochs: int) -> None:
    assert read(code).epochs.value == epochs


def test_max_steps_of_the_trainer_come_before_epochs() -> None:
    found = read("from transformers import TrainingArguments\nTrainingArguments('o', max_steps=500)")
    assert found.steps.value == 500
    assert found.epochs.value is None


def test_what_the_code_does_not_say_is_assumed_and_said() -> None:
    endless = read(HEAD + "while running():\n" + STEP).steps
    assert endless.assumed
    assert "assumed" in endless.why
    unknown_data = read(HEAD + "for epoch in range(4):\n  for x in load():\n" + STEP.replace("    ", "      ")).steps
    assert unknown_data.assumed
    assert unknown_data.value is not None
    assert unknown_data.value % 4 == 0


def test_a_program_that_does_not_train_has_no_steps() -> None:
    found = read("import torch\nnet = torch.nn.Linear(3, 4)\nnet(torch.zeros(2, 3))").steps
    assert not found.known
    assert found.question


@pytest.mark.parametrize(
    ("code", "name", "samples"),
    [
        ("from datasets import load_dataset\nload_dataset('glue', 'mrpc')", "mrpc", 3_668),
        ("import tensorflow_datasets as tfds\ntfds.load('mnist')", "mnist", 60_000),
        ("from keras.datasets import cifar10\n(x, y), (a, b) = cifar10.load_data()", "cifar10", 50_000),
        ("from sklearn.datasets import load_iris\nload_iris()", "iris", 150),
        ("from sklearn.datasets import make_blobs\nmake_blobs(n_samples=500)", "made by the program", 500),
        ("import pandas as pd\npd.read_csv('table.csv')", "table.csv", None),
        ("from datasets import load_dataset\nload_dataset('someone/new')", "someone/new", None),
    ],
)
def test_datasets(code: str, name: str, samples: int | None) -> None:
    found = read(code).dataset.value
    assert found is not None
    assert (found.name, found.samples) == (name, samples)


def test_an_optimizer_of_nnx_ends_a_step() -> None:
    code = """
    import optax
    from flax import nnx
    opt = nnx.Optimizer(nnx.Linear(2, 3, rngs=nnx.Rngs(0)), optax.adam(1e-3))
    @nnx.jit
    def step(opt, x):
        opt.update(nnx.grad(loss)(opt.model, x))
    for epoch in range(20):
        for i in range(200):
            step(opt, x)
    """
    assert read(code).steps.value == 4000
