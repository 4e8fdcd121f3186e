"""Models by the name they are loaded under: millions of parameters and the sizes of their blocks."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Pretrained:
    """`parameters` in millions. Sizes are those of a decoder with `layers` blocks, or comparable ones."""

    name: str
    parameters: float
    layers: int
    width: int
    heads: int
    vocabulary: int

    @property
    def longest(self) -> int:
        """Tokens or patches that it has positions for; 0 if that is more than most programs use."""
        begins = self.name.lower().startswith
        return next((length for length, names in _POSITIONS if begins(names)), 0)

    def part(self, folder: str) -> float | None:
        """Return the parameters of one part of a pipeline in millions, or None."""
        begins = self.name.lower().startswith
        return next((parts.get(folder) for name, parts in _PARTS.items() if begins(name)), None)


_PARTS: dict[str, dict[str, float]] = {
    "stable-diffusion-v1": {"unet": 860, "text_encoder": 123, "vae": 84},
    "stable-diffusion-2": {"unet": 866, "text_encoder": 340, "vae": 84},
    "stable-diffusion-xl": {"unet": 2567, "text_encoder": 123, "text_encoder_2": 695, "vae": 84},
    "flux": {"transformer": 11901, "text_encoder": 123, "text_encoder_2": 4762, "vae": 84},
}
"""Parts of diffusers pipelines by their folders, in millions of parameters."""

_POSITIONS = (
    (1024, ("gpt2", "distilgpt2", "bart", "mbart")),
    (512, ("bert", "prajjwal1/", "distil", "roberta", "xlm-roberta", "albert", "deberta", "electra", "layoutlm")),
    (512, ("all-", "pegasus", "marian", "opus-mt")),
    (197, ("vit-", "deit-", "beit-")),
    (257, ("clip-", "dinov2-")),
)

_ROWS = """
bert-base-uncased 110 12 768 12 30522
bert-base-cased 108 12 768 12 28996
bert-base-multilingual-cased 178 12 768 12 119547
bert-base-chinese 102 12 768 12 21128
bert-large-uncased 335 24 1024 16 30522
bert-large-cased 333 24 1024 16 28996
prajjwal1/bert-tiny 4.4 2 128 2 30522
distilbert-base-uncased 66 6 768 12 30522
distilbert-base-cased 65 6 768 12 28996
distilroberta-base 82 6 768 12 50265
roberta-base 125 12 768 12 50265
roberta-large 355 24 1024 16 50265
xlm-roberta-base 278 12 768 12 250002
xlm-roberta-large 560 24 1024 16 250002
albert-base-v2 11.7 12 768 12 30000
deberta-base 139 12 768 12 50265
deberta-v3-small 141 6 768 12 128100
deberta-v3-base 184 12 768 12 128100
deberta-v3-large 434 24 1024 16 128100
electra-small-discriminator 13.5 12 256 4 30522
electra-base-discriminator 109 12 768 12 30522
ModernBERT-base 149 22 768 12 50368
ModernBERT-large 395 28 1024 16 50368
all-MiniLM-L6-v2 22.7 6 384 12 30522
all-mpnet-base-v2 109 12 768 12 30527
gpt2 124.4 12 768 12 50257
gpt2-medium 354.8 24 1024 16 50257
gpt2-large 774 36 1280 20 50257
gpt2-xl 1557.6 48 1600 25 50257
distilgpt2 82 6 768 12 50257
gpt-neo-125m 125 12 768 12 50257
gpt-neo-1.3B 1316 24 2048 16 50257
gpt-neo-2.7B 2651 32 2560 20 50257
gpt-j-6b 6053 28 4096 16 50400
gpt-neox-20b 20556 44 6144 64 50432
pythia-70m 70 6 512 8 50304
pythia-160m 162 12 768 12 50304
pythia-410m 405 24 1024 16 50304
pythia-1b 1012 16 2048 8 50304
pythia-1.4b 1415 24 2048 16 50304
pythia-2.8b 2775 32 2560 32 50304
pythia-6.9b 6857 32 4096 32 50432
pythia-12b 11846 36 5120 40 50688
opt-125m 125 12 768 12 50272
opt-350m 331 24 1024 16 50272
opt-1.3b 1316 24 2048 32 50272
opt-2.7b 2652 32 2560 32 50272
opt-6.7b 6658 32 4096 32 50272
opt-13b 12853 40 5120 40 50272
opt-30b 29975 48 7168 56 50272
bloom-560m 559 24 1024 16 250880
bloom-1b1 1065 24 1536 16 250880
bloom-3b 3003 30 2560 32 250880
bloom-7b1 7069 30 4096 32 250880
llama-7b 6738 32 4096 32 32000
llama-13b 13016 40 5120 40 32000
llama-2-7b 6738 32 4096 32 32000
llama-2-13b 13016 40 5120 40 32000
llama-2-70b 68977 80 8192 64 32000
llama-3-8b 8030 32 4096 32 128256
llama-3-70b 70554 80 8192 64 128256
llama-3.1-8b 8030 32 4096 32 128256
llama-3.1-70b 70554 80 8192 64 128256
llama-3.1-405b 405853 126 16384 128 128256
llama-3.2-1b 1236 16 2048 32 128256
llama-3.2-3b 3213 28 3072 24 128256
llama-3.3-70b 70554 80 8192 64 128256
tinyllama-1.1b 1100 22 2048 32 32000
mistral-7b 7242 32 4096 32 32000
mixtral-8x7b 46703 32 4096 32 32000
gemma-2b 2506 18 2048 8 256000
gemma-7b 8538 28 3072 16 256000
gemma-2-2b 2614 26 2304 8 256000
gemma-2-9b 9242 42 3584 16 256000
gemma-3-1b 1000 26 1152 4 262144
phi-1_5 1418 24 2048 32 51200
phi-2 2780 32 2560 32 51200
phi-3-mini 3821 32 3072 32 32064
qwen2-0.5b 494 24 896 14 151936
qwen2-1.5b 1544 28 1536 12 151936
qwen2-7b 7616 28 3584 28 152064
qwen2.5-0.5b 494 24 896 14 151936
qwen2.5-1.5b 1544 28 1536 12 151936
qwen2.5-3b 3086 36 2048 16 151936
qwen2.5-7b 7616 28 3584 28 152064
qwen2.5-14b 14770 48 5120 40 152064
qwen2.5-32b 32764 64 5120 40 152064
qwen2.5-72b 72706 80 8192 64 152064
qwen3-0.6b 596 28 1024 16 151936
qwen3-1.7b 1721 28 2048 16 151936
qwen3-4b 4022 36 2560 32 151936
qwen3-8b 8191 36 4096 32 151936
falcon-7b 7217 32 4544 71 65024
falcon-40b 41303 60 8192 128 65024
mpt-7b 6649 32 4096 32 50432
stablelm-3b 3638 16 4096 32 50257
smollm2-135m 135 30 576 9 49152
smollm2-360m 362 32 960 15 49152
smollm2-1.7b 1711 24 2048 32 49152
t5-small 60.5 12 512 8 32128
t5-base 222.9 24 768 12 32128
t5-large 737.7 48 1024 16 32128
t5-3b 2851 48 1024 32 32128
t5-11b 11307 48 1024 128 32128
flan-t5-small 77 16 512 6 32128
flan-t5-base 247.6 24 768 12 32128
flan-t5-large 783.2 48 1024 16 32128
flan-t5-xl 2850 48 2048 32 32128
flan-t5-xxl 11135 48 4096 64 32128
mt5-small 300 16 512 6 250112
mt5-base 582 24 768 12 250112
byt5-small 300 16 1472 6 384
bart-base 139 12 768 12 50265
bart-large 406 24 1024 16 50265
bart-large-cnn 406 24 1024 16 50264
mbart-large-50 611 24 1024 16 250054
pegasus-xsum 570 32 1024 16 96103
marian 74 12 512 8 58101
opus-mt-en-ro 74 12 512 8 59543
opus-mt-en-de 74 12 512 8 58101
opus-mt-en-fr 74 12 512 8 59514
wav2vec2-base 95 12 768 12 32
wav2vec2-large 317 24 1024 16 32
wav2vec2-large-xlsr-53 317 24 1024 16 32
wav2vec2-xls-r-300m 317 24 1024 16 32
hubert-base-ls960 95 12 768 12 32
whisper-tiny 39 8 384 6 51865
whisper-base 74 12 512 8 51865
whisper-small 244 24 768 12 51865
whisper-medium 769 48 1024 16 51865
whisper-large 1550 64 1280 20 51865
whisper-large-v2 1550 64 1280 20 51865
whisper-large-v3 1550 64 1280 20 51866
vit-base-patch16-224 86.6 12 768 12 0
vit-base-patch16-224-in21k 86.4 12 768 12 0
vit-large-patch16-224 304 24 1024 16 0
deit-base-patch16-224 86.6 12 768 12 0
beit-base-patch16-224 86.5 12 768 12 0
swin-tiny-patch4-window7-224 28.3 12 96 3 0
vit-mae-base 112 20 768 12 0
dinov2-base 86.6 12 768 12 0
clip-vit-base-patch32 151.3 24 768 12 49408
clip-vit-base-patch16 149.6 24 768 12 49408
clip-vit-large-patch14 427.6 36 1024 16 49408
segformer-b0-finetuned-ade-512-512 3.8 8 256 8 0
mit-b0 3.7 8 256 8 0
detr-resnet-50 41.5 12 256 8 0
layoutlm-base-uncased 113 12 768 12 30522
stable-diffusion-v1-4 1066 16 1280 8 49408
stable-diffusion-v1-5 1066 16 1280 8 49408
stable-diffusion-2-1 1290 16 1280 8 49408
stable-diffusion-xl-base-1.0 3469 70 1280 20 49408
flux.1-dev 16870 57 3072 24 32128
blip2-opt-2.7b 3745 71 2560 32 50304
"""
_SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)\s*([bm])(?![a-z])", re.IGNORECASE)


def _table() -> dict[str, Pretrained]:
    found = {}
    for row in _ROWS.split("\n"):
        if row:
            name, parameters, layers, width, heads, vocabulary = row.split()
            found[name.lower()] = Pretrained(
                name, float(parameters), int(layers), int(width), int(heads), int(vocabulary)
            )
    return found


_TABLE = _table()
_LONGEST = sorted(_TABLE, key=len, reverse=True)


def pretrained(name: str) -> Pretrained | None:
    """Return the model of this name, with or without its owner, else the one with the longest name it begins with."""
    lower = name.lower()
    short = lower.rpartition("/")[2]
    short = short.removeprefix("meta-").replace("llama-2-", "llama-2-")
    for candidate in (lower, short):
        if candidate in _TABLE:
            return _TABLE[candidate]
    for known in _LONGEST:
        tail = short[len(known) :]
        if short.startswith(known) and (not tail or tail[0] in "-_."):
            return _TABLE[known]
    return None


def size_in_name(name: str) -> float | None:
    """Return the parameters in millions that a name like `my-model-7b` states, or None."""
    found = _SIZE.findall(name.rpartition("/")[2].replace("-", " ").replace("_", " "))
    if not found:
        return None
    number, unit = found[-1]
    value = float(number) * (1000 if unit.lower() == "b" else 1)
    return value if 0.5 <= value <= 2_000_000 else None
