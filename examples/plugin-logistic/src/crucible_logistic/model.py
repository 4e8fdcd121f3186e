"""The plugin: what Crucible trains, asks and measures under the name `logistic`."""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from crucible import BaseModel, ModelMetadata, Option
from crucible_logistic.data import Batches, Row, made, read, split


class Logistic(BaseModel):
    schema = {
        "epochs": Option(int, default=10, minimum=1, maximum=10_000, help="Passes over the data."),
        "learning_rate": Option(float, default=0.1, minimum=1e-6, maximum=10, help="Size of a step."),
        "batch_size": Option(int, default=16, minimum=1, maximum=10_000, help="Rows of a step."),
        "l2": Option(float, default=0.0, minimum=0, maximum=1, help="Pull of the weights towards 0."),
        "checkpoint_every": Option(int, default=5, minimum=1, help="Epochs from one checkpoint to the next."),
        "samples": Option(int, default=400, minimum=10, maximum=1_000_000, help="Points to make without --data."),
        "features": Option(int, default=2, minimum=1, maximum=1000, help="Numbers of a point that is made."),
        "seed": Option(int, default=7, minimum=0, help="Of the points and their order."),
        "suite": Option(str, default="synthetic", choices=("synthetic",), help="What benchmark() measures."),
    }
    model_metadata = ModelMetadata(
        name="Logistic regression",
        version="1.0.0",
        description="Tells two clouds of points apart; plain Python.",
        framework="none",
        min_gpu_memory_gb=0,
    )

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self.weights: list[float] = []
        self.bias = 0.0
        self.next_epoch = 0

    def prepare_dataloaders(self, dataset: Optional[Path], config: Mapping[str, Any]) -> tuple[Batches, list[Row]]:
        rows = made(config["samples"], config["features"], config["seed"]) if dataset is None else read(dataset)
        learnt, held_out = split(rows)
        return Batches(learnt, config["batch_size"], config["seed"]), held_out

    def train(self, train_loader: Batches, val_loader: Sequence[Row], callbacks: Any) -> dict[str, Any]:
        self._begin(len(val_loader[0][0]))
        metrics: dict[str, float] = {}
        for epoch in range(self.next_epoch, self.config["epochs"]):
            for batch in train_loader.at(epoch):
                self._step(batch)
            self.next_epoch = epoch + 1
            loss, _ = self._measured(train_loader.rows)
            val_loss, accuracy = self._measured(val_loader)
            metrics = {"loss": loss, "val_loss": val_loss, "accuracy": accuracy}
            callbacks.on_epoch_end(epoch, metrics)
            if self.next_epoch % self.config["checkpoint_every"] == 0 or self.next_epoch == self.config["epochs"]:
                self._tell_checkpoint(epoch, callbacks)
        return {**metrics, "weights": self.weights, "bias": self.bias, "epochs": self.next_epoch}

    def infer(self, inputs: Any) -> dict[str, Any]:
        """One point, or a list of points: the label and how likely it is."""
        if not self.weights:
            raise ValueError("the model has learnt nothing yet; name a checkpoint with --resume-from")
        points = inputs if inputs and isinstance(inputs[0], list) else [inputs]
        for point in points:
            if not isinstance(point, list) or len(point) != len(self.weights):
                raise ValueError(f"a point is a list of {len(self.weights)} numbers, not {point!r}")
        likely = [self._likely(point) for point in points]
        return {"labels": [int(p >= 0.5) for p in likely], "probabilities": [round(p, 6) for p in likely]}

    def benchmark(self) -> dict[str, Any]:
        """How well and how fast it tells new points apart; without a checkpoint it learns first."""
        loader, held_out = self.prepare_dataloaders(None, self.config)
        if not self.weights:
            self._begin(self.config["features"])
            for epoch in range(self.config["epochs"]):
                for batch in loader.at(epoch):
                    self._step(batch)
        began = time.perf_counter()
        loss, accuracy = self._measured(held_out)
        seconds = max(time.perf_counter() - began, 1e-9)
        return {
            "suite": self.config["suite"],
            "accuracy": accuracy,
            "loss": loss,
            "points": len(held_out),
            "points_per_second": round(len(held_out) / seconds),
        }

    def save(self, path: Path) -> None:
        state = {"weights": self.weights, "bias": self.bias, "next_epoch": self.next_epoch}
        path.write_text(json.dumps(state), encoding="utf-8")

    def resume(self, path: Path) -> None:
        state = json.loads(path.read_text(encoding="utf-8"))
        self.weights, self.bias, self.next_epoch = state["weights"], state["bias"], state["next_epoch"]

    def _tell_checkpoint(self, epoch: int, callbacks: Any) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "weights.json")
            self.save(path)
            callbacks.on_checkpoint_save(epoch, path)

    def _begin(self, features: int) -> None:
        if self.weights and len(self.weights) != features:
            raise ValueError(f"the checkpoint has {len(self.weights)} weights, and a point has {features} numbers")
        self.weights = self.weights or [0.0] * features

    def _step(self, batch: Sequence[Row]) -> None:
        """One step down the gradient of the mean loss."""
        rate, l2 = self.config["learning_rate"], self.config["l2"]
        errors = [self._likely(point) - label for point, label in batch]
        for index, weight in enumerate(self.weights):
            slope = sum(error * point[index] for error, (point, _) in zip(errors, batch)) / len(batch)
            self.weights[index] = weight - rate * (slope + l2 * weight)
        self.bias -= rate * sum(errors) / len(batch)

    def _likely(self, point: Sequence[float]) -> float:
        """How likely the label is 1."""
        score = self.bias + sum(weight * value for weight, value in zip(self.weights, point))
        return 1 / (1 + math.exp(-max(min(score, 500.0), -500.0)))

    def _measured(self, rows: Sequence[Row]) -> tuple[float, float]:
        """The mean loss, and how many of the labels are right."""
        likely = [(self._likely(point), label) for point, label in rows]
        loss = -sum(math.log(max(p if label else 1 - p, 1e-12)) for p, label in likely) / len(rows)
        return loss, sum(int(p >= 0.5) == label for p, label in likely) / len(rows)
