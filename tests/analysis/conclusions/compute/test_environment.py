"""What a program needs around it: the network, and how it is started."""

from __future__ import annotations

import json

import pytest
from tests.analysis.programs import read

from crucible.core.routing.profile import Confidence, Entrypoint


@pytest.mark.parametrize(
    "code",
    [
        "import requests\nrequests.get('https://a.example')",
        "from transformers import AutoModel\nAutoModel.from_pretrained('bert-base-uncased')",
        "from datasets import load_dataset\nload_dataset('imdb')",
        "import torchvision\ntorchvision.datasets.MNIST('data', download=True)",
        "import keras\nkeras.datasets.mnist.load_data()",
        "from sklearn.datasets import fetch_openml\nfetch_openml('mnist_784')",
        "import torchvision\ntorchvision.models.resnet50(weights='DEFAULT')",
        "import torchvision\ntorchvision.models.resnet50(pretrained=True)",
        "import keras\nkeras.applications.ResNet50()",
        "import wandb\nwandb.init()",
        "import pandas as pd\npd.read_csv('https://a.example/b.csv')",
        "import dask.dataframe as dd\ndd.read_parquet('s3://bucket/rows')",
        "from transformers import pipeline\npipeline('fill-mask')",
        "import tensorflow_datasets as tfds\ntfds.builder('mnist')",
    ],
)
def test_what_fetches_or_sends_needs_the_network(code: str) -> None:
    network = read(code).network
    assert network.value is True
    assert network.confidence is Confidence.HIGH
    assert network.evidence[0].line == 2
    assert "uses the network" in network.why


@pytest.mark.parametrize(
    "code",
    [
        "import requests",
        "'requests.get'  # requests.get",
        "from transformers import AutoModel\nAutoModel.from_pretrained('./mine')",
        "from transformers import AutoModel\nAutoModel.from_pretrained('/models/mine')",
        "import torchvision\ntorchvision.datasets.MNIST('data', download=False)",
        "import torchvision\ntorchvision.models.resnet50(weights=None)",
        "import torchvision\ntorchvision.models.resnet50()",
        "import keras\nkeras.applications.ResNet50(weights=None)",
        "if False:\n    import requests\n    requests.get('https://a.example')",
    ],
)
def test_what_stays_here_needs_none_as_far_as_can_be_seen(code: str) -> None:
    network = read(code).network
    assert network.value is False
    assert network.confidence is Confidence.MEDIUM
    assert network.evidence == ()


def test_fetching_under_a_condition_is_less_certain() -> None:
    code = "import os, requests\nif os.environ.get('A'):\n    requests.get('https://a.example')"
    network = read(code).network
    assert network.value is True
    assert network.confidence is Confidence.MEDIUM
    assert network.evidence[0].line == 3


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("def main():\n    pass\n\nmain()\n", 4),
        ("def main():\n    pass\nif __name__ == '__main__':\n    main()\n", 3),
        ("for _ in range(3):\n    pass\n", 1),
        ("with open('a') as file:\n    pass\n", 1),
        ("print(1)\nprint(2)\n", 2),
    ],
)
def test_a_file_that_does_something_is_a_script_and_the_last_deed_shows_it(code: str, line: int) -> None:
    entrypoint = read(code).entrypoint
    assert entrypoint.value is Entrypoint.SCRIPT
    assert [each.line for each in entrypoint.evidence] == [line]


@pytest.mark.parametrize("code", ["def f(): f()", "class A:\n    x = 1", "import torch\nX = 1", "'''A text.'''"])
def test_a_file_that_only_defines_is_a_module(code: str) -> None:
    entrypoint = read(code).entrypoint
    assert entrypoint.value is Entrypoint.MODULE
    assert entrypoint.confidence is Confidence.MEDIUM
    assert entrypoint.why == "It only has definitions."


def test_a_server_is_a_service() -> None:
    entrypoint = read("import uvicorn\nuvicorn.run('a:app')").entrypoint
    assert entrypoint.value is Entrypoint.SERVICE
    assert entrypoint.evidence[0].text == "uvicorn.run('a:app')"


def test_a_notebook_is_one_whatever_is_in_it() -> None:
    notebook = json.dumps({"cells": [{"cell_type": "code", "source": "x = 1"}]})
    assert read(notebook, entry="a.ipynb").entrypoint.value is Entrypoint.NOTEBOOK
