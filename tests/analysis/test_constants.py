"""What flags, configs and sums come to: seen through the shapes of layers and the settings of a profile."""

from __future__ import annotations

import pytest
from tests.analysis.programs import read

NET = "\nimport torch\nnet = torch.nn.Linear({size}, 10, bias=False)\n"


def width(code: str, *arguments: str, **files: str) -> int | None:
    """The width of a layer built from what the code works out as `n`."""
    parameters = read(code + NET.format(size="n"), *arguments, **files).parameters.value
    return None if parameters is None else parameters // 10


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("n = 3 * 4 + 2 ** 5 // 3 - 1", 21),
        ("n = int(8 * 64 / 3)", 170),
        ("a, (b, c) = 1, (2, 3)\nn = a + b + c", 6),
        ("first, *rest = [1, 2, 3, 4]\nn = sum(rest)", 9),
        ("n = len('hello') if True else 0", 5),
        ("n = {'a': 7}['a'] + {'b': 1}.get('c', 5)", 12),
        ("import math\nn = math.ceil(math.sqrt(50)) * max(2, 3)", 24),
        ("n = 0\nfor i in [1, 2, 3]:\n    n += i", 6),
        ("n = sum(i * i for i in range(5))", 30),
        ("n = [x for x in range(10) if x % 2][-1]", 9),
        (
            (
                "def f(a, b=2, *rest, c=3, **more):\n    return a + b + c + len(rest) + len(more)\n"
                "n = f(1, 5, 6, c=7, d=8)"
            ),
            15,
        ),
        ("n = (lambda a, b=4: a * b)(3)", 12),
        ("def f(k):\n    if k > 2:\n        return 5\n    return 6\nn = f(3)", 5),
        ("config = dict(width=8, depth=2)\ndef f(width, depth): return width * depth\nn = f(**config)", 16),
        ("class C:\n    size = 4\n    def double(self): return self.size * 2\nn = C().double()", 8),
        (
            (
                "class C:\n    def __init__(self, n): self.n = n\n    @property\n"
                "    def twice(self): return 2 * self.n\nn = C(6).twice"
            ),
            12,
        ),
        (
            (
                "class A:\n    def __init__(self, n): self.n = n\nclass B(A):\n    def __init__(self):\n"
                "        super().__init__(9)\nn = B().n"
            ),
            9,
        ),
        ("x = '16,32'\nn = int(x.split(',')[1])", 32),
        ("n = 4\nif (m := n * 2) > 5:\n    n = m", 8),
        ("g = 3\ndef f():\n    global g\n    g = 11\nf()\nn = g", 11),
        ("n = 1_000 if not False and None is None else 2", 1000),
        ("sizes = [4, 5]\nsizes.append(6)\nn = sizes[-1] * sizes[0]", 24),
        ("n = [5] * 3\nn = len(n + [1])", 4),
        ("import os\nn = int(os.environ.get('WIDTH', '12'))", 12),
    ],
)
def test_sums_are_done(code: str, value: int) -> None:
    assert width(code) == value


@pytest.mark.parametrize(
    "code",
    [
        "n = input()",
        "import os\nn = int(os.environ['N'])",
        "n = 10 ** 10 ** 10",
        "n = unknown + 1",
        "n = 'a' * 10 ** 12",
        "n = 1 << 10 ** 9",
    ],
)
def test_what_cannot_be_known_stays_unknown(code: str) -> None:
    assert width(code) is None


ARGPARSE = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--hidden-size", "-w", type=int, default=8)
parser.add_argument("--double", action="store_true")
group = parser.add_argument_group("more")
group.add_argument("--extra", type=int, default=1, dest="more")
args = parser.parse_args()
n = args.hidden_size * (2 if args.double else 1) + args.more - 1
"""


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        ((), 8),
        (("--hidden-size", "32"), 32),
        (("--hidden-size=16", "--double"), 32),
        (("--double", "--extra", "5"), 20),
        (("-w", "7"), 7),
    ],
)
def test_argparse_takes_the_command_line_over_the_defaults(arguments: tuple[str, ...], value: int) -> None:
    assert width(ARGPARSE, *arguments) == value


def test_argparse_defaults_can_be_set_later_and_positionals_are_read() -> None:
    code = (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('n', type=int)\n"
        "p.add_argument('--k', type=int)\np.set_defaults(k=3)\na = p.parse_args()\n"
        "n = a.n * a.k\n"
    )
    assert width(code, "5") == 15


def test_a_flag_that_must_be_given_and_is_not_is_unknown() -> None:
    assert (
        width(
            "import argparse\np = argparse.ArgumentParser()\np.add_argument('--n', required=True)\nn = p.parse_args().n"
        )
        is None
    )


def test_click_options() -> None:
    code = """
    import click
    import torch

    @click.command()
    @click.option("--size", default=8, type=int)
    @click.option("--big", is_flag=True)
    def main(size, big):
        net = torch.nn.Linear(size * (10 if big else 1), 1, bias=False)

    if __name__ == "__main__":
        main()
    """
    assert read(code).parameters.value == 8
    assert read(code, "--size", "5", "--big").parameters.value == 50


def test_typer_commands() -> None:
    code = """
    import torch
    import typer
    app = typer.Typer()

    @app.command()
    def main(size: int = typer.Option(8), depth: int = 2):
        net = torch.nn.Linear(size, depth, bias=False)

    if __name__ == "__main__":
        app()
    """
    assert read(code).parameters.value == 16
    assert read(code, "--size", "4").parameters.value == 8
    assert read(code.replace("app()", "typer.run(main)"), "--depth=3").parameters.value == 24


def test_absl_flags() -> None:
    code = """
    from absl import app, flags
    import torch
    FLAGS = flags.FLAGS
    flags.DEFINE_integer("size", 8, "width")

    def main(argv):
        net = torch.nn.Linear(FLAGS.size, 1, bias=False)

    app.run(main)
    """
    assert read(code).parameters.value == 8
    assert read(code, "--size=6").parameters.value == 6


def test_dataclasses_and_their_parsers() -> None:
    code = """
    from dataclasses import dataclass, field
    import torch
    import tyro

    @dataclass
    class Args:
        width: int = 8
        sizes: list = field(default_factory=lambda: [3, 4])
        depth: int = field(default=2)

    args = tyro.cli(Args)
    net = torch.nn.Linear(args.width, args.sizes[1] * args.depth, bias=False)
    """
    assert read(code).parameters.value == 64
    assert read(code, "--width", "2").parameters.value == 16


def test_dataclasses_copied_changed_and_as_dicts() -> None:
    code = (
        "from dataclasses import dataclass, asdict, replace\n@dataclass(frozen=True)\nclass C:\n"
        "    a: int = 1\n    b: int = 2\n"
    )
    assert width(code + "n = asdict(replace(C(), b=5))['b'] + C(4).a") == 9


FROM_A_FILE = """
import yaml
from dataclasses import dataclass
@dataclass
class C:
    a: int = 1
    b: int = 2
def f(a=1, b=2):
    return b
settings = yaml.safe_load(open("settings.yaml"))
"""


@pytest.mark.parametrize("call", ["C(**settings).b", "f(**settings)"])
def test_what_a_file_may_say_is_not_what_stands_in_its_place(call: str) -> None:
    assert width(f"{FROM_A_FILE}n = {call}", settings_yaml="b: 24\n") == 24
    assert not width(f"{FROM_A_FILE}n = {call}")
    assert width(f"{FROM_A_FILE}n = {call.replace('(', '(b=7, ')}") == 7


def test_attributes_are_given_by_name_as_a_dict_is() -> None:
    assert width("from omegaconf import OmegaConf\ndef f(b=2): return b\nn = f(**OmegaConf.create({'b': 9}))") == 9


def test_a_yaml_file_beside_the_program() -> None:
    code = "import yaml\nwith open('config.yaml') as f:\n    config = yaml.safe_load(f)\nn = config['model']['width']"
    assert width(code, config_yaml="model:\n  width: 24\n") == 24


def test_a_json_file_beside_the_program() -> None:
    code = "import json\nn = json.load(open('c.json'))['n']"
    assert width(code, **{"c.json": '{"n": 12}'}) == 12


def test_hydra_reads_its_config_and_overrides() -> None:
    code = """
    import hydra
    import torch

    @hydra.main(config_path="conf", config_name="config")
    def main(cfg):
        net = torch.nn.Linear(cfg.model.width, 1, bias=False)

    if __name__ == "__main__":
        main()
    """
    conf = "model:\n  width: 24\n"
    assert read(code, conf__config_yaml=conf).parameters.value == 24
    assert read(code, "model.width=5", conf__config_yaml=conf).parameters.value == 5


CONFIGURATOR = """
import sys
from ast import literal_eval
for arg in sys.argv[1:]:
    if '=' not in arg:
        exec(open(arg).read())
    else:
        key, val = arg.split('=')
        key = key[2:]
        if key in globals():
            globals()[key] = literal_eval(val)
"""


def test_globals_with_defaults_and_a_configurator() -> None:
    code = "n = 8\nexec(open('configurator.py').read())\n"
    assert width(code, configurator_py=CONFIGURATOR) == 8
    assert width(code, "--n=32", configurator_py=CONFIGURATOR) == 32
    assert width(code, "small.py", configurator_py=CONFIGURATOR, small_py="n = 4") == 4


def test_a_configurator_that_is_not_there_is_taken_at_its_habit() -> None:
    assert width("n = 8\nexec(open('configurator.py').read())\n", "--n=32") == 32


def test_training_arguments_of_a_parser_have_their_defaults_and_the_command_line() -> None:
    code = """
    from dataclasses import dataclass
    from transformers import AutoModel, HfArgumentParser, TrainingArguments

    @dataclass
    class Own:
        model: str = "gpt2"

    own, args = HfArgumentParser((Own, TrainingArguments)).parse_args_into_dataclasses()
    AutoModel.from_pretrained(own.model)
    """
    profile = read(code)
    assert profile.batch_size.value == 8
    assert profile.epochs.value == 3
    assert profile.model.value == "gpt2"
    assert profile.checkpointing.value
    given = read(code, "--per_device_train_batch_size", "4", "--num_train_epochs", "7", "--model", "distilgpt2")
    assert (given.batch_size.value, given.epochs.value, given.model.value) == (4, 7, "distilgpt2")


def test_a_parser_may_have_other_defaults_for_training_arguments() -> None:
    code = """
    from transformers import HfArgumentParser, TrainingArguments
    parser = HfArgumentParser(TrainingArguments)
    parser.set_defaults(per_device_train_batch_size=32, num_train_epochs=5)
    args, = parser.parse_args_into_dataclasses()
    """
    assert (read(code).batch_size.value, read(code).epochs.value) == (32, 5)
    assert read(code, "--num_train_epochs", "7").epochs.value == 7


def test_training_arguments() -> None:
    profile = read(
        "from transformers import TrainingArguments\n"
        "TrainingArguments('out', per_device_train_batch_size=4, num_train_epochs=2)"
    )
    assert profile.batch_size.value == 4
    assert profile.epochs.value == 2


def test_part_of_a_config_is_spread_over_the_arguments_of_a_class() -> None:
    code = """
    import hydra, torch
    from dataclasses import dataclass

    @dataclass
    class Sizes:
        width: int = 1
        depth: int = 1

    @hydra.main(version_base=None, config_path=".", config_name="sizes")
    def main(cfg):
        sizes = Sizes(**cfg["net"])
        torch.nn.Linear(sizes.width, sizes.depth, bias=False)

    main()
    """
    assert read(code, sizes_yaml="net:\n  width: 512\n  depth: 8\n").parameters.value == 512 * 8


@pytest.mark.parametrize(
    ("test", "units"),
    [("x.is_cuda and n > 1", 3), ("x.is_cuda or n == 1", 30), ("n > 1 and x.is_cuda", 3), ("len(x) and not n", 3)],
)
def test_what_is_unknown_does_not_matter_where_the_rest_decides(test: str, units: int) -> None:
    code = f"import torch\nx, n, u = open('f').read(), 1, 3\nif {test}:\n    u = 30\ntorch.nn.Linear(1, u, bias=False)"
    assert read(code).parameters.value == units
