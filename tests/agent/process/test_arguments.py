from __future__ import annotations

import pytest

from crucible.agent.process.arguments import expand_arguments

ENV = {
    "CRUCIBLE_OUTPUT_DIR": "/a/outputs",
    "CRUCIBLE_CHECKPOINT_DIR": "/a/checkpoints",
    "CRUCIBLE_DATA_DIR": "/a/data",
    "HOME": "/root",
}


@pytest.mark.parametrize(
    ("word", "expanded"),
    [
        ("{outputs}", "/a/outputs"),
        ("--out_dir={outputs}/first", "--out_dir=/a/outputs/first"),
        ("{checkpoints}:{data}", "/a/checkpoints:/a/data"),
        ("$CRUCIBLE_DATA_DIR/mnist", "/a/data/mnist"),
        ("${CRUCIBLE_DATA_DIR}x", "/a/datax"),
        ("$CRUCIBLE_RESUME_FROM", "$CRUCIBLE_RESUME_FROM"),
        ("$CRUCIBLE_DATA_DIRECTORY", "$CRUCIBLE_DATA_DIRECTORY"),
        ("$HOME {other} {} {python}", "$HOME {other} {} {python}"),
        ('{"data": 1}', '{"data": 1}'),
    ],
)
def test_folders_are_expanded_in_arguments(word: str, expanded: str) -> None:
    assert expand_arguments(("python", "train.py", word), ENV) == ("python", "train.py", expanded)
    assert expand_arguments(["/bin/sh", "-c", word, "sh", word], ENV) == ("/bin/sh", "-c", word, "sh", expanded)


def test_a_command_without_arguments_stays() -> None:
    assert expand_arguments(("{data}",), ENV) == ("{data}",)
    assert expand_arguments(("python", "-c"), ENV) == ("python", "-c")
