"""What a program names is sent although git ignores it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.client.payload.conftest import Ask, Git, names

from crucible.client.payload import make_payload
from crucible.client.payload.opened import find_opened

TRAIN = """\
import os, pickle
import numpy as np
import torch
from model import GPT

out_dir = 'out'
dataset = 'openwebtext'
init_from = 'scratch'
config_keys = [k for k, v in globals().items() if not k.startswith('_')]
exec(open('configurator.py').read())  # overrides from the command line or a config file
data_dir = os.path.join('data', dataset)
os.makedirs(out_dir, exist_ok=True)

def get_batch(split):
    if split == 'train':
        return np.memmap(os.path.join(data_dir, 'train.bin'), dtype=np.uint16, mode='r')
    return np.memmap(os.path.join(data_dir, 'val.bin'), dtype=np.uint16, mode='r')

meta_path = os.path.join(data_dir, 'meta.pkl')
if os.path.exists(meta_path):
    with open(meta_path, 'rb') as f:
        meta = pickle.load(f)
if init_from == 'resume':
    checkpoint = torch.load(os.path.join(out_dir, 'ckpt.pt'))
torch.save({}, os.path.join(out_dir, 'ckpt.pt'))
"""
CONFIGURATOR = """\
import sys
from ast import literal_eval
for arg in sys.argv[1:]:
    if '=' not in arg:
        exec(open(arg).read())
    else:
        key, val = arg.split('=')
        globals()[key[2:]] = literal_eval(val)
"""


VAL = ["data/char/val.bin"]
ALL = ["data/char/meta.pkl", "data/char/train.bin", *VAL]


def write(folder: Path, name: str, text: str = "x") -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def gpt(folder: Path, git: Git) -> Path:
    """A clone of a project like nanoGPT, with data that git ignores."""
    write(folder, "train.py", TRAIN)
    write(folder, "configurator.py", CONFIGURATOR)
    write(folder, "model.py", "class GPT: ...")
    write(folder, "config/char.py", "out_dir = 'out-char'\ndataset = 'char'\n")
    write(folder, "data/char/prepare.py")
    write(folder, ".gitignore", "*.bin\n*.pkl\n*.pt\n")
    git("init", "-q")
    git("add", ".")
    for name in ("char", "openwebtext"):
        for file in ("train.bin", "val.bin", "meta.pkl"):
            write(folder, f"data/{name}/{file}")
    write(folder, "out/ckpt.pt")
    write(folder, "out-char/ckpt.pt")
    return folder


def ignored(payload: object) -> list[str]:
    return [name for name in names(payload) if name.endswith((".bin", ".pkl", ".pt"))]


def test_the_data_folder_named_by_a_config_file_is_sent(gpt: Path, ask: Ask) -> None:
    payload = make_payload("train.py", ask(arguments=("config/char.py",)))
    assert ignored(payload) == ["data/char/meta.pkl", "data/char/train.bin", "data/char/val.bin"]
    assert payload.sent == f"the git work tree {gpt}, and what it names: {', '.join(ignored(payload))}"
    assert payload.left_out == ()


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ((), ["data/openwebtext/meta.pkl", "data/openwebtext/train.bin", "data/openwebtext/val.bin"]),
        (("--dataset=char",), ["data/char/meta.pkl", "data/char/train.bin", "data/char/val.bin"]),
        (("config/char.py", "--dataset=none"), []),
        (("--dataset=none", "--init_from=resume"), ["out/ckpt.pt"]),
    ],
)
def test_settings_on_the_command_line_override(
    gpt: Path, ask: Ask, arguments: tuple[str, ...], found: list[str]
) -> None:
    assert ignored(make_payload("train.py", ask(arguments=arguments))) == found


def test_data_that_does_not_fit_is_listed_with_the_option_that_sends_it(gpt: Path, ask: Ask) -> None:
    write(gpt, "data/char/train.bin", "x" * 10_000)
    payload = make_payload("train.py", ask(arguments=("config/char.py",), limit=9000))
    assert "data/char/train.bin" not in names(payload)
    (note,) = payload.left_out
    assert "--data" in note
    assert str(gpt / "data/char/train.bin") in note


def test_an_ignored_configurator_is_sent(gpt: Path, ask: Ask, git: Git) -> None:
    write(gpt, ".gitignore", "*.bin\n*.pkl\n*.pt\nconfigurator.py\nconfig/\n")
    git("rm", "-rq", "--cached", "configurator.py", "config")
    payload = make_payload("train.py", ask(arguments=("config/char.py",)))
    assert {"configurator.py", "config/char.py"} <= set(names(payload))


@pytest.mark.parametrize(
    ("code", "arguments", "found"),
    [
        ("open('a.bin')", (), ["a.bin"]),
        ("from pathlib import Path\nD = Path('data')\nopen(D / 'char' / 'val.bin')", (), VAL),
        ("name = 'char'\nopen(f'data/{name}/val.bin')", (), VAL),
        ("open('data/' + 'char' + '/val.bin')", (), VAL),
        ("open('data/%s/val.bin' % 'char')", (), VAL),
        ("open('data/{}/val.bin'.format('char'))", (), VAL),
        ("import os\nopen(os.path.join(os.path.dirname(__file__), 'a.bin'))", (), ["a.bin"]),
        ("import glob\nfor f in glob.glob('data/char/*.bin'): open(f)", (), ALL[1:]),
        ("p.add_argument('--data', default='data/char')", (), ALL),
        (
            "p.add_argument('--file', default='x')\na = p.parse_args()\nopen('data/char/' + a.file)",
            ("--file", "val.bin"),
            VAL,
        ),
        ("def main(args):\n  open(args.file)\np.add_argument('file')", ("a.bin",), ["a.bin"]),
        ("def load(name):\n  return open('data/char/' + name)", (), ALL),
        ("from settings import NAME\nopen(NAME)", (), ["a.bin"]),
        ("open('a.bin', 'wb')", (), []),
        ("out_path = 'a.bin'\ntorch.save(1, out_path)", (), []),
        ("'''a.bin'''\nprint('a.bin')", (), []),
        ("import os\nos.listdir('.')", (), []),
        ("x = 1", ("--data", "a.bin"), ["a.bin"]),
        ("x = 1", ("--output-dir=data/char",), []),
        ("x = 1", ("--config", "c.yaml"), VAL),
        ("open('a.bin'", (), []),
    ],
)
def test_what_code_and_arguments_name(
    gpt: Path, ask: Ask, code: str, arguments: tuple[str, ...], found: list[str]
) -> None:
    write(gpt, "a.bin")
    write(gpt, "settings.py", "NAME = 'a.bin'")
    write(gpt, "c.yaml", "data:\n  - val: data/char/val.bin\noutput: data/char/train.bin\n")
    write(gpt, "first.py", code)
    assert ignored(make_payload("first.py", ask(arguments=arguments))) == found


def test_a_home_folder_gives_only_what_is_named(folder: Path, ask: Ask) -> None:
    write(folder, "train.py", "open('notes.txt')\nimport os\nos.listdir('.')\nopen('.env')")
    write(folder, "notes.txt")
    write(folder, "other.txt")
    write(folder, ".env")
    payload = make_payload("train.py", ask(home=folder))
    assert names(payload) == ["notes.txt", "train.py"]
    assert ".env is not sent" in payload.left_out[0]


def test_a_secret_that_an_argument_names_is_sent(gpt: Path, ask: Ask) -> None:
    write(gpt, ".env")
    assert ".env" in names(make_payload("train.py", ask(arguments=("--env-file", ".env"))))


def test_what_lies_outside_is_listed(gpt: Path, ask: Ask) -> None:
    outside = gpt.parent / "outside.bin"
    outside.write_text("x")
    payload = make_payload("train.py", ask(arguments=("../outside.bin", "--dataset=none")))
    assert payload.left_out == (
        f"../outside.bin is outside {gpt} and is not sent. --data {outside} passes it, as"
        " $CRUCIBLE_DATA_DIR/outside.bin.",
    )


def test_an_argument_that_is_only_where_the_user_stands_is_listed(gpt: Path, ask: Ask) -> None:
    payload = make_payload("project/train.py", ask(standing=gpt.parent, arguments=("project/config/char.py",)))
    assert "exists where you stand" in payload.left_out[0]


@pytest.mark.parametrize(
    "code",
    [
        "a = 'x' * 10**9\nopen(a)",
        "a = 'xxxxxxxx'\n" + "a = a + a\n" * 100 + "open(a)",
        "open('%999999999d' % 1)",
        "open('{:>999999999}'.format('x'))",
        "t = (1,)\n" + "t = (t, t)\n" * 100 + "open(f'{t}')",
        "open(" + "(" * 80 + "'a'" + ")" * 80 + ")",
        "open(" + "'a' + " * 5000 + "'a')",
        "def f():\n  def g():\n    " + "def h(): pass\n    " * 50,
        "exec(open('first.py').read())",
        "open('a\\0b')",
        "open('x' * -1)\nopen(b'x')\nopen(3)",
        "import first",
        "z = " + " + ".join(["y"] * 900),
        "z = " + " / ".join(["y"] * 900),
        "\n".join(f"open('a{number}')" for number in range(20_000)),
    ],
)
def test_hostile_code_is_read_in_bounded_time(gpt: Path, code: str) -> None:
    write(gpt, "first.py", code)
    find_opened(gpt / "first.py", code, (), gpt)
