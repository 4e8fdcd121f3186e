"""Memory of the machine itself, above all for programs that use no GPU."""

from __future__ import annotations

import pytest
from tests.analysis.programs import LOOP, read

from crucible.core.routing.profile import Confidence, HostMemory, Profile

BASE = "from sklearn.linear_model import Ridge\nimport numpy as np\n"


def parts(profile: Profile) -> HostMemory:
    assert profile.host_memory.value is not None
    return profile.host_memory.value


@pytest.mark.parametrize(
    ("made", "numbers"),
    [
        ("np.zeros((1_000_000, 100))", 100e6),
        ("np.random.rand(1_000_000, 100)", 100e6),
        ("np.random.default_rng(0).normal(size=(1_000_000, 100))", 100e6),
        ("np.random.random((1_000_000, 100))", 100e6),
        ("np.ones((1_000_000, 100), dtype=np.float32)", 50e6),
        ("np.ones((1_000_000, 100), dtype='uint8')", 12.5e6),
        ("np.ones((1_000_000, 100), np.float32)", 50e6),
        ("np.zeros((1_000_000, 100), dtype=int)", 100e6),
        ("np.full((1_000_000, 100), 0.5)", 100e6),
        ("np.random.normal(0, 1, (1_000_000, 100))", 100e6),
        ("np.random.randint(0, 2, (1_000_000, 100), dtype=np.int8)", 12.5e6),
        ("np.random.default_rng(0).integers(0, 2, (1_000_000, 100))", 100e6),
        ("np.random.default_rng(0).standard_normal((1_000_000, 100), 'float32')", 50e6),
        ("np.random.choice(5, (1_000_000, 100))", 100e6),
    ],
)
def test_arrays_of_constant_shape_are_held_with_a_copy(made: str, numbers: float) -> None:
    found = read(f"{BASE}X = {made}\nRidge().fit(X, X[:, 0])\n")
    assert parts(found).data == 2 * 8 * numbers
    assert (found.host_memory_gb.confidence, found.host_memory_gb.evidence[0].line) == (Confidence.MEDIUM, 3)


def test_sizes_come_from_the_command_line_too() -> None:
    program = f"import argparse\n{BASE}p = argparse.ArgumentParser()\np.add_argument('--rows', type=int, default=10)\n"
    program += "X = np.zeros((p.parse_args().rows, 1000))\n"
    assert parts(read(program)).data == 0
    assert parts(read(program, "--rows", "1000000")).data == 2 * 8e9


def test_what_a_loop_makes_again_is_there_once() -> None:
    many = f"{BASE}for seed in range(50):\n    X = np.zeros((1_000_000, 100))\n    Ridge().fit(X, X)\n"
    assert parts(read(many)).data == 2 * 800e6


def test_made_up_and_known_datasets_have_their_sizes() -> None:
    made = "from sklearn.datasets import make_classification\nX, y = make_classification(100_000, n_features=99)\n"
    assert parts(read(made)).data == 2 * 8 * 100_000 * 100
    covtype = "from sklearn.datasets import fetch_covtype\nX, y = fetch_covtype(return_X_y=True)\n"
    assert parts(read(covtype)).data == 2 * 8 * 581_012 * 54
    mnist = "from sklearn.datasets import fetch_openml\nX, y = fetch_openml('mnist_784', return_X_y=True)\n"
    assert parts(read(mnist)).data == 2 * 8 * 60_000 * 784
    keras = "import keras\n(x, y), _ = keras.datasets.cifar10.load_data()\n"
    assert parts(read(keras)).data == 2 * 5 * 50_000 * 3072


def test_datasets_that_are_read_piece_by_piece_are_not_held() -> None:
    head = "import torchvision\n"
    assert parts(read(f"{head}d = torchvision.datasets.CIFAR10('.')\n")).data == 2 * 50_000 * 3072
    assert parts(read(f"{head}d = torchvision.datasets.ImageNet('.')\n")).data == 0
    assert parts(read("import datasets\nd = datasets.load_dataset('c4')\n")).data == 0


def test_a_table_of_unknown_size_is_asked_for_and_one_beside_the_program_is_known() -> None:
    program = "import pandas as pd\nd = pd.read_csv('sales.csv')\n"
    unknown = read(program).host_memory_gb
    assert (unknown.confidence, unknown.question) == (
        Confidence.LOW,
        "How large is sales.csv, which is read whole?",
    )
    assert "The size of sales.csv is not included." in unknown.why
    known = read(program, **{"sales.csv": "a,b\n" * 500_000})
    assert parts(known).data == 2 * 3 * 2_000_000
    assert parts(read("import numpy as np\nd = np.load('x.npy', mmap_mode='r')\n")).data == 0


NET = "import torch\nmodel = torch.nn.Linear(10_000, 10_000){move}\noptimizer = torch.optim.Adam(model.parameters())\n"


def test_a_model_takes_all_of_its_memory_here_where_no_gpu_does_the_work() -> None:
    size = 10_000 * 10_001 * 4
    here = read(NET.format(move="") + "x = torch.randn(32, 10_000)\n" + LOOP)
    assert parts(here).model == pytest.approx(4 * size, rel=0.05)
    on_a_gpu = read(NET.format(move=".cuda()") + "x = torch.randn(32, 10_000).cuda()\n" + LOOP)
    assert parts(on_a_gpu).model == pytest.approx(size, rel=0.01)
    assert parts(on_a_gpu).base > parts(here).base


LOADED = """
import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
model = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.1", {given})
model{move}.generate(**inputs)
"""


@pytest.mark.parametrize(
    ("given", "move", "size"),
    [
        ("quantization_config=BitsAndBytesConfig(load_in_4bit=True)", "", 7.24e9 / 2),
        ("load_in_8bit=True, device_map='auto'", "", 5e9),
        ("torch_dtype=torch.float16, device_map={'': 0}", "", 5e9),
        ("torch_dtype=torch.float16", ".cuda()", 2 * 7.24e9),
        ("torch_dtype=torch.float16, device_map='cpu'", ".cuda()", 2 * 7.24e9),
    ],
)
def test_weights_that_go_to_the_gpu_file_by_file_are_not_here_all_at_once(given: str, move: str, size: float) -> None:
    assert parts(read(LOADED.format(given=given, move=move))).model == pytest.approx(size, rel=0.01)


def test_workers_that_load_data_count_with_the_batches_they_hold_ready() -> None:
    program = """
    import torch
    data = torch.utils.data.TensorDataset(torch.zeros(1000, 3, 1000, 1000))
    loader = torch.utils.data.DataLoader(data, batch_size=10, num_workers={workers})
    """
    assert parts(read(program.format(workers=0))).workers == 0
    assert parts(read(program.format(workers=4))).workers == 4 * (0.25e9 + 2 * 10 * 3e6 * 4)


def test_searches_fit_side_by_side() -> None:
    program = "from sklearn.model_selection import GridSearchCV\ns = GridSearchCV(model, {{}}, n_jobs={jobs})\n"
    assert [parts(read(program.format(jobs=jobs))).workers / 0.25e9 for jobs in (1, 2, -1)] == [0, 2, 8]


def test_the_least_is_an_interpreter() -> None:
    assert 0 < parts(read("print(1)\n")).total < 0.5e9
    assert parts(read("import torch\n")).base > parts(read("import numpy\n")).base
    assert parts(read("import stable_baselines3\n")).base == parts(read("import torch\n")).base
