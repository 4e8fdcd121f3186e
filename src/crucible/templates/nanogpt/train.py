"""Train a character-level GPT.

    python train.py --preset cpu-tiny
    python train.py --resume checkpoints

It saves a checkpoint every few steps and when it is stopped (SIGTERM), resumes from the newest one when it is started
again, and ends with exactly the weights it would have had without the stop. See README.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import checkpoints
import job
from config import Config, Refused, add_flags, asked_for, new_config, resumed_config
from data import OWN_TEXT, decode, encode, read_text
from model import count_parameters
from run import Run, make_repeatable

SAMPLE_LENGTH = 500


def say(line: str) -> None:
    print(line, flush=True)


def main() -> int:
    args = parse_arguments()
    job.watch_for_stop()
    try:
        run = start(args)
        board = Board(args.tensorboard, run.step)
        finished = train(run, board)
        if not finished:
            return job.stop_code()
        write_outputs(run)
    except Refused as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 2
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a character-level GPT.")
    parser.add_argument("--text", type=Path, default=OWN_TEXT, help="UTF-8 text to learn (default: text.txt)")
    parser.add_argument("--resume", type=Path, metavar="PATH", help="a checkpoint, or a folder of them")
    parser.add_argument("--fresh", action="store_true", help="start at step 1; removes earlier checkpoints")
    parser.add_argument("--device", help="cpu, cuda, cuda:1, mps (default: cuda if available, else cpu)")
    parser.add_argument("--tensorboard", action="store_true", help="write scalars to the output folder")
    add_flags(parser)
    return parser.parse_args()


def start(args: argparse.Namespace) -> Run:
    """Return a new run, or one restored from its checkpoint."""
    device = choose_device(args.device)
    found = None if args.fresh else find_checkpoint(args.resume)
    if args.fresh:
        checkpoints.clear()
    asked = asked_for(args)
    config = new_config(asked) if found is None else resumed_config(found[1]["config"], asked)
    make_repeatable(config, device)
    run = Run(config, read_text(args.text, config.block), device)
    say(f"{count_parameters(run.model)} parameters, {len(run.text.vocabulary)} characters, on {device}")
    if found is not None:
        inexact = run.restore(found[1])
        say(f"resuming from {found[0].name}: step {run.step} of {config.steps} is done")
        if inexact:
            say(f"the rest will not be exactly what it would have been: {inexact}")
    return run


def choose_device(name: str | None) -> torch.device:
    device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device.type == "cuda" and not torch.cuda.is_available():
        raise Refused(f"--device {name}: torch {torch.__version__} finds no GPU here")
    return device


def find_checkpoint(named: Path | None) -> tuple[Path, dict[str, Any]] | None:
    """Return the checkpoint to resume from: the named one, which must be usable, else the newest whole one, or None."""
    asked = named or job.resume_from()
    if asked is not None:
        return checkpoints.find(asked)
    try:
        return checkpoints.find(job.checkpoint_dir())
    except checkpoints.Unusable:
        return None


def train(run: Run, board: Board) -> bool:
    """Train. Return True when all steps are done, False if stopped before; in both cases the last step is saved."""
    config, first = run.config, run.step + 1
    kept = checkpoints.Kept(config.keep)
    if run.step == 0:
        measure(run, board)
    while run.step < config.steps:
        log_step(run, board, first)
        if run.step % config.eval_every == 0 or run.step == config.steps:
            measure(run, board)
        stopping = job.should_stop() and run.step < config.steps
        if stopping or run.step % config.checkpoint_every == 0 or run.step == config.steps:
            save(run, kept)
        if stopping:
            say("asked to stop: saved what there is; started again, it goes on from there")
            return False
    return True


def log_step(run: Run, board: Board, first: int) -> None:
    """Run one step, and log it every `log_every` steps."""
    started = time.perf_counter()
    loss, norm = run.train_step()
    seconds = time.perf_counter() - started
    config = run.config
    if run.step == first or run.step % config.log_every == 0 or run.step == config.steps:
        say(f"iter {run.step}/{config.steps}: loss {loss:.4f}, time {seconds * 1000:.2f}ms")
        speed = config.batch * config.block * config.accumulate / seconds
        extra = {"learning_rate": run.learning_rate, "grad_norm": norm, "tokens_per_second": speed}
        job.report(run.step, **extra)
        board.add(run.step, {"loss": loss, **extra})


def measure(run: Run, board: Board) -> None:
    found = run.measure()
    losses = f"train loss {found['train_loss']:.4f}, val loss {found['val_loss']:.4f}"
    say(f"step {run.step}/{run.config.steps}: {losses}")
    board.add(run.step, {name: value for name, value in found.items() if name != "step"})


def save(run: Run, kept: checkpoints.Kept) -> None:
    metric = run.history[-1]["val_loss"] if run.history else None
    path = checkpoints.save(run.state(), run.step, metric)
    kept.add(path)
    say(f"saved {path.name}")


def write_outputs(run: Run) -> None:
    """Write model.pt, config.json, metrics.json and sample.txt."""
    folder = job.output_dir()
    weights = {name: tensor.cpu() for name, tensor in run.model.state_dict().items()}
    model = {"config": asdict(run.config), "vocabulary": run.text.vocabulary, "model": weights}
    job.replace_whole(folder / "model.pt", lambda path: torch.save(model, path))
    write_json(folder / "config.json", config_document(run.config, run))
    last = run.history[-1] if run.history else {}
    metrics = {
        "steps": run.step,
        "train_loss": last.get("train_loss"),
        "val_loss": last.get("val_loss"),
        "weights_sha256": checkpoints.digest(weights),
        "history": run.history,
    }
    write_json(folder / "metrics.json", metrics)
    (folder / "sample.txt").write_text(sample(run), encoding="utf-8")
    say(f"wrote model.pt, config.json, metrics.json and sample.txt to {folder}")


def config_document(config: Config, run: Run) -> dict[str, object]:
    about = {"parameters": count_parameters(run.model), "vocabulary": run.text.vocabulary}
    return {**asdict(config), **about, "text_sha256": run.text.sha256}


def write_json(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def sample(run: Run) -> str:
    first = encode(run.text.vocabulary[0], run.text.vocabulary)[None].to(run.device)
    generator = torch.Generator().manual_seed(run.config.seed)
    written = run.model.write(first, SAMPLE_LENGTH, 0.8, generator)
    return decode(written[0], run.text.vocabulary) + "\n"


class Board:
    """Writes TensorBoard scalars if requested. After a resume, steps that are repeated replace the old ones."""

    def __init__(self, wanted: bool, step: int) -> None:
        self._writer: Any = None
        if not wanted:
            return
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise Refused(
                "--tensorboard needs the package tensorboard: pip install tensorboard, "
                "or add a line `tensorboard` to requirements.txt"
            ) from error
        self._writer = SummaryWriter(str(job.output_dir() / "tensorboard"), purge_step=step + 1)

    def add(self, step: int, values: dict[str, float]) -> None:
        if self._writer is None:
            return
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()


if __name__ == "__main__":
    sys.exit(main())
