"""The configuration of a run: sizes, schedule, seeds. Presets are named configs; flags override single fields."""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass, fields, replace


class Refused(Exception):
    """The run cannot start or continue as requested; the message says why and what to do."""


@dataclass(frozen=True)
class Config:
    """The config of a run. Only the fields in FREE may change when a run is resumed."""

    layers: int = 4
    heads: int = 4
    width: int = 128
    block: int = 128
    dropout: float = 0.1
    batch: int = 32
    accumulate: int = 1
    steps: int = 2000
    warmup: int = 100
    learning_rate: float = 1e-3
    weight_decay: float = 0.1
    clip: float = 1.0
    seed: int = 1
    precision: str = "auto"
    threads: int = 0
    log_every: int = 10
    eval_every: int = 250
    eval_batches: int = 20
    checkpoint_every: int = 1000
    keep: int = 3


FREE = frozenset(
    {"steps", "precision", "threads", "log_every", "eval_every", "eval_batches", "checkpoint_every", "keep"}
)

HELP = {
    "layers": "transformer blocks",
    "heads": "attention heads per block; the width must be divisible by it",
    "width": "size of the embedding of a character",
    "block": "context length in characters",
    "dropout": "share of activations dropped while training",
    "batch": "windows of text per pass",
    "accumulate": "passes whose gradients are added up for one step",
    "steps": "steps of the whole run; a resumed run may be given more",
    "warmup": "steps until the learning rate reaches its peak",
    "learning_rate": "peak learning rate; it falls to a tenth by the end",
    "weight_decay": "weight decay of AdamW, for matrices only",
    "clip": "maximum norm of the gradient",
    "seed": "the same seed gives the same run",
    "precision": "fp32, bf16, fp16, or auto: fp32 on a CPU; on a GPU bf16 if supported, else fp16",
    "threads": "CPU threads; 0: decided by torch and OMP_NUM_THREADS",
    "log_every": "steps between `iter` lines",
    "eval_every": "steps between evaluations of train and val loss",
    "eval_batches": "batches per evaluation",
    "checkpoint_every": "steps between checkpoints",
    "keep": "number of newest checkpoints to keep on this machine; 0 keeps all",
}

PRESETS = {
    "cpu-tiny": Config(
        layers=1,
        width=64,
        block=32,
        batch=16,
        steps=200,
        warmup=10,
        learning_rate=3e-3,
        threads=1,
        log_every=10,
        eval_every=50,
        eval_batches=8,
        checkpoint_every=50,
    ),
    "cpu": Config(checkpoint_every=250),
    "gpu-small": Config(
        layers=12,
        heads=12,
        width=768,
        block=512,
        dropout=0.2,
        batch=16,
        accumulate=4,
        steps=5000,
        warmup=200,
        learning_rate=3e-4,
    ),
    "gpu-large": Config(
        layers=24,
        heads=16,
        width=1024,
        block=1024,
        dropout=0.2,
        batch=16,
        accumulate=8,
        steps=20_000,
        warmup=1000,
        learning_rate=2e-4,
        eval_every=500,
    ),
}

DEFAULT_PRESET = "cpu"


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--preset", choices=sorted(PRESETS), help=f"named config (default: {DEFAULT_PRESET})")
    group = parser.add_argument_group("fields of the preset")
    for field in fields(Config):
        flag = "--" + field.name.replace("_", "-")
        kind = type(field.default)
        choices = ("auto", "fp32", "bf16", "fp16") if field.name == "precision" else None
        group.add_argument(flag, type=kind, choices=choices, default=None, help=HELP[field.name])


def asked_for(args: argparse.Namespace) -> dict[str, object]:
    """Return the fields set on the command line: all of those of a preset, overridden by single flags."""
    asked = asdict(PRESETS[args.preset]) if args.preset else {}
    flags = {field.name: getattr(args, field.name) for field in fields(Config)}
    return {**asked, **{name: value for name, value in flags.items() if value is not None}}


def new_config(asked: dict[str, object]) -> Config:
    return checked(replace(PRESETS[DEFAULT_PRESET], **asked))  # type: ignore[arg-type]


def resumed_config(saved: dict[str, object], asked: dict[str, object]) -> Config:
    """Return the checkpoint's config with the changes that are allowed. Raises Refused for others."""
    known = {field.name for field in fields(Config)}
    if set(saved) != known:
        raise Refused(f"the checkpoint's config has other fields: {', '.join(sorted(set(saved) ^ known))}")
    differing = [name for name in sorted(asked) if name not in FREE and saved[name] != asked[name]]
    if differing:
        listed = ", ".join(f"{name} is {saved[name]} there and {asked[name]} here" for name in differing)
        raise Refused(
            f"the checkpoint belongs to another config: {listed}. "
            "Leave these flags (and --preset) out to go on with its config, or start anew with --fresh."
        )
    return checked(Config(**{**saved, **asked}))  # type: ignore[arg-type]


def checked(config: Config) -> Config:
    for name, value in asdict(config).items():
        least = 0 if name in ("dropout", "weight_decay", "warmup", "threads", "keep", "seed") else 1e-9
        if isinstance(value, (int, float)) and value < least:
            raise Refused(f"--{name.replace('_', '-')} {value} is too small")
    if config.width % config.heads:
        raise Refused(f"--width {config.width} cannot be divided among --heads {config.heads}")
    if config.dropout >= 1:
        raise Refused(f"--dropout {config.dropout} drops everything; it must be below 1")
    return config
