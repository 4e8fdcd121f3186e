"""Learns a function with JAX and optax."""

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax.training import checkpoints, train_state


class Net(nn.Module):
    width: int = 512

    @nn.compact
    def __call__(self, x):
        for _ in range(4):
            x = nn.gelu(nn.Dense(self.width)(x))
        return nn.Dense(1)(x)


net = Net()
start = net.init(jax.random.PRNGKey(0), jnp.ones((1, 8)))
state = train_state.TrainState.create(apply_fn=net.apply, params=start, tx=optax.adamw(3e-4))


@jax.jit
def step(state, x, y):
    def loss(params):
        return jnp.mean((state.apply_fn(params, x)[:, 0] - y) ** 2)

    value, slope = jax.value_and_grad(loss)(state.params)
    return state.apply_gradients(grads=slope), value


key = jax.random.PRNGKey(1)
for number in range(20_000):
    key, mine = jax.random.split(key)
    x = jax.random.normal(mine, (1024, 8))
    state, value = step(state, x, jnp.sin(x).sum(axis=1))
    if number % 1000 == 0:
        checkpoints.save_checkpoint("saved", state, number)
