"""What the reader knows of Python's own functions and of libraries that hold settings and data."""

from __future__ import annotations

import pytest
from tests.analysis.values_of import value_of

from crucible.analysis.values.values import HAS_GPU, NO_GPU, UNKNOWN, Either, Instance, Tensor, Thing, Unknown


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("list(range(3))", [0, 1, 2]),
        ("tuple([1, 2])", (1, 2)),
        ("sorted({3, 1, 2})", [1, 2, 3]),
        ("sorted([3, 1], reverse=True)", [3, 1]),
        ("list(reversed([1, 2]))", [2, 1]),
        ("dict(a=1, **{'b': 2})", {"a": 1, "b": 2}),
        ("dict([('a', 1)])", {"a": 1}),
        ("list(zip([1, 2], 'ab'))", [(1, "a"), (2, "b")]),
        ("list(enumerate('ab', 1))", [(1, "a"), (2, "b")]),
        ("list(map(int, ['1', '2']))", [1, 2]),
        ("any([False, 1]) and all([1, True])", True),
        ("min(4, 2), max([1, 9])", (2, 9)),
        ("abs(-3) + round(2.6)", 6),
        ("isinstance(3, int), isinstance('a', (int, str)), isinstance([], dict)", (True, True, False)),
        ("'a-b'.replace('-', '_').upper().split('_')", ["A", "B"]),
        ("', '.join(['a', 'b'])", "a, b"),
        ("f'{1 + 1}-{\"x\"}'", "2-x"),
        ("{'a': 1}.get('b', 2)", 2),
        ("[*range(2), *(5,)]", [0, 1, 5]),
        ("{**{'a': 1}, 'b': 2}", {"a": 1, "b": 2}),
        ("[i * j for i in range(2) for j in range(2)]", [0, 0, 0, 1]),
        ("{k: v for k, v in {'a': 1}.items()}", {"a": 1}),
        ("1 < 2 < 3, 3 in [1, 2], 'a' not in 'abc'", (True, False, False)),
        ("None is None, True is False", (True, False)),
        ("not [] and (0 or 5)", 5),
        ("'x' if 0 else 'y'", "y"),
        ("len({'a': 1}) + len('ab') + len(range(3))", 6),
        ("[1, 2, 3][::-1], 'abc'[1:], (1, 2)[-1]", ([3, 2, 1], "bc", 2)),
        ("10 // 3, 10 % 3, 2 ** 10, 7 / 2, 1 << 3, 6 & 3", (3, 1, 1024, 3.5, 8, 2)),
        ("int('12') + float('0.5')", 12.5),
        ("bool(0), str(3)", (False, "3")),
        ("sum([1, 2], 3)", 6),
    ],
)
def test_python(expression: str, expected: object) -> None:
    found = value_of(f"x = {expression}")
    assert found == expected


@pytest.mark.parametrize(
    "expression",
    [
        "unknown",
        "unknown + 1",
        "unknown()[0].a",
        "[1][unknown]",
        "int('a')",
        "1 / 0",
        "{}['a']",
        "[1, 2][5]",
        "'a' + 1",
        "open('x').read()",
    ],
)
def test_what_is_not_known(expression: str) -> None:
    found = value_of(f"x = {expression}")
    assert not isinstance(found, int | float | str | list | dict) or found == 1


def test_one_of_two_where_a_condition_is_open() -> None:
    found = value_of("import os\nif os.environ['A']:\n    x = 1\nelse:\n    x = 2")
    assert isinstance(found, Either)
    assert found.options == (1, 2)
    assert value_of("import os\nx = 1\nif os.environ['A']:\n    x = 1") == 1
    many = value_of("import os\nx = 0\n" + "".join(f"if os.environ['A{n}']:\n    x = {n}\n" for n in range(1, 9)))
    assert isinstance(many, Unknown)


def test_a_branch_that_gives_up_does_not_count() -> None:
    assert value_of("import os\nif os.environ['A']:\n    x = 1\nelse:\n    raise ValueError") == 1


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("torch.cuda.is_available()", HAS_GPU),
        ("not torch.cuda.is_available()", NO_GPU),
        ("flag and torch.cuda.is_available()", HAS_GPU),
        ("torch.cuda.device_count() > 0", HAS_GPU),
        ("('cuda' if torch.cuda.is_available() else 'cpu') == 'cuda'", HAS_GPU),
        ("('cuda' if torch.cuda.is_available() else 'cpu') == 'cpu'", NO_GPU),
        ("False and torch.cuda.is_available()", False),
        ("torch.cuda.is_available() or unknown", UNKNOWN),
        ("torch.backends.mps.is_available()", False),
    ],
)
def test_whether_there_is_a_gpu_is_a_question_that_is_carried_along(expression: str, expected: object) -> None:
    assert value_of(f"import torch\nx = {expression}") == expected


def test_objects_of_classes() -> None:
    found = value_of(
        "class A:\n    n = 1\n    def __init__(self, k=2):\n        self.k = k\n"
        "        self.both = self.n + k\nx = A(5)"
    )
    assert isinstance(found, Instance)
    assert found.attrs == {"k": 5, "both": 6}
    assert (
        value_of(
            "class A:\n    @staticmethod\n    def f(n): return n + 1\n    @classmethod\n"
            "    def g(cls): return cls.f(2)\nx = A.g() + A().f(1)"
        )
        == 5
    )
    assert value_of("class A:\n    def __len__(self): return 7\nx = len(A())") == 7
    assert value_of("class A:\n    def __call__(self, n): return n * 2\nx = A()(4)") == 8


def test_functions_see_what_is_around_them_and_generators_give_something_like_an_item() -> None:
    assert value_of("def f(n):\n    def g(k):\n        return n + k\n    return g\nx = f(1)(2)") == 3
    found = value_of("def f():\n    for i in load():\n        yield 5\nfor x in f():\n    pass")
    assert found == 5


def test_nested_settings_are_attributes_too() -> None:
    assert value_of("from omegaconf import OmegaConf\nc = OmegaConf.create({'a': {'b': 3}})\nx = c.a.b") == 3
    assert value_of("from types import SimpleNamespace\nx = SimpleNamespace(a=4).a") == 4
    assert value_of("import argparse\nx = vars(argparse.Namespace(a=4))['a']") == 4


def test_a_loader_gives_batches_like_its_dataset() -> None:
    code = """
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Mine(Dataset):
        def __len__(self):
            return 100
        def __getitem__(self, i):
            return torch.zeros(3, 8, 8), 1

    loader = DataLoader(Mine(), batch_size=16)
    for x, y in loader:
        pass
    n = len(loader)
    """
    found = value_of(code)
    assert isinstance(found, Tensor)
    assert found.shape == (16, 3, 8, 8)
    assert value_of(code, "n") == 7
    target = value_of(code, "y")
    assert isinstance(target, Tensor)
    assert (target.shape, target.kind) == ((16,), "int64")


def test_parts_of_a_dataset() -> None:
    code = (
        "import torch\nfrom torch.utils.data import TensorDataset, random_split, DataLoader\n"
        "d = TensorDataset(torch.zeros(50, 3), torch.zeros(50))\n"
        "a, b = random_split(d, [0.8, 0.2])\nx = len(DataLoader(a, 10))"
    )
    assert value_of(code) == 4


def test_a_known_dataset_has_its_samples_and_pictures() -> None:
    found = value_of("from torchvision import datasets\nx = datasets.CIFAR10('d')")
    assert isinstance(found, Thing)
    assert found.attrs["length"] == 50_000
    assert found.attrs["like"][0].shape == (3, 32, 32)
