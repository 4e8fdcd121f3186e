"""Datasets by name: samples of one epoch, gigabytes on disk, and the shape of a sample."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Known:
    """A well-known dataset: samples of one epoch, gigabytes on disk, shape and classes of a sample."""

    name: str
    samples: int | None
    gb: float | None
    shape: tuple[int, ...] = ()
    classes: int = 0


_ROWS: tuple[tuple[str, int | None, float | None, tuple[int, ...], int], ...] = (
    ("mnist", 60_000, 0.011, (1, 28, 28), 10), ("fashion_mnist", 60_000, 0.031, (1, 28, 28), 10),
    ("fashionmnist", 60_000, 0.031, (1, 28, 28), 10),
    ("kmnist", 60_000, 0.02, (1, 28, 28), 10), ("emnist", 697_932, 0.55, (1, 28, 28), 62),
    ("qmnist", 60_000, 0.02, (1, 28, 28), 10),
    ("cifar10", 50_000, 0.17, (3, 32, 32), 10), ("cifar100", 50_000, 0.17, (3, 32, 32), 100),
    ("svhn", 73_257, 0.18, (3, 32, 32), 10),
    ("stl10", 5_000, 2.6, (3, 96, 96), 10), ("imagenet", 1_281_167, 150.0, (3, 224, 224), 1000),
    ("imagenet-1k", 1_281_167, 150.0, (3, 224, 224), 1000),
    ("imagenette", 9_469, 1.5, (3, 160, 160), 10), ("tiny-imagenet", 100_000, 0.24, (3, 64, 64), 200),
    ("celeba", 162_770, 1.4, (3, 218, 178), 40),
    ("lsun", 3_033_042, 42.0, (3, 256, 256), 1), ("cocodetection", 118_287, 19.0, (3, 640, 480), 80),
    ("coco", 118_287, 19.0, (3, 640, 480), 80),
    ("cococaptions", 118_287, 19.0, (3, 640, 480), 80), ("vocdetection", 11_540, 2.0, (3, 500, 375), 20),
    ("vocsegmentation", 2_913, 2.0, (3, 500, 375), 21),
    ("flowers102", 1_020, 0.33, (3, 224, 224), 102), ("oxford_flowers102", 1_020, 0.33, (3, 224, 224), 102),
    ("food101", 75_750, 4.9, (3, 512, 512), 101),
    ("oxfordiiitpet", 3_680, 0.8, (3, 224, 224), 37), ("oxford_iiit_pet", 3_680, 0.8, (3, 224, 224), 37),
    ("stanfordcars", 8_144, 1.9, (3, 360, 240), 196),
    ("cats_vs_dogs", 23_262, 0.8, (3, 224, 224), 2), ("dtd", 1_880, 0.6, (3, 300, 300), 47),
    ("caltech101", 8_677, 0.13, (3, 200, 300), 101), ("places365", 1_803_460, 105.0, (3, 256, 256), 365),
    ("omniglot", 19_280, 0.01, (1, 105, 105), 964), ("usps", 7_291, 0.003, (1, 16, 16), 10),
    ("kinetics400", 241_255, 450.0, (), 400), ("ucf101", 9_537, 6.9, (), 101),
    ("cityscapes", 2_975, 11.0, (3, 1024, 2048), 30), ("speechcommands", 84_843, 2.3, (1, 16000), 35),
    ("librispeech", 281_241, 60.0, (), 0), ("yesno", 60, 0.005, (), 2),
    ("imdb", 25_000, 0.084, (), 2), ("reuters", 8_982, 0.002, (), 46), ("boston_housing", 404, 0.0001, (13,), 0),
    ("california_housing", 16_512, 0.001, (8,), 0),
    ("ag_news", 120_000, 0.03, (), 4), ("yelp_review_full", 650_000, 0.5, (), 5),
    ("yelp_polarity", 560_000, 0.44, (), 2), ("amazon_polarity", 3_600_000, 1.7, (), 2),
    ("sst2", 67_349, 0.007, (), 2), ("glue", 67_349, 0.01, (), 2), ("cola", 8_551, 0.0004, (), 2),
    ("mrpc", 3_668, 0.0015, (), 2), ("qqp", 363_846, 0.05, (), 2), ("mnli", 392_702, 0.3, (), 3),
    ("squad", 87_599, 0.035, (), 0), ("squad_v2", 130_319, 0.045, (), 0), ("swag", 73_546, 0.04, (), 4),
    ("conll2003", 14_041, 0.001, (), 9), ("wikitext", 36_718, 0.2, (), 0),
    ("wikitext-2-raw-v1", 36_718, 0.0045, (), 0), ("wikitext-103-raw-v1", 1_801_350, 0.19, (), 0),
    ("wikitext2", 36_718, 0.0045, (), 0), ("wikitext103", 1_801_350, 0.19, (), 0),
    ("ptb_text_only", 42_068, 0.005, (), 0), ("penntreebank", 42_068, 0.005, (), 0),
    ("openwebtext", 8_013_769, 40.0, (), 0), ("bookcorpus", 74_004_228, 4.6, (), 0),
    ("wikipedia", 6_458_670, 20.0, (), 0), ("c4", 364_868_892, 305.0, (), 0), ("the_pile", 210_607_728, 825.0, (), 0),
    ("cnn_dailymail", 287_113, 0.59, (), 0), ("xsum", 204_045, 0.25, (), 0), ("samsum", 14_732, 0.003, (), 0),
    ("wmt16", 610_320, 0.2, (), 0), ("wmt14", 4_508_785, 1.3, (), 0), ("multi30k", 29_000, 0.002, (), 0),
    ("tatsu-lab/alpaca", 52_002, 0.024, (), 0), ("timdettmers/openassistant-guanaco", 9_846, 0.02, (), 0),
    ("common_voice", 400_000, 60.0, (), 0), ("minds14", 563, 0.5, (), 14), ("superb", 51_094, 2.0, (), 12),
    ("beans", 1_034, 0.17, (3, 500, 500), 3), ("adult", 32_561, 0.004, (14,), 2), ("iris", 150, 0.00001, (4,), 3),
    ("digits", 1_797, 0.0005, (64,), 10), ("wine", 178, 0.00001, (13,), 3), ("breast_cancer", 569, 0.0001, (30,), 2),
    ("diabetes", 442, 0.0001, (10,), 0), ("20newsgroups", 11_314, 0.014, (), 20),
    ("covtype", 581_012, 0.011, (54,), 7), ("lfw_people", 13_233, 0.2, (62, 47), 5749),
    ("olivetti_faces", 400, 0.0015, (64, 64), 40), ("kddcup99", 494_021, 0.02, (41,), 23),
    ("cora", 1, 0.0002, (), 7), ("planetoid", 1, 0.0002, (), 7), ("shakespeare", None, 0.0011, (), 0),
)  # fmt: skip
_TABLE = {row[0]: Known(*row) for row in _ROWS}


def dataset(name: str) -> Known | None:
    """Return the dataset that a program names, in any usual spelling, or None."""
    lower = name.lower()
    for candidate in (
        lower,
        lower.replace("-", "_"),
        lower.rpartition("/")[2],
        lower.partition("/")[0],
        lower.replace("_", ""),
    ):
        if candidate in _TABLE:
            return _TABLE[candidate]
    return None
