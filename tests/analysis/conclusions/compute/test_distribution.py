from __future__ import annotations

import pytest
from tests.analysis.programs import read

from crucible.core.routing.profile import Distribution


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("from torch.nn.parallel import DistributedDataParallel as DDP\nDDP(m)", Distribution.DDP),
        ("import torch\ntorch.nn.DataParallel(m)", Distribution.DATA_PARALLEL),
        ("from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\nFSDP(m)", Distribution.FSDP),
        ("import torch.distributed as dist\ndist.init_process_group('gloo')", Distribution.DDP),
        (
            "from torch.distributed.tensor.parallel import parallelize_module as p\np(m, mesh)",
            Distribution.TENSOR_PARALLEL,
        ),
        ("import deepspeed\ndeepspeed.initialize(model=m)", Distribution.DEEPSPEED),
        ("import horovod.torch as hvd\nhvd.init()", Distribution.HOROVOD),
        ("from accelerate import Accelerator\nAccelerator()", Distribution.ACCELERATE),
        ("import tensorflow as tf\ns = tf.distribute.MirroredStrategy()", Distribution.TF_STRATEGY),
        ("import jax\nf = jax.pmap(g)", Distribution.JAX_PMAP),
        ("import pytorch_lightning as pl\npl.Trainer(strategy='ddp', devices=4)", Distribution.DDP),
        ("import pytorch_lightning as pl\npl.Trainer(devices=4)", Distribution.LIGHTNING),
        ("import torch\ntorch.zeros(3)", Distribution.NONE),
        (
            (
                "import os, torch\nif int(os.environ.get('RANK', -1)) != -1:\n"
                "    torch.nn.parallel.DistributedDataParallel(m)"
            ),
            Distribution.NONE,
        ),
    ],
)
def test_how_work_is_spread(code: str, kind: Distribution) -> None:
    assert read(code).distribution.value is kind


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("import torch\ntorch.zeros(3).cuda()", 1),
        ("import pytorch_lightning as pl\npl.Trainer(accelerator='gpu', devices=4, num_nodes=2)", 8),
        ("import torch\ntorch.nn.DataParallel(m.cuda(), device_ids=[0, 1, 2])", 3),
        ("from dask_cuda import LocalCUDACluster\nLocalCUDACluster(n_workers=2)", 2),
        ("import torch.multiprocessing as mp\ndef f(rank, n):\n    m.to('cuda')\nmp.spawn(f, args=(4,), nprocs=4)", 4),
    ],
)
def test_how_many_gpus(code: str, count: int) -> None:
    assert read(code).gpus.value == count


def test_a_number_that_the_launcher_decides_is_asked_for() -> None:
    found = read("import torch\nfrom torch.nn.parallel import DistributedDataParallel as DDP\nDDP(m.cuda())").gpus
    assert not found.known
    assert "torchrun" in found.question


def test_hours_on_one_gpu_of_what_is_shared_say_so() -> None:
    program = (
        "import torch\nfrom torch.nn.parallel import DistributedDataParallel as DDP\n"
        "model = torch.nn.Linear(10, 10).cuda()\nx = torch.randn(8, 10).cuda()\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\nnet = {made}\n"
        "for step in range(10):\n    net(x).sum().backward()\n    optimizer.step()\n"
    )
    shared, alone = read(program.format(made="DDP(model)")), read(program.format(made="model"))
    assert "One T4 is assumed: With how many processes is it started" in shared.runtime_hours.why
    assert "assumed" not in alone.runtime_hours.why


def test_accelerate_takes_one_unless_its_launcher_starts_more() -> None:
    found = read("from accelerate import Accelerator\na = Accelerator()\nm = a.prepare(m)\nm.cuda()\n").gpus
    assert (found.value, found.evidence[0].line) == (1, 2)
    assert "accelerate launch --num_processes" in found.why
