"""Runs in torch's own environment: what a training step of each model keeps, counted under FakeTensorMode.

Reads a JSON object of sources on its standard input and writes one of counts. Nothing is allocated, no GPU is used.
"""

from __future__ import annotations

import json
import sys

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks

MODE = FakeTensorMode()


def count(source: str) -> dict[str, float]:
    space: dict[str, object] = {"__name__": "__main__"}
    with MODE:
        exec(compile(source, "model", "exec", dont_inherit=True), space)
        model, inputs = space["make"](), space["inputs"]()  # type: ignore[operator]
        weights = {each.untyped_storage()._cdata for each in model.parameters()}
        kept: dict[int, tuple[int, torch.Tensor]] = {}

        def pack(each: torch.Tensor) -> torch.Tensor:
            store = each.untyped_storage()
            if store._cdata not in weights:
                kept[store._cdata] = (store.nbytes(), each)  # held, so that its address is not used again
            return each

        with saved_tensors_hooks(pack, lambda each: each):
            space["step"](model, *inputs)  # type: ignore[operator]
        parameters = sum(each.numel() for each in model.parameters())
        saved = sum(size for size, _ in kept.values())
    return {"parameters": parameters, "saved": saved, "states": 16.0 * parameters}


def operation(tensors: str, expression: str) -> dict[str, object]:
    """The shape that one expression gives, and the bytes that it keeps."""
    space: dict[str, object] = {}
    kept: dict[int, tuple[int, torch.Tensor]] = {}

    def pack(each: torch.Tensor) -> torch.Tensor:
        if not isinstance(each, torch.nn.Parameter):
            kept[each.untyped_storage()._cdata] = (each.untyped_storage().nbytes(), each)
        return each

    with MODE:
        exec(compile(tensors, "tensors", "exec", dont_inherit=True), space)
        with saved_tensors_hooks(pack, lambda each: each):
            result = eval(expression, space)
    return {"shape": list(result.shape), "saved": sum(size for size, _ in kept.values())}


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    models = {name: count(source) for name, source in asked["models"].items()}
    operations = {each: operation(asked["tensors"], each) for each in asked["operations"]}
    print(json.dumps({"models": models, "operations": operations}))
