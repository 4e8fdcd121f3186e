"""A loop in words of its own, with a class for the settings."""

from dataclasses import dataclass

import torch
from torch import nn, optim


@dataclass
class Settings:
    vocab_size: int = 32_000
    n_layer: int = 8
    n_head: int = 8
    n_embd: int = 512
    block_size: int = 512
    batch_size: int = 16
    max_steps: int = 50_000


class Writer(nn.Module):
    def __init__(self, s: Settings):
        super().__init__()
        self.words = nn.Embedding(s.vocab_size, s.n_embd)
        self.places = nn.Parameter(torch.zeros(s.block_size, s.n_embd))
        layer = nn.TransformerEncoderLayer(s.n_embd, s.n_head, 4 * s.n_embd, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, s.n_layer)
        self.head = nn.Linear(s.n_embd, s.vocab_size, bias=False)

    def forward(self, x):
        return self.head(self.blocks(self.words(x) + self.places))


s = Settings()
model = Writer(s).to("cuda")
optimizer = optim.AdamW(model.parameters(), lr=3e-4)
for step in range(s.max_steps):
    x = torch.randint(s.vocab_size, (s.batch_size, s.block_size + 1), device="cuda")
    loss = nn.functional.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if step % 1000 == 0:
        torch.save({"model": model.state_dict(), "step": step}, "writer.pt")
