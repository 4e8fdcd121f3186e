"""Libraries that put the work somewhere themselves, and what they are told about it."""

from __future__ import annotations

import pytest
from tests.analysis.programs import read

from crucible.core.profile import GpuNeed

ARGUMENTS = "from transformers import Trainer, TrainingArguments\nTrainer(m, TrainingArguments('o', {}))"
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
    "a learner of fastai": (
        "from fastai.vision.all import *\nlearn = vision_learner(dls, resnet34)\nlearn.fit(1)",
        GpuNeed.OPTIONAL,
    ),
    "weights that wait in main memory": (
        "from diffusers import DiffusionPipeline\np = DiffusionPipeline.from_pretrained('x')\n"
        "p.enable_model_cpu_offload()",
        GpuNeed.REQUIRED,
    ),
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
}


@pytest.mark.parametrize(("code", "need"), NEED.values(), ids=NEED)
def test_what_a_library_is_told_decides(code: str, need: GpuNeed) -> None:
    assert read(code).gpu.value is need
