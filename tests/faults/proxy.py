"""A connection between two programs that fails on demand: an HTTP proxy in its own process.

with fault_proxy("http://127.0.0.1:8333", Rule(Fault.DROP_ANSWER, 0.2, "POST")) as line:
    ...                       # use line.url instead
    line.rules()              # no more faults
    with line.parted(): ...
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.faults.proxy_rules import Fault, Rule, storm

__all__ = ["Fault", "FaultProxy", "Rule", "fault_proxy", "storm"]

ROOT = Path(__file__).parents[2]
END_SECONDS = 60


class FaultProxy:
    """Controllable from any thread. The proxy ends with the process that started it."""

    def __init__(self, target: str, seed: int = 1, port: int = 0) -> None:
        self._seed = seed
        self._times = 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.proxy_server", target, str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )
        self._lock = threading.Lock()
        self._path = urlsplit(target).path
        self.port = int(self._do("listen"))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self._path}"

    def close(self) -> None:
        for end in (self._process.stdin, self._process.stdout):
            assert end is not None
            end.close()
        self._process.wait(END_SECONDS)

    def rules(self, *rules: Rule) -> None:
        """Replace the rules, with new random numbers."""
        self._times += 1
        told = [{**asdict(rule), "fault": rule.fault.value} for rule in rules]
        self._do("rules", rules=told, seed=f"{self._seed}:{self._times}")

    def aim(self, target: str) -> None:
        """Set the target of new connections."""
        self._do("aim", target=target)

    def throttle(self, rate: float | None) -> None:
        """Limit the bytes per second of each connection and direction."""
        self._do("throttle", rate=rate)

    def cut(self) -> None:
        """Cut all open connections."""
        self._do("cut")

    def cut_after(self, size: int) -> None:
        """Pass this many bytes in both directions together, then cut and count all connections and stop listening."""
        self._do("cut_after", bytes=size)

    @contextmanager
    def parted(self) -> Iterator[None]:
        """Deliver nothing within the block; data in transit arrives later, if its connection is still open."""
        self._do("part", parted=True)
        try:
            yield
        finally:
            self._do("part", parted=False)

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Do not listen within the block."""
        self._do("refuse")
        try:
            yield
        finally:
            self._do("listen")

    def counts(self) -> Counter[str]:
        """How many `connections`, `requests` and `answers` there were, and how many of each fault: `drop_answer`,
        and of those that hit a POST, `drop_answer POST`."""
        return Counter(self._do("counts"))

    def _do(self, name: str, **more: object) -> Any:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        with self._lock:
            stdin.write(json.dumps({"do": name, **more}) + "\n")
            stdin.flush()
            answer = stdout.readline()
        assert answer, "the fault proxy ended by itself"
        return json.loads(answer)


@contextmanager
def fault_proxy(target: str, *rules: Rule, seed: int = 1) -> Iterator[FaultProxy]:
    """Yield a proxy before the target, which may not exist yet."""
    proxy = FaultProxy(target, seed)
    try:
        proxy.rules(*rules)
        yield proxy
    finally:
        proxy.close()
