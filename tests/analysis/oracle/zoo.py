"""Models to check sizes with, as the programs that people write: each has `make`, `inputs` and `step`."""

from __future__ import annotations

HEAD = """
import math
import torch
import torch.nn.functional as F
from torch import nn
"""

TAIL = """
def main():
    model = make().to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(100):
        optimizer.zero_grad()
        loss = step(model, *inputs())
        loss.backward()
        optimizer.step()

main()
"""

CLASSES = """
def step(model, x, y):
    return F.cross_entropy(model(x), y)
"""

MLP = """
class Net(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        layers = [nn.Linear(784, width), nn.ReLU()]
        for _ in range(depth):
            layers += [nn.Linear(width, width), nn.{act}()]
        self.net = nn.Sequential(*layers, nn.Linear(width, 10))
    def forward(self, x):
        return self.net(x)

def make(): return Net({width}, {depth})
def inputs(): return torch.randn({batch}, 784), torch.randint(0, 10, ({batch},))
"""

CNN = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, {width}, 3, padding=1)
        self.bn1 = nn.BatchNorm2d({width})
        self.conv2 = nn.Conv2d({width}, 2 * {width}, 3, stride=2, padding=1)
        self.bn2 = nn.BatchNorm2d(2 * {width})
        self.pool = nn.MaxPool2d(2)
        self.fc = nn.Linear(2 * {width} * ({side} // 4) ** 2, 10)
    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.pool(F.relu(self.bn2(self.conv2(x))))
        return self.fc(torch.flatten(x, 1))

def make(): return Net()
def inputs(): return torch.randn({batch}, 3, {side}, {side}), torch.randint(0, 10, ({batch},))
"""

RESNET = """
class Block(nn.Module):
    def __init__(self, ins, outs, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(ins, outs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outs, outs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outs)
        self.shortcut = nn.Sequential()
        if stride != 1 or ins != outs:
            self.shortcut = nn.Sequential(nn.Conv2d(ins, outs, 1, stride, bias=False), nn.BatchNorm2d(outs))
    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out = out + self.shortcut(x)
        return F.relu(out)

class Net(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.ins = {width}
        self.stem = nn.Conv2d(3, {width}, 3, 1, 1, bias=False)
        self.bn = nn.BatchNorm2d({width})
        self.stages = nn.ModuleList()
        for place, count in enumerate(blocks):
            self.stages.append(self._stage({width} * 2 ** place, count, 1 if place == 0 else 2))
        self.head = nn.Linear({width} * 8, 100)
    def _stage(self, outs, count, stride):
        layers = []
        for step in [stride] + [1] * (count - 1):
            layers.append(Block(self.ins, outs, step))
            self.ins = outs
        return nn.Sequential(*layers)
    def forward(self, x):
        x = F.relu(self.bn(self.stem(x)))
        for stage in self.stages:
            x = stage(x)
        x = F.adaptive_avg_pool2d(x, 1)
        return self.head(x.flatten(1))

def make(): return Net([{depth}, {depth}, {depth}, {depth}])
def inputs(): return torch.randn({batch}, 3, {side}, {side}), torch.randint(0, 100, ({batch},))
"""

GPT = """
from dataclasses import dataclass

@dataclass
class Config:
    vocab_size: int = {vocabulary}
    n_layer: int = {depth}
    n_head: int = {heads}
    n_embd: int = {width}
    block_size: int = {length}

class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)
        self.n_head, self.n_embd = config.n_head, config.n_embd
        if not {flash}:
            mask = torch.tril(torch.ones(config.block_size, config.block_size))
            self.register_buffer("mask", mask.view(1, 1, config.block_size, config.block_size))
    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        if {flash}:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf"))
            att = F.softmax(att, dim=-1)
            y = att @ v
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.c_proj(y)

class MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd)
        self.gelu = nn.GELU()
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd)
    def forward(self, x):
        return self.c_proj(self.gelu(self.c_fc(x)))

class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd)
        self.attn = Attention(config)
        self.ln_2 = nn.LayerNorm(config.n_embd)
        self.mlp = MLP(config)
    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        x = x + self.mlp(self.ln_2(x))
        return x

class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.transformer = nn.ModuleDict(dict(
            wte=nn.Embedding(config.vocab_size, config.n_embd),
            wpe=nn.Embedding(config.block_size, config.n_embd),
            h=nn.ModuleList([Block(config) for _ in range(config.n_layer)]),
            ln_f=nn.LayerNorm(config.n_embd),
        ))
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.transformer.wte.weight = self.lm_head.weight
    def forward(self, idx, targets=None):
        b, t = idx.size()
        pos = torch.arange(0, t, dtype=torch.long)
        x = self.transformer.wte(idx) + self.transformer.wpe(pos)
        for block in self.transformer.h:
            x = block(x)
        logits = self.lm_head(self.transformer.ln_f(x))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))

def make(): return GPT(Config())
def inputs():
    return torch.randint(0, {vocabulary}, ({batch}, {length})), torch.randint(0, {vocabulary}, ({batch}, {length}))
def step(model, x, y):
    logits, loss = model(x, y)
    return loss
"""

VIT = """
class ViT(nn.Module):
    def __init__(self, dim, depth, heads, patch):
        super().__init__()
        self.patch = nn.Conv2d(3, dim, kernel_size=patch, stride=patch)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos = nn.Parameter(torch.zeros(1, ({side} // patch) ** 2 + 1, dim))
        self.encoder = nn.ModuleList(
            [nn.TransformerEncoderLayer(dim, heads, 4 * dim, dropout=0.0, batch_first=True) for _ in range(depth)]
        )
        self.head = nn.Linear(dim, 1000)
    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        cls = self.cls.expand(x.shape[0], -1, -1)
        x = torch.cat([cls, x], dim=1) + self.pos
        for layer in self.encoder:
            x = layer(x)
        return self.head(x[:, 0])

def make(): return ViT({width}, {depth}, {heads}, 16)
def inputs(): return torch.randn({batch}, 3, {side}, {side}), torch.randint(0, 1000, ({batch},))
"""

UNET = """
def double(ins, outs):
    return nn.Sequential(
        nn.Conv2d(ins, outs, 3, padding=1), nn.BatchNorm2d(outs), nn.ReLU(inplace=True),
        nn.Conv2d(outs, outs, 3, padding=1), nn.BatchNorm2d(outs), nn.ReLU(inplace=True),
    )

class UNet(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.down1, self.down2, self.down3 = double(3, base), double(base, 2 * base), double(2 * base, 4 * base)
        self.pool = nn.MaxPool2d(2)
        self.up2 = nn.ConvTranspose2d(4 * base, 2 * base, 2, stride=2)
        self.conv2 = double(4 * base, 2 * base)
        self.up1 = nn.ConvTranspose2d(2 * base, base, 2, stride=2)
        self.conv1 = double(2 * base, base)
        self.out = nn.Conv2d(base, 1, 1)
    def forward(self, x):
        a = self.down1(x)
        b = self.down2(self.pool(a))
        c = self.down3(self.pool(b))
        x = self.conv2(torch.cat([self.up2(c), b], dim=1))
        x = self.conv1(torch.cat([self.up1(x), a], dim=1))
        return self.out(x)

def make(): return UNet({width})
def inputs(): return torch.randn({batch}, 3, {side}, {side}), torch.rand({batch}, 1, {side}, {side})
def step(model, x, y):
    return F.binary_cross_entropy_with_logits(model(x), y)
"""

VAE = """
class VAE(nn.Module):
    def __init__(self, hidden, latent):
        super().__init__()
        self.fc1 = nn.Linear(784, hidden)
        self.fc21, self.fc22 = nn.Linear(hidden, latent), nn.Linear(hidden, latent)
        self.fc3, self.fc4 = nn.Linear(latent, hidden), nn.Linear(hidden, 784)
    def forward(self, x):
        h = F.relu(self.fc1(x.view(-1, 784)))
        mu, logvar = self.fc21(h), self.fc22(h)
        std = torch.exp(0.5 * logvar)
        z = mu + torch.randn_like(std) * std
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z)))), mu, logvar

def make(): return VAE({width}, 20)
def inputs(): return (torch.rand({batch}, 784),)
def step(model, x):
    out, mu, logvar = model(x)
    bce = F.binary_cross_entropy(out, x, reduction="sum")
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return bce + kld
"""

AUTOENCODER = """
class Net(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.encode = nn.Sequential(
            nn.Conv2d(3, c, 4, 2, 1), nn.LeakyReLU(0.2),
            nn.Conv2d(c, 2 * c, 4, 2, 1), nn.InstanceNorm2d(2 * c, affine=True), nn.LeakyReLU(0.2),
        )
        self.decode = nn.Sequential(
            nn.ConvTranspose2d(2 * c, c, 4, 2, 1), nn.BatchNorm2d(c), nn.ReLU(),
            nn.Upsample(scale_factor=2), nn.Conv2d(c, 3, 3, padding=1), nn.Tanh(),
        )
    def forward(self, x):
        return self.decode(self.encode(x))

def make(): return Net({width})
def inputs(): return (torch.randn({batch}, 3, {side}, {side}),)
def step(model, x):
    return F.mse_loss(model(x), x)
"""

LLAMA = """
class Norm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight

class Layer(nn.Module):
    def __init__(self, dim, heads, hidden):
        super().__init__()
        self.heads = heads
        self.wq, self.wk = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.wv, self.wo = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.w1, self.w2 = nn.Linear(dim, hidden, bias=False), nn.Linear(hidden, dim, bias=False)
        self.w3 = nn.Linear(dim, hidden, bias=False)
        self.norm1, self.norm2 = Norm(dim), Norm(dim)
    def attend(self, x):
        b, t, c = x.shape
        q = self.wq(x).view(b, t, self.heads, -1).transpose(1, 2)
        k = self.wk(x).view(b, t, self.heads, -1).transpose(1, 2)
        v = self.wv(x).view(b, t, self.heads, -1).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(y.transpose(1, 2).reshape(b, t, c))
    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        h = self.norm2(x)
        return x + self.w2(F.silu(self.w1(h)) * self.w3(h))

class Llama(nn.Module):
    def __init__(self, vocab, dim, depth, heads):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(Layer(dim, heads, int(8 * dim / 3)) for _ in range(depth))
        self.norm = Norm(dim)
        self.out = nn.Linear(dim, vocab, bias=False)
    def forward(self, tokens):
        h = self.tok(tokens)
        for layer in self.layers:
            h = layer(h)
        return self.out(self.norm(h))

def make(): return Llama({vocabulary}, {width}, {depth}, {heads})
def inputs():
    return torch.randint(0, {vocabulary}, ({batch}, {length})), torch.randint(0, {vocabulary}, ({batch}, {length}))
def step(model, x, y):
    logits = model(x)
    return F.cross_entropy(logits.view(-1, {vocabulary}), y.view(-1))
"""

MIXER = """
class Mixer(nn.Module):
    def __init__(self, tokens, dim):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.token = nn.Sequential(nn.Linear(tokens, 4 * tokens), nn.GELU(), nn.Linear(4 * tokens, tokens))
        self.channel = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
    def forward(self, x):
        y = self.norm1(x).permute(0, 2, 1)
        x = x + self.token(y).permute(0, 2, 1)
        return x + self.channel(self.norm2(x))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Conv2d(3, {width}, 8, 8)
        self.blocks = nn.Sequential(*[Mixer(({side} // 8) ** 2, {width}) for _ in range({depth})])
        self.head = nn.Linear({width}, 10)
    def forward(self, x):
        x = self.embed(x).flatten(2).transpose(1, 2)
        return self.head(self.blocks(x).mean(dim=1))

def make(): return Net()
def inputs(): return torch.randn({batch}, 3, {side}, {side}), torch.randint(0, 10, ({batch},))
"""

WAVENET = """
class Layer(nn.Module):
    def __init__(self, c, dilation):
        super().__init__()
        self.filter = nn.Conv1d(c, c, 3, padding=dilation, dilation=dilation)
        self.gate = nn.Conv1d(c, c, 3, padding=dilation, dilation=dilation)
        self.mix = nn.Conv1d(c, c, 1)
    def forward(self, x):
        return x + self.mix(torch.tanh(self.filter(x)) * torch.sigmoid(self.gate(x)))

class Net(nn.Module):
    def __init__(self, c, depth):
        super().__init__()
        self.inp = nn.Conv1d(1, c, 1)
        self.layers = nn.ModuleList([Layer(c, 2 ** (i % 6)) for i in range(depth)])
        self.out = nn.Conv1d(c, 1, 1)
    def forward(self, x):
        x = self.inp(x)
        for layer in self.layers:
            x = layer(x)
        return self.out(x)

def make(): return Net({width}, {depth})
def inputs(): return torch.randn({batch}, 1, {length}), torch.randn({batch}, 1, {length})
def step(model, x, y):
    return F.l1_loss(model(x), y)
"""

SQUEEZE = """
class SE(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.fc1, self.fc2 = nn.Conv2d(c, c // 4, 1), nn.Conv2d(c // 4, c, 1)
    def forward(self, x):
        s = F.adaptive_avg_pool2d(x, 1)
        return x * torch.sigmoid(self.fc2(F.silu(self.fc1(s))))

class MBConv(nn.Module):
    def __init__(self, c, expand):
        super().__init__()
        wide = c * expand
        self.net = nn.Sequential(
            nn.Conv2d(c, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.SiLU(),
            nn.Conv2d(wide, wide, 3, padding=1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.SiLU(),
            SE(wide), nn.Conv2d(wide, c, 1, bias=False), nn.BatchNorm2d(c),
        )
    def forward(self, x):
        return x + self.net(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, {width}, 3, 2, 1, bias=False), nn.BatchNorm2d({width}), nn.SiLU())
        self.blocks = nn.Sequential(*(MBConv({width}, 4) for _ in range({depth})))
        self.head = nn.Linear({width}, 10)
    def forward(self, x):
        x = self.blocks(self.stem(x))
        return self.head(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))

def make(): return Net()
def inputs(): return torch.randn({batch}, 3, {side}, {side}), torch.randint(0, 10, ({batch},))
"""

WORDS = """
class Net(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.convs = nn.ModuleList([nn.Conv1d(dim, 100, k) for k in (3, 4, 5)])
        self.fc = nn.Linear(300, 2)
    def forward(self, x):
        x = self.embed(x).transpose(1, 2)
        x = torch.cat([F.relu(conv(x)).max(dim=2)[0] for conv in self.convs], dim=1)
        return self.fc(x)

def make(): return Net({vocabulary}, {width})
def inputs(): return torch.randint(0, {vocabulary}, ({batch}, {length})), torch.randint(0, 2, ({batch},))
"""

ATTENTION = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding({vocabulary}, {width})
        self.attention = nn.ModuleList(
            [nn.MultiheadAttention({width}, 8, dropout={share}, batch_first=True) for _ in range({depth})]
        )
        self.norms = nn.ModuleList([nn.LayerNorm({width}) for _ in range({depth})])
        self.drop = nn.Dropout({share})
        self.head = nn.Linear({width}, 10)
    def forward(self, x):
        x = self.embed(x)
        for attention, norm in zip(self.attention, self.norms):
            seen, _ = attention(x, x, x)
            x = norm(x + self.drop(seen))
        return self.head(x.mean(1))

def make(): return Net()
def inputs(): return torch.randint(0, {vocabulary}, ({batch}, {length})), torch.randint(0, 10, ({batch},))
"""

RECURRENT = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding({vocabulary}, 128)
        self.rnn = nn.{kind}(128, {width}, num_layers={depth}, batch_first=True)
        self.fc = nn.Linear({width}, {vocabulary})
    def forward(self, x):
        out, _ = self.rnn(self.embed(x))
        return self.fc(out).transpose(1, 2)

def make(): return Net()
def inputs():
    return torch.randint(0, {vocabulary}, ({batch}, {length})), torch.randint(0, {vocabulary}, ({batch}, {length}))
"""


def _rows() -> dict[str, str]:
    rows: dict[str, str] = {}

    def add(name: str, text: str, loss: str = CLASSES, **sizes: object) -> None:
        for key, value in sizes.items():
            text = text.replace("{" + key + "}", str(value))
        rows[f"{name}({', '.join(f'{key}={value}' for key, value in sizes.items())})"] = HEAD + text + loss

    for width, depth, batch, act in (
        (256, 2, 64, "ReLU"),
        (1024, 6, 512, "GELU"),
        (512, 12, 1024, "SiLU"),
        (2048, 3, 128, "Tanh"),
    ):
        add("mlp", MLP, width=width, depth=depth, batch=batch, act=act)
    for width, side, batch in ((16, 32, 64), (64, 64, 128), (32, 224, 16)):
        add("cnn", CNN, width=width, side=side, batch=batch)
    for width, depth, side, batch in ((16, 2, 32, 128), (64, 2, 64, 32), (32, 3, 96, 64)):
        add("resnet", RESNET, width=width, depth=depth, side=side, batch=batch)
    for flash in (True, False):
        for vocabulary, depth, heads, width, batch, length in (
            (65, 6, 6, 384, 12, 256), (50257, 12, 12, 768, 12, 1024), (1000, 2, 4, 128, 32, 128),
            (50304, 4, 8, 512, 8, 512),
            (256, 8, 8, 256, 4, 2048),
        ):  # fmt: skip
            sizes = {
                "vocabulary": vocabulary,
                "depth": depth,
                "heads": heads,
                "width": width,
                "batch": batch,
                "length": length,
            }
            add("gpt", GPT, "", flash=flash, **sizes)
    for width, depth, heads, side, batch in ((192, 4, 3, 224, 16), (384, 6, 6, 128, 64), (768, 12, 12, 224, 8)):
        add("vit", VIT, width=width, depth=depth, heads=heads, side=side, batch=batch)
    for width, side, batch in ((16, 128, 8), (32, 64, 32), (64, 256, 4)):
        add("unet", UNET, "", width=width, side=side, batch=batch)
    for width, batch in ((400, 128), (1024, 512)):
        add("vae", VAE, "", width=width, batch=batch)
    for width, side, batch in ((32, 64, 64), (64, 128, 16)):
        add("autoencoder", AUTOENCODER, "", width=width, side=side, batch=batch)
    for vocabulary, width, depth, heads, batch, length in ((32000, 512, 4, 8, 4, 512), (1000, 256, 8, 4, 16, 256)):
        add(
            "llama", LLAMA, "", vocabulary=vocabulary, width=width, depth=depth, heads=heads, batch=batch, length=length
        )
    for width, side, depth, batch in ((128, 64, 4, 64), (256, 128, 8, 32)):
        add("mixer", MIXER, width=width, side=side, depth=depth, batch=batch)
    for width, depth, length, batch in ((32, 12, 4096, 8), (64, 18, 8192, 4)):
        add("wavenet", WAVENET, "", width=width, depth=depth, length=length, batch=batch)
    for width, depth, side, batch in ((16, 4, 64, 64), (32, 8, 128, 16)):
        add("squeeze", SQUEEZE, width=width, depth=depth, side=side, batch=batch)
    for vocabulary, width, length, batch in ((20000, 128, 200, 64), (5000, 300, 400, 256)):
        add("words", WORDS, vocabulary=vocabulary, width=width, length=length, batch=batch)
    for width, depth, share, batch, length in ((256, 3, 0.0, 16, 128), (128, 4, 0.1, 8, 256)):
        sizes = {"width": width, "depth": depth, "share": share, "batch": batch, "length": length}
        add("attention", ATTENTION, vocabulary=1000, **sizes)
    for kind, width, depth in (("LSTM", 256, 1), ("LSTM", 512, 2), ("GRU", 256, 1), ("GRU", 512, 2), ("RNN", 256, 2)):
        add("recurrent", RECURRENT, kind=kind, width=width, depth=depth, vocabulary=5000, batch=32, length=64)
    return rows


ZOO = _rows()
