"""A stand-in for the agent: keeps its locks and files, talks to nobody. Standard library only.

`fake_agent.py host --bootstrap FILE` is the host. A file `mode` beside this one makes it misbehave:
broken (ends with an error), silent (never comes up), deaf (ignores TERM).
`fake_agent.py runner FOLDER [deaf]` is a runner with a user's process, which has a child.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

WAIT = "signal.pause()"


def start_time(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def write(path, doc):
    part = path.with_suffix(".part")
    part.write_text(json.dumps(doc))
    part.replace(path)


def lock(path):
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(0)


def host(bootstrap):
    mode_file = Path(__file__).with_name("mode")
    mode = mode_file.read_text() if mode_file.exists() else ""
    if mode == "broken":
        sys.exit("the agent is broken")
    if mode == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if mode == "silent":
        signal.pause()
    told = json.loads(Path(bootstrap).read_text())
    work = Path(told["work"])
    lock(work / "host.lock")
    (work / "environ.json").write_text(json.dumps(dict(os.environ)))
    (work / "fds.json").write_text(json.dumps([os.readlink(f"/proc/self/fd/{n}") for n in (0, 1, 2)]))
    write(
        work / "host.json",
        {"pid": os.getpid(), "start_time": start_time(os.getpid()), "native_id": told["native_id"]},
    )
    while True:
        signal.pause()


def runner(folder, deaf):
    lock(folder / "runner.lock")
    process = subprocess.Popen(
        [sys.executable, "-c", users_code(folder, deaf)],
        start_new_session=True,
        env={**os.environ, "CRUCIBLE_ATTEMPT_ID": folder.name.rpartition("-")[0]},
    )
    me = os.getpid()
    write(folder / "process.json", {"pid": process.pid, "start_time": start_time(process.pid)})
    write(folder / "runner.json", {"pid": me, "start_time": start_time(me), "pgid": process.pid})
    process.wait()
    (folder / "done").touch()


def users_code(folder, deaf):
    """Start a process that waits, with a child. A deaf child ignores SIGTERM and hides its origin."""
    ready = f"open({str(folder / 'ready')!r}, 'w').close(); "
    ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN); " if deaf else ""
    child = f"import signal; {ignore}{ready}{WAIT}"
    environ = "env={}" if deaf else "env=None"
    start = f"subprocess.Popen([sys.executable, '-c', {child!r}], {environ})"
    return f"import signal, subprocess, sys; {start}; {WAIT}"


if __name__ == "__main__":
    if sys.argv[1] == "host":
        host(sys.argv[3])
    else:
        runner(Path(sys.argv[2]), "deaf" in sys.argv)
