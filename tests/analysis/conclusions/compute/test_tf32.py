"""What GPUs do in TF32 though the program says 32 bits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks.analysis.runs import Run, runs
from benchmarks.analysis.runtimes import predict
from tests.analysis.programs import read

CONVOLUTION = "torch.nn.Conv2d(3, 64, 3)"
MATRIX = "torch.nn.Linear(32, 32)"
TORCH = """
import torch
{more}
net = torch.nn.Sequential({layers}).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
x = torch.randn(8, 3, 32, 32).cuda()
for step in range(10):
    net(x).sum().backward()
    optimizer.step()
"""


def share(layers: str, more: str = "") -> float | None:
    return read(TORCH.format(layers=layers, more=more)).tf32_share.value


def test_torch_lets_convolutions_alone() -> None:
    assert share(CONVOLUTION) == pytest.approx(1.0, abs=0.05)
    assert share(MATRIX) == 0.0
    both = share("torch.nn.Linear(32, 32), torch.nn.Conv2d(3, 3, 3)")
    assert both is not None
    assert 0.1 < both < 0.9


def test_a_step_of_torch_is_torchs_whatever_writes_its_summary() -> None:
    summary = "import tensorflow as tf\ntf.summary.create_file_writer('logs')"
    assert share(MATRIX, summary) == 0.0
    assert share(CONVOLUTION, summary) == share(CONVOLUTION)


@pytest.mark.parametrize(
    ("layers", "more", "wanted"),
    [
        (CONVOLUTION, "torch.backends.cudnn.allow_tf32 = False", 0.0),
        (MATRIX, "torch.backends.cuda.matmul.allow_tf32 = True", 1.0),
        (MATRIX, "torch.backends.cuda.matmul.fp32_precision = 'tf32'", 1.0),
        (MATRIX, "torch.backends.cuda.matmul.allow_tf32 = False", 0.0),
        (CONVOLUTION, "torch.set_float32_matmul_precision('high')", 0.0),
    ],
)
def test_a_program_may_say_otherwise(layers: str, more: str, wanted: float) -> None:
    """Where all of it is in TF32 by its own word, nothing is left to be done in it besides."""
    assert share(layers, more) == wanted


@pytest.mark.parametrize(("name", "wanted"), [("resnet50", 1.0), ("vit_b_16", 0.0)])
def test_known_networks_are_told_apart(name: str, wanted: float) -> None:
    program = f"import torch, torchvision\nnet = torchvision.models.{name}().cuda()\n"
    program += "torch.optim.SGD(net.parameters(), 0.1)\n"
    assert read(program).tf32_share.value == wanted


KERAS = """
import tensorflow as tf
from tensorflow import keras
{more}
net = keras.Sequential([keras.Input((32,)), keras.layers.Dense(100)])
net.compile("adam", "mse")
net.fit(tf.zeros((100, 32)), tf.zeros((100, 100)), epochs=2)
"""


def test_tensorflow_lets_matrices_too_unless_it_is_forbidden() -> None:
    assert read(KERAS.format(more="")).tf32_share.value == 1.0
    forbidden = "tf.config.experimental.enable_tensor_float_32_execution(False)"
    assert read(KERAS.format(more=forbidden)).tf32_share.value == 0.0


def test_half_precision_and_processors_have_none_of_it() -> None:
    assert read(KERAS.format(more='keras.mixed_precision.set_global_policy("mixed_float16")')).tf32_share.value == 0.0
    assert read("import numpy as np\nnp.zeros(3)\n").tf32_share.value == 0.0


def test_the_work_of_a_step_is_asked_for_once() -> None:
    found = read("import torch\nfrom nets import net\nnet = net().cuda()\nnet(x).sum().backward()\n")
    assert not found.tf32_share.known
    questions = [each.question for each in found.conclusions().values()]
    assert questions.count(found.flops_per_step.question) == 1


TOLD = [run for run in runs() if run.program.startswith("imagenet.py") and "--tf32" in run.program]


@pytest.mark.parametrize("run", TOLD, ids=lambda run: run.name)
def test_a_published_run_in_tf32_is_told_the_same_where_the_program_says_nothing(run: Run) -> None:
    silent = replace(run, program=run.program.replace(" --tf32", ""))
    assert predict(silent).hours == pytest.approx(predict(run).hours, rel=0.01)
