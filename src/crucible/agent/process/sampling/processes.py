"""List the machine's processes, and find those that belong together."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

Table = Mapping[int, "ProcessInfo"]

PS_DEADLINE = 5.0


class ProcessInfo(NamedTuple):
    """One process. `start` distinguishes processes with a reused pid; `seconds` is CPU time."""

    pid: int
    ppid: int
    pgid: int
    sid: int
    start: int
    seconds: float
    rss: int
    zombie: bool


def read_table(proc: str = "/proc") -> Table:
    """Return all processes, from `ps` if there is no /proc."""
    if os.path.exists(f"{proc}/self/stat") or os.path.exists(f"{proc}/stat"):
        return _from_proc(proc)
    return parse_ps(_ps())


def tree(table: Table, pids: Iterable[int] = (), pgid: int | None = None) -> list[ProcessInfo]:
    """Return living processes with these pids or in this process group or session, and all their descendants."""
    roots = set(pids)
    chosen = {p.pid for p in table.values() if p.pid in roots or (pgid is not None and pgid in (p.pgid, p.sid))}
    children: dict[int, list[int]] = {}
    for process in table.values():
        children.setdefault(process.ppid, []).append(process.pid)
    waiting = list(chosen)
    while waiting:
        new = [child for child in children.get(waiting.pop(), ()) if child not in chosen]
        chosen.update(new)
        waiting.extend(new)
    return [table[pid] for pid in sorted(chosen) if not table[pid].zombie]


def pids_with_variable(variable: str, proc: str = "/proc") -> list[int]:
    """Return the pids of processes with `variable` (`NAME=value`) in their environment, in any process group."""
    wanted = variable.encode()
    return [pid for pid in _pids(proc) if wanted in _read(f"{proc}/{pid}/environ").split(b"\0")]


def own_start_time(proc: str = "/proc") -> int:
    """Return `start` of the calling process; 0 without /proc, because `ps` does not show it."""
    return start_time_of("self", proc)


def start_time_of(pid: int | str, proc: str = "/proc") -> int:
    """Return `start` of a process; 0 without /proc, and for a process that does not exist."""
    process = parse_stat(_read(f"{proc}/{pid}/stat"))
    return 0 if process is None else process.start


def parse_ps(text: str) -> Table:
    """Parse the output of `ps -axo pid=,ppid=,pgid=,rss=,stat=,time=`, which has no session and no start."""
    rows = (line.split() for line in text.splitlines())
    found = (_ps_row(row) for row in rows if len(row) == 6 and row[0].isdigit())
    return {process.pid: process for process in found}


def _from_proc(proc: str) -> Table:
    found = (parse_stat(_read(f"{proc}/{pid}/stat")) for pid in _pids(proc))
    return {process.pid: process for process in found if process is not None}


def parse_stat(raw: bytes) -> ProcessInfo | None:
    """Parse /proc/PID/stat. The name is in parentheses, and may itself contain parentheses and spaces."""
    end = raw.rfind(b")")
    fields = raw[end + 2 :].split()
    if end < 0 or len(fields) < 22:
        return None
    ticks = int(fields[11]) + int(fields[12])
    return ProcessInfo(
        pid=int(raw[: raw.index(b" ")]),
        ppid=int(fields[1]),
        pgid=int(fields[2]),
        sid=int(fields[3]),
        start=int(fields[19]),
        seconds=ticks / _TICKS,
        rss=int(fields[21]) * _PAGE,
        zombie=fields[0] in (b"Z", b"X"),
    )


def _ps_row(row: list[str]) -> ProcessInfo:
    pid, ppid, pgid, rss = (int(field) for field in row[:4])
    return ProcessInfo(pid, ppid, pgid, pgid, 0, _ps_time(row[5]), rss * 1024, row[4].startswith("Z"))


def _ps_time(text: str) -> float:
    """Parse `[[days-]hours:]minutes:seconds[.hundredths]`."""
    days, _, clock = text.rpartition("-")
    seconds = 0.0
    for part in re.split(":", clock):
        seconds = seconds * 60 + float(part)
    return seconds + int(days or 0) * 86400


def _ps() -> str:
    command = ["ps", "-axo", "pid=,ppid=,pgid=,rss=,stat=,time="]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PS_DEADLINE, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def _pids(proc: str) -> list[int]:
    return [int(name) for name in os.listdir(proc) if name.isdigit()]


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        # It has ended since the listing, or we may not read it.
        return b""


_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
