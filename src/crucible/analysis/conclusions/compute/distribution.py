"""How many GPUs the program uses, and how it spreads the work over them."""

from __future__ import annotations

from crucible.analysis.conclusions.facts import Seen
from crucible.analysis.values.facts import Call
from crucible.analysis.values.values import Value, Where, settled
from crucible.core.routing.profile import Conclusion, Confidence, Distribution, GpuNeed

_KINDS: tuple[tuple[Distribution, tuple[str, ...]], ...] = (
    (Distribution.DEEPSPEED, ("deepspeed.initialize", "deepspeed.init_distributed", "deepspeed.add_config_arguments")),
    (Distribution.FSDP, ("torch.distributed.fsdp.FullyShardedDataParallel", "torch.distributed.fsdp.fully_shard",
        "torch.distributed._composable.fsdp.fully_shard", "fairscale.nn.FullyShardedDataParallel")),
    (Distribution.HOROVOD, ("horovod.torch.init", "horovod.tensorflow.init", "horovod.tensorflow.keras.init",
        "horovod.keras.init")),
    (Distribution.DDP, ("torch.nn.parallel.DistributedDataParallel", "apex.parallel.DistributedDataParallel")),
    (Distribution.TENSOR_PARALLEL, ("torch.distributed.tensor.parallel.parallelize_module",)),
    (Distribution.RAY, ("ray.train.torch.TorchTrainer", "ray.train.torch.prepare_model",
        "ray.train.lightgbm.LightGBMTrainer", "ray.train.xgboost.XGBoostTrainer")),
    (Distribution.RPC, ("torch.distributed.rpc.init_rpc",)),
    (Distribution.TF_STRATEGY, ("tensorflow.distribute.MirroredStrategy",
        "tensorflow.distribute.MultiWorkerMirroredStrategy",
        "tensorflow.distribute.experimental.MultiWorkerMirroredStrategy",
        "tensorflow.distribute.experimental.ParameterServerStrategy", "keras.distribution.DataParallel",
        "keras.distribution.set_distribution")),
    (Distribution.JAX_PMAP, ("jax.pmap", "jax.experimental.maps.xmap", "jax.sharding.Mesh",
        "flax.jax_utils.replicate", "@jax.pmap", "jax.experimental.mesh_utils.create_device_mesh", "jax.make_mesh")),
    (Distribution.ACCELERATE, ("accelerate.Accelerator",)),
    (Distribution.DATA_PARALLEL, ("torch.nn.DataParallel", "torch.nn.parallel.DataParallel")),
    (Distribution.DDP, ("torch.distributed.init_process_group",)),
)  # fmt: skip


def distribution(seen: Seen) -> Conclusion[Distribution]:
    """Return how the work is spread over processes and GPUs."""
    for kind, paths in _KINDS:
        found = seen.calls(*paths)
        if found:
            sure = any(call.certain for call in found)
            return seen.say(kind, (call.where for call in found), Confidence.HIGH if sure else Confidence.MEDIUM)
    for call in seen.calls("lightning.Trainer"):
        strategy = settled(call.kwargs.get("strategy"))
        if isinstance(strategy, str) and strategy != "auto":
            kind = next((each for each in Distribution if each.value in strategy), Distribution.LIGHTNING)
            return seen.say(kind, [call.where])
        if _more_than_one(call.kwargs.get("devices")) or _more_than_one(call.kwargs.get("gpus")):
            return seen.say(Distribution.LIGHTNING, [call.where], Confidence.MEDIUM)
    return seen.say(Distribution.NONE, (), Confidence.HIGH)


def _more_than_one(value: Value) -> bool:
    """Return whether the value asks for more than one device; -1 means all."""
    value = settled(value)
    return (isinstance(value, int) and not isinstance(value, bool) and (value > 1 or value == -1)) or (
        isinstance(value, list) and len(value) > 1
    )


def gpu_count(seen: Seen, need: Conclusion[GpuNeed], spread: Conclusion[Distribution]) -> Conclusion[int]:
    """Return how many GPUs share the work."""
    if need.value is GpuNeed.NONE:
        return seen.say(0, (), need.confidence)
    declared = _declared(seen)
    if declared is not None:
        return seen.say(declared[0], [declared[1]], Confidence.HIGH)
    if spread.value is Distribution.NONE:
        return seen.say(1, (), Confidence.MEDIUM, "Nothing spreads the work over several GPUs.")
    if spread.value is Distribution.ACCELERATE:
        why = "Accelerate uses one GPU unless it is launched with more (accelerate launch --num_processes)."
        return Conclusion(1, Confidence.MEDIUM, spread.evidence, False, why)
    question = "How many GPUs should share the work?"
    if spread.value is not None and spread.value.needs_launcher:
        question = "With how many processes is it started (torchrun --nproc-per-node or similar)?"
    return seen.ask(question, f"It uses all GPUs of the machine ({spread.value}).")


def declared_gpus(seen: Seen) -> int | None:
    """Return the number of GPUs that the program itself declares, or None."""
    found = _declared(seen)
    return None if found is None else found[0]


def _declared(seen: Seen) -> tuple[int, Where] | None:
    """Return the declared number of GPUs and its line, or None."""
    for call in seen.calls_among(_COUNTED):
        for value in _counts(call):
            value = settled(value)
            if isinstance(value, list | tuple):
                value = len(value)
            if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 4096:
                return value, call.where
    for name, value, where in seen.named(("num_gpus", "n_gpus", "ngpus", "gpus", "nproc_per_node", "n_gpu")):
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 4096 and name:
            return value, where
    return None


_COUNTED = frozenset(
    {
        "lightning.Trainer",
        "torch.nn.DataParallel",
        "torch.nn.parallel.DataParallel",
        "torch.multiprocessing.spawn",
        "ray.train.ScalingConfig",
        "tensorflow.distribute.MirroredStrategy",
        "dask_cuda.LocalCUDACluster",
    }
)
"""Calls with an argument for the number of GPUs, or for which ones."""


def _counts(call: Call) -> list[Value]:
    """Return the values from which a call's number of GPUs may be read."""
    if call.path == "lightning.Trainer":
        nodes = settled(call.kwargs.get("num_nodes", 1))
        each = call.kwargs.get("devices", call.kwargs.get("gpus"))
        return [each * nodes if isinstance(each, int) and isinstance(nodes, int) else each]
    if call.path in ("torch.nn.DataParallel", "torch.nn.parallel.DataParallel"):
        return [call.argument(1, "device_ids")]
    if call.path == "torch.multiprocessing.spawn":
        return [call.kwargs.get("nprocs")]
    if call.path == "ray.train.ScalingConfig":
        return [call.kwargs.get("num_workers")]
    if call.path == "dask_cuda.LocalCUDACluster":
        return [call.kwargs.get("n_workers"), call.argument(0, "CUDA_VISIBLE_DEVICES")]
    if call.path == "tensorflow.distribute.MirroredStrategy":
        return [call.argument(0, "devices")]
    return []
