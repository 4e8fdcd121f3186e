"""Which code counts: imports under any name, files of the program, branches that can run."""

from __future__ import annotations

import textwrap

import pytest
from tests.analysis.programs import read

from crucible.core.routing.profile import GpuNeed

GPU = "model.cuda()\n"


def need(code: str, *arguments: str, **files: str) -> GpuNeed | None:
    return read(code, *arguments, **files).gpu.value


@pytest.mark.parametrize(
    "code",
    [
        "import torch\ndevice = torch.device('cuda')\nx = torch.zeros(3).to(device)",
        "import torch as t\nt.zeros(3).cuda()",
        "from torch import zeros as z\nz(3).cuda()",
        "from torch import *\nzeros(3).cuda()",
        "import torch.nn as nn\nnn.Linear(1, 2).cuda()",
        "def f():\n    import torch\n    torch.zeros(3).cuda()\nf()",
        "import torch\nclass A:\n    def run(self):\n        torch.zeros(3).cuda()\nA().run()",
        "import torch\ndef nobody_calls_it(model):\n    model.cuda()",
        "import torch\nprepare = lambda m: m.cuda()\nprepare(torch.nn.Linear(1, 2))",
        (
            "import torch\nwith torch.no_grad():\n    for i in range(3):\n        while True:\n"
            "            torch.zeros(3).cuda()"
        ),
        "import torch\ntry:\n    torch.zeros(3).cuda()\nexcept RuntimeError:\n    raise",
    ],
)
def test_gpu_use_is_seen_wherever_it_is_written(code: str) -> None:
    assert need(code) is GpuNeed.REQUIRED


@pytest.mark.parametrize(
    "code",
    [
        '"""Calls model.cuda() and torch.device("cuda")."""\nimport torch\n',
        "import torch\n# model.cuda()\nx = 1\n",
        "import torch\ntext = 'model.cuda()'\nprint(text)\n",
        "import torch\nif False:\n    model.cuda()\n",
        "import torch\nif 0:\n    model.cuda()\nelif not True:\n    model.cuda()\n",
        "import torch\nDEBUG = False\nif DEBUG:\n    model.cuda()\n",
        "import torch\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import cupy\n",
        "import typing\nif typing.TYPE_CHECKING:\n    import cupy\n",
        "import torch\nwhile False:\n    model.cuda()\n",
        "import torch\nx = 1 if True else model.cuda()\n",
        "import torch\nimport sys\nsys.exit(0)\nmodel.cuda()\n",
        "import torch\ndef f():\n    return 1\n    model.cuda()\nf()\n",
        "import torch\nif __name__ != '__main__':\n    model.cuda()\n",
    ],
)
def test_strings_comments_and_dead_branches_are_no_evidence(code: str) -> None:
    assert need(code) is GpuNeed.NONE


def test_files_of_the_program_are_followed() -> None:
    assert (
        need(
            "from model import build\nbuild()",
            model_py="import torch\ndef build():\n    return torch.nn.Linear(1, 2).cuda()",
        )
        is GpuNeed.REQUIRED
    )
    assert (
        need("import lib.net\nlib.net.build()", **{"lib/__init__.py": "", "lib/net.py": f"def build():\n    {GPU}"})
        is GpuNeed.REQUIRED
    )


def test_relative_imports_and_re_exports_are_followed() -> None:
    files = {
        "pkg/__init__.py": "from .net import Net as Model\n",
        "pkg/net.py": (
            "import torch\nfrom .parts import size\nclass Net(torch.nn.Module):\n"
            "    def __init__(self):\n        self.a = torch.nn.Linear(size, 2, bias=False)\n"
        ),
        "pkg/parts.py": "size = 21\n",
    }
    assert read("from pkg import Model\nModel()", **files).parameters.value == 42


def test_a_star_import_of_an_own_file_brings_its_names() -> None:
    assert (
        read(
            "from config import *\nimport torch\ntorch.nn.Linear(width, 1, bias=False)", config_py="width = 7"
        ).parameters.value
        == 7
    )


def test_a_local_file_hides_a_library_of_the_same_name() -> None:
    assert read("import ray\n", ray_py="x = 1").frameworks.value == ()


def test_files_that_import_each_other_come_to_an_end() -> None:
    profile = read("import a\nimport torch", a_py="import b\nfrom train import nothing", b_py="import a\nx = a.y")
    assert profile.frameworks.value == ("torch",)


def test_recursion_and_endless_loops_come_to_an_end() -> None:
    profile = read("import torch\ndef f(n):\n    return f(n + 1)\nf(0)\nwhile True:\n    pass\n")
    assert profile.frameworks.value == ("torch",)


def test_a_file_of_definitions_is_looked_at_though_nobody_calls_it() -> None:
    profile = read("import torch\nclass Trainer:\n    def fit(self, model):\n        self.model = model.to('cuda')\n")
    assert profile.gpu.value is GpuNeed.REQUIRED
    assert profile.entrypoint.value == "module"


def test_evidence_names_the_file_and_line() -> None:
    profile = read(
        "from model import build\nbuild()",
        model_py="import torch\n\ndef build():\n    return torch.nn.Linear(1, 2).cuda()",
    )
    line = profile.gpu.evidence[0]
    assert (line.file, line.line, line.text) == ("model.py", 4, "return torch.nn.Linear(1, 2).cuda()")


def test_a_notebook_is_read_with_its_cells_as_evidence() -> None:
    cells = (
        '{"cells": [{"cell_type": "code", "source": "import torch"}, {"cell_type": "code", "source": "x = 1\\n'
        'torch.zeros(3).cuda()"}]}'
    )
    profile = read(cells, entry="a.ipynb")
    assert profile.entrypoint.value == "notebook"
    assert str(profile.gpu.evidence[0]) == "a.ipynb#cell2:2: torch.zeros(3).cuda()"


def test_broken_code_still_gives_a_useful_profile() -> None:
    profile = read("import torch\nnet = torch.nn.Linear(3, 4).cuda()\nfor x in (1, 2\n    print(x)\n")
    assert profile.frameworks.value == ("torch",)
    assert profile.gpu.value is GpuNeed.REQUIRED
    assert profile.parameters.value == 16
    assert "cannot be parsed" in profile.notes[0]


FOLDER = {"parts__nets_py": "import torch\nNet = lambda: torch.nn.Linear(9, 9)\nSIZE = 3\n"}


@pytest.mark.parametrize(
    "code",
    [
        "from parts import nets\nnets.Net()",
        "import parts.nets\nparts.nets.Net()",
        "import parts.nets as n\nn.Net()",
        "from parts.nets import Net\nNet()",
    ],
)
def test_a_folder_without_a_file_of_its_own_is_a_package_all_the_same(code: str) -> None:
    assert read(code, **FOLDER).parameters.value == 90


def test_a_package_whose_own_file_is_empty_is_nothing_to_note() -> None:
    empty = {"parts/__init__.py": ""}
    assert read("from parts import nets\nnets.Net()", **FOLDER, **empty).notes == ()


LONG_TURNS = {
    "an agent's": """
        for _ in range(500):
            states.append(look())
            state, reward, done = env.step(states[-1])
    """,
    "losses of many batches": "loss = sum(judge(look()) for _ in range(500)) / 500",
}


@pytest.mark.parametrize("turns", LONG_TURNS.values(), ids=LONG_TURNS)
def test_turns_that_are_all_alike_leave_room_for_the_rest_of_the_program(turns: str) -> None:
    look = "def look():\n    return [2 * i + 1 for i in range(200)]"
    code = "\n".join(["import torch", look, *[textwrap.dedent(turns)] * 3, "torch.nn.Linear(1, 1).cuda()"])
    profile = read(code)
    assert profile.notes == ()
    assert profile.gpu.value is GpuNeed.REQUIRED
    assert profile.parameters.value == 2
