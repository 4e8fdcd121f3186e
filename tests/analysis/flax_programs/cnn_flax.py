import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training import train_state


class CNN(nn.Module):
    classes: int = 10

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(features=32, kernel_size=(3, 3))(x)
        x = nn.relu(x)
        x = nn.avg_pool(x, window_shape=(2, 2), strides=(2, 2))
        x = nn.Conv(features=64, kernel_size=(3, 3))(x)
        x = nn.relu(x)
        x = nn.avg_pool(x, window_shape=(2, 2), strides=(2, 2))
        x = x.reshape((x.shape[0], -1))
        x = nn.Dense(features=256)(x)
        x = nn.relu(x)
        return nn.Dense(features=self.classes)(x)


@jax.jit
def step(state, images, labels):
    def loss_of(params):
        logits = state.apply_fn({"params": params}, images)
        return jnp.mean(optax.softmax_cross_entropy(logits, jax.nn.one_hot(labels, 10)))

    return state.apply_gradients(grads=jax.grad(loss_of)(state.params))


cnn = CNN()
params = cnn.init(jax.random.key(0), jnp.ones([1, 28, 28, 1]))["params"]
state = train_state.TrainState.create(apply_fn=cnn.apply, params=params, tx=optax.sgd(0.1, 0.9))
