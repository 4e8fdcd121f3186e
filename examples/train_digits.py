# /// script
# requires-python = ">=3.9"
# dependencies = ["numpy"]
# ///
"""Train a small network to read noisy 8x8 digits.

An ordinary script that does not import Crucible. It follows two conventions of jobs: files written to
$CRUCIBLE_OUTPUT_DIR are kept, and SIGTERM means finish the epoch, save, stop. It also runs on its own:

    python examples/train_digits.py --epochs 3
"""

import argparse
import json
import os
import signal
from pathlib import Path

# Batches this small are slower with several threads, and crawl where others want the cores too.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np  # noqa: E402  the threads are counted when it is imported

GLYPHS = """
.####. ..##.. .####. .####. ....#. ###### .####. ###### .####. .####.
#....# .#.#.. #....# #....# ...##. #..... #..... .....# #....# #....#
#...## ...#.. .....# .....# ..#.#. #..... #..... ....#. #....# #....#
#.##.# ...#.. ....#. ..###. .#..#. #####. #####. ...#.. .####. .#####
##...# ...#.. ..##.. .....# ###### .....# #....# ..#... #....# .....#
#....# ...#.. .#.... #....# ....#. #....# #....# ..#... #....# .....#
.####. .##### ###### .####. ....#. .####. .####. ..#... .####. .####.
"""
CLASSES, SIDE, HIDDEN, BATCH = 10, 8, 384, 32


def templates():
    """The ten digits as 8x8 images of zeros and ones."""
    rows = [line.split() for line in GLYPHS.split("\n") if line]
    images = np.zeros((CLASSES, SIDE, SIDE))
    for y, row in enumerate(rows):
        for digit, cells in enumerate(row):
            images[digit, y, 1:7] = [cell == "#" for cell in cells]
    return images


def make_digits(count, rng):
    """`count` digits: shifted by up to one pixel, dimmed, and buried in noise."""
    labels = rng.integers(0, CLASSES, count)
    down, right = rng.integers(-1, 2, (2, count, 1, 1))
    y, x = np.arange(SIDE).reshape(1, SIDE, 1), np.arange(SIDE).reshape(1, 1, SIDE)
    images = templates()[labels.reshape(-1, 1, 1), (y - down) % SIDE, (x - right) % SIDE]
    images *= rng.uniform(0.6, 1.0, (count, 1, 1))
    images += rng.normal(0.0, 0.35, images.shape)
    return images.reshape(count, SIDE * SIDE), labels


def new_model(rng):
    """Two layers, with weights scaled to what feeds them."""
    inputs = SIDE * SIDE
    return {
        "w1": rng.normal(0.0, np.sqrt(2.0 / inputs), (inputs, HIDDEN)),
        "b1": np.zeros(HIDDEN),
        "w2": rng.normal(0.0, np.sqrt(2.0 / HIDDEN), (HIDDEN, CLASSES)),
        "b2": np.zeros(CLASSES),
    }


def forward(model, images):
    """The hidden layer and the probability of each digit."""
    hidden = np.maximum(images @ model["w1"] + model["b1"], 0.0)
    scores = hidden @ model["w2"] + model["b2"]
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return hidden, scores / scores.sum(axis=1, keepdims=True)


def train_batch(model, images, labels, lr):
    """One step of gradient descent; returns the mean cross-entropy before it."""
    hidden, chances = forward(model, images)
    rows = np.arange(len(labels))
    loss = -np.log(chances[rows, labels] + 1e-12).mean()

    chances[rows, labels] -= 1.0
    chances /= len(labels)
    back = (chances @ model["w2"].T) * (hidden > 0.0)
    gradients = {
        "w1": images.T @ back,
        "b1": back.sum(axis=0),
        "w2": hidden.T @ chances,
        "b2": chances.sum(axis=0),
    }
    for name, gradient in gradients.items():
        model[name] -= lr * gradient
    return loss


def train_epoch(model, images, labels, lr, rng):
    """Every image once, in a new order; returns the mean loss."""
    order = rng.permutation(len(labels))
    batches = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
    return float(np.mean([train_batch(model, images[batch], labels[batch], lr) for batch in batches]))


def accuracy(model, images, labels):
    return float((forward(model, images)[1].argmax(axis=1) == labels).mean())


def save(model, history):
    folder = Path(os.environ.get("CRUCIBLE_OUTPUT_DIR", "outputs"))
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "model.npz", **model)
    (folder / "metrics.json").write_text(json.dumps(history, indent=2) + "\n")


def parse_arguments():
    parser = argparse.ArgumentParser(description="Train a small network to read noisy 8x8 digits.")
    parser.add_argument("--epochs", type=int, default=8, help="times to see every image (default 8)")
    parser.add_argument("--lr", type=float, default=0.03, help="learning rate (default 0.03)")
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same model (default 0)")
    return parser.parse_args()


def main():
    args = parse_arguments()
    asked_to_stop = []
    signal.signal(signal.SIGTERM, lambda number, frame: asked_to_stop.append(number))

    rng = np.random.default_rng(args.seed)
    images, labels = make_digits(60_000, rng)
    test_images, test_labels = make_digits(4_000, rng)
    print(f"{len(images)} digits to learn from, {len(test_images)} to be judged by", flush=True)

    model, history = new_model(rng), []
    for epoch in range(1, args.epochs + 1):
        loss = train_epoch(model, images, labels, args.lr, rng)
        score = accuracy(model, test_images, test_labels)
        history.append({"epoch": epoch, "loss": loss, "accuracy": score})
        print(f"epoch {epoch}/{args.epochs} loss={loss:.4f} accuracy={score:.4f}", flush=True)
        if asked_to_stop:
            print("asked to stop: saving what there is", flush=True)
            break
    save(model, history)
    print("saved model.npz and metrics.json", flush=True)


if __name__ == "__main__":
    main()
