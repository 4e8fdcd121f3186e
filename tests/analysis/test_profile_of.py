"""From a path to a profile, on the programs of this project."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from crucible.analysis import gather_sources, profile_of
from crucible.core.errors import BadInput
from crucible.core.routing.profile import Entrypoint, GpuNeed
from crucible.templates import get

PROJECT = Path(__file__).parents[2]


def test_an_example_without_a_framework() -> None:
    profile = profile_of(PROJECT / "examples" / "train_digits.py")
    assert profile.frameworks.value == ()
    assert profile.gpu.value is GpuNeed.NONE
    assert profile.epochs.value == 8
    assert profile.entrypoint.value is Entrypoint.SCRIPT
    assert profile.notes == ()


def test_the_template_is_followed_through_all_its_files() -> None:
    train = get("nanogpt").folder / "train.py"
    profile = profile_of(train, ("--preset", "gpu-small"))
    assert profile.frameworks.value == ("torch",)
    assert profile.gpu.value is GpuNeed.OPTIONAL
    assert profile.model.value == "GPT"
    vocabulary = len(set((train.parent / "text.txt").read_text(encoding="utf-8")))
    width, block = 768, 512
    blocks = 12 * (12 * width * width + 4 * width)
    assert profile.parameters.value == blocks + (vocabulary + block) * width + 2 * width
    assert profile.optimizer.value == "AdamW"
    assert profile.batch_size.value == 16
    assert profile.sequence_length.value == block
    assert profile.steps.value == 5000 * 4
    assert profile.checkpointing.value
    assert profile.resume.value
    assert profile.interruptible.value
    assert {line.file for line in profile.parameters.evidence} == {"run.py"}


@pytest.mark.parametrize(
    ("preset", "low", "high"), [("cpu-tiny", 0.4, 0.6), ("gpu-small", 6, 10), ("gpu-large", 20, 60)]
)
def test_its_presets_need_what_they_are_named_for(preset: str, low: float, high: float) -> None:
    found = profile_of(get("nanogpt").folder / "train.py", ("--preset", preset)).gpu_memory_gb.value
    assert found is not None
    assert low < found < high


def test_a_flag_over_the_preset_counts() -> None:
    train = get("nanogpt").folder / "train.py"
    few = profile_of(train, ("--preset", "gpu-small", "--layers", "6"))
    assert few.parameters.value < profile_of(train, ("--preset", "gpu-small")).parameters.value  # type: ignore[operator]


def test_the_command_prints_json(tmp_path: Path) -> None:
    script = tmp_path / "a.py"
    script.write_text("import torch\ntorch.zeros(3).cuda()\n")
    done = subprocess.run(
        [sys.executable, "-m", "crucible.analysis", str(script)], capture_output=True, text=True, check=True
    )
    document = json.loads(done.stdout)
    assert document["gpu"] == "required"
    assert document["evidence"]["gpu"][0] == {"file": "a.py", "line": 2, "text": "torch.zeros(3).cuda()"}


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "crucible.analysis", str(tmp_path / "no.py")], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "not a file" in done.stderr


def test_what_lies_around_is_gathered_and_what_does_not_belong_is_not(tmp_path: Path) -> None:
    for name in ("train.py", "lib/a.py", "conf/x.yaml", ".git/b.py", "node_modules/c.py", "data.bin", "big.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x" * (300_000 if name == "big.json" else 1))
    (tmp_path / "link.py").symlink_to("/etc/hostname")
    assert set(gather_sources(tmp_path / "train.py").files) == {"train.py", "lib/a.py", "conf/x.yaml"}


def test_a_folder_is_no_program(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="not a file"):
        gather_sources(tmp_path)
