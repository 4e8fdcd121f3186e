"""Answer one request of a server: a JSON object in, a JSON object out. The other side is backends/ssh/remote.py."""

from __future__ import annotations

import errno
import os
import re
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Callable

from crucible.agent.machines.host_folder import HostFolder
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
        perform = _REQUESTS.get(str(request.get("action")))
        if perform is None:
            raise BadRequest(f"unknown action {request.get('action')!r}")
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
    from crucible.agent.machines.facts import read_facts  # slow to import, and only needed here

    keys = request.get("host_keys")
    deployment = str(request.get("deployment_folder"))
    ours = [HostFolder(path) for path in _hosts_folder().glob(f"*/{deployment}")]
    facts = read_facts([str(key) for key in keys] if isinstance(keys, list) else [], [root.machines for root in ours])
    return {"facts": asdict(facts), "nodes": sorted(path.name for path in _hosts_folder().glob("*"))}


def _start(request: Mapping[str, object], agent_file: str) -> Doc:
    root, name = _host_folder(request), _machine(request)
    bootstrap = request.get("bootstrap")
    if not isinstance(bootstrap, dict):
        raise BadRequest("no bootstrap")
    root.make()
    folder = MachineFolder(root.machines / name)
    environ = host_environment(os.environ)
    complete = {
        **bootstrap,
        "machine": name,
        "work": str(folder.path),
        "envs": str(root.path / "envs"),
        "uv": _find_uv(environ.get("PATH", "")),
        "agents_url": None,
        "agents_url_file": str(root.address_file),
    }
    variables = root.add_variables(environ, tmp_noexec=bool(request.get("tmp_noexec")))
    host = HostCommand(sys.executable, Path(agent_file), variables)
    tags = Tags(str(request.get("deployment")), name)
    launch_machine(folder, tags, complete, host, float(str(request.get("launch_seconds", 5))))
    return {}


def _observe(request: Mapping[str, object], agent_file: str) -> Doc:
    """Return the state of each named machine, whether any is left, and whether the tunnel's end answers."""
    root, names, seconds = _host_folder(request), request.get("machines"), float(str(request.get("launch_seconds", 0)))
    wanted = [str(name) for name in names] if isinstance(names, list) else []
    found = {name: _observe_machine(root, name, seconds) for name in wanted}
    return {"machines": found, "left": len(root.list_machines()), "tunnel": root.tunnel_answers()}


def _observe_machine(root: HostFolder, name: str, seconds: float) -> tuple[str, str]:
    if not is_machine_name(name):
        return "gone", "there is no such machine"
    return MachineFolder(root.machines / name).observe(seconds)


def _list(request: Mapping[str, object], agent_file: str) -> Doc:
    """Return machine and deployment of every folder with tags."""
    tags = [(folder.path.name, folder.tags) for folder in _host_folder(request).list_machines()]
    return {"machines": [[name, found.deployment] for name, found in tags if found and found.machine == name]}


def _prune(request: Mapping[str, object], agent_file: str) -> Doc:
    """Remove what no machine needs, unless machines are left. Return how many are."""
    root = _host_folder(request)
    left = len(root.list_machines())
    if not left and root.path.is_dir():
        root.prune(int(str(request.get("cache_bytes", 0))))
    return {"left": left}


def _end(request: Mapping[str, object], agent_file: str) -> Doc:
    """Do one step of ending the machine; prune after the last one. Return whether it is gone, else why not."""
    root, name = _host_folder(request), _machine(request)
    folder = MachineFolder(root.machines / name)
    why = _end_step(folder) if folder.path.is_dir() else ""
    return {"gone": not why, "why": why, **_prune(request, agent_file)}


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
    return {"folder": str(_host_folder(request).make_tunnel_folder())}


def _use_tunnel(request: Mapping[str, object], agent_file: str) -> Doc:
    root = _host_folder(request)
    root.make()
    root.write_address(str(request.get("url")))
    return {"tunnel": root.tunnel_answers()}


def _clean_up(request: Mapping[str, object], agent_file: str) -> Doc:
    """Remove everything of the deployment, unless machines are left."""
    root = _host_folder(request)
    left = [folder.path.name for folder in root.list_machines()]
    return {"left": left, "bytes": 0 if left else root.remove(), "folder": str(root.path)}


_REQUESTS: Mapping[str, Callable[[Mapping[str, object], str], Doc]] = {
    "facts": _facts,
    "start": _start,
    "observe": _observe,
    "list": _list,
    "end": _end,
    "prune": _prune,
    "open_tunnel": _open_tunnel,
    "use_tunnel": _use_tunnel,
    "clean_up": _clean_up,
}


def _hosts_folder() -> Path:
    return Path(os.path.expanduser("~"), ".crucible", "hosts")


def _host_folder(request: Mapping[str, object]) -> HostFolder:
    names = [request.get("node"), request.get("deployment_folder")]
    for name in names:
        if not isinstance(name, str) or not _NODE_OR_DEPLOYMENT.fullmatch(name):
            raise BadRequest(f"{name!r} cannot be the name of a folder")
    return HostFolder(_hosts_folder().joinpath(*map(str, names)))


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
