import jax.numpy as jnp
from flax import nnx


class Net(nnx.Module):
    def __init__(self, *, rngs: nnx.Rngs):
        self.conv1 = nnx.Conv(1, 32, kernel_size=(3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(32, rngs=rngs)
        self.conv2 = nnx.Conv(32, 64, kernel_size=(3, 3), use_bias=False, rngs=rngs)
        self.embed = nnx.Embed(100, 16, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(num_heads=4, in_features=64, qkv_features=64, decode=False, rngs=rngs)
        self.linear1 = nnx.Linear(3136, 256, rngs=rngs)
        self.linear2 = nnx.Linear(256, 10, rngs=rngs)
        self.last = nnx.LayerNorm(10, rngs=rngs)
        self.scale = nnx.Param(jnp.ones((3, 4)))

    def __call__(self, x):
        x = nnx.relu(self.conv1(x))
        return self.linear2(nnx.relu(self.linear1(x)))


model = Net(rngs=nnx.Rngs(0))
