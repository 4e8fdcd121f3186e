"""The worker process: has the analysis loaded and forks a child for each request.

It receives nothing but sockets from its owner. Programs and profiles pass between the owner and a child, so
whatever a program does to the process that reads it ends with that child.
"""

from __future__ import annotations

import os
import signal
import socket

from crucible.analysis.analyse import analyse
from crucible.analysis.conclusions.compute.runtime import T4
from crucible.analysis.process.child import Limits, respond
from crucible.analysis.process.protocol import Request, Response, requests, responses
from crucible.analysis.source.sources import Sources


def serve(descriptor: int, limits: Limits, idle_seconds: float) -> None:
    """Fork a child for each socket received, until the owner is gone or has sent none for `idle_seconds`."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel then removes children that have ended
    owner = socket.socket(fileno=descriptor)
    owner.settimeout(idle_seconds)
    _preload()
    while True:
        try:
            data, descriptors, _, _ = socket.recv_fds(owner, 1, 1)
        except TimeoutError:
            return
        if not data:
            os.killpg(0, signal.SIGKILL)  # the owner is gone: ends this process and its children
        with socket.socket(fileno=descriptors[0]) as connection:
            _fork(owner, connection, limits)


def _preload() -> None:
    """Load everything an analysis imports lazily: a child cannot open files."""
    unusual = Sources({"a.py": "é = = 1".encode()}, "a.py")  # broken, and not ASCII
    request = requests().validate_json(requests().dump_json(Request(unusual, T4)))
    responses().dump_json(Response(analyse(request.sources, request.reference)))


def _fork(owner: socket.socket, connection: socket.socket, limits: Limits) -> None:
    """Fork a child that answers the request on the connection and then ends."""
    try:
        pid = os.fork()
    except OSError:
        return  # the requester sees its connection closed
    if pid == 0:
        try:
            owner.close()
            respond(connection, limits)
        finally:
            os._exit(0)
