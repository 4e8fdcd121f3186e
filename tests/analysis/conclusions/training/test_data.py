"""The dataset: its name, samples and size; the pictures in it."""

from __future__ import annotations

import pytest
from tests.analysis.programs import read

from crucible.core.routing.profile import Confidence


@pytest.mark.parametrize(
    ("code", "name", "samples"),
    [
        ("import torchvision\ntorchvision.datasets.CIFAR10('data')", "CIFAR-10", 50_000),
        ("import keras\nkeras.datasets.mnist.load_data()", "MNIST", 60_000),
        ("from datasets import load_dataset\nload_dataset('imdb')", "IMDb", 25_000),
        ("import tensorflow_datasets as tfds\ntfds.builder('cifar10')", "CIFAR-10", 50_000),
        ("from datasets import load_dataset\nload_dataset('glue', 'sst2')", "SST-2", 67_349),
    ],
)
def test_a_dataset_by_its_name_is_known_with_its_size(code: str, name: str, samples: int) -> None:
    dataset = read(code).dataset
    assert dataset.value is not None
    assert dataset.value.samples == samples
    assert dataset.value.gb is not None
    assert dataset.confidence is Confidence.HIGH
    assert dataset.evidence[0].line == 2
    assert dataset.value.name.lower().replace("-", "") == name.lower().replace("-", "")


def test_a_name_that_nobody_knows_is_told_with_the_question() -> None:
    dataset = read("from datasets import load_dataset\nload_dataset('somebody/something')").dataset
    assert dataset.value is not None
    assert (dataset.value.name, dataset.value.gb) == ("somebody/something", None)
    assert dataset.question == "How large is somebody/something, and how many samples does it have?"
    assert dataset.evidence[0].line == 2


def test_a_known_dataset_is_preferred_to_one_that_is_not() -> None:
    code = "from datasets import load_dataset\nload_dataset('mine/own')\nload_dataset('imdb')"
    dataset = read(code).dataset
    assert dataset.value is not None
    assert dataset.value.gb is not None
    assert dataset.evidence[0].line == 3


def test_a_file_of_the_program_is_as_large_as_it_is() -> None:
    dataset = read("import pandas\npandas.read_csv('./a.csv')", **{"a.csv": "1,2\n" * 250}).dataset
    assert dataset.value is not None
    assert dataset.value.name == "./a.csv"
    assert dataset.value.gb == pytest.approx(1000 / 1e9)


def test_a_folder_that_is_elsewhere_has_a_name_and_no_size() -> None:
    dataset = read("import torchvision\ntorchvision.datasets.ImageFolder('/data/train')").dataset
    assert dataset.value is not None
    assert (dataset.value.name, dataset.value.samples, dataset.value.gb) == ("/data/train", None, None)


def test_a_file_whose_name_is_not_known_is_just_files() -> None:
    dataset = read("import os, pandas\npandas.read_csv(os.environ['DATA'])").dataset
    assert dataset.value is not None
    assert dataset.value.name == "files"


@pytest.mark.parametrize(
    ("code", "samples"),
    [
        ("from sklearn.datasets import make_blobs\nmake_blobs(500)", 500),
        ("from sklearn.datasets import make_blobs\nmake_blobs()", 100),
        ("import torch\ntorch.randn(64, 3)", 64),
        ("import numpy\nnumpy.random.randn(32, 3)", 32),
    ],
)
def test_data_that_the_program_makes_takes_no_room(code: str, samples: int) -> None:
    dataset = read(code).dataset
    assert dataset.value is not None
    assert (dataset.value.name, dataset.value.samples, dataset.value.gb) == ("made by the program", samples, 0.0)


def test_noise_inside_a_loop_is_no_dataset_and_the_question_is_asked() -> None:
    dataset = read("import torch\nfor step in range(1000):\n    torch.randn(64, 3)").dataset
    assert not dataset.known
    assert dataset.question == "Which data does the program read, and how large is it?"


def test_names_in_texts_and_dead_branches_are_none() -> None:
    code = "import torchvision\nx = 'torchvision.datasets.MNIST'\nif False:\n    torchvision.datasets.MNIST('data')"
    assert not read(code).dataset.known


@pytest.mark.parametrize(
    ("code", "side"),
    [
        ("import keras\nkeras.Input((96, 96, 3))", 96),
        ("import keras\nkeras.layers.Conv2D(8, 3, input_shape=(28, 28, 1))", 28),
        ("import torch\ntorch.randn(8, 3, 64, 64)", 64),
    ],
)
def test_pictures_have_the_side_of_what_goes_in(code: str, side: int) -> None:
    pictures = read(code).image_size
    assert pictures.value == side
    assert pictures.evidence[0].line == 2


def test_what_has_no_four_dimensions_is_no_picture() -> None:
    assert not read("import torch\ntorch.randn(8, 64)").image_size.known
