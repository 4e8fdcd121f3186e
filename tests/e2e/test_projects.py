"""`crucible run train.py` in a clone: the job finds what the program finds there, unchanged."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tests.e2e.terminal import Terminal

TRAIN = """\
import os, pickle, sys
from model import GPT

out_dir = 'out'
dataset = 'openwebtext'
max_iters = 5
config_keys = [k for k, v in globals().items() if not k.startswith('_') and isinstance(v, (int, float, bool, str))]
exec(open('configurator.py').read())
config = {k: globals()[k] for k in config_keys}
os.makedirs(out_dir, exist_ok=True)
data_dir = os.path.join('data', dataset)

def get_batch(split):
    with open(os.path.join(data_dir, 'train.bin' if split == 'train' else 'val.bin'), 'rb') as data:
        return data.read()

meta_path = os.path.join(data_dir, 'meta.pkl')
with open(meta_path, 'rb') as f:
    vocab_size = pickle.load(f)['vocab_size']
print(GPT(vocab_size), get_batch('train'), get_batch('val'), max_iters, sorted(os.listdir('data')))
"""
MODEL = "def GPT(size):\n    return f'GPT of {size}'\n"
CONFIGURATOR = """\
import sys
from ast import literal_eval
for arg in sys.argv[1:]:
    if '=' not in arg:
        assert not arg.startswith('--')
        config_file = arg
        with open(config_file) as f:
            print('Overriding config with', config_file)
        exec(open(config_file).read())
    else:
        key, val = arg.split('=')
        globals()[key[2:]] = literal_eval(val)
"""
EXPECTED = "Overriding config with config/char.py\nGPT of 65 b'train' b'val' 7 ['char', 'readme.md']\n"


@pytest.fixture(scope="module")
def clone(terminal: Terminal) -> Path:
    """A git clone of a program like nanoGPT; its data, made by a prepare.py, is ignored by git."""
    origin, clone = terminal.folder / "origin", terminal.folder / "clone"
    files = {
        "train.py": TRAIN,
        "model.py": MODEL,
        "configurator.py": CONFIGURATOR,
        "config/char.py": "out_dir = 'out-char'\ndataset = 'char'\n",
        "data/readme.md": "Made by prepare.py.",
        ".gitignore": "*.bin\n*.pkl\n__pycache__/\n",
    }
    for name, text in files.items():
        (origin / name).parent.mkdir(parents=True, exist_ok=True)
        (origin / name).write_text(text)
    who = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    for words in (("init", "-q"), ("add", "."), (*who, "commit", "-qm", "first")):
        subprocess.run(["git", *words], cwd=origin, check=True)
    subprocess.run(["git", "clone", "-q", str(origin), str(clone)], check=True)
    data = clone / "data" / "char"
    data.mkdir()
    (data / "train.bin").write_bytes(b"train")
    (data / "val.bin").write_bytes(b"val")
    (data / "meta.pkl").write_bytes(b"\x80\x03}q\x00X\n\x00\x00\x00vocab_sizeq\x01KAs.")
    (clone / ".env").write_text("TOKEN=1")
    return clone


def test_a_clone_runs_with_the_ignored_data_that_its_config_names(terminal: Terminal, clone: Path) -> None:
    done = terminal.run("run", "train.py", "config/char.py", "--", "--max_iters=7", cwd=clone)
    assert (done.returncode, done.stdout) == (0, EXPECTED), done.stderr
    assert "Note: .env is not sent: it looks like a secret." in done.stderr
    assert f"the git work tree {clone}, and what it names: " in done.stderr


def test_a_dry_run_lists_each_file(terminal: Terminal, clone: Path) -> None:
    done = terminal.run("run", "train.py", "config/char.py", "--dry-run", "--json", cwd=clone)
    found = json.loads(done.stdout)
    assert {"name": "data/char/train.bin", "size": 5} in found["files"]
    assert ".env" not in {file["name"] for file in found["files"]}
    assert len(found["left_out"]) == 1


def test_it_starts_where_the_user_stands(terminal: Terminal, clone: Path) -> None:
    (clone / "tools").mkdir()
    (clone / "tools" / "show.py").write_text("import os, sys\nprint(os.getcwd().rsplit('/', 1)[1], *sys.argv)\n")
    done = terminal.run("run", "show.py", "--", "x", cwd=clone / "tools")
    assert (done.returncode, done.stdout) == (0, "tools show.py x\n"), done.stderr
    done = terminal.run("run", "tools/show.py", cwd=clone)
    assert (done.returncode, done.stdout) == (0, "work tools/show.py\n"), done.stderr


def test_folders_of_the_job_are_expanded_in_its_arguments(terminal: Terminal) -> None:
    terminal.write(show="import os, sys\nprint([word == os.environ['CRUCIBLE_OUTPUT_DIR'] for word in sys.argv[1:]])\n")
    done = terminal.run("run", "show.py", "--", "{outputs}", "$CRUCIBLE_OUTPUT_DIR", "{data}")
    assert (done.returncode, done.stdout) == (0, "[True, True, False]\n"), done.stderr


def test_a_missing_file_ends_with_the_command_that_sends_it(terminal: Terminal, clone: Path) -> None:
    (clone / "hidden.bin").write_text("x")
    (clone / "read.py").write_text("import sys\nopen(''.join(['hid', 'den.bin']))\n")
    done = terminal.run("run", "read.py", cwd=clone)
    assert done.returncode == 1
    assert "Send it: crucible run read.py --include hidden.bin" in done.stderr
    assert terminal.run("run", "read.py", "--include", "hidden.bin", cwd=clone).returncode == 0
