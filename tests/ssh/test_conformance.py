from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.backends.conformance import BackendConformance
from tests.ssh.harness import SshHarness
from tests.ssh.sshd import Network, SshHost


class TestSsh(BackendConformance):
    """The suite on a real host, with the agent really run."""

    @pytest.fixture
    def harness(self, network: Network, gpu1: SshHost, tmp_path: Path) -> Iterator[SshHarness]:
        made = SshHarness(network, tmp_path, "gpu1")
        yield made
        made.clean()
