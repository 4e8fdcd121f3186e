from __future__ import annotations

import itertools
import random

import pytest
from tests.analysis.oracle.zoo import GPT, HEAD, TAIL
from tests.analysis.programs import read

from crucible.core.routing.profile import Memory, Precision, Profile


def gpt(flash: bool = True, **sizes: int) -> Profile:
    text = HEAD + GPT + TAIL
    for name, value in {"flash": flash, **sizes}.items():
        text = text.replace("{" + name + "}", str(value))
    return read(text)


def total(profile: Profile) -> float:
    assert profile.gpu_memory_gb.value is not None
    return profile.gpu_memory_gb.value


SMALL = {"vocabulary": 65, "depth": 6, "heads": 6, "width": 384, "batch": 12, "length": 256}
GPT2 = {"vocabulary": 50257, "depth": 12, "heads": 12, "width": 768, "batch": 12, "length": 1024}
MEDIUM = {"vocabulary": 50257, "depth": 24, "heads": 16, "width": 1024, "batch": 12, "length": 1024}


@pytest.mark.parametrize(("sizes", "low", "high"), [(SMALL, 0, 4), (GPT2, 8, 16), (MEDIUM, 16, 80)])
def test_known_gpts_need_what_they_are_known_to_need(sizes: dict[str, int], low: float, high: float) -> None:
    assert low < total(gpt(**sizes)) < high


CALLED = """
import torch
from model import GPT
batch_size, block_size = {batch}, {length}
model = GPT(vocab_size={vocabulary}, n_layer={depth}, n_head={heads}, n_embd={width}, block_size={length}).to("cuda")
optimizer = torch.optim.Adam(model.parameters())
for x, y in data:
    model(x, y).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("sizes", "low", "high"), [(SMALL, 0, 4), (GPT2, 8, 16), (MEDIUM, 16, 80)])
def test_the_sizes_alone_say_the_same_without_the_code_of_the_model(
    sizes: dict[str, int], low: float, high: float
) -> None:
    alone = total(read(CALLED.format(**sizes)))
    assert low < alone < high
    assert alone == pytest.approx(total(gpt(**sizes)), rel=0.1)


def test_a_line_that_makes_a_gpt_is_enough_for_a_guess_that_says_it_is_one() -> None:
    found = read("model = GPT(vocab_size=50257, n_layer=12, n_head=12, n_embd=768)")
    assert 8 < total(found) < 16
    assert found.gpu_memory_gb.assumed
    assert found.runtime_hours.value is not None
    assert 2 < found.runtime_hours.value < 8
    assert found.runtime_hours.assumed


def test_more_never_needs_less() -> None:
    chance = random.Random(7)
    for _ in range(50):
        sizes = {
            "vocabulary": chance.choice((65, 1000, 50257)), "depth": chance.randrange(1, 12), "heads": 4,
            "width": 4 * chance.randrange(8, 200), "batch": chance.randrange(1, 32),
            "length": chance.randrange(16, 1024),
        }  # fmt: skip
        flash = chance.random() < 0.5
        base = gpt(flash, **sizes)
        grown = dict(sizes)
        for name in ("batch", "width", "depth", "length"):
            grown[name] = sizes[name] * 2
            assert total(gpt(flash, **{**sizes, name: sizes[name] * 2})) >= total(base), (sizes, name)
        assert total(gpt(flash, **grown)) > total(base)


def test_every_part_is_told() -> None:
    found = gpt(**SMALL)
    parts = found.memory.value
    assert isinstance(parts, Memory)
    count = found.parameters.value
    assert count is not None
    assert parts.weights == parts.gradients == 4 * count
    assert parts.optimizer == 8 * count
    assert parts.activations > parts.weights
    for word in ("weights", "gradients", "optimizer", "activations", "workspace"):
        assert word in found.gpu_memory_gb.why
    assert found.gpu_memory_gb.value == round(parts.total / 1e9, 2)


def step(body: str, head: str = "") -> Profile:
    return read(
        "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n"
        f"{head}\nnet = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)).cuda()\n"
        "opt = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        f"for i in range(10):\n    x = torch.randn(1024, 512)\n{body}\n    opt.step()\n"
    )


def activations(profile: Profile) -> float:
    assert profile.memory.value is not None
    return profile.memory.value.activations


def test_half_precision_keeps_about_half() -> None:
    full = activations(step("    net(x).sum().backward()"))
    half = step(
        "    with torch.autocast('cuda', dtype=torch.bfloat16):\n        loss = net(x).sum()\n    loss.backward()"
    )
    assert half.precision.value is Precision.BF16
    assert 0.45 * full < activations(half) < 0.8 * full
    assert half.memory.value is not None
    assert half.memory.value.weights == 4 * (half.parameters.value or 0)


def test_what_runs_without_gradients_keeps_nothing() -> None:
    with_grad = activations(step("    net(x).sum().backward()"))
    also_tested = activations(step("    with torch.no_grad():\n        net(x)\n    net(x).sum().backward()"))
    assert with_grad == also_tested


def test_checkpointed_activations_are_not_kept() -> None:
    head = "from torch.utils.checkpoint import checkpoint"
    assert activations(step("    checkpoint(net, x).sum().backward()", head)) < 0.5 * activations(
        step("    net(x).sum().backward()")
    )


TRAINED = """
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("huggyllama/llama-7b")
{enable}
arguments = TrainingArguments("out", per_device_train_batch_size=4, bf16=True, {more})
max_length = 512
Trainer(model=model, args=arguments).train()
"""


@pytest.mark.parametrize(
    ("enable", "more"), [("", "gradient_checkpointing=True"), ("model.gradient_checkpointing_enable()", "")]
)
def test_a_transformer_that_does_its_blocks_again_keeps_what_goes_into_them(enable: str, more: str) -> None:
    """32 blocks, 4 x 512 tokens, 4,096 wide, 2 bytes: 0.54 GB, one block and the scores."""
    again, plain = (read(TRAINED.format(enable=a, more=b)) for a, b in ((enable, more), ("", "")))
    assert 0.54e9 < activations(again) < 1.5e9 < 9e9 < activations(plain)
    assert again.flops_per_step.value == pytest.approx((plain.flops_per_step.value or 0) * 4 / 3)


def test_frozen_weights_have_no_gradients_or_states() -> None:
    head = "import copy"
    frozen = step(
        ("    for p in net[0].parameters():\n        p.requires_grad = False\n    net(x).sum().backward()"), head
    )
    parts = frozen.memory.value
    assert parts is not None
    assert parts.gradients < parts.weights


def test_using_a_model_needs_less_than_training_it() -> None:
    code = (
        "import torch\nfrom transformers import AutoModelForCausalLM as A\nm = A.from_pretrained('gpt2').to('cuda')\n"
    )
    using = read(code + "m.generate(x)")
    training = read(code + "opt = torch.optim.AdamW(m.parameters())\nm(x).loss.backward()\nopt.step()")
    assert using.memory.value is not None
    assert using.memory.value.optimizer == 0
    assert total(using) < total(training)


def test_the_bits_of_a_quantised_model_count() -> None:
    code = (
        "import torch\nfrom transformers import AutoModelForCausalLM as A\n"
        "A.from_pretrained('meta-llama/Llama-2-7b-hf', device_map='cuda'{more})\n"
    )
    full, half, four = (
        total(read(code.format(more=more))) for more in ("", ", torch_dtype=torch.float16", ", load_in_4bit=True")
    )
    assert full > 1.8 * half > 1.8 * 1.5 * four


def test_a_model_nobody_knows_is_asked_for() -> None:
    found = read("import torch\nfrom elsewhere import build\nbuild().cuda()").gpu_memory_gb
    assert not found.known
    assert found.question


@pytest.mark.parametrize(("one", "other"), list(itertools.pairwise((1, 4, 16, 64))))
def test_known_architectures_grow_with_the_batch(one: int, other: int) -> None:
    code = (
        "import torch, torchvision\nm = torchvision.models.resnet50().cuda()\nbatch_size = {n}\n"
        "opt = torch.optim.SGD(m.parameters(), 0.1)\nm(x).backward()"
    )
    assert total(read(code.format(n=one))) < total(read(code.format(n=other)))


def test_a_model_of_which_only_data_knows_the_vocabulary_is_sized_by_its_settings() -> None:
    code = """
import torch
from torch import nn
from dataclasses import dataclass

@dataclass
class Settings:
    n_layer: int = {layers}
    n_head: int = 8
    n_embd: int = 512
    block_size: int = 128

class Net(nn.Module):
    def __init__(self, s, words):
        super().__init__()
        self.words = nn.Embedding(words, s.n_embd)
        self.blocks = nn.ModuleList([nn.TransformerEncoderLayer(s.n_embd, s.n_head) for _ in range(s.n_layer)])
        self.head = nn.Linear(s.n_embd, words)
    def forward(self, x):
        x = self.words(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)

words = len(set(open("text.txt").read()))
net = Net(Settings(), words).cuda()
optimizer = torch.optim.AdamW(net.parameters())
batch_size = 216
for x, y in batches:
    nn.functional.cross_entropy(net(x.cuda()), y.cuda()).backward()
    optimizer.step()
"""
    small, large = (read(code.format(layers=each)).memory.value for each in (4, 8))
    assert small is not None
    assert large is not None
    assert 1e9 < small.activations < large.activations


def test_noise_of_one_pixel_is_no_picture() -> None:
    found = read("import torch\nimage_size = 64\nnoise = torch.randn(64, 100, 1, 1)\n")
    assert found.image_size.value == 64


def test_no_more_tokens_are_assumed_than_a_model_can_take() -> None:
    code = (
        "from transformers import AutoModel, TrainingArguments\nTrainingArguments('o')\n"
        "AutoModel.from_pretrained('{}').to('cuda')"
    )
    assert "sequences of 512" in read(code.format("bert-base-cased")).memory.why
    assert "sequences of 1024" in read(code.format("opt-125m")).memory.why
    longer = read("max_length = 10_000\n" + code.format("gpt2"))
    assert total(longer) == total(read("max_length = 1024\n" + code.format("gpt2")))
