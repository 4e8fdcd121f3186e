"""A training run: all state that changes from step to step, in one class that can be saved and restored."""

from __future__ import annotations

import math
import random
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

import checkpoints
from config import Config, Refused
from data import Sampler, Text, windows
from model import GPT

BETAS = (0.9, 0.99)
LEAST_RATE = 0.1
"""The final learning rate as a share of its peak."""

History = list[dict[str, float]]


class Run:
    """`step` is the number of completed steps. The same config and text give the same run, whether stopped or not."""

    def __init__(self, config: Config, text: Text, device: torch.device) -> None:
        self.config, self.text, self.device = config, text, device
        random.seed(config.seed)
        torch.manual_seed(config.seed)
        self.step = 0
        self.history: History = []
        self.model = GPT(config, len(text.vocabulary)).to(device)
        self.optimizer = torch.optim.AdamW(
            _groups(self.model, config.weight_decay), lr=config.learning_rate, betas=BETAS
        )
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self._rate)
        self.precision = _precision(config.precision, device)
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.precision is torch.float16)
        self.sampler = Sampler(text.train, config.block, config.batch, config.seed)

    def train_step(self) -> tuple[float, float]:
        """Run one step; return the loss before it and the norm of the gradient."""
        self.optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for _ in range(self.config.accumulate):
            tokens, targets = (each.to(self.device) for each in self.sampler.next())
            with self._cast():
                loss = self.model.loss(tokens, targets) / self.config.accumulate
            self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.scheduler.step()
        self.step += 1
        return total, float(norm)

    def measure(self) -> dict[str, float]:
        """Return train and val loss on a few batches, always the same ones; draws no random numbers of the run."""
        losses = {"train_loss": self._loss_on(self.text.train), "val_loss": self._loss_on(self.text.val)}
        found = {"step": self.step, **losses}
        self.history = [each for each in self.history if each["step"] != self.step] + [found]
        return found

    @property
    def learning_rate(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])

    def state(self) -> dict[str, Any]:
        return {
            "config": asdict(self.config),
            "text": self.text.sha256,
            "vocabulary": self.text.vocabulary,
            "step": self.step,
            "history": self.history,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "scaler": self.scaler.state_dict(),
            "sampler": self.sampler.state(),
            "random": checkpoints.random_state(),
        }

    def restore(self, state: dict[str, Any]) -> str | None:
        """Restore a run. Return None, or why it will not continue exactly. Raises Refused for another text."""
        if state["text"] != self.text.sha256:
            raise Refused("the checkpoint was trained on another text; name that one with --text")
        self.step, self.history = state["step"], state["history"]
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        if self.scaler.is_enabled() and state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])
        self.sampler.restore(state["sampler"])
        return checkpoints.restore_random_state(state.get("random"))

    @torch.no_grad()
    def _loss_on(self, tokens: Tensor) -> float:
        generator = torch.Generator().manual_seed(self.config.seed)
        self.model.eval()
        total = 0.0
        for _ in range(self.config.eval_batches):
            highest = len(tokens) - self.config.block
            starts = torch.randint(highest, (self.config.batch,), generator=generator).tolist()
            batch, targets = (each.to(self.device) for each in windows(tokens, starts, self.config.block))
            with self._cast():
                total += self.model.loss(batch, targets).item()
        self.model.train()
        return total / self.config.eval_batches

    def _cast(self) -> AbstractContextManager[Any]:
        if self.precision is torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.precision)

    def _rate(self, step: int) -> float:
        """Return the learning rate's factor: linear warmup, then cosine decay."""
        config = self.config
        if step < config.warmup:
            return (step + 1) / (config.warmup + 1)
        done = min(1.0, (step - config.warmup) / max(1, config.steps - config.warmup))
        return LEAST_RATE + (1 - LEAST_RATE) * 0.5 * (1 + math.cos(math.pi * done))


def make_repeatable(config: Config, device: torch.device) -> None:
    """Make every operation on a CPU repeatable to the last bit, for the same number of threads."""
    if config.threads:
        torch.set_num_threads(config.threads)
    torch.use_deterministic_algorithms(device.type == "cpu")


def _groups(model: nn.Module, decay: float) -> list[dict[str, Any]]:
    weights = list(model.parameters())
    return [
        {"params": [weight for weight in weights if weight.dim() >= 2], "weight_decay": decay},
        {"params": [weight for weight in weights if weight.dim() < 2], "weight_decay": 0.0},
    ]


def _precision(name: str, device: torch.device) -> torch.dtype:
    if name == "auto" and device.type != "cuda":
        return torch.float32
    if name == "auto":
        # A T4 (g4dn) can only imitate bf16, slowly; it has fp16.
        native = torch.cuda.is_bf16_supported(including_emulation=False)
        return torch.bfloat16 if native else torch.float16
    return {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[name]
