"""Libraries that put the work somewhere themselves, and what they are told about it."""

from __future__ import annotations

import pytest
from tests.analysis.programs import read

from crucible.core.routing.profile import GpuNeed, Precision

ARGUMENTS = "from transformers import Trainer, TrainingArguments\nTrainer(m, TrainingArguments('o', {}))"
DETECTOR = "from ultralytics import YOLO\ny = YOLO('yolov8n.pt')\n"
NEED = {
    "half precision of the Accelerator": (
        "from accelerate import Accelerator\nAccelerator(mixed_precision='fp16')",
        GpuNeed.REQUIRED,
    ),
    "bfloat16 of the Accelerator, which a CPU has": (
        "from accelerate import Accelerator\nAccelerator(mixed_precision='bf16')",
        GpuNeed.OPTIONAL,
    ),
    "the Accelerator on the CPU": ("from accelerate import Accelerator\nAccelerator(cpu=True)", GpuNeed.NONE),
    "bfloat16 of the Trainer, which asks for a GPU": (ARGUMENTS.format("bf16=True"), GpuNeed.REQUIRED),
    "bfloat16 of the Trainer on the CPU": (ARGUMENTS.format("bf16=True, use_cpu=True"), GpuNeed.NONE),
    "the Trainer on the CPU": (ARGUMENTS.format("no_cuda=True"), GpuNeed.NONE),
    "the Trainer": (ARGUMENTS.format("seed=1"), GpuNeed.OPTIONAL),
    "Lightning on the CPU": ("import lightning as L\nL.Trainer(accelerator='cpu').fit(m)", GpuNeed.NONE),
    "an agent": ("from stable_baselines3 import PPO\nPPO('MlpPolicy', 'CartPole-v1').learn(10)", GpuNeed.OPTIONAL),
    "an agent on the CPU": (
        "from stable_baselines3 import PPO\nPPO('MlpPolicy', 'CartPole-v1', device='cpu').learn(10)",
        GpuNeed.NONE,
    ),
    "an agent that is loaded": ("from stable_baselines3 import PPO\nPPO.load('a.zip').predict(o)", GpuNeed.OPTIONAL),
    "environments alone": (
        "from stable_baselines3.common.env_util import make_vec_env\nmake_vec_env('CartPole-v1', 4).reset()",
        GpuNeed.NONE,
    ),
    "an actor of Ray with a share of a GPU": (
        "import ray\n@ray.remote\nclass A:\n    pass\nA.options(num_gpus=0.5).remote()",
        GpuNeed.REQUIRED,
    ),
    "an algorithm of Ray with a GPU": (
        "from ray.rllib.algorithms.ppo import PPOConfig\nPPOConfig().resources(num_gpus=1).build().train()",
        GpuNeed.REQUIRED,
    ),
    "trials of Ray with a GPU each": (
        "from ray import tune\ntune.run(f, resources_per_trial={'cpu': 2, 'gpu': 1})",
        GpuNeed.REQUIRED,
    ),
    "trials of Ray without": ("from ray import tune\ntune.run(f, resources_per_trial={'gpu': 0})", GpuNeed.NONE),
    "an index on the GPUs that are there": (
        "import faiss\nif faiss.get_num_gpus() > 0:\n    i = faiss.index_cpu_to_all_gpus(i)",
        GpuNeed.OPTIONAL,
    ),
    "an algorithm of Ray without": (
        "from ray.rllib.algorithms.ppo import PPOConfig\nPPOConfig().resources(num_gpus=0).build().train()",
        GpuNeed.NONE,
    ),
    "trees where there is a GPU": (
        "import lightgbm, torch\np = {}\nif torch.cuda.is_available():\n    p['device'] = 'gpu'\nlightgbm.train(p, d)",
        GpuNeed.OPTIONAL,
    ),
    "trees that are updated where there is a GPU": (
        "import torch, xgboost as x\np = {}\nif torch.cuda.is_available():\n    p.update(device='cuda')\nx.train(p, d)",
        GpuNeed.OPTIONAL,
    ),
    "a learner of fastai": (
        "from fastai.vision.all import *\nlearn = vision_learner(dls, resnet34)\nlearn.fit(1)",
        GpuNeed.OPTIONAL,
    ),
    "weights that wait in main memory": (
        "from diffusers import DiffusionPipeline\np = DiffusionPipeline.from_pretrained('x')\n"
        "p.enable_model_cpu_offload()",
        GpuNeed.REQUIRED,
    ),
    "a detector on the CPU": (DETECTOR + "y.train(data='d.yaml', device='cpu')\ny.export(format='onnx')", GpuNeed.NONE),
    "a detector that only trains on the CPU": (DETECTOR + "y.train(device='cpu')\ny.val()", GpuNeed.OPTIONAL),
    "a detector that is called on the CPU": (DETECTOR + "y('a.jpg', device='cpu')", GpuNeed.NONE),
    "a detector that is exported": (DETECTOR + "y.export(format='onnx')", GpuNeed.OPTIONAL),
    "a detector": ("from ultralytics import YOLO\nYOLO('yolov8n.pt').train(data='d.yaml')", GpuNeed.OPTIONAL),
    "a detector on numbered GPUs": (
        "from ultralytics import YOLO\nYOLO('yolov8n.pt').train(data='d.yaml', device=[0, 1])",
        GpuNeed.REQUIRED,
    ),
    "trees where a count says so": (
        "from catboost import CatBoostClassifier\nfrom catboost.utils import get_gpu_device_count\n"
        "CatBoostClassifier(task_type='GPU' if get_gpu_device_count() else 'CPU')",
        GpuNeed.OPTIONAL,
    ),
    "GPUs named for TensorFlow": (
        "import tensorflow as tf\ntf.distribute.MirroredStrategy(['GPU:0', 'GPU:1'])\ntf.zeros(3)",
        GpuNeed.REQUIRED,
    ),
    "the name of a GPU, or else": (
        "import tensorflow as tf\nif tf.test.gpu_device_name() != '/device:GPU:0':\n    raise SystemError('none')\n"
        "tf.zeros(3)",
        GpuNeed.REQUIRED,
    ),
    "a list of GPUs that must not be empty": (
        "import tensorflow as tf\ngpus = tf.config.list_physical_devices('GPU')\nassert len(gpus) > 0\ntf.zeros(3)",
        GpuNeed.REQUIRED,
    ),
    "tensors of a GPU": ("import torch\ntorch.cuda.FloatTensor(3)", GpuNeed.REQUIRED),
    "tensors of a GPU from the start": (
        "import torch\ntorch.set_default_tensor_type('torch.cuda.FloatTensor')",
        GpuNeed.REQUIRED,
    ),
    "a model on a numbered GPU": (
        "from transformers import AutoModel\nAutoModel.from_pretrained('gpt2', device_map={'': 0})",
        GpuNeed.REQUIRED,
    ),
    "flash attention": (
        "from transformers import AutoModel\n"
        "AutoModel.from_pretrained('gpt2', attn_implementation='flash_attention_2')",
        GpuNeed.REQUIRED,
    ),
    "an optimizer of bitsandbytes": (ARGUMENTS.format("optim='paged_adamw_32bit'"), GpuNeed.REQUIRED),
    "jax on GPUs alone": (
        "import os\nos.environ['JAX_PLATFORMS'] = 'cuda'\nimport jax\njax.numpy.zeros(3)",
        GpuNeed.REQUIRED,
    ),
    "hidden unless set": (
        "import os\nos.environ.setdefault('CUDA_VISIBLE_DEVICES', '-1')\nimport tensorflow as tf\ntf.zeros(3)",
        GpuNeed.NONE,
    ),
    "a variable that chooses": (
        "import os, torch\nd = 'cuda' if os.environ.get('USE_CUDA', '0') == '1' else 'cpu'\ntorch.zeros(3).to(d)",
        GpuNeed.OPTIONAL,
    ),
    "a variable that does not": ("import os, torch\nprint(os.environ.get('CUDA_HOME', ''))", GpuNeed.NONE),
    "mxnet told so": ("import mxnet as mx\nx = mx.nd.ones((2, 3), mx.gpu())", GpuNeed.REQUIRED),
    "mxnet where there is one": (
        "import mxnet as mx\nctx = mx.gpu() if mx.context.num_gpus() > 0 else mx.cpu()",
        GpuNeed.OPTIONAL,
    ),
    "paddle": ("import paddle\npaddle.ones([3])", GpuNeed.OPTIONAL),
    "paddle told so": ("import paddle\npaddle.set_device('gpu')\npaddle.ones([3])", GpuNeed.REQUIRED),
    "paddle on the CPU": ("import paddle\npaddle.set_device('cpu')\npaddle.ones([3])", GpuNeed.NONE),
    "spacy told so": ("import spacy\nspacy.require_gpu()", GpuNeed.REQUIRED),
    "spacy if it can": ("import spacy\nspacy.prefer_gpu()\nspacy.load('en_core_web_sm')", GpuNeed.OPTIONAL),
    "workers of ray": ("from ray.train import ScalingConfig\nScalingConfig(use_gpu=True)", GpuNeed.REQUIRED),
    "providers in order": (
        "import onnxruntime as ort\n"
        "ort.InferenceSession('m', providers=[('CUDAExecutionProvider', {'device_id': 0}), 'CPUExecutionProvider'])",
        GpuNeed.OPTIONAL,
    ),
    "a provider": (
        "import onnxruntime as ort\nort.InferenceSession('m', providers=['CPUExecutionProvider'])",
        GpuNeed.NONE,
    ),
    "Lightning on TPUs": ("import lightning as L\nL.Trainer(accelerator='tpu', devices=8).fit(m)", GpuNeed.NONE),
    "a Trainer of its own that another file makes": (
        "from transformers import Trainer\nclass Mine(Trainer):\n    def compute_loss(self, m, x):\n        pass",
        GpuNeed.OPTIONAL,
    ),
}


@pytest.mark.parametrize(("code", "need"), NEED.values(), ids=NEED)
def test_what_a_library_is_told_decides(code: str, need: GpuNeed) -> None:
    assert read(code).gpu.value is need


@pytest.mark.parametrize(
    "path", ["trl.PPOConfig", "trl.RewardConfig", "trl.KTOConfig", "transformers.TrainingArguments"]
)
def test_settings_of_every_trainer_say_where_it_works_and_how(path: str) -> None:
    home, _, name = path.rpartition(".")
    found = read(f"from {home} import {name}\n{name}('o', bf16=True, per_device_train_batch_size=6)")
    assert (found.gpu.value, found.precision.value) == (GpuNeed.REQUIRED, Precision.BF16)
    assert found.batch_size.value == 6


TRY = "import sys, torch\nnet = torch.nn.Linear(3, 3)\ntry:\n    net = net.cuda()\nexcept {}:\n    {}\n"


@pytest.mark.parametrize(
    ("kind", "then", "need"),
    [
        ("RuntimeError", "print('on the CPU')", GpuNeed.OPTIONAL),
        ("(AssertionError, RuntimeError)", "pass", GpuNeed.OPTIONAL),
        ("Exception as error", "raise SystemExit(1)", GpuNeed.REQUIRED),
        ("KeyboardInterrupt", "pass", GpuNeed.REQUIRED),
        ("RuntimeError", "print('no GPU')\n    sys.exit(1)", GpuNeed.REQUIRED),
        ("RuntimeError", "exit()", GpuNeed.REQUIRED),
        ("RuntimeError as e", "if 'memory' in str(e):\n        skip()\n    else:\n        raise e", GpuNeed.REQUIRED),
    ],
)
def test_what_is_tried_is_needed_only_if_there_is_no_other_way(kind: str, then: str, need: GpuNeed) -> None:
    assert read(TRY.format(kind, then)).gpu.value is need


@pytest.mark.parametrize("head", ["", "    for epoch in range(3):\n", "    with open('log') as log:\n"])
def test_a_program_that_only_says_nicely_that_it_failed_needs_a_gpu(head: str) -> None:
    space = "        " if head else "    "
    lines = head + "".join(f"{space}net{place} = net.cuda()\n" for place in range(5))
    code = f"import torch\nnet = torch.nn.Linear(3, 3)\ntry:\n{lines}except RuntimeError as error:\n    print(error)\n"
    assert read(code).gpu.value is GpuNeed.REQUIRED
