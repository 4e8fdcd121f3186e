"""Shapes through torch's functions, methods and layers, and what each keeps for the backward pass."""

from __future__ import annotations

import pytest
from tests.analysis.values_of import follow, value_of

from crucible.analysis.values.values import UNKNOWN, Tensor

HEAD = (
    "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
    "a = torch.randn(2, 3, 4)\nb = torch.randn(4, 5)\np = torch.randn(8, 3, 32, 32)\n"
)


def shape(expression: str) -> tuple[object, ...] | None:
    found = value_of(f"{HEAD}x = {expression}\n")
    if isinstance(found, tuple | list):
        return tuple(each.shape if isinstance(each, Tensor) else each for each in found)
    assert isinstance(found, Tensor), found
    return found.shape


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("torch.zeros(2, 3)", (2, 3)),
        ("torch.ones((4, 5))", (4, 5)),
        ("torch.empty(size=(6,))", (6,)),
        ("torch.randint(0, 10, (7, 8))", (7, 8)),
        ("torch.arange(10)", (10,)),
        ("torch.arange(2, 10, 3)", (3,)),
        ("torch.tensor([[1, 2, 3], [4, 5, 6]])", (2, 3)),
        ("torch.zeros_like(a)", (2, 3, 4)),
        ("torch.stack([b, b, b])", (3, 4, 5)),
        ("torch.stack([b, b], dim=-1)", (4, 5, 2)),
        ("torch.cat([a, a], dim=1)", (2, 6, 4)),
        ("torch.einsum('bij,jk->bik', a, b)", (2, 3, 5)),
        ("a @ b", (2, 3, 5)),
        ("torch.matmul(a, torch.randn(2, 4, 6))", (2, 3, 6)),
        ("a @ torch.randn(4)", (2, 3)),
        ("a + torch.randn(4)", (2, 3, 4)),
        ("a[:, :1] * torch.randn(3, 1)", (2, 3, 4)),
        ("3 - a / 2", (2, 3, 4)),
        ("-a", (2, 3, 4)),
        ("a[0]", (3, 4)),
        ("a[:, 1]", (2, 4)),
        ("a[..., -1]", (2, 3)),
        ("a[:, None, :2]", (2, 1, 2, 4)),
        ("a[:, ::2]", (2, 2, 4)),
        ("a[torch.randint(0, 2, (5,))]", (5, 3, 4)),
        ("a[[0, 1, 1]]", (3, 3, 4)),
        ("a[1:-1]", (0, 3, 4)),
        ("a.view(6, 4)", (6, 4)),
        ("a.view(-1, 2)", (12, 2)),
        ("a.reshape((2, -1))", (2, 12)),
        ("a.transpose(1, 2)", (2, 4, 3)),
        ("a.transpose(-2, -1)", (2, 4, 3)),
        ("a.permute(2, 0, 1)", (4, 2, 3)),
        ("a.permute((2, 0, 1))", (4, 2, 3)),
        ("b.t()", (5, 4)),
        ("b.T", (5, 4)),
        ("a.flatten(1)", (2, 12)),
        ("torch.flatten(a)", (24,)),
        ("a.unsqueeze(0)", (1, 2, 3, 4)),
        ("a.unsqueeze(-1)", (2, 3, 4, 1)),
        ("a.unsqueeze(1).squeeze()", (2, 3, 4)),
        ("a.unsqueeze(1).squeeze(1)", (2, 3, 4)),
        ("a.expand(2, 3, 4)", (2, 3, 4)),
        ("torch.zeros(1, 4).expand(7, -1)", (7, 4)),
        ("a.repeat(2, 1, 3)", (4, 3, 12)),
        ("a.sum()", ()),
        ("a.mean(dim=1)", (2, 4)),
        ("a.mean(-1, keepdim=True)", (2, 3, 1)),
        ("a.sum((0, 1))", (4,)),
        ("a.max(dim=2)[0]", (2, 3)),
        ("a.argmax(-1)", (2, 3)),
        ("a.topk(2)", ((2, 3, 2), (2, 3, 2))),
        ("a.split(2, dim=2)", ((2, 3, 2), (2, 3, 2))),
        ("a.split([1, 3], dim=2)", ((2, 3, 1), (2, 3, 3))),
        ("a.chunk(3, dim=1)", ((2, 1, 4), (2, 1, 4), (2, 1, 4))),
        ("a.unbind(0)", ((3, 4), (3, 4))),
        ("a.size()", (2, 3, 4)),
        ("a.softmax(-1)", (2, 3, 4)),
        ("F.softmax(a, dim=-1)", (2, 3, 4)),
        ("F.one_hot(torch.randint(0, 9, (5,)), 9)", (5, 9)),
        ("torch.where(a > 0, a, a)", (2, 3, 4)),
        ("F.max_pool2d(p, 2)", (8, 3, 16, 16)),
        ("F.avg_pool2d(p, 3, stride=2, padding=1)", (8, 3, 16, 16)),
        ("F.adaptive_avg_pool2d(p, (1, 1))", (8, 3, 1, 1)),
        ("F.interpolate(p, scale_factor=2)", (8, 3, 64, 64)),
        ("F.interpolate(p, size=(10, 12))", (8, 3, 10, 12)),
        ("nn.Conv2d(3, 16, 3)(p)", (8, 16, 30, 30)),
        ("nn.Conv2d(3, 16, 3, padding='same')(p)", (8, 16, 32, 32)),
        ("nn.Conv2d(3, 16, 5, stride=2, padding=2, dilation=1)(p)", (8, 16, 16, 16)),
        ("nn.Conv1d(3, 6, 3, padding=1)(torch.randn(2, 3, 9))", (2, 6, 9)),
        ("nn.ConvTranspose2d(3, 4, 2, stride=2)(p)", (8, 4, 64, 64)),
        ("nn.ConvTranspose2d(3, 4, 3, 2, 1, output_padding=1)(p)", (8, 4, 64, 64)),
        ("nn.MaxPool2d(3, 2, 1)(p)", (8, 3, 16, 16)),
        ("nn.AdaptiveAvgPool2d((4, None))(p)", (8, 3, 4, 32)),
        ("nn.Upsample(scale_factor=2)(p)", (8, 3, 64, 64)),
        ("nn.PixelShuffle(2)(torch.randn(1, 12, 4, 4))", (1, 3, 8, 8)),
        ("nn.Flatten()(p)", (8, 3072)),
        ("nn.Unflatten(1, (3, 2))(torch.randn(4, 6))", (4, 3, 2)),
        ("nn.Linear(4, 7)(a)", (2, 3, 7)),
        ("nn.Embedding(10, 6)(torch.randint(0, 10, (2, 5)))", (2, 5, 6)),
        ("nn.LayerNorm(4)(a)", (2, 3, 4)),
        ("nn.BatchNorm2d(3)(p)", (8, 3, 32, 32)),
        ("nn.LSTM(4, 6, batch_first=True)(a)[0]", (2, 3, 6)),
        ("nn.GRU(4, 6, bidirectional=True)(a)[0]", (2, 3, 12)),
        ("nn.LSTM(4, 6, 2)(a)[1][0]", (2, 3, 6)),
        ("nn.MultiheadAttention(4, 2)(a, a, a)[0]", (2, 3, 4)),
        ("nn.TransformerEncoderLayer(4, 2)(a)", (2, 3, 4)),
        ("nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2), 2)(a)", (2, 3, 4)),
        ("nn.Transformer(4, 2, 1, 1, 8)(a, torch.randn(2, 3, 4))", (2, 3, 4)),
        ("nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))(a)", (2, 3, 1)),
        ("F.scaled_dot_product_attention(a, a, a)", (2, 3, 4)),
        ("F.linear(a, torch.randn(9, 4))", (2, 3, 9)),
        ("nn.CrossEntropyLoss()(torch.randn(4, 5), torch.randint(0, 5, (4,)))", ()),
        ("F.dropout(a, 0.1)", (2, 3, 4)),
        ("(a > torch.zeros(4)) == 0", (2, 3, 4)),
        ("a.masked_fill(a == 0, 1.0)", (2, 3, 4)),
    ],
)
def test_shapes(expression: str, expected: tuple[object, ...]) -> None:
    assert shape(expression) == expected


@pytest.mark.parametrize(
    "expression", ["torch.strange(a)", "a.strange()", "nn.Linear(4, 7)(unknown)", "torch.cat(unknown)"]
)
def test_what_is_not_known_is_no_shape_and_the_step_is_not_complete(expression: str) -> None:
    machine = follow(f"{HEAD}w = nn.Linear(4, 4)\nx = {expression}\n")
    found = machine.modules["a.py"].names["x"]
    assert not isinstance(found, Tensor) or found.shape is None


def test_an_unknown_dimension_stays_unknown_and_the_others_do_not() -> None:
    assert shape("torch.randn(unknown, 4) @ b") == (UNKNOWN, 5)
    assert shape("nn.Linear(4, 7)(torch.randn(unknown, 3, 4))") == (UNKNOWN, 3, 7)


def test_a_window_has_its_length_wherever_it_begins() -> None:
    code = (
        "import torch\nimport numpy as np\ndata = np.memmap('x')\nblock = 16\n"
        "ix = torch.randint(100, (4,))\n"
        "x = torch.stack([torch.from_numpy(data[i:i + block]) for i in ix])"
    )
    found = value_of(code)
    assert isinstance(found, Tensor)
    assert found.shape == (4, 16)


def kept(code: str) -> float:
    """Bytes that one step keeps."""
    machine = follow(HEAD + code)
    assert len(machine.facts.steps) == 1
    assert machine.facts.steps[0].complete
    return machine.facts.steps[0].saved


W = "w = nn.Linear(4, 4, bias=False)\n"


@pytest.mark.parametrize(
    ("code", "items"),
    [
        ("w(a).sum().backward()", 24),  # the input
        ("torch.relu(w(a)).sum().backward()", 48),  # and the result of relu
        ("F.gelu(w(a)).sum().backward()", 48),
        ("(w(a) * 2).sum().backward()", 24),  # a number needs nothing
        ("y = w(a)\n(y * y).sum().backward()", 48),
        ("(w(a) + w(a)).sum().backward()", 24),
        ("F.relu(w(a), inplace=True).sum().backward()", 48),
        ("w(a).view(6, 4).transpose(0, 1).sum().backward()", 24),  # views are free
        ("with torch.no_grad():\n    w(a)\nw(a).sum().backward()", 24),
        ("w.requires_grad_(False)\nv = nn.Linear(4, 4, bias=False)\nv(w(a)).sum().backward()", 24),
    ],
)
def test_what_is_kept(code: str, items: int) -> None:
    assert kept(W + code) == 4 * items


def test_the_same_memory_is_kept_once() -> None:
    assert kept(W + "v = nn.Linear(4, 4, bias=False)\n(w(a) + v(a)).sum().backward()") == 4 * 24


def test_each_backward_ends_a_step() -> None:
    machine = follow(HEAD + W + "w(a).sum().backward()\nw(a[:1]).sum().backward()")
    assert [step.saved for step in machine.facts.steps] == [96, 96]


def test_work_is_two_for_every_weight_and_row() -> None:
    machine = follow(HEAD + W + "w(a).sum().backward()")
    assert machine.facts.steps[0].flops == pytest.approx(2 * 6 * 16, rel=0.2)


def test_a_copy_in_half_precision_is_what_autocast_keeps() -> None:
    code = "with torch.autocast('cuda', dtype=torch.float16):\n    y = w(a)\ny.sum().backward()"
    assert kept(W + code) == 2 * 24


def test_a_tensor_is_not_none_and_its_truth_is_open() -> None:
    assert value_of(HEAD + "x = a is not None") is True
    assert value_of(HEAD + "x = 1 if a is None else 2") == 2
