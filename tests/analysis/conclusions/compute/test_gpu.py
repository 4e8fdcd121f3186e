from __future__ import annotations

import pytest
from tests.analysis.programs import read

from crucible.core.routing.profile import GpuNeed, Profile


def profile(code: str, *arguments: str) -> Profile:
    return read(code, *arguments)


REQUIRED = {
    "memory of a GPU": "import tensorflow as tf\ntf.zeros(3)\ntf.config.experimental.reset_memory_stats('GPU:0')",
    "told": "import torch\ntorch.nn.Linear(1, 2).to('cuda')",
    "told with a number": "import torch\ntorch.nn.Linear(1, 2).to(0)",
    "a keyword": "import torch\ntorch.zeros(3, device='cuda:1')",
    "weights loaded onto one": "import torch\nstate = torch.load('m.pt', map_location='cuda')",
    "a default": (
        "import argparse, torch\np = argparse.ArgumentParser()\n"
        "p.add_argument('--device', default='cuda')\na = p.parse_args()\n"
        "torch.zeros(3).to(a.device)"
    ),
    "refuses to run": "import torch\nif not torch.cuda.is_available():\n    raise SystemExit('no GPU')\nx = 1",
    "exits": "import sys, torch\nif not torch.cuda.is_available():\n    sys.exit(1)\n",
    "asserts": "import torch\nassert torch.cuda.is_available()\n",
    "nccl": "import torch.distributed as dist\ndist.init_process_group('nccl')",
    "a library that does nothing else": "import cupy as cp\nx = cp.zeros(3)",
    "boosted trees": "import xgboost as xgb\nxgb.train({'tree_method': 'gpu_hist'}, d)",
    "boosted trees by keyword": "import xgboost as xgb\nxgb.XGBClassifier(device='cuda')",
    "catboost": "from catboost import CatBoostClassifier\nCatBoostClassifier(task_type='GPU')",
    "lightning": "import pytorch_lightning as pl\npl.Trainer(accelerator='gpu', devices=2)",
    "half precision of the Trainer": "from transformers import TrainingArguments\nTrainingArguments('o', fp16=True)",
    "deepspeed": "import deepspeed\ndeepspeed.initialize(model=m)",
    "eight bits": "from transformers import AutoModel\nAutoModel.from_pretrained('gpt2', load_in_8bit=True)",
    "four bits": (
        "from transformers import AutoModel, BitsAndBytesConfig\n"
        "four = BitsAndBytesConfig(load_in_4bit=True)\n"
        "AutoModel.from_pretrained('gpt2', quantization_config=four, device_map='auto')"
    ),
    "the first of those it lists": (
        "import tensorflow as tf\ng = tf.config.list_physical_devices('GPU')\n"
        "tf.config.experimental.set_memory_growth(g[0], True)\ntf.zeros(3)"
    ),
    "boosted trees, then once more without": (
        "import xgboost as xgb\np = {'device': 'cuda'}\nxgb.train(p, d)\np['device'] = 'cpu'\nxgb.train(p, d)"
    ),
    "a function that others call": (
        "import torch\nfrom concurrent.futures import ThreadPoolExecutor\ndef f(d):\n    torch.zeros(3).to(d)\n"
        "with ThreadPoolExecutor() as pool:\n    pool.submit(f, 'cuda:0')"
    ),
    "kernels": "from numba import cuda\nx = cuda.to_device(y)",
    "the driver's numbers": "import pynvml\npynvml.nvmlInit()",
    "numpyro": "import jax, numpyro\nnumpyro.set_platform('gpu')\njax.numpy.zeros(3)",
    "set_device": "import torch\ntorch.cuda.set_device(0)",
    "jax compiles for it": "import jax\njax.jit(f, backend='gpu')(x)",
    "a device of an Enum": (
        "import enum, torch\nclass D(enum.Enum):\n    FAST = 'cuda'\ntorch.zeros(3).to(D.FAST.value)"
    ),
    "jax asked for its platform": "import jax\nassert jax.default_backend() == 'gpu'\njax.numpy.zeros(3)",
    "jax asked for its devices": (
        "import jax, sys\nif jax.devices()[0].platform != 'gpu':\n    sys.exit('none')\njax.numpy.zeros(3)"
    ),
    "a pipeline": "from transformers import pipeline\npipeline('text-generation', device=0)",
}
OPTIONAL = {
    "where there is one": (
        "import torch\nd = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\ntorch.zeros(3).to(d)"
    ),
    "in an if": "import torch\nif torch.cuda.is_available():\n    torch.zeros(3).cuda()",
    "the other way round": (
        "import torch\nif not torch.cuda.is_available():\n    d = 'cpu'\nelse:\n    d = 'cuda'\ntorch.zeros(3).to(d)"
    ),
    "with a flag": (
        "import argparse, torch\np = argparse.ArgumentParser()\n"
        "p.add_argument('--no-cuda', action='store_true')\na = p.parse_args()\n"
        "c = not a.no_cuda and torch.cuda.is_available()\nif c:\n    torch.zeros(3).cuda()"
    ),
    "a flag that is off": (
        "import argparse, torch\np = argparse.ArgumentParser()\n"
        "p.add_argument('--cuda', action='store_true')\na = p.parse_args()\nif a.cuda:\n"
        "    torch.zeros(3).cuda()"
    ),
    "counted": "import torch\nif torch.cuda.device_count() > 0:\n    torch.zeros(3).cuda()",
    "returns early": (
        "import torch\ndef f():\n    if not torch.cuda.is_available():\n        return\n    torch.zeros(3).cuda()\nf()"
    ),
    "keras": "import keras\nkeras.Sequential([keras.layers.Dense(3)])",
    "tensorflow": "import tensorflow as tf\nx = tf.matmul(a, b)",
    "jax": "import jax.numpy as jnp\njnp.dot(a, b)",
    "transformers in TensorFlow": (
        "from transformers import TFAutoModel\nTFAutoModel.from_pretrained('t5-small').fit(d, epochs=1)"
    ),
    "transformers in JAX": ("from transformers import FlaxAutoModel as A\nA.from_pretrained('gpt2').generate(**batch)"),
    "accelerate": "from accelerate import Accelerator\na = Accelerator()",
    "the Trainer": "from transformers import Trainer\nTrainer(model=m).train()",
    "an own trainer": "from transformers import Trainer\nclass Mine(Trainer):\n    pass\nMine(model=m)",
    "lightning": "import lightning as L\nL.Trainer(max_epochs=3).fit(m)",
    "device_map": "from transformers import AutoModel\nAutoModel.from_pretrained('gpt2', device_map='auto')",
    "hidden from TensorFlow for JAX": (
        "import jax, tensorflow as tf\ntf.config.experimental.set_visible_devices([], 'GPU')\njax.numpy.zeros(3)"
    ),
    "what it can do": "import torch\nhalf = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16",
    "a TPU if it gets one": (
        "import tensorflow as tf\ntry:\n    tf.tpu.experimental.initialize_tpu_system(r)\n"
        "except ValueError:\n    pass\ntf.zeros(3)"
    ),
    "memory of a GPU if there is one": (
        "import tensorflow as tf\nif tf.config.list_physical_devices('GPU'):\n"
        "    tf.config.experimental.get_memory_info('GPU:0')\ntf.zeros(3)"
    ),
    **{
        f"the first of those it lists, {name}": (
            f"import tensorflow as tf\ng = tf.config.list_physical_devices('GPU')\n{code}\ntf.zeros(3)"
        )
        for name, code in {
            "if any": "if g:\n    h = g[0]",
            "if there is one": "if len(g) == 1:\n    h = g[0]",
            "and": "h = g and g[0]",
            "or": "h = not g or g[0]",
            "tried": "try:\n    h = g[0]\nexcept IndexError:\n    pass",
            "each": "for each in g:\n    h = g[0]",
        }.items()
    },
    "kernels that may be called": "from numba import cuda\n@cuda.jit\ndef f(x):\n    pass",
    "TPUs if a flag says so": (
        "import argparse, tensorflow as tf\np = argparse.ArgumentParser()\n"
        "p.add_argument('--tpu', action='store_true')\na = p.parse_args()\n"
        "def tpus():\n    return tf.distribute.TPUStrategy(r)\nif a.tpu:\n    s = tpus()\ntf.zeros(3)"
    ),
    "a platform that a flag chooses": (
        "import argparse, jax, numpyro\np = argparse.ArgumentParser()\n"
        "p.add_argument('--device', default='cpu')\na = p.parse_args()\n"
        "numpyro.set_platform(a.device)\njax.numpy.zeros(3)"
    ),
    "a device that was asked for after it was made": (
        "import torch\ndef best():\n    d = torch.device('cuda')\n    if not torch.cuda.is_available():\n"
        "        return torch.device('cpu')\n    return d\ntorch.zeros(3).to(best())"
    ),
    "GPUs hidden unless an option says which": (
        "import argparse, os\np = argparse.ArgumentParser()\np.add_argument('--gpu', default='-1')\n"
        "os.environ['CUDA_VISIBLE_DEVICES'] = p.parse_args().gpu\nimport tensorflow as tf\ntf.zeros(3)"
    ),
    "an option that has it among its choices": (
        "import argparse, xgboost as xgb\np = argparse.ArgumentParser()\n"
        "p.add_argument('--method', choices=['hist', 'gpu_hist'], default='hist')\n"
        "xgb.train({'tree_method': p.parse_args().method}, d)"
    ),
    "a variable of the environment": (
        "import os, xgboost as xgb\nxgb.train({'device': os.environ.get('TREES_DEVICE', 'cpu')}, d)"
    ),
    "what jax runs on": "import jax\nhalf = jax.default_backend() == 'gpu'\njax.numpy.zeros(3)",
    "a library in a try": "try:\n    import cupy as np\nexcept ImportError:\n    import numpy as np",
}
NONE = {
    "sklearn": "from sklearn.svm import SVC\nSVC().fit(x, y)",
    "torch on the CPU": "import torch\ntorch.nn.Linear(1, 2)(torch.zeros(3, 1)).sum().backward()",
    "told so": "import torch\ntorch.zeros(3).to('cpu')",
    "boosted trees": "import xgboost as xgb\nxgb.train({'tree_method': 'hist'}, d)",
    "hidden": "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = ''\nimport torch\ntorch.zeros(3).cuda()",
    "data of keras": "from keras.datasets import mnist\nmnist.load_data()\nfrom sklearn.svm import SVC",
    "hidden from TensorFlow": "import tensorflow as tf\ntf.config.set_visible_devices([], 'GPU')\ntf.zeros(3)",
    "jax told so": "import jax\njax.config.update('jax_platform_name', 'cpu')\njax.numpy.zeros(3)",
    "jax told so by a device": (
        "import jax\njax.config.update('jax_default_device', jax.devices('cpu')[0])\njax.numpy.zeros(3)"
    ),
    "keras on NumPy": "import os\nos.environ['KERAS_BACKEND'] = 'numpy'\nimport keras\nkeras.layers.Dense(3)",
    "TensorFlow Lite": "import tensorflow as tf\ntf.lite.Interpreter(model_path='a.tflite').invoke()",
    "a word in a table": "import pandas as pd\nd = pd.read_csv('a.csv')\nd[d['device'].isin(['cuda', 'cpu'])]",
    "a word in a picture": "import matplotlib.pyplot as plt\nplt.plot(x, label='cuda')\nplt.legend(['cuda', 'cpu'])",
    "a word in a log": "import logging, torch\nlogging.getLogger('a').info('cuda')\ntorch.zeros(3)",
    "a word that is compared": "import torch\ntorch.zeros(3)\nprint(somebody().startswith('cuda'))",
    "another program that is told so": "import subprocess\nsubprocess.run(['python', 'train.py', '--device', 'cuda'])",
    "numpyro told so": "import jax, numpyro\nnumpyro.set_platform('cpu')\njax.numpy.zeros(3)",
    "records of TensorFlow": (
        "import tensorflow as tf\nwith tf.io.TFRecordWriter('a') as w:\n"
        "    f = tf.train.Feature(int64_list=tf.train.Int64List(value=[1]))\n"
        "    w.write(tf.train.Example(features=tf.train.Features(feature={'a': f})).SerializeToString())"
    ),
    "a request to a server": "import tensorflow as tf\nr.CopyFrom(tf.make_tensor_proto(x))",
    "TPUs of a notebook": "import jax.tools.colab_tpu\njax.tools.colab_tpu.setup_tpu()\njax.numpy.zeros(3)",
    "TPUs in a file of definitions": (
        "import tensorflow as tf\ndef start():\n    s = tf.distribute.TPUStrategy(r)\n    return tf.zeros(3)"
    ),
    "TPUs of jax": "import jax\nkeras_devices = jax.devices('tpu')\njax.numpy.zeros(3)",
    "TPUs of TensorFlow": "import tensorflow as tf\ns = tf.distribute.TPUStrategy(r)\ntf.zeros(3)",
    "seeds": "import torch\ntorch.cuda.manual_seed_all(1)\ntorch.manual_seed(1)",
    "nothing": "print('hello')",
}


@pytest.mark.parametrize("code", REQUIRED.values(), ids=REQUIRED)
def test_a_program_that_fails_without_a_gpu(code: str) -> None:
    found = profile(code).gpu
    assert found.value is GpuNeed.REQUIRED
    assert found.evidence
    assert found.why


@pytest.mark.parametrize("code", OPTIONAL.values(), ids=OPTIONAL)
def test_a_program_that_uses_a_gpu_if_there_is_one(code: str) -> None:
    found = profile(code).gpu
    assert found.value is GpuNeed.OPTIONAL
    assert found.evidence


@pytest.mark.parametrize("code", NONE.values(), ids=NONE)
def test_a_program_that_never_uses_one(code: str) -> None:
    found = profile(code)
    assert found.gpu.value is GpuNeed.NONE
    assert found.gpus.value == 0
    assert found.gpu_memory_gb.value == 0.0


def test_a_flag_given_decides() -> None:
    code = REQUIRED["a default"]
    assert profile(code, "--device", "cuda:1").gpu.value is GpuNeed.REQUIRED
    assert profile(code, "--device", "cpu").gpu.value is GpuNeed.OPTIONAL


def test_a_model_whose_code_is_not_here_may_use_a_gpu_and_that_is_said_to_be_assumed() -> None:
    found = profile("model = GPT(vocab_size=50257, n_layer=12, n_head=12, n_embd=768)")
    assert found.gpu.value is GpuNeed.OPTIONAL
    assert found.gpu.assumed


FLAG = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--gpu', type=int, default=0)\np.parse_args()\n"


def test_a_flag_chooses_a_device_only_where_something_could_use_it() -> None:
    assert read(FLAG).gpu.value is GpuNeed.NONE
    assert read("import numpy as np\nimport pandas as pd\n" + FLAG).gpu.value is GpuNeed.NONE
    assert read("import datasets, jiwer, tokenizers\n" + FLAG).gpu.value is GpuNeed.NONE
    assert read("import torch\n" + FLAG).gpu.value is GpuNeed.OPTIONAL
    assert read("import somebodys_package\n" + FLAG).gpu.value is GpuNeed.OPTIONAL


HANDED = {
    "to a job": "from joblib import Parallel, delayed\nParallel()(delayed(train)('cuda:0') for _ in range(2))",
    "by chance": "import random, torch\ntorch.nn.Linear(1, 2).to(random.choice(['cuda:0', 'cuda:1']))",
    "over a queue": "import queue, torch\nq = queue.Queue()\nq.put('cuda:0')\ntorch.nn.Linear(1, 2).to(q.get())",
}


@pytest.mark.parametrize("code", HANDED.values(), ids=HANDED)
def test_a_device_that_is_handed_on_by_python_or_a_package_is_needed(code: str) -> None:
    assert read(f"import torch\n{code}").gpu.value is GpuNeed.REQUIRED


@pytest.mark.parametrize(
    "code",
    [
        "import jax\njax.config.update('jax_default_device', jax.devices('cpu')[0])\n",
        "import os\nos.environ['KERAS_BACKEND'] = 'numpy'\nimport keras\n",
    ],
)
def test_what_keeps_one_library_off_keeps_no_other(code: str) -> None:
    assert read(code + "import torch\ntorch.nn.Linear(1, 2).cuda()").gpu.value is GpuNeed.REQUIRED


def test_a_device_for_all_that_is_made_is_needed() -> None:
    code = "import torch\nprint(torch.cuda.is_available())\nwith torch.device('cuda'):\n    m = torch.nn.Linear(1, 2)"
    assert read(code).gpu.value is GpuNeed.REQUIRED


def test_the_first_argument_of_local_devices_is_a_process() -> None:
    code = "import jax\nif jax.local_devices(0)[0].platform == 'gpu':\n    jax.jit(f)(x)"
    assert read(code).gpu.value is GpuNeed.OPTIONAL
