"""GPU types as facts: memory, speed by number format, bandwidth, links.

Figures are those of the vendors' data sheets, each named in `source`: peak rates of dense matrices (what a sheet gives
"with sparsity" is halved here), for one GPU as programs see it (a K80 or M60 board has two). Memory is the nominal
size in binary units, as people ask for it ("16 GB" is 16 GiB); what a program can use is some percent less.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from crucible.core.compute.resources import GiB
from crucible.core.errors import UnknownName

TERA = 10**12
GIGA = 10**9


class Dtype(enum.StrEnum):
    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"


@dataclass(frozen=True)
class Gpu:
    """A GPU type. `flops`: peak operations per second; formats that the GPU does not accelerate are absent.

    `bandwidth`: bytes per second to its own memory. `nvlink`: GPUs of one machine may be linked by it.
    `capability`: the CUDA compute capability; None for other vendors. `groups`: names that mean several types.
    """

    name: str
    memory_bytes: int
    bandwidth: int
    flops: Mapping[Dtype, int]
    capability: tuple[int, int] | None
    nvlink: bool
    source: str
    groups: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    vendor: str = "NVIDIA"


def _rates(
    fp32: float, tf32: float = 0, fp16: float = 0, bf16: float = 0, fp8: float = 0
) -> MappingProxyType[Dtype, int]:
    """Return the rates by format from TFLOP/s; zero means the format is missing."""
    rates = zip(Dtype, (fp32, tf32, fp16, bf16, fp8), strict=True)
    return MappingProxyType({dtype: round(rate * TERA) for dtype, rate in rates if rate})


def _old(fp32: float, fp16: float = 0) -> MappingProxyType[Dtype, int]:
    """Return the rates of a GPU up to Turing: no TF32, no BF16."""
    return _rates(fp32, fp16=fp16)


def _new(fp32: float, tf32: float, half: float, fp8: float = 0) -> MappingProxyType[Dtype, int]:
    """Return the rates of a GPU from Ampere on: FP16 and BF16 are equally fast."""
    return _rates(fp32, tf32, half, half, fp8)


def _gpu(
    name: str,
    gib: int,
    gb_per_second: int,
    flops: Mapping[Dtype, int],
    capability: tuple[int, int] | None,
    nvlink: bool,
    source: str,
    *aliases: str,
    groups: tuple[str, ...] = (),
    vendor: str = "NVIDIA",
) -> Gpu:
    bandwidth = gb_per_second * GIGA
    return Gpu(name, gib * GiB, bandwidth, flops, capability, nvlink, source, groups, aliases, vendor)


_A100 = _new(19.5, 156, 312)
_H100 = _new(66.9, 494.7, 989.4, 1978.9)
_V100 = _old(15.7, 125)
_A100_SHEET = "NVIDIA A100 Tensor Core GPU data sheet (2021)"
_H100_SHEET = "NVIDIA H100 Tensor Core GPU data sheet (2023, 2024)"
_V100_SHEET = "NVIDIA V100 Tensor Core GPU data sheet (2020)"
_QUADRO = "NVIDIA Quadro data sheets (2016-2018)"

GPUS: tuple[Gpu, ...] = (
    _gpu("K80", 12, 240, _old(4.37), (3, 7), False, "NVIDIA Tesla K80 data sheet (2014)", "Tesla K80"),
    _gpu("M60", 8, 160, _old(4.8), (5, 2), False, "NVIDIA Tesla M60 data sheet (2015)", "Tesla M60"),
    _gpu("P4", 8, 192, _old(5.5), (6, 1), False, "NVIDIA Tesla P4 data sheet (2016)", "Tesla P4"),
    _gpu(
        "P100", 16, 732, _old(9.3, 18.7), (6, 0), False, "NVIDIA Tesla P100 PCIe data sheet (2016)",
        "Tesla P100", "Tesla P100-PCIE-16GB", "P100-16GB",
    ),
    _gpu("P4000", 8, 243, _old(5.3), (6, 1), False, _QUADRO, "Quadro P4000"),
    _gpu("P5000", 16, 288, _old(8.9), (6, 1), False, _QUADRO, "Quadro P5000"),
    _gpu("P6000", 24, 432, _old(12.6), (6, 1), False, _QUADRO, "Quadro P6000"),
    _gpu(
        "V100-16GB", 16, 900, _V100, (7, 0), True, _V100_SHEET,
        "Tesla V100-SXM2-16GB", "Tesla V100-PCIE-16GB", "V100-16", groups=("V100",),
    ),
    _gpu(
        "V100-32GB", 32, 900, _V100, (7, 0), True, _V100_SHEET,
        "Tesla V100-SXM2-32GB", "Tesla V100-PCIE-32GB", "V100-32", groups=("V100",),
    ),
    _gpu("T4", 16, 320, _old(8.1, 65), (7, 5), False, "NVIDIA T4 data sheet (2019)", "Tesla T4", "T4-16GB"),
    _gpu("RTX-4000", 8, 416, _old(7.1, 57), (7, 5), False, _QUADRO, "Quadro RTX 4000"),
    _gpu("RTX-5000", 16, 448, _old(11.2, 89.2), (7, 5), True, _QUADRO, "Quadro RTX 5000"),
    _gpu("RTX-6000", 24, 672, _old(16.3, 130.5), (7, 5), True, _QUADRO, "Quadro RTX 6000"),
    _gpu(
        "RTX-A4000", 16, 448, _new(19.2, 38.3, 76.7), (8, 6), False, "NVIDIA RTX A4000 data sheet (2021)",
        "A4000", "NVIDIA RTX A4000",
    ),
    _gpu(
        "RTX-A5000", 24, 768, _new(27.8, 55.6, 111.1), (8, 6), True, "NVIDIA RTX A5000 data sheet (2021)",
        "A5000", "NVIDIA RTX A5000",
    ),
    _gpu(
        "RTX-A6000", 48, 768, _new(38.7, 77.4, 154.8), (8, 6), True, "NVIDIA RTX A6000 data sheet (2021)",
        "A6000", "NVIDIA RTX A6000",
    ),
    _gpu(
        "RTX-3090", 24, 936, _new(35.6, 35.6, 71), (8, 6), True,
        "NVIDIA Ampere GA102 GPU architecture white paper (2020)", "3090", "NVIDIA GeForce RTX 3090",
    ),
    _gpu("A10", 24, 600, _new(31.2, 62.5, 125), (8, 6), False, "NVIDIA A10 data sheet (2021)", "A10-24GB"),
    _gpu("A10G", 24, 600, _new(35, 35, 70), (8, 6), False, "NVIDIA A10G data sheet (2021)", "A10G-24GB"),
    _gpu(
        "A100-40GB-PCIe", 40, 1555, _A100, (8, 0), True, _A100_SHEET,
        "NVIDIA A100-PCIE-40GB", groups=("A100", "A100-40GB"),
    ),
    _gpu(
        "A100-40GB-SXM", 40, 1555, _A100, (8, 0), True, _A100_SHEET,
        "NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB", groups=("A100", "A100-40GB", "A100-SXM"),
    ),
    _gpu(
        "A100-80GB-PCIe", 80, 1935, _A100, (8, 0), True, _A100_SHEET,
        "NVIDIA A100 80GB PCIe", groups=("A100", "A100-80GB"),
    ),
    _gpu(
        "A100-80GB-SXM", 80, 2039, _A100, (8, 0), True, _A100_SHEET,
        "NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB", groups=("A100", "A100-80GB", "A100-SXM"),
    ),
    _gpu(
        "L4", 24, 300, _new(30.3, 60, 121, 242), (8, 9), False, "NVIDIA L4 data sheet (2023)", "L4-24GB",
    ),
    _gpu("L40", 48, 864, _new(90.5, 90.5, 181, 362), (8, 9), False, "NVIDIA L40 data sheet (2023)", "L40-48GB"),
    _gpu("L40S", 48, 864, _new(91.6, 183, 362, 733), (8, 9), False, "NVIDIA L40S data sheet (2023)", "L40S-48GB"),
    _gpu(
        "RTX-4090", 24, 1008, _new(82.6, 82.6, 165.2, 330.3), (8, 9), False,
        "NVIDIA Ada GPU architecture white paper (2022)", "4090", "NVIDIA GeForce RTX 4090",
    ),
    _gpu(
        "H100-PCIe", 80, 2000, _new(51, 378, 756, 1513), (9, 0), True, _H100_SHEET,
        "NVIDIA H100 PCIe", "H100-80GB-PCIe", groups=("H100",),
    ),
    _gpu(
        "H100-SXM", 80, 3350, _H100, (9, 0), True, _H100_SHEET,
        "NVIDIA H100 80GB HBM3", "H100-SXM5", "H100-80GB-SXM", "H100-80GB", groups=("H100",),
    ),
    _gpu(
        "H100-NVL", 94, 3938, _new(60, 417.7, 835.3, 1670.5), (9, 0), True, _H100_SHEET,
        "NVIDIA H100 NVL", "H100-NVL-94GB", groups=("H100",),
    ),
    _gpu("H200", 141, 4800, _H100, (9, 0), True, "NVIDIA H200 data sheet (2023)", "NVIDIA H200", "H200-SXM"),
    _gpu(
        "GH200", 96, 4000, _H100, (9, 0), True, "NVIDIA GH200 Grace Hopper Superchip data sheet (2023)",
        "NVIDIA GH200 480GB", "GH200-480GB",
    ),
    _gpu(
        "B200", 180, 7700, _new(75, 1100, 2250, 4500), (10, 0), True, "NVIDIA HGX B200 data sheet (2024)",
        "NVIDIA B200", "B200-SXM",
    ),
    _gpu(
        "MI300X", 192, 5300, _new(163.4, 653.7, 1307.4, 2614.9), None, False,
        "AMD Instinct MI300X data sheet (2023)", "AMD Instinct MI300X", vendor="AMD",
    ),
)  # fmt: skip


def find_gpu(name: str) -> Gpu:
    """Return the GPU type by our name or a driver's or provider's name. Raises UnknownName, also for a group."""
    found = _ONE.get(_plain(name))
    if found is None:
        raise UnknownName("GPU type", name, names(), fix="`crucible catalog gpus` lists them.")
    return found


def find_gpus(name: str) -> tuple[Gpu, ...]:
    """Return every type that the name may mean: `A100` is four types, `T4` is one. Raises UnknownName."""
    found = _MANY.get(_plain(name))
    return found if found else (find_gpu(name),)


@lru_cache(maxsize=1024)
def display_name(name: str) -> str:
    """Return our name of a GPU type for any driver's or provider's name of it; unknown names are returned unchanged."""
    found = _ONE.get(_plain(name))
    return name if found is None else found.name


def join_types(types: Sequence[str]) -> str:
    """Join type names with "or"; a group's name replaces its members where all of them are there."""
    left = list(types)
    for group in dict.fromkeys(group for one in GPUS for group in one.groups):
        members = [one.name for one in find_gpus(group)]
        if len(members) > 1 and all(name in left for name in members):
            left = [group, *(name for name in left if name not in members)]
    return " or ".join(left)


def is_gpu(name: str) -> bool:
    return _plain(name) in _ONE or _plain(name) in _MANY


def names() -> tuple[str, ...]:
    """Return every name of a type or a group."""
    return tuple(dict.fromkeys([*(one.name for one in GPUS), *(group for one in GPUS for group in one.groups)]))


_VENDOR_WORDS = re.compile(r"\b(nvidia|amd|instinct|tesla|geforce|quadro)\b", re.IGNORECASE)


@lru_cache(maxsize=1024)
def _plain(name: str) -> str:
    """Normalize a name: no case, blanks, dashes or vendor words, which drivers and users add as they like."""
    return "".join(re.findall(r"[a-z0-9]+", _VENDOR_WORDS.sub(" ", name).lower()))


def _by_name(gpus: Iterable[Gpu]) -> Iterator[tuple[str, Gpu]]:
    for one in gpus:
        yield from ((_plain(name), one) for name in (one.name, *one.aliases))


def _by_group(gpus: Iterable[Gpu]) -> dict[str, tuple[Gpu, ...]]:
    found: dict[str, tuple[Gpu, ...]] = {}
    for one in gpus:
        for group in one.groups:
            found[_plain(group)] = (*found.get(_plain(group), ()), one)
    return found


_ONE = dict(_by_name(GPUS))
_MANY = _by_group(GPUS)
