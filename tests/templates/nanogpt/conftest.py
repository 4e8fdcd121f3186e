from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.templates.nanogpt.torch_fork_server import TorchForkServer
from tests.templates.nanogpt.trainer import SECONDS, Trainer, environment
from tests.templates.torch_environment import only_one, tensorboard_path, torch_python

from crucible.templates import copy_to

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test may have to wait until torch is installed."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(1500))


@pytest.fixture(scope="session")
def python() -> Path:
    return torch_python()


@pytest.fixture(scope="session")
def with_tensorboard(python: Path) -> Path:
    return tensorboard_path(python)


@pytest.fixture(scope="session")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the template, as a user or a job has it."""
    folder = tmp_path_factory.mktemp("nanogpt")
    copy_to("nanogpt", folder)
    return folder


@pytest.fixture(scope="session")
def torch_fork_server(python: Path, code: Path) -> Iterator[TorchForkServer]:
    made = TorchForkServer(python, code, environment(), SECONDS)
    yield made
    made.close()


@pytest.fixture
def trainer(python: Path, code: Path, tmp_path: Path, torch_fork_server: TorchForkServer) -> Trainer:
    return Trainer(python, code, tmp_path, torch_fork_server)


@pytest.fixture(scope="session")
def uninterrupted(
    python: Path, code: Path, torch_fork_server: TorchForkServer, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The folder of a run off the platform that nothing disturbed: its outputs/ and checkpoints/.

    The workers of one session share it.
    """
    ours = tmp_path_factory.getbasetemp()
    shared = ours.parent if "PYTEST_XDIST_WORKER" in os.environ else ours
    folder = shared / "uninterrupted"
    with only_one(folder) as missing:
        if missing:
            folder.mkdir()
            done = Trainer(python, code, folder, torch_fork_server).plainly("--checkpoint-every", "20", "--keep", "0")
            assert done.code == 0, done
            (folder / ".complete").touch()
    return folder
