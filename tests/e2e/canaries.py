"""Canaries: values that may stand in a job's environment and nowhere else, and a program that lets each of them out.

Each has a core of letters and digits that no encoding of text changes, so that a trace of it is found without
knowing how it got there.
"""

from __future__ import annotations

import base64
import random
import string
from dataclasses import dataclass

COUNT = 25
NAMED = (20, 23)
"""Those whose values become names of a metric and of a file."""

PROGRAM = r"""
import base64, html, json, logging, os, pathlib, subprocess, sys, threading, time, urllib.parse, warnings
import crucible

values = {n: os.environ[f"CANARY_{n:02d}"] for n in range(1, 26)}
out = sys.stdout


def way(n, text, end="\n"):
    out.write(f"way {n:02d}: {text}{end}")
    out.flush()


way(1, values[1])
print("way 02:", values[2], file=sys.stderr, flush=True)
way(3, base64.b64encode(values[3].encode()).decode())
way(4, "Basic " + base64.b64encode(b"user:" + values[4].encode()).decode())
way(5, base64.urlsafe_b64encode(b"a" + values[5].encode() + b"zz").decode())
way(6, values[6].encode().hex())
way(7, values[7].encode().hex().upper())
way(8, "https://example.org/?key=" + urllib.parse.quote(values[8], safe=""))
way(9, json.dumps({"key": values[9]}))
way(10, json.dumps({"inner": json.dumps({"key": values[10]})}))
way(11, repr({"key": values[11]}))
way(12, repr(values[12].encode()))
way(13, html.escape(values[13]))
for letter in "way 14: " + values[14] + "\n":
    out.write(letter)
    out.flush()
half = len(values[15]) // 2
way(15, values[15][:half], end="")
time.sleep(0.6)
out.write(values[15][half:] + "\n")
out.flush()
warnings.warn("way 16: " + values[16])
logging.basicConfig(level=logging.DEBUG)
logging.getLogger("way 17").error("%s", values[17])


def fail():
    raise KeyError("way 18", values[18])


thread = threading.Thread(target=fail)
thread.start()
thread.join()
child = "import os; raise ValueError('way 19', os.environ['CANARY_19'])"
subprocess.run([sys.executable, "-c", child])
crucible.report(step=1, **{"loss": 0.5, values[20]: 1.0})
way(20, "reported")
for step in range(3):
    out.write(f"\rway 21: {values[21]} {step}/3")
    out.flush()
out.write("\n")
way(22, "x" * 65500 + values[22])
folder = pathlib.Path(os.environ["CRUCIBLE_OUTPUT_DIR"])
(folder / f"{values[23]}.txt").write_text("named")
(folder / "own.txt").write_text(values[1])
way(23, "written")
way(24, base64.encodebytes(values[24].encode() * 1).decode())
(folder / "ready").touch()
gate = pathlib.Path(os.environ["GATE"])
while not gate.exists():
    time.sleep(0.05)
raise RuntimeError("way 25: " + values[25])
"""


@dataclass(frozen=True)
class Canary:
    number: int
    core: str
    value: str

    @property
    def variable(self) -> str:
        return f"CANARY_{self.number:02d}"

    def traces_in(self, text: bytes) -> list[str]:
        """The forms of its core that stand in the text."""
        return [name for name, form in self._forms().items() if form in text]

    def _forms(self) -> dict[str, bytes]:
        core = self.core.encode()
        shifted = {f"base64+{n}": base64.b64encode(b"\0" * n + core)[4:-4] for n in range(3)}
        return {"raw": core, "hex": core.hex().encode(), "HEX": core.hex().upper().encode(), **shifted}


def make_canaries(seed: int) -> list[Canary]:
    dice = random.Random(seed)
    return [_canary(n, "".join(dice.choices(string.ascii_letters + string.digits, k=24))) for n in range(1, COUNT + 1)]


def _canary(number: int, core: str) -> Canary:
    value = core if number in NAMED else f"/{core}+é'\"\\ <&>={core[::-1]}%"
    return Canary(number, core, value * 3 if number == 24 else value)
