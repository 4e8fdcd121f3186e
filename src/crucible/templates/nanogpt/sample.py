"""Write text with a trained model.

python sample.py --prompt "THE KEEPER:" --length 300
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from checkpoints import load_tensors
from config import Config, Refused
from data import decode, encode
from job import output_dir
from model import GPT


def main() -> int:
    args = parse_arguments()
    try:
        print(write(args))
    except Refused as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Write text with a trained model.")
    parser.add_argument("--model", type=Path, help="model.pt or a checkpoint (default: outputs/model.pt)")
    parser.add_argument("--prompt", default="\n", help="the text to continue")
    parser.add_argument("--length", type=int, default=300, help="number of characters to write (default: 300)")
    parser.add_argument(
        "--temperature", type=float, default=0.8, help="lower is more predictable, higher more varied (default: 0.8)"
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="random seed; the same seed writes the same text (default: 1)"
    )
    return parser.parse_args()


def write(args: argparse.Namespace) -> str:
    saved = load_tensors(args.model or output_dir() / "model.pt")
    if not isinstance(saved, dict) or not {"config", "vocabulary", "model"} <= set(saved):
        raise Refused(f"{args.model} is no model of this program")
    vocabulary = saved["vocabulary"]
    if not args.prompt:
        raise Refused("--prompt must have at least one character")
    prompt = encode(args.prompt, vocabulary)
    model = GPT(Config(**saved["config"]), len(vocabulary))
    model.load_state_dict(saved["model"])
    generator = torch.Generator().manual_seed(args.seed)
    written = model.write(prompt[None], args.length, args.temperature, generator)
    return decode(written[0], vocabulary)


if __name__ == "__main__":
    sys.exit(main())
