"""Parameters of networks as programs build them, against sums done by hand."""

from __future__ import annotations

import pytest
from tests.analysis.programs import read

from crucible.core.routing.profile import Confidence

HEAD = "import torch\nimport torch.nn as nn\n"


def count(code: str, *arguments: str) -> int | None:
    return read(HEAD + code, *arguments).parameters.value


@pytest.mark.parametrize(
    ("layer", "parameters"),
    [
        ("nn.Linear(3, 4)", 16),
        ("nn.Linear(in_features=3, out_features=4, bias=False)", 12),
        ("nn.Bilinear(2, 3, 4)", 28),
        ("nn.Conv1d(3, 8, 5)", 128),
        ("nn.Conv2d(3, 8, (3, 5), bias=False)", 360),
        ("nn.Conv2d(16, 32, kernel_size=3, groups=4)", 1184),
        ("nn.Conv3d(1, 2, 3)", 56),
        ("nn.ConvTranspose2d(8, 4, 2)", 132),
        ("nn.Embedding(100, 16)", 1600),
        ("nn.BatchNorm2d(8)", 16),
        ("nn.BatchNorm2d(8, affine=False)", None),
        ("nn.LayerNorm((4, 5))", 40),
        ("nn.GroupNorm(2, 8)", 16),
        ("nn.InstanceNorm2d(8)", None),
        ("nn.InstanceNorm2d(8, affine=True)", 16),
        ("nn.RMSNorm(8)", 8),
        ("nn.LSTM(10, 20)", 4 * 20 * (10 + 20 + 2)),
        (
            "nn.GRU(10, 20, num_layers=2, bidirectional=True)",
            2 * (3 * 20 * (10 + 20 + 2)) + 2 * (3 * 20 * (40 + 20 + 2)),
        ),
        ("nn.RNN(10, 20, bias=False)", 600),
        ("nn.LSTMCell(10, 20)", 4 * 20 * 32),
        ("nn.MultiheadAttention(64, 8)", 4 * 64 * 64 + 4 * 64),
        ("nn.TransformerEncoderLayer(64, 8, 128)", 4 * 64 * 64 + 4 * 64 + 2 * 64 * 128 + 128 + 64 + 4 * 64),
        ("nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 3)", 3 * (4 * 64 + 32 + 2 * 128 + 24 + 32)),
        ("nn.Transformer(16, 2, 1, 1, 32)", (4 * 256 + 64 + 1024 + 48 + 64) + (8 * 256 + 128 + 1024 + 48 + 96) + 64),
        ("nn.PReLU()", 1),
        ("nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))", 13),
        ("nn.ModuleList([nn.Linear(2, 2) for _ in range(5)])", 30),
        ("nn.ModuleDict({'a': nn.Linear(1, 1), 'b': nn.Linear(1, 1)})", 4),
        ("nn.Parameter(torch.zeros(3, 5))", None),
    ],
)
def test_layers(layer: str, parameters: int | None) -> None:
    assert count(f"net = {layer}") == parameters


def test_a_class_with_its_arguments_bound() -> None:
    code = """
class Net(nn.Module):
    def __init__(self, width, depth=2, **more):
        super().__init__()
        self.embed = nn.Parameter(torch.randn(7, width))
        self.layers = nn.ModuleList()
        for i in range(depth):
            self.layers.append(nn.Linear(width, width))
        self.head = nn.Linear(width, more["classes"])
net = Net(10, depth=3, classes=4)
"""
    assert count(code) == 70 + 3 * 110 + 44


def test_weights_that_are_shared_count_once() -> None:
    code = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(100, 8)
        self.head = nn.Linear(8, 100, bias=False)
        self.head.weight = self.embed.weight
Net()
"""
    assert count(code) == 800


def test_networks_within_networks_count_once_and_several_add_up() -> None:
    code = """
class Block(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.fc = nn.Linear(n, n, bias=False)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(*[Block(4) for _ in range(3)])
generator, critic = Net(), Block(10)
"""
    assert count(code) == 48 + 100


def test_layers_in_an_ordered_dict_and_from_a_list_of_sizes() -> None:
    assert (
        count(
            "from collections import OrderedDict\n"
            "nn.Sequential(OrderedDict([('a', nn.Linear(2, 3)), ('b', nn.Linear(3, 1))]))"
        )
        == 13
    )
    code = (
        "sizes = [8, 4, 2]\nlayers = []\nfor a, b in zip(sizes, sizes[1:]):\n"
        "    layers += [nn.Linear(a, b), nn.ReLU()]\nnet = nn.Sequential(*layers)"
    )
    assert count(code) == 36 + 10


def test_a_copy_has_weights_of_its_own() -> None:
    assert count("import copy\na = nn.Linear(3, 4)\nb = copy.deepcopy(a)\npair = nn.ModuleList([a, b])") == 32


def test_of_two_branches_that_may_be_taken_the_larger_counts() -> None:
    code = "import os\nif os.environ['BIG']:\n    net = nn.Linear(100, 100)\nelse:\n    net = nn.Linear(10, 10)"
    assert count(code) == 10_100


def test_an_object_and_its_super_have_the_same_attributes() -> None:
    code = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(10, 20)
        self.second = nn.Linear(len(vars(super())), 5)
net = Net()
"""
    assert count(code) == 10 * 20 + 20 + 1 * 5 + 5


def test_frozen_weights_do_not_learn() -> None:
    code = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(10, 10)
        self.head = nn.Linear(10, 2)
net = Net()
for p in net.body.parameters():
    p.requires_grad = False
"""
    profile = read(HEAD + code)
    assert profile.parameters.value == 132
    assert profile.trainable_parameters.value == 22


def test_what_is_not_constant_is_said_with_low_confidence() -> None:
    found = read(
        HEAD
        + (
            "class N(nn.Module):\n    def __init__(self, v):\n        super().__init__()\n"
            "        self.a = nn.Linear(3, 4)\n        self.b = nn.Linear(v, 4)\n"
            "N(len(open('x').read()))"
        )
    ).parameters
    assert found.value == 16 + 4
    assert found.confidence is Confidence.LOW
    assert "not constant" in found.why


@pytest.mark.parametrize(
    ("code", "millions"),
    [
        ("import torchvision.models as models\nmodels.resnet50(weights=None)", 25.56),
        ("from torchvision.models import vit_b_16\nvit_b_16()", 86.57),
        ("import timm\ntimm.create_model('efficientnet_b0', pretrained=True)", 5.29),
        ("from tensorflow.keras.applications import ResNet50\nResNet50(weights='imagenet')", 25.56),
        ("from transformers import AutoModel\nAutoModel.from_pretrained('bert-base-uncased')", 110),
        ("from transformers import AutoModelForCausalLM as A\nA.from_pretrained('meta-llama/Llama-2-7b-hf')", 6738),
        (
            (
                "from transformers import AutoModelForCausalLM as A\nname = 'EleutherAI/pythia-410m'\n"
                "A.from_pretrained(name)"
            ),
            405,
        ),
        (
            (
                "from transformers import GPT2Config, GPT2LMHeadModel\n"
                "GPT2LMHeadModel(GPT2Config(n_layer=12, n_head=12, n_embd=768, vocab_size=50257, n_positions=1024))"
            ),
            124.4,
        ),
        ("from transformers import BertConfig as C, BertForMaskedLM as M\nM(C())", 109.5),
        (
            (
                "from transformers import BertConfig as C, BertModel as M\n"
                "M(C(hidden_size=1024, num_hidden_layers=24, intermediate_size=4096))"
            ),
            335,
        ),
        ("from transformers import LlamaConfig as C, LlamaForCausalLM as M\nM(C())", 6738),
        ("from transformers import MistralConfig as C, MistralForCausalLM as M\nM(C())", 7242),
        ("from transformers import GPT2Config as C, GPT2LMHeadModel as M\nM(C(n_layer=24, n_embd=1024))", 354.8),
        (
            (
                "from transformers import LlamaConfig as C, LlamaForCausalLM as M\nM(C(hidden_size=2048, "
                "num_hidden_layers=22, intermediate_size=5632, num_attention_heads=32, num_key_value_heads=4))"
            ),
            1100,
        ),
        ("from transformers import AutoModel\nAutoModel.from_pretrained('someone/new-model-13b')", 13000),
        ("import torch\ntorch.hub.load('pytorch/vision', 'resnet18')", 11.69),
        ("model = GPT(vocab_size=50257, n_layer=12, n_head=12, n_embd=768, block_size=1024)", 124.4),
        ("model = GPT(50257, 12, 12, 768)", 123.6),
        (
            (
                "from model import GPT, GPTConfig\n"
                "model = GPT(GPTConfig(vocab_size=65, n_layer=6, n_head=6, n_embd=384, block_size=256))"
            ),
            10.77,
        ),
    ],
)
def test_models_by_name_or_by_their_sizes(code: str, millions: float) -> None:
    found = read(code).parameters.value
    assert found is not None
    assert found / 1e6 == pytest.approx(millions, rel=0.05)


@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        ("GPT2Config()", 124_439_808),
        ("GPT2Config(n_layer=6, n_embd=384, n_head=6)", 30_339_456),
        ("LlamaConfig()", 6_738_415_616),
        ("LlamaConfig(hidden_size=512, num_hidden_layers=8, intermediate_size=1376)", 58_073_600),
        ("MistralConfig()", 7_241_732_096),
        ("OPTConfig(tie_word_embeddings=True)", 125_239_296),
    ],
)
def test_a_config_says_what_its_family_has_unless_the_program_does(config: str, parameters: int) -> None:
    found = read(f"import transformers\nfrom transformers import *\ntransformers.AutoModel.from_config({config})")
    assert found.parameters.value == pytest.approx(parameters, rel=0.002)


def test_a_size_that_is_said_and_not_known_is_not_the_familys() -> None:
    code = "import os\nfrom transformers import GPT2Config, GPT2LMHeadModel\ndeep = int(os.environ['DEEP'])\n"
    assert not read(f"{code}GPT2LMHeadModel(GPT2Config(n_layer=deep))").parameters.known


def test_a_name_nobody_knows_is_asked_for() -> None:
    found = read("from transformers import AutoModel\nAutoModel.from_pretrained('someone/secret')").parameters
    assert not found.known
    assert "someone/secret" in found.question


def test_adapters_are_what_learns() -> None:
    code = (
        "from transformers import AutoModelForCausalLM as A\n"
        "from peft import get_peft_model, LoraConfig\nm = A.from_pretrained('gpt2')\n"
        "m = get_peft_model(m, LoraConfig(r=8, target_modules=['q', 'v']))"
    )
    found = read(code)
    assert found.parameters.value == 124_400_000
    assert found.trainable_parameters.value == 2 * 8 * 768 * 2 * 12


def test_adapters_of_keras_are_what_learns() -> None:
    code = "import keras_hub\nm = keras_hub.models.GemmaCausalLM.from_preset('gemma_2b_en')\n"
    whole, adapted = read(code), read(code + "m.backbone.enable_lora(rank=4)\n")
    assert adapted.parameters.value == whole.parameters.value == whole.trainable_parameters.value
    assert 0 < (adapted.trainable_parameters.value or 0) < (whole.parameters.value or 0) / 100


ADAPTERS = """
import trl
from peft import LoraConfig
from transformers import AutoModelForCausalLM
lora = LoraConfig(r=8, target_modules=['q', 'v'])
"""


@pytest.mark.parametrize(
    "code",
    [
        "trl.SFTTrainer(AutoModelForCausalLM.from_pretrained('gpt2'), peft_config=lora)",
        "trl.GRPOTrainer(model='gpt2', peft_config=lora)",
        "trl.AutoModelForCausalLMWithValueHead.from_pretrained('gpt2', peft_config=lora)",
        "AutoModelForCausalLM.from_pretrained('gpt2').add_adapter(lora)",
    ],
)
def test_adapters_that_a_library_puts_in(code: str) -> None:
    found = read(ADAPTERS + code)
    assert found.parameters.value == 124_400_000
    assert found.trainable_parameters.value == 2 * 8 * 768 * 2 * 12


def test_a_trainer_that_is_told_of_no_adapters_trains_all() -> None:
    for config in ("", ", peft_config=None", ", peft_config=trl.get_peft_config(args)"):
        assert read(f"{ADAPTERS}trl.SFTTrainer('gpt2'{config})").trainable_parameters.value == 124_400_000


def test_parts_of_a_pipeline_are_counted_by_themselves() -> None:
    code = (
        "from diffusers import AutoencoderKL, UNet2DConditionModel\nname = 'runwayml/stable-diffusion-v1-5'\n"
        "vae = AutoencoderKL.from_pretrained(name, subfolder='vae').requires_grad_(False)\n"
        "unet = UNet2DConditionModel.from_pretrained(name, subfolder='unet')\n"
    )
    found = read(code)
    assert (found.parameters.value, found.trainable_parameters.value) == (944_000_000, 860_000_000)
    whole = "from diffusers import FlaxStableDiffusionPipeline as P\np, w = P.from_pretrained('stable-diffusion-v1-5')"
    assert read(whole).parameters.value == 1_066_000_000


def test_keras_networks() -> None:
    sequential = (
        "import keras\nfrom keras import layers\n"
        "m = keras.Sequential([keras.Input((28, 28, 1)), layers.Conv2D(32, 3, activation='relu'),"
        " layers.MaxPooling2D(2), layers.Flatten(), layers.Dense(10)])"
    )
    assert read(sequential).parameters.value == 320 + 13 * 13 * 32 * 10 + 10
    added = (
        "from tensorflow.keras.models import Sequential\n"
        "from tensorflow.keras.layers import Dense\nm = Sequential()\n"
        "m.add(Dense(8, input_shape=(4,)))\nm.add(Dense(1))"
    )
    assert read(added).parameters.value == 49
    functional = (
        "import keras\nfrom keras import layers as L\ni = keras.Input(shape=(16,))\n"
        "a = L.Dense(8)(i)\nb = L.Dense(8)(i)\nx = L.Concatenate()([a, b])\no = L.Dense(1)(x)\n"
        "m = keras.Model(i, o)"
    )
    assert read(functional).parameters.value == 2 * 136 + 17
    text = """
    from keras import Sequential, layers as L
    m = Sequential([L.Embedding(input_dim=1000, output_dim=32, input_length=50), L.LSTM(64), L.Dense(1)])
    """
    assert read(text).parameters.value == 32000 + 4 * 64 * (32 + 64 + 1) + 65


@pytest.mark.parametrize(
    "unused",
    [
        "def other():\n    return nn.Linear(100, 100)\n",
        "import torchvision\ndef other():\n    return torchvision.models.resnet50()\n",
        "import keras\ndef other():\n    x = keras.Input((9,))\n    return keras.Model(x, keras.layers.Dense(9)(x))\n",
    ],
)
def test_what_nobody_calls_adds_no_model_to_those_that_are_made(unused: str) -> None:
    assert count(unused + "net = nn.Linear(10, 10)") == 110
    assert (read(HEAD + unused).parameters.value or 0) >= 90


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("torchvision.models.resnet18(num_classes=10)", 11_181_642),
        ("torchvision.models.mobilenet_v2(num_classes=10)", 2_236_682),
        ("torchvision.models.efficientnet_b0(num_classes=10)", 4_020_358),
        ("timm.create_model('resnet50', num_classes=0)", 23_508_032),
        ("m = torchvision.models.resnet18()\nm.fc = nn.Linear(m.fc.in_features, 2)", 11_177_538),
        (
            "m = torchvision.models.mobilenet_v2()\nm.classifier[1] = nn.Linear(m.classifier[1].in_features, 5)",
            2_230_277,
        ),
        ("m = torchvision.models.vgg16()\nm.classifier[6] = nn.Linear(m.classifier[6].in_features, 5)", 134_281_029),
        ("m = torchvision.models.vgg16()\nm.classifier = nn.Linear(25088, 5)", 14_840_133),
        ("m = torchvision.models.vit_b_16()\nm.heads.head = nn.Linear(m.heads.head.in_features, 3)", 85_800_963),
    ],
)
def test_known_models_with_another_last_layer(code: str, expected: int) -> None:
    found = read(f"{HEAD}import timm, torchvision\n{code}").parameters.value
    assert found == pytest.approx(expected, rel=0.006)


@pytest.mark.parametrize(
    ("frozen", "learns"),
    [
        ("for p in m.parameters():\n    p.requires_grad = False", 1026),
        ("for name, p in m.named_parameters():\n    p.requires_grad = False", 1026),
        ("for p in m.layer1.parameters():\n    p.requires_grad = False", 11_177_538),
        (
            "for p in m.parameters():\n    p.requires_grad = False\n"
            "for p in m.layer4.parameters():\n    p.requires_grad = True",
            11_177_538,
        ),
    ],
)
def test_a_known_model_learns_unless_all_of_it_is_told_not_to(frozen: str, learns: int) -> None:
    code = f"import torchvision\nm = torchvision.models.resnet18()\n{frozen}\nm.fc = nn.Linear(m.fc.in_features, 2)"
    assert read(HEAD + code).trainable_parameters.value == pytest.approx(learns, rel=0.006)


def test_an_argument_that_holds_itself_many_times_over_is_not_put_into_words() -> None:
    grown = "x = [1]\n" + "x = [x, x]\n" * 40
    made = "U.from_pretrained('runwayml/stable-diffusion-v1-5', subfolder=x)"
    assert read(f"from diffusers import UNet2DConditionModel as U\n{grown}{made}").frameworks.known
