import jax
import jax.numpy as jnp
from flax import linen as nn

WIDTH, HEADS, DEPTH, VOCAB, LENGTH = 128, 4, 3, 1000, 64


class Mlp(nn.Module):
    inner: int

    @nn.compact
    def __call__(self, x):
        width = x.shape[-1]
        x = nn.Dense(self.inner)(x)
        x = nn.gelu(x)
        return nn.Dense(width)(x)


class Block(nn.Module):
    heads: int
    inner: int

    def setup(self):
        self.attention = nn.MultiHeadDotProductAttention(num_heads=self.heads)
        self.mlp = Mlp(inner=self.inner)
        self.first = nn.LayerNorm()
        self.second = nn.LayerNorm()

    def __call__(self, x):
        y = self.first(x)
        x = x + self.attention(y, y)
        return x + self.mlp(self.second(x))


class Model(nn.Module):
    depth: int = DEPTH

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(VOCAB, WIDTH)(tokens)
        x = x + self.param("places", nn.initializers.normal(0.02), (1, LENGTH, WIDTH))
        for _ in range(self.depth):
            x = Block(HEADS, 4 * WIDTH)(x)
        x = nn.BatchNorm(use_running_average=True)(x)
        return nn.Dense(VOCAB, use_bias=False)(x)


model = Model()
variables = model.init(jax.random.PRNGKey(0), jnp.zeros((2, LENGTH), dtype=jnp.int32))
