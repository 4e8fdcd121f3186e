from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.ssh import sshd
from tests.ssh.harness import SshHarness
from tests.ssh.sshd import Network, SshHost


@pytest.fixture(scope="session", autouse=True)
def name_spaces() -> None:
    """Skip the suite where no hosts can be made."""
    why = sshd.why_not()
    if why:
        pytest.skip(why)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """A network without hosts, for all tests of a file."""
    with sshd.network(tmp_path_factory.mktemp("ssh")) as made:
        yield made


@pytest.fixture(scope="module")
def gpu1(network: Network) -> SshHost:
    """A host like many, for all tests of a file."""
    return network.add("gpu1")


@pytest.fixture
def harness(network: Network, gpu1: SshHost, tmp_path: Path) -> Iterator[SshHarness]:
    """The backend with the host `gpu1`."""
    made = SshHarness(network, tmp_path, "gpu1")
    yield made
    made.clean()
