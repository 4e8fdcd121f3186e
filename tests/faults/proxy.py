"""A line between two programs that goes wrong on demand: an HTTP proxy in a process of its own.

with fault_proxy("http://127.0.0.1:8333", Rule(Fault.DROP_ANSWER, 0.2, "POST")) as line:
    ...                       # use line.url instead
    line.rules()              # all is well again
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
    """May be told what to do from any thread. Ends with the process that made it, however that ends."""

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
        """These from now on, and no others; with luck that they did not have before."""
        self._times += 1
        told = [{**asdict(rule), "fault": rule.fault.value} for rule in rules]
        self._do("rules", rules=told, seed=f"{self._seed}:{self._times}")

    def aim(self, target: str) -> None:
        """Where new connections lead."""
        self._do("aim", target=target)

    def throttle(self, rate: float | None) -> None:
        """Bytes a second of each connection and direction."""
        self._do("throttle", rate=rate)

    def cut(self) -> None:
        """Every connection that is open now."""
        self._do("cut")

    def cut_after(self, size: int) -> None:
        """So many bytes of both directions together; then all are cut, which `counts` says, and nobody listens."""
        self._do("cut_after", bytes=size)

    @contextmanager
    def parted(self) -> Iterator[None]:
        """Meanwhile nothing arrives; what was on its way arrives later, where somebody still waits for it."""
        self._do("part", parted=True)
        try:
            yield
        finally:
            self._do("part", parted=False)

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Meanwhile nobody listens."""
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
    """A proxy before the target, which need not be there yet."""
    proxy = FaultProxy(target, seed)
    try:
        proxy.rules(*rules)
        yield proxy
    finally:
        proxy.close()
