"""Answer one request of a server: a JSON object in, a JSON object out. The other side is backends/ssh/remote.py."""

from __future__ import annotations

import errno
import os
import re
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Callable

from crucible.agent.machines.state_folder import StateFolder
from crucible.wire.machines.ending import StillThere, end_machine
from crucible.wire.machines.folder import MachineFolder, Tags, is_machine_name
from crucible.wire.machines.launching import HostCommand, MayRun, NotLaunched, host_environment, launch_machine

Doc = dict[str, object]
_NODE_OR_DEPLOYMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class BadRequest(ValueError):
    """The request is not one that a server of this version makes."""


def answer(request: Mapping[str, object], agent_file: str = "") -> Doc:
    """Perform the request and return its result, or an `error` with `what` happened and `why`."""
    try:
        perform = _REQUESTS.get(str(request.get("ask")))
        if perform is None:
            raise BadRequest(f"unknown request {request.get('ask')!r}")
        return perform(request, agent_file)
    except NotLaunched as error:
        return _error("not_launched", error.what, error.why)
    except MayRun as error:
        return _error("may_run", error.what, error.why)
    except OSError as error:
        kind = "disk_full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "failed"
        return _error(kind, "A file of the host could not be used.", f"{error}.")
    except BadRequest as error:
        return _error("failed", "The host does not understand the request.", f"{error}.")


def _facts(request: Mapping[str, object], agent_file: str) -> Doc:
    """Return the facts of this host, and which nodes keep something in the same home."""
    from crucible.agent.machines.facts import read_facts, to_doc  # slow to import, and not needed to look at machines

    keys = request.get("host_keys")
    deployment = str(request.get("deployment_folder"))
    ours = [StateFolder(path) for path in _hosts_folder().glob(f"*/{deployment}")]
    facts = read_facts([str(key) for key in keys] if isinstance(keys, list) else [], [state.machines for state in ours])
    return {"facts": to_doc(facts), "nodes": sorted(path.name for path in _hosts_folder().glob("*"))}


def _start(request: Mapping[str, object], agent_file: str) -> Doc:
    from crucible.agent.machines.facts import variables_for_jobs

    state, name = _state(request), _machine(request)
    bootstrap = request.get("bootstrap")
    if not isinstance(bootstrap, dict):
        raise BadRequest("no bootstrap")
    state.make()
    folder = MachineFolder(state.machines / name)
    given = host_environment(os.environ)
    complete = {
        **bootstrap,
        "machine": name,
        "work": str(folder.path),
        "envs": str(state.path / "envs"),
        "uv": _find_uv(given.get("PATH", "")),
        "agents_url": None,
        "agents_url_file": str(state.address_file),
    }
    environ = variables_for_jobs(given, state.path, tmp_noexec=bool(request.get("tmp_noexec")))
    host = HostCommand(sys.executable, Path(agent_file), environ)
    tags = Tags(str(request.get("deployment")), name)
    launch_machine(folder, tags, complete, host, float(str(request.get("launch_seconds", 5))))
    return {}


def _look(request: Mapping[str, object], agent_file: str) -> Doc:
    """Return the state of each named machine, whether any is left, and whether the tunnel's end answers."""
    state, names, seconds = _state(request), request.get("machines"), float(str(request.get("launch_seconds", 0)))
    wanted = [str(name) for name in names] if isinstance(names, list) else []
    found = {name: _observe(state, name, seconds) for name in wanted}
    return {"machines": found, "left": len(state.list_machines()), "tunnel": state.tunnel_answers()}


def _observe(state: StateFolder, name: str, seconds: float) -> tuple[str, str]:
    if not is_machine_name(name):
        return "gone", "there is no such machine"
    return MachineFolder(state.machines / name).observe(seconds)


def _list(request: Mapping[str, object], agent_file: str) -> Doc:
    """Return machine and deployment of every folder with tags."""
    tags = [(folder.path.name, folder.tags) for folder in _state(request).list_machines()]
    return {"machines": [[name, found.deployment] for name, found in tags if found and found.machine == name]}


def _tidy(request: Mapping[str, object], agent_file: str) -> Doc:
    """Remove what no machine needs, unless machines are left. Returns how many are."""
    state = _state(request)
    left = len(state.list_machines())
    if not left and state.path.is_dir():
        state.tidy(int(str(request.get("cache_bytes", 0))))
    return {"left": left}


def _end(request: Mapping[str, object], agent_file: str) -> Doc:
    """Do one step of ending the machine; after the last one, tidy up. Returns whether it is gone, else why not."""
    state, name = _state(request), _machine(request)
    folder = MachineFolder(state.machines / name)
    why = _end_step(folder) if folder.path.is_dir() else ""
    return {"gone": not why, "why": why, **_tidy(request, agent_file)}


def _end_step(folder: MachineFolder) -> str:
    try:
        with folder.hold():
            end_machine(folder, time.monotonic())
    except StillThere as error:
        return str(error)
    except TimeoutError:
        return "Another process is starting or removing this machine."
    except OSError as error:
        return f"The machine's folder could not be removed: {error}." if folder.path.is_dir() else ""
    return ""


def _open_tunnel(request: Mapping[str, object], agent_file: str) -> Doc:
    return {"folder": str(_state(request).make_tunnel_folder())}


def _use_tunnel(request: Mapping[str, object], agent_file: str) -> Doc:
    state = _state(request)
    state.make()
    state.write_address(str(request.get("url")))
    return {"tunnel": state.tunnel_answers()}


def _clean_up(request: Mapping[str, object], agent_file: str) -> Doc:
    """Remove everything of the deployment, unless machines are left."""
    state = _state(request)
    left = [folder.path.name for folder in state.list_machines()]
    return {"left": left, "bytes": 0 if left else state.remove(), "folder": str(state.path)}


_REQUESTS: Mapping[str, Callable[[Mapping[str, object], str], Doc]] = {
    "facts": _facts,
    "start": _start,
    "look": _look,
    "list": _list,
    "end": _end,
    "tidy": _tidy,
    "open_tunnel": _open_tunnel,
    "use_tunnel": _use_tunnel,
    "clean_up": _clean_up,
}


def _hosts_folder() -> Path:
    return Path(os.path.expanduser("~"), ".crucible", "hosts")


def _state(request: Mapping[str, object]) -> StateFolder:
    names = [request.get("node"), request.get("deployment_folder")]
    for name in names:
        if not isinstance(name, str) or not _NODE_OR_DEPLOYMENT.fullmatch(name):
            raise BadRequest(f"{name!r} cannot be the name of a folder")
    return StateFolder(_hosts_folder().joinpath(*map(str, names)))


def _machine(request: Mapping[str, object]) -> str:
    name = str(request.get("machine"))
    if not is_machine_name(name):
        raise BadRequest(f"{name!r} cannot be the name of a machine")
    return name


def _find_uv(path: str) -> str | None:
    home = os.path.expanduser("~")
    return shutil.which("uv", path=os.pathsep.join([path, f"{home}/.local/bin", f"{home}/.cargo/bin"]))


def _error(kind: str, what: str, why: str) -> Doc:
    return {"error": kind, "what": what, "why": why}
