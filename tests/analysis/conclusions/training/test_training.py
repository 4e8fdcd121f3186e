from __future__ import annotations

import pytest
from tests.analysis.programs import read

from crucible.core.routing.profile import Confidence, Precision

NET = "import torch\nnet = torch.nn.Linear(3, 4)\n"


@pytest.mark.parametrize(
    ("code", "name", "state"),
    [
        (NET + "torch.optim.AdamW(net.parameters())", "AdamW", 8),
        (NET + "torch.optim.Adam(net.parameters(), amsgrad=True)", "Adam", 12),
        (NET + "torch.optim.SGD(net.parameters(), lr=0.1)", "SGD", 0),
        (NET + "torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)", "SGD", 4),
        (NET + "import torch.optim as o\no.RMSprop(net.parameters())", "RMSprop", 4),
        (NET + "from torch.optim import Adadelta as A\nA(net.parameters())", "Adadelta", 8),
        ("import bitsandbytes as bnb\nbnb.optim.Adam8bit(p)", "Adam8bit", 2),
        ("import keras\nm = keras.Sequential([])\nm.compile(optimizer='adam')", "adam", 8),
        ("import keras\nkeras.optimizers.SGD(0.1)", "SGD", 0),
        ("import optax\noptax.adamw(1e-3)", "adamw", 8),
        ("from transformers import TrainingArguments\nTrainingArguments('o')", "AdamW", 8),
        ("from transformers import TrainingArguments as T\nT('o', optim='paged_adamw_8bit')", "paged_adamw_8bit", 2),
        ("from transformers import TrainingArguments as T\nT('o', optim='adamw_torch_fused')", "adamw_torch_fused", 8),
        ("from transformers import TrainingArguments as T\nT('o', optim='adafactor')", "adafactor", 0.1),
        ("from transformers import TrainingArguments as T\nT('o', optim='sgd')", "sgd", 0),
    ],
)
def test_the_optimizer_and_what_it_keeps(code: str, name: str, state: float) -> None:
    found = read(code)
    assert found.optimizer.value == name
    assert found.optimizer_bytes_per_parameter.value == state
    assert found.optimizer.evidence


def test_one_that_is_not_found_is_assumed_where_it_trains_and_asked_for_where_not() -> None:
    training = read(NET + "net(x).sum().backward()").optimizer
    assert training.assumed
    assert training.value == "Adam"
    assert "optimizer" in read(NET).optimizer.question


@pytest.mark.parametrize(
    "code",
    [
        "import lightgbm as lgb\nlgb.LGBMClassifier(n_estimators=500).fit(X, y)",
        "from xgboost import XGBClassifier\nXGBClassifier().fit(X, y)",
        "from sklearn.svm import SVC\nSVC().fit(X, y)",
    ],
)
def test_what_is_fitted_without_gradients_has_no_optimizer_and_no_steps(code: str) -> None:
    found = read(code)
    assert found.optimizer.value is None
    assert found.steps.value is None


@pytest.mark.parametrize(
    ("code", "precision"),
    [
        ("import torch\nwith torch.autocast('cuda', dtype=torch.bfloat16):\n    pass", Precision.BF16),
        ("from torch.cuda.amp import autocast\nwith autocast():\n    pass", Precision.FP16),
        ("import torch\nwith torch.amp.autocast('cuda', enabled=False):\n    pass", Precision.FP32),
        (NET + "net.half()", Precision.FP16),
        (NET + "net.bfloat16()", Precision.BF16),
        ("from transformers import TrainingArguments\nTrainingArguments('o', bf16=True)", Precision.BF16),
        ("import pytorch_lightning as pl\npl.Trainer(precision='16-mixed')", Precision.FP16),
        ("import pytorch_lightning as pl\npl.Trainer(precision=16)", Precision.FP16),
        ("from accelerate import Accelerator\nAccelerator(mixed_precision='bf16')", Precision.BF16),
        ("import keras\nkeras.mixed_precision.set_global_policy('mixed_float16')", Precision.FP16),
        (
            (
                "import torch\nfrom transformers import AutoModel as A\n"
                "A.from_pretrained('gpt2', torch_dtype=torch.bfloat16)"
            ),
            Precision.BF16,
        ),
        ("from transformers import BitsAndBytesConfig\nBitsAndBytesConfig(load_in_4bit=True)", Precision.INT4),
        ("from transformers import AutoModel as A\nA.from_pretrained('gpt2', load_in_8bit=True)", Precision.INT8),
        ("import torch\ntorch.set_float32_matmul_precision('high')", Precision.TF32),
        (
            (
                "import torch\ntorch.set_float32_matmul_precision('high')\n"
                "with torch.autocast(device.type, dtype=torch.bfloat16):\n    pass"
            ),
            Precision.BF16,
        ),
        (
            (
                "import torch\nfrom torch.distributed.fsdp import MixedPrecision\n"
                "MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)"
            ),
            Precision.BF16,
        ),
        ("from transformers import pipeline\npipeline('fill-mask', torch_dtype='float16')", Precision.FP16),
        ("from vllm import LLM\nLLM('facebook/opt-125m', dtype='bfloat16')", Precision.BF16),
        ("import torch", Precision.FP32),
    ],
)
def test_precision(code: str, precision: Precision) -> None:
    assert read(code).precision.value is precision


def test_a_precision_chosen_by_name_is_found() -> None:
    code = """
    import torch
    dtype = 'bfloat16' if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else 'float16'
    kinds = {'float32': torch.float32, 'bfloat16': torch.bfloat16, 'float16': torch.float16}[dtype]
    with torch.amp.autocast(device_type='cuda', dtype=kinds):
        pass
    """
    assert read(code).precision.value is Precision.BF16


@pytest.mark.parametrize(
    ("code", "batch"),
    [
        ("from torch.utils.data import DataLoader\nDataLoader(d, batch_size=48)", 48),
        ("from torch.utils.data import DataLoader\nn = 6\nDataLoader(d, n * 2)", 12),
        ("import keras\nm = keras.Sequential([])\nm.fit(x, y, batch_size=16, epochs=2)", 16),
        ("import tensorflow as tf\nd = tf.data.Dataset.from_tensor_slices(x).shuffle(5).batch(24)", 24),
        ("import keras\nkeras.utils.image_dataset_from_directory('d')", 32),
        ("batch_size = 20", 20),
        ("batch_size = 2048\nminibatch_size = batch_size // 16", 128),
        ("import torch\nfor i in range(n):\n    rows = [torch.zeros(3)]\n    torch.stack(rows)", None),
        ("batch_size = 512\ndevice_batch_size = 64", 64),
        (
            (
                "import argparse\np = argparse.ArgumentParser()\n"
                "p.add_argument('--batch-size', type=int, default=9)\np.parse_args()"
            ),
            9,
        ),
        ("from transformers import TrainingArguments\nTrainingArguments('o')", 8),
        ("(x_train, y_train), _ = __import__('keras')\n", None),
    ],
)
def test_batches(code: str, batch: int | None) -> None:
    found = read(code).batch_size
    assert found.value == batch
    assert found.known or "batch" in found.question


def test_the_loader_that_is_trained_on_counts_not_the_one_for_tests() -> None:
    code = """
    import torch
    from torch.utils.data import DataLoader
    test = DataLoader(d, batch_size=1000)
    train = DataLoader(d, batch_size=32)
    for x, y in train:
        net(x).sum().backward()
    """
    assert read(code).batch_size.value == 32


def test_lengths_and_pictures() -> None:
    assert read("block_size = 256").sequence_length.value == 256
    assert read("tok(texts, max_length=128, truncation=True)").sequence_length.value == 128
    assert "tokens" in read("x = 1").sequence_length.question
    assert not read("from collections import deque\nmemory = deque(maxlen=1000)").sequence_length.known
    assert (
        read(
            "from transformers import AutoTokenizer as A\nt = A.from_pretrained('x')\nt.encode(s, max_length=128)"
        ).sequence_length.value
        == 128
    )
    assert read("import keras\nkeras.Input((96, 96, 3))").image_size.value == 96
    assert read("IMG_SIZE = 160").image_size.value == 160
    assert "pixels" in read("x = 1").image_size.question


def test_pictures_of_a_loader_have_the_size_of_their_transforms() -> None:
    code = """
    import torchvision.datasets as datasets
    import torchvision.transforms as T
    from torch.utils.data import DataLoader
    d = datasets.ImageFolder('train', T.Compose([T.RandomResizedCrop(192), T.ToTensor()]))
    DataLoader(d, batch_size=8)
    """
    found = read(code).image_size
    assert found.value == 192
    assert found.confidence is Confidence.HIGH


def test_what_a_known_model_is_called_with_says_how_long_texts_are() -> None:
    code = """
import torch
from transformers import BertConfig, BertForMaskedLM
model = BertForMaskedLM(BertConfig()).cuda()
for step in range(10):
    words = torch.randint(30_000, (16, 128), device="cuda")
    model(input_ids=words, labels=words).loss.backward()
"""
    found = read(code)
    assert (found.sequence_length.value, found.batch_size.value) == (128, 16)
    assert not found.gpu_memory_gb.assumed


@pytest.mark.parametrize(
    "code",
    [
        "from sklearn.svm import SVC\nfrom sklearn.datasets import load_iris\nSVC().fit(*load_iris(return_X_y=True))",
        "from sklearn.pipeline import make_pipeline\nfor steps in chosen:\n    make_pipeline(*steps).fit(x, y)",
        "def tried(model):\n    model.fit(x, y)\nimport sklearn.ensemble as e\ntried(e.RandomForestClassifier())",
        "import xgboost\nxgboost.XGBClassifier().fit(x, y)",
        "from scipy import optimize\noptimize.minimize(f, x0)",
        "import torch\nfrom sklearn.preprocessing import StandardScaler\nx = StandardScaler().fit(x)",
    ],
)
def test_what_learns_without_steps_has_no_optimizer_and_no_steps(code: str) -> None:
    found = read(code)
    assert not found.optimizer.known
    assert not found.steps.known


def test_a_scaler_beside_a_network_that_learns_changes_nothing() -> None:
    code = "from sklearn.preprocessing import StandardScaler\nStandardScaler().fit(x)\nimport keras\n"
    assert read(code + "m = keras.Sequential([keras.layers.Dense(1)])\nm.fit(x, y)").optimizer.known
