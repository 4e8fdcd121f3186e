"""Check hosts, and clean them when the backend is disconnected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from crucible.backends.base import Finding
from crucible.backends.ssh.connection import HostFailed, is_socket
from crucible.backends.ssh.hosts import Host, HostFacts, Hosts, on_each
from crucible.backends.ssh.openssh import OpenSsh
from crucible.core.compute.resources import GiB, MiB, format_memory
from crucible.core.errors import CrucibleError

CHECK_SECONDS = 25.0
CLEAN_SECONDS = 25.0
LOW_BYTES, FULL_BYTES = 2 * GiB, 256 * MiB


def check_hosts(hosts: Hosts, ssh: OpenSsh, socket: Path, cache_bytes: int) -> list[Finding]:
    """Ask every host again, and return the findings. Leaves no tunnel where there was none.

    A second name of a computer gets no tunnel: both would be in one folder there, and each would end the other's.
    """
    found = hosts.discover(again=True)
    used = [host for host in found if host.error is None and not host.same_as]
    made = on_each(lambda host: _check_tunnel(hosts, host, socket, cache_bytes), used, CHECK_SECONDS)
    tunnels = {host.settings.target: tunnel for host, tunnel in zip(used, made, strict=True)}
    findings: list[Finding] = []
    for host in found:
        findings += _check_host(host, ssh)
        if host.settings.target in tunnels:
            late = Finding(f"{host.name}: a tunnel for its agents", ok=False, why="It did not come up in time.")
            findings.append(tunnels[host.settings.target] or late)
    return findings


def clean_hosts(hosts: Hosts, ssh: OpenSsh) -> list[Finding]:
    """Remove what the deployment keeps on every host without machines, and then its pinned keys.

    A computer with two names is cleaned once.
    """
    found = hosts.discover(again=True)
    used = [host for host in found if not host.same_as]
    findings = [
        finding or Finding(f"{host.name}: nothing was removed", ok=False, why="It did not answer in time.")
        for host, finding in zip(used, on_each(lambda host: _clean_host(hosts, host), used, CLEAN_SECONDS), strict=True)
    ]
    clean = {host.settings.target for host, finding in zip(used, findings, strict=True) if finding.ok}
    for host in found:
        if (host.same_as or host.settings.target) in clean:
            ssh.forget(host.settings)
    if all(finding.ok for finding in findings):
        hosts.forget()
        ssh.remove_folders()
    return findings


def _check_host(host: Host, ssh: OpenSsh) -> Iterator[Finding]:
    keys = ", ".join(ssh.fingerprints(host.settings))
    if host.error is not None:
        error = host.error
        yield Finding(f"{host.name}: can be used", ok=False, why=f"{error.what} {error.why}".strip(), fix=error.fix)
        if keys:
            yield Finding(f"{host.name}: pinned host key {keys}")
        return
    facts = host.facts
    assert facts is not None, "a host without an error has answered"
    yield Finding(f"{host.name}: answers as {facts.user}@{facts.hostname}; jobs there may do what {facts.user} may")
    yield Finding(f"{host.name}: host key {keys}, accepted now and no other from now on")
    yield Finding(f"{host.name}: {facts.system}, Python {facts.python}, {_format_devices(facts)}")
    yield _check_identity(host)
    yield from _check_gpu_use(host, facts)
    yield from _check_system(host, facts)


def _format_devices(facts: HostFacts) -> str:
    gpus = f"{len(facts.gpus)} x {facts.capacity.gpu_name}" if facts.gpus else "no GPU"
    return f"{facts.cpus:g} CPUs, {format_memory(facts.memory_bytes)}, {gpus}"


def _check_identity(host: Host) -> Finding:
    if host.same_as:
        fix = f"Remove one of both; {host.same_as} is used."
        return Finding(
            f"{host.name}: the same computer as {host.same_as}, so its slots are counted once", fix=fix, warning=True
        )
    if host.is_here:
        return Finding(f"{host.name}: the server's own computer, which shares its slots with the backend local")
    if host.is_clone:
        why = "Another computer that runs has the same /etc/machine-id, so the host key tells them apart."
        fix = "Give it an id of its own: sudo rm /etc/machine-id && sudo systemd-machine-id-setup"
        what = f"{host.name}: a copy of another computer, told apart by its host key"
        return Finding(what, why=why, fix=fix, warning=True)
    return Finding(f"{host.name}: a computer of its own, {host.node.id}")


def _check_gpu_use(host: Host, facts: HostFacts) -> Iterator[Finding]:
    for gpu in facts.gpus:
        if gpu.used_by:
            fix = "Jobs that need it wait until it is free."
            yield Finding(f"{host.name}: GPU {gpu.index} is used by {gpu.used_by}", fix=fix, warning=True)


def _check_system(host: Host, facts: HostFacts) -> Iterator[Finding]:
    name, free = host.name, format_memory(facts.free_bytes)
    if facts.free_bytes < LOW_BYTES:
        fix = f"Free some space in the home of {facts.user} there."
        yield Finding(f"{name}: {free} free in the home", ok=facts.free_bytes >= FULL_BYTES, fix=fix, warning=True)
    if facts.home_filesystem or len(host.discovery.nodes) > 1:
        yield Finding(f"{name}: other hosts may share its home; each has a folder of its own below ~/.crucible/hosts")
    if facts.tmp_noexec:
        yield Finding(f"{name}: programs in /tmp cannot be executed there, so jobs get a TMPDIR in ~/.crucible")
    if facts.ends_with_session:
        why = "systemd ends the user's processes with their last login (KillUserProcesses)."
        fix = f"On {name}: sudo loginctl enable-linger {facts.user}"
        yield Finding(f"{name}: jobs outlive a cut connection", ok=False, why=why, fix=fix)


def _check_tunnel(hosts: Hosts, host: Host, socket: Path, cache_bytes: int) -> Finding:
    """Make a tunnel, and end it again unless machines need it."""
    connection, folder = host.connection, hosts.folder(host.node.id)
    user = host.facts.user if host.facts else "its user"
    try:
        with connection.hold():
            connection.open()
            try:
                url = connection.make_tunnel(folder, socket)
            finally:
                if not connection.ask("prune", folder, cache_bytes=cache_bytes)["left"]:
                    connection.close()
    except CrucibleError as error:
        return Finding(
            f"{host.name}: agents reach the server", ok=False, why=f"{error.what} {error.why}", fix=error.fix
        )
    if is_socket(url):
        return Finding(f"{host.name}: agents reach the server through a socket that only {user} can open")
    return Finding(
        f"{host.name}: agents reach the server through a port of its loopback, which its other users can use too",
        why="Its sshd forwards no sockets.",
        fix="Set AllowStreamLocalForwarding yes in its sshd_config, and reload it.",
        warning=True,
    )


def _clean_host(hosts: Hosts, host: Host) -> Finding:
    if host.error is not None and host.facts is None:
        return Finding(f"{host.name}: nothing was ever kept there")
    try:
        with host.connection.hold():
            answer = host.connection.ask("clean_up", hosts.folder(host.node.id))
            left = answer["left"]
            if isinstance(left, Sequence) and left:
                raise HostFailed(
                    f"{len(left)} machines are left on {host.name}.",
                    why=f"They are {', '.join(map(str, left))}.",
                    fix="Cancel their jobs, or wait for them: crucible machines",
                )
            host.connection.close()
    except CrucibleError as error:
        return Finding(f"{host.name}: removed", ok=False, why=f"{error.what} {error.why}".strip(), fix=error.fix)
    size = format_memory(int(str(answer["bytes"])))
    return Finding(
        f"{host.name}: removed {answer['folder']} ({size}); no process, tunnel or file of ours is left there"
    )
