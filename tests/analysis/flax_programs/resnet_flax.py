from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn


class Block(nn.Module):
    filters: int
    conv: Any
    norm: Any
    strides: tuple = (1, 1)

    @nn.compact
    def __call__(self, x):
        rest = x
        y = self.conv(self.filters, (3, 3), self.strides)(x)
        y = nn.relu(self.norm()(y))
        y = self.norm(scale_init=nn.initializers.zeros_init())(self.conv(self.filters, (3, 3))(y))
        if rest.shape != y.shape:
            rest = self.norm(name="norm_proj")(self.conv(self.filters, (1, 1), self.strides, name="conv_proj")(rest))
        return nn.relu(rest + y)


class ResNet(nn.Module):
    stages: Sequence[int]
    classes: int

    @nn.compact
    def __call__(self, x, train: bool = True):
        conv = partial(nn.Conv, use_bias=False)
        norm = partial(nn.BatchNorm, use_running_average=not train, momentum=0.9)
        x = conv(64, (7, 7), (2, 2), padding=[(3, 3), (3, 3)], name="conv_init")(x)
        x = nn.relu(norm(name="bn_init")(x))
        x = nn.max_pool(x, (3, 3), strides=(2, 2), padding="SAME")
        for i, count in enumerate(self.stages):
            for j in range(count):
                strides = (2, 2) if i > 0 and j == 0 else (1, 1)
                x = Block(64 * 2**i, conv=conv, norm=norm, strides=strides)(x)
        x = jnp.mean(x, axis=(1, 2))
        return nn.Dense(self.classes)(x)


model = ResNet(stages=[2, 2, 2, 2], classes=1000)
variables = jax.jit(model.init)({"params": jax.random.key(0)}, jnp.ones((1, 224, 224, 3)))
