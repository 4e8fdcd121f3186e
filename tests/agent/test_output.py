"""Test the parser with output of real programs, and with lines that must give no values."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.agent.output.parsing import LineValues, OutputParser


def seen(**fields: object) -> LineValues:
    metrics = fields.pop("metrics", {})
    assert isinstance(metrics, dict)
    return LineValues(metrics=tuple(metrics.items()), **fields)  # type: ignore[arg-type]


def parse(*lines: str) -> list[LineValues]:
    parser = OutputParser()
    return [found for line in lines for found in parser.feed(line)]


NANOGPT = [
    ("iter 100: loss 2.4543, time 23.11ms, mfu 1.20%", seen(step=100, metrics={"loss": 2.4543, "mfu": 1.2})),
    (
        "iter 0: loss 10.9886, time 3214.50ms, mfu -100.00%",
        seen(step=0, metrics={"loss": 10.9886, "mfu": -100.0}),
    ),
    (
        "step 250: train loss 2.1034, val loss 2.2011",
        seen(step=250, metrics={"train_loss": 2.1034, "val_loss": 2.2011}),
    ),
    (
        "step:125/6200 val_loss:4.3822 train_time:75612ms step_avg:604.90ms",
        seen(step=125, total_steps=6200, metrics={"val_loss": 4.3822}),
    ),
    (
        "step    10/19073 | loss 9.512375 | lr 8.39e-06 | norm 3.4521",
        seen(step=10, total_steps=19073, metrics={"loss": 9.512375, "lr": 8.39e-06, "norm": 3.4521}),
    ),
]

LIGHTNING = [
    (
        "Epoch 3:  45%|████▌     | 45/100 [00:10<00:12,  4.50it/s, v_num=0, train_loss=0.123]",
        seen(epoch=3, step=45, total_steps=100, metrics={"train_loss": 0.123}, within_epoch=True),
    ),
    (
        "Epoch 0: 100%|██████████| 938/938 [00:08<00:00, 112.34it/s, loss=0.0712, v_num=12, val_acc=0.975]",
        seen(epoch=0, step=938, total_steps=938, metrics={"loss": 0.0712, "val_acc": 0.975}, within_epoch=True),
    ),
    (
        "Epoch 7:   0%|          | 0/100 [00:00<?, ?it/s]",
        seen(epoch=7, step=0, total_steps=100, within_epoch=True),
    ),
    (
        "Epoch 3/9  ━━━━━━━━━━━━━━━━ 45/100 0:00:10 • 0:00:12 4.50it/s v_num: 0.000 train_loss: 0.123",
        seen(
            epoch=3,
            total_epochs=10,
            step=45,
            total_steps=100,
            metrics={"train_loss": 0.123},
            within_epoch=True,
            from_zero=True,
        ),
    ),
]

TQDM = [
    (
        " 45%|████▌     | 45/100 [00:10<00:12,  4.50it/s, loss=0.12]",
        seen(step=45, total_steps=100, metrics={"loss": 0.12}),
    ),
    ("  5%|▌         | 25/500 [00:10<03:12,  2.47it/s]", seen(step=25, total_steps=500, bare=True)),
    ("Training:  45%|####5     | 45/100 [00:10<00:12]", seen(step=45, total_steps=100, bare=True)),
    ("100%|██████████| 500/500 [03:20<00:00,  2.49it/s]", seen(step=500, total_steps=500, bare=True)),
    (
        "Epoch 3/10:  50%|█████     | 50/100 [00:01<00:01, 45.5it/s, loss=1.5e-3, acc=97.5%]",
        seen(
            epoch=3,
            total_epochs=10,
            step=50,
            total_steps=100,
            metrics={"loss": 0.0015, "acc": 97.5},
            within_epoch=True,
        ),
    ),
    ("Epochs:  30%|███       | 3/10 [01:00<02:20, 20.0s/it]", seen(epoch=3, total_epochs=10)),
    ("45it [00:10,  4.50it/s, loss=0.12]", seen(step=45, metrics={"loss": 0.12})),
    (
        "train: 12%|█▏ | 12/100 [00:10<00:12, 4.5it/s, loss=nan]",
        seen(step=12, total_steps=100, metrics={"loss": math.nan}),
    ),
]

RECORDS = [
    (
        "{'loss': 0.5, 'grad_norm': 1.25, 'learning_rate': 5e-05, 'epoch': 0.5}",
        seen(epoch=0.5, metrics={"loss": 0.5, "grad_norm": 1.25, "learning_rate": 5e-05}),
    ),
    (
        "{'eval_loss': 0.4321, 'eval_runtime': 3.21, 'eval_samples_per_second': 311.5, 'epoch': 1.0}",
        seen(epoch=1, metrics={"eval_loss": 0.4321, "eval_runtime": 3.21, "eval_samples_per_second": 311.5}),
    ),
    ("{'loss': '0.5', 'epoch': '0.25'}", seen(epoch=0.25, metrics={"loss": 0.5})),
    ("{'loss': tensor(0.5, device='cuda:0'), 'lr': np.float64(0.1)}", seen(metrics={"loss": 0.5, "lr": 0.1})),
    ('{"step": 5, "loss": 0.1, "lr": 1e-3, "tag": "a"}', seen(step=5, metrics={"loss": 0.1, "lr": 1e-3})),
    ('{"global_step": 5, "epoch": 2, "max_steps": 50}', seen(step=5, epoch=2, total_steps=50)),
    ('INFO:train:{"step": 7, "loss": NaN}', seen(step=7, metrics={"loss": math.nan})),
    ('{"step": 7, "ok": true, "loss": null, "reward": Infinity}', seen(step=7, metrics={"reward": math.inf})),
    (
        '{"crucible":1,"step":5,"metrics":{"anything":0.1,"epoch":2,"total_epochs":4}}',
        seen(step=5, epoch=2, total_epochs=4, metrics={"anything": 0.1}),
    ),
]

BY_HAND = [
    ("epoch 3/10 loss=0.12", seen(epoch=3, total_epochs=10, metrics={"loss": 0.12})),
    (
        "Epoch [3/10], Step [100/600], Loss: 0.1234",
        seen(epoch=3, total_epochs=10, step=100, total_steps=600, metrics={"loss": 0.1234}, within_epoch=True),
    ),
    ("step=100 loss=0.5", seen(step=100, metrics={"loss": 0.5})),
    ("step 5 loss=0.12 my_metric=7", seen(step=5, metrics={"loss": 0.12, "my_metric": 7.0})),
    ("Step 100/1000 - loss: 0.5", seen(step=100, total_steps=1000, metrics={"loss": 0.5})),
    (
        "Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.293032",
        seen(epoch=1, step=640, total_steps=60000, metrics={"loss": 2.293032}, within_epoch=True),
    ),
    (
        "Epoch: [0][  10/5005]\tTime  0.512 ( 0.987)\tLoss 6.9876e+00 (7.0123e+00)\tAcc@1   0.39 (  0.10)",
        seen(epoch=0, step=10, total_steps=5005, metrics={"loss": 6.9876, "acc@1": 0.39}, within_epoch=True),
    ),
    ("Test set: Average loss: 0.0533, Accuracy: 9823/10000 (98%)", seen(metrics={"average_loss": 0.0533})),
    (
        "2024-05-01 12:00:00,123 - trainer - INFO - Epoch 3/10 | train_loss: 0.5 | val_acc: 91.2%",
        seen(epoch=3, total_epochs=10, metrics={"train_loss": 0.5, "val_acc": 91.2}),
    ),
    (
        "Epoch 5 of 20: train loss 0.31 val loss 0.40",
        seen(epoch=5, total_epochs=20, metrics={"train_loss": 0.31, "val_loss": 0.4}),
    ),
    (
        "\x1b[32mEpoch 2/4\x1b[0m loss: \x1b[1m0.25\x1b[0m",
        seen(epoch=2, total_epochs=4, metrics={"loss": 0.25}),
    ),
    ("Epoch 3/10", seen(epoch=3, total_epochs=10)),
    ("Starting epoch 3", seen(epoch=3)),
    ("[rank0] epoch 3/10", seen(epoch=3, total_epochs=10)),
    ("step 10: loss nan", seen(step=10, metrics={"loss": math.nan})),
    ("step 10 loss=inf lr=-1e-3", seen(step=10, metrics={"loss": math.inf, "lr": -1e-3})),
    ("val_loss: 0.5", seen(metrics={"val_loss": 0.5})),
    ("epoch=2.50 loss=0.1", seen(epoch=2.5, metrics={"loss": 0.1})),
]

NOTHING = [
    "",
    "hello world",
    "no loss of data in 3 runs",
    "Downloading 45/100 MB",
    "Downloading (…)model.bin:  45%|████▌     | 450M/1.00G [00:10<00:12, 45.0MB/s]",
    "model.safetensors:  45%|████▌     | 45/100 [00:10<00:12, 4.50it/s]",
    "Map:  45%|████▌     | 450/1000 [00:10<00:12, 45.0 examples/s]",
    "Validation DataLoader 0:  45%|████▌     | 45/100 [00:10<00:12, 4.50it/s]",
    "Sanity Checking DataLoader 0: 100%|██████████| 2/2 [00:00<00:00, 30.1it/s]",
    "Step 1: install the packages",
    "Step 3/10 : RUN pip install torch",
    "5 packets transmitted, 5 received, 0% packet loss, time 4005ms",
    "Namespace(lr=0.001, epochs=10, batch_size=32, steps=1000)",
    '{"level": "info", "ts": 1690000000.1, "port": 8080}',
    '{"epochs": 10, "lr": 0.1, "batch_size": 32}',
    "{'a': {'loss': 0.5}}",
    "number of parameters: 123.59M",
    "tokens per iteration will be: 16,384",
    "Resuming from epoch 5",
    "Loaded checkpoint at epoch 12, loss: 0.1",
    "Best epoch: 3, best loss: 0.1",
    "Saved model after step 100 with loss=0.1",
    "2024-01-01 12:00:00 INFO 10.0.0.1 GET /api/v1/steps/5 200",
    "E0000 00:00:1730000000.123 cuda_dnn.cc:8310] Unable to register cuDNN factory",
    "we finished epoch 3 of the plan and went home",
    'File "/a/b/train.py", line 12, in step',
    "batch 5 of 10 uploaded",
    "step 99999999999999999999999",
    "{" * 200 + "1}",
    "loss: 0.5.3.1",
    "██ 1/2 ██",
]


@pytest.mark.parametrize(("line", "expected"), NANOGPT + LIGHTNING + TQDM + RECORDS + BY_HAND)
def test_line_is_understood(line: str, expected: LineValues) -> None:
    assert [repr(found) for found in parse(line)] == [repr(expected)]


@pytest.mark.parametrize("line", NOTHING)
def test_line_gives_nothing(line: str) -> None:
    assert parse(line) == []


def test_keras_bars_belong_to_the_epoch_announced_before() -> None:
    position = {"epoch": 3, "total_epochs": 10, "total_steps": 100, "within_epoch": True}
    assert parse(
        "Epoch 3/10",
        " 12/100 [==>...........................] - ETA: 3s - loss: 0.1234 - accuracy: 0.9012",
        "\x1b[1m 50/100\x1b[0m \x1b[32m━━\x1b[0m\x1b[37m━━━━━\x1b[0m \x1b[1m1s\x1b[0m 5ms/step - loss: 0.11",
        "100/100 ━━━━━━━━━━━━━━━━━━━━ 1s 5ms/step - accuracy: 0.91 - loss: 0.1 - val_loss: 0.2",
    ) == [
        seen(epoch=3, total_epochs=10),
        seen(step=12, metrics={"loss": 0.1234, "accuracy": 0.9012}, **position),
        seen(step=50, metrics={"loss": 0.11}, **position),
        seen(step=100, metrics={"accuracy": 0.91, "loss": 0.1, "val_loss": 0.2}, **position),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "100/100 - 1s - loss: 0.1 - val_loss: 0.2 - 1s/epoch - 9ms/step",
        "100/100 - 1s - 9ms/step - loss: 0.1 - val_loss: 0.2",
        "100/100 [==============================] - 1s 9ms/step - loss: 0.1 - val_loss: 0.2",
        "100/100 [==============================]\b\b\b\b - 1s 9ms/step - loss: 0.1 - val_loss: 0.2",
    ],
)
def test_keras_last_line_of_an_epoch(line: str) -> None:
    metrics = {"loss": 0.1, "val_loss": 0.2}
    expected = seen(epoch=1, total_epochs=2, step=100, total_steps=100, metrics=metrics, within_epoch=True)
    assert parse("Epoch 1/2", line)[1:] == [expected]


def test_keras_evaluation_after_training_moves_no_step() -> None:
    found = parse(
        "Epoch 2/2",
        "100/100 [=====] - 1s 9ms/step - loss: 0.1",
        " 10/313 [>....] - ETA: 1s - loss: 0.3 - accuracy: 0.9",
        "313/313 ━━━━━ 0s 1ms/step",
    )
    assert found[2:] == [seen(metrics={"loss": 0.3, "accuracy": 0.9})]


def test_keras_without_an_announced_epoch() -> None:
    assert parse("10/Unknown - 1s 9ms/step - loss: 0.1") == [seen(metrics={"loss": 0.1})]
    assert parse("10/20 ━━━━━ 0s 1ms/step") == [seen(step=10, total_steps=20, bare=True)]


def test_only_the_beginning_of_a_line_is_read() -> None:
    assert parse(" " * 5000 + "step 5 loss=0.1") == []
    assert parse("step 5 loss=0.1" + " x=1" * 5000)[0].step == 5
    assert len(parse("step 5 " + " ".join(f"m{i}={i}" for i in range(500)))[0].metrics) == 64


HOSTILE = [
    "epoch " * 800,
    "loss " + "1" * 4000,
    "loss " * 800 + "1",
    "1/" * 2000 + " step",
    "45%|" * 1000,
    "45%|" + "|" * 4000 + " step",
    "{'loss': " * 400 + "1}",
    '{"loss": 1, "a":' + "[" * 4000 + "}",
    "step 1 " + "a" * 4000,
    "step 1 " + "a=" * 2000,
    "step 1 " + "a: " * 1300,
    "step 1 " + "val " * 1000,
    "epoch 1" + " " * 4000 + "/2",
    "\x1b[" * 2000 + "1 step",
    "\x1b]" * 2000 + "1 step",
    "Epoch 1/2 " + "━ " * 2000 + "1/2",
    "it [" * 1000 + "1it [",
    "1e" * 2000 + " loss=1",
]


@pytest.mark.quiet
@pytest.mark.parametrize("line", HOSTILE)
def test_hostile_lines_are_read_in_bounded_time(line: str) -> None:
    parser = OutputParser()
    best = min(_timed(parser, line) for _ in range(3))
    assert best < 0.05


def _timed(parser: OutputParser, line: str) -> float:
    start = time.perf_counter()
    parser.feed(line)
    return time.perf_counter() - start


_PIECES = st.sampled_from(
    ["epoch", "Epoch ", "step", "iter ", "loss", "acc", "{", "}", "'", '"', ":", "=", "/", "[", "]", "%|",
     "|", "it [", "1", "23", "0.5", "1e-5", "nan", "inf", " ", "\t", ",", "━", " - ", "s/step", "\x1b[",
     "m", "\b", "\x00", "é", "²", "٣"]
)  # fmt: skip


@given(st.one_of(st.text(max_size=200), st.lists(_PIECES, max_size=60).map("".join)))
def test_never_raises_and_values_are_sound(line: str) -> None:
    for found in parse("Epoch 1/2", line):
        assert found.step is None or 0 <= found.step < 1e15
        assert all(isinstance(value, float) for _, value in found.metrics)


def test_plain_lines_are_cheap() -> None:
    parser = OutputParser()
    lines = [
        "2024-05-01 12:00:00,123 INFO some.module: handled request 17 for user 42 in 12 ms",
        "a plain sentence without any number in it, as most of them are",
    ] * 5000
    best = min(_all(parser, lines) for _ in range(3))
    assert len(lines) / best > 100_000


def _all(parser: OutputParser, lines: list[str]) -> float:
    start = time.perf_counter()
    for line in lines:
        parser.feed(line)
    return time.perf_counter() - start
