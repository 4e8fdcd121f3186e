"""Models of Flax: as many parameters as Flax itself counts.

The counts are of Flax 0.12.8, which initialised each of `flax_programs/` and summed its parameters.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.analysis.programs import read

from crucible.core.routing.profile import Confidence

PROGRAMS = Path(__file__).parent / "flax_programs"
COUNTED = {"cnn": 824_458, "transformer": 859_264, "nnx": 842_730, "resnet": 11_689_512}
HEAD = """
import jax
import jax.numpy as jnp
from flax import linen as nn

class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        {code}
        return nn.Dense(1, use_bias=False)(x)

"""


@pytest.mark.parametrize("name", COUNTED)
def test_as_many_as_flax_counts(name: str) -> None:
    found = read((PROGRAMS / f"{name}_flax.py").read_text(encoding="utf-8"))
    assert found.parameters.value == COUNTED[name]
    assert found.parameters.confidence is Confidence.HIGH
    assert found.parameters.evidence


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x = nn.DenseGeneral(features=(2, 3), use_bias=False)(x)", 8 * 6 + 3),
        ("x = nn.RMSNorm()(x)", 8 + 8),
        ("x = nn.LayerNorm(use_bias=False, use_scale=False)(x)", 8),
        ("x = nn.GroupNorm(num_groups=2)(x)", 16 + 8),
        ("x = nn.Sequential([nn.Dense(4, use_bias=False), nn.relu, nn.Dense(2, use_bias=False)])(x)", 32 + 8 + 2),
        ("x = nn.max_pool(x, (2, 2), (2, 2)).reshape((x.shape[0], -1))", 3 * 3 * 8),
        ("x = nn.Conv(4, (3, 3), (2, 2), padding='VALID', use_bias=False)(x).reshape((2, -1))", 9 * 8 * 4 + 2 * 2 * 4),
        ("x = nn.ConvTranspose(4, (2, 2), strides=(2, 2))(x).reshape((2, -1))", 4 * 8 * 4 + 4 + 12 * 12 * 4),
        ("x = nn.SelfAttention(num_heads=2, qkv_features=16)(x)", 3 * (8 * 16 + 16) + 16 * 8 + 8 + 8),
    ],
)
def test_layers_and_what_they_give_on(code: str, expected: int) -> None:
    program = HEAD.format(code=code) + "Net().init(jax.random.key(0), jnp.ones((2, 6, 6, 8)))\n"
    assert read(program).parameters.value == expected


def test_following_it_again_counts_nothing_twice() -> None:
    program = HEAD.format(code="x = nn.Dense(3)(x)") + (
        "net = Net()\nstate = net.init(jax.random.key(0), jnp.ones((1, 5)))\n"
        "for _ in range(3):\n    y = net.apply(state, jnp.ones((1, 5)))\n"
    )
    assert read(program).parameters.value == 15 + 3 + 3


def test_a_layer_that_is_not_known_here_is_said_to_be_missing() -> None:
    program = HEAD.format(code="c, x = nn.OptimizedLSTMCell(4)(c, x)\n        x = nn.LSTMCell(3)(x)") + (
        "Net().init(jax.random.key(0), jnp.ones((1, 5)))\n"
    )
    assert read(program).parameters.confidence is not Confidence.HIGH


def test_without_an_example_the_count_is_asked_for() -> None:
    found = read(HEAD.format(code="x = nn.Dense(3)(x)") + "net = Net()\n")
    assert found.parameters.value is None
    assert found.parameters.question
