"""Expressions over a few tensors, to compare shapes and what is kept with torch."""

from __future__ import annotations

TENSORS = """
import torch, math
from torch import nn
import torch.nn.functional as F
a = nn.Linear(4, 4)(torch.randn(2, 3, 4))
q = nn.Linear(16, 16)(torch.randn(2, 8, 10, 16))
p = nn.Conv2d(3, 8, 3, padding=1)(torch.randn(4, 3, 16, 16))
m = torch.ones(3, 3)
ids = torch.randint(0, 9, (2, 6))
"""

OPERATIONS = r"""
torch.full((2, 3), 0.5) + a[0, 0, 0]
torch.linspace(0, 1, 5) * a[0, 0, 0]
F.pad(p, (1, 1, 2, 2))
F.conv2d(p, torch.randn(6, 8, 3, 3), padding=1)
F.conv1d(a, torch.randn(5, 3, 1))
F.embedding(ids, torch.randn(9, 4)) + a[:, :1]
torch.outer(a[0, 0], a[0, 1])
a.repeat_interleave(2, dim=1)
torch.roll(p, shifts=(1, 1), dims=(2, 3))
p.mean([2, 3])
p.mean(dim=(2, 3), keepdim=True)
F.group_norm(p, 2)
nn.GroupNorm(2, 8)(p)
nn.RMSNorm(4)(a)
nn.InstanceNorm2d(8)(p)
F.softplus(a)
F.log_softmax(a, dim=-1)
torch.log(a.exp() + 1)
torch.sqrt(a * a + 1e-5)
a.pow(2).mean(-1, keepdim=True)
torch.rsqrt(a.pow(2).mean(-1, keepdim=True) + 1e-6) * a
a.clamp(min=0)
a.abs().sum(-1)
torch.clamp(a, 0, 1)
a.std(dim=-1)
a.var(-1, keepdim=True)
a.norm(dim=-1)
F.normalize(a, dim=-1)
a.cumsum(1)
torch.cat([a, a], -1)
torch.stack([a, a], 0)
torch.chunk(a, 2, dim=-1)[0]
torch.split(q, 8, dim=-1)[1]
q.transpose(1, 2).contiguous()
q.transpose(1, 2).reshape(2, 10, 128)
q.permute(0, 2, 1, 3).flatten(2)
q @ q.transpose(-1, -2)
(q @ q.transpose(-1, -2)).softmax(-1)
torch.bmm(q[0], q[0].transpose(1, 2))
torch.einsum('bhqd,bhkd->bhqk', q, q)
torch.tril(q @ q.transpose(-1, -2))
(q @ q.transpose(-1, -2)).masked_fill(torch.ones(10, 10).tril() == 0, float('-inf')).softmax(-1) @ q
F.scaled_dot_product_attention(q, q, q)
torch.cat((-q[..., 8:], q[..., :8]), dim=-1) * torch.randn(10, 16) + q * torch.randn(10, 16)
torch.sin(a) + torch.cos(a)
a.sigmoid() * a.tanh()
F.glu(a, dim=-1)
F.hardswish(p)
F.leaky_relu(p, 0.2)
F.elu(p)
nn.PReLU()(p)
F.max_pool2d(p, 2)
F.avg_pool2d(p, 2)
F.adaptive_max_pool2d(p, 1)
nn.AdaptiveAvgPool2d(1)(p).flatten(1)
F.interpolate(p, scale_factor=2, mode='bilinear')
nn.Upsample(scale_factor=2, mode='nearest')(p)
nn.ConvTranspose2d(8, 4, 4, 2, 1)(p)
nn.PixelShuffle(2)(p)
nn.Bilinear(4, 4, 2)(a, a)
F.dropout(p, 0.1)
nn.Dropout(0.2)(p)
nn.Dropout2d(0.2)(p)
a.max(dim=-1)[0]
a.max(dim=-1).values
a.amax(-1)
a.min()
torch.maximum(a, a * 2)
torch.where(a > 0, a, torch.zeros_like(a))
a[:, torch.tensor([0, 2])]
a.index_select(1, torch.tensor([0, 2]))
a.unsqueeze(1).expand(-1, 5, -1, -1)
a.repeat(1, 2, 1)
a.flip(1)
a.view(2, -1)
a.squeeze()
a.float() / math.sqrt(4)
a.type(torch.float32)
a.clone()
a.detach() + a
torch.logsumexp(a, -1)
torch.exp(a).sum()
F.cross_entropy(a.reshape(-1, 4), torch.randint(0, 4, (6,)))
F.mse_loss(a, torch.zeros_like(a))
F.binary_cross_entropy_with_logits(a, torch.zeros_like(a))
F.smooth_l1_loss(a, torch.zeros_like(a))
F.kl_div(F.log_softmax(a, -1), torch.ones(2, 3, 4), reduction='batchmean')
F.cosine_similarity(a, a * 2, dim=-1)
F.nll_loss(F.log_softmax(a, -1).view(-1, 4), torch.randint(0, 4, (6,)))
nn.BatchNorm1d(3)(a)
nn.LayerNorm([3, 4])(a)
nn.Softmax(dim=-1)(a)
nn.Softmax2d()(p)
nn.ReLU6()(p)
nn.Mish()(p)
nn.Dropout(0.0)(p)
nn.ZeroPad2d(1)(p)
nn.ReflectionPad2d(1)(p)
nn.AvgPool1d(2)(a)
nn.Conv2d(8, 8, 3, padding=1, groups=8)(p)
nn.Conv2d(8, 16, 1)(p).view(4, 16, -1).transpose(1, 2)
a.swapaxes(0, 1)
torch.movedim(a, 0, -1)
torch.baddbmm(torch.zeros(2, 3, 3), a, a.transpose(1, 2))
a.sum(0).sum(0)
a.square().mean()
a.prod(-1)
a.narrow(1, 0, 2)
a.unflatten(-1, (2, 2))
a.new_zeros(3, 4) + a
torch.ones_like(a) * a
torch.eye(4) @ a[0].T
torch.cdist(a, a)
a.topk(2)[0]
a.sort(-1)[0]
nn.Embedding(10, 4)(ids).sum(1)
nn.EmbeddingBag(10, 4)(ids)
nn.GELU(approximate='tanh')(a)
0.5 * a * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (a + 0.044715 * torch.pow(a, 3.0))))
nn.SiLU()(a) * a
a * a[:, :, :1]
a ** 2
1 / (1 + torch.exp(-a))
""".strip().split("\n")
