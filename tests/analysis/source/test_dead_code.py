"""What a training program defines and never names cannot run, so it says nothing about what the program needs."""

from __future__ import annotations

import pytest
from tests.analysis.programs import LOOP, read

from crucible.core.routing.profile import GpuNeed

TRAINS = """
import torch
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(8, 4)
"""
MOVES = """
def fast(net):
    return net.cuda()
"""


def need(code: str, **files: str) -> GpuNeed | None:
    return read(code, **files).gpu.value


def test_what_nothing_names_is_no_evidence_beside_a_training() -> None:
    assert need(TRAINS + LOOP) is GpuNeed.NONE
    assert need(MOVES + TRAINS + LOOP) is GpuNeed.NONE


def test_nor_is_what_only_such_code_names() -> None:
    assert need(MOVES + "def faster(net):\n    return fast(net)\n" + TRAINS + LOOP) is GpuNeed.NONE


@pytest.mark.parametrize(
    "use",
    [
        "hooks = [fast]",
        "class Mover:\n    def move(self):\n        fast(model)\nmover = Mover()",
        "chosen = 'fast'",
        "import sys\nchosen = getattr(sys.modules[__name__], 'fa' + 'st')",
        "chosen = globals()['fa' + 'st']",
        "chosen = eval('fa' + 'st')",
        "import fire\nfire.Fire()",
    ],
)
def test_what_may_be_used_is_looked_at(use: str) -> None:
    assert need(f"{MOVES}{TRAINS}{use}\n{LOOP}") is GpuNeed.REQUIRED


def test_a_switch_of_a_model_is_not_the_function_of_its_name() -> None:
    assert need(f"{MOVES}{TRAINS}model.eval()\n{LOOP}") is GpuNeed.NONE


def test_what_is_registered_as_it_is_defined_is_looked_at() -> None:
    registered = "KNOWN = []\ndef known(made):\n    KNOWN.append(made)\n    return made\n@known" + MOVES
    assert need(registered + TRAINS + LOOP) is GpuNeed.REQUIRED


def test_a_file_may_be_asked_for_what_it_has_by_any_name() -> None:
    asked = "import moves\n" + TRAINS + "chosen = getattr(moves, 'fa' + 'st')\n" + LOOP
    assert need(asked, moves_py=MOVES) is GpuNeed.REQUIRED
    assert need("import moves\n" + TRAINS + LOOP, moves_py=MOVES) is GpuNeed.NONE


def test_methods_that_a_framework_calls_are_looked_at() -> None:
    watched = "class Watch:\n    def on_epoch_end(self):\n        model.cuda()\nwatch = Watch()\n"
    assert need(TRAINS + watched + LOOP) is GpuNeed.REQUIRED


def test_a_program_that_is_still_being_written_is_looked_at_as_a_whole() -> None:
    assert need(MOVES + TRAINS) is GpuNeed.REQUIRED


def test_of_very_much_that_nobody_calls_what_speaks_of_a_gpu_is_looked_at_all_the_same() -> None:
    layers = "\n".join(f"        self.layer{n} = torch.nn.Linear({n} + 1, 2 * {n} + 2)" for n in range(60))
    network = "class Net{}(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n" + layers
    every = "import torch\n" + "\n".join(network.format(n) for n in range(20))
    assert need(every) is GpuNeed.NONE
    assert need(every + MOVES) is GpuNeed.REQUIRED


@pytest.mark.parametrize(
    "files", [{"c_yaml": "made: {_target_: train.fast}"}, {"other_py": "import train\ntrain.fast()"}]
)
def test_what_settings_or_other_programs_name_is_looked_at(files: dict[str, str]) -> None:
    assert need(MOVES + TRAINS + LOOP, **files) is GpuNeed.REQUIRED
