"""Make an agent's channels to the control plane: over https, or through a store if the bootstrap names one."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Callable
from urllib.parse import quote

from crucible.agent.files import read_json, write_file
from crucible.agent.host.bootstrap import server_address
from crucible.agent.link.channel import Channel, HttpChannel, HttpMachineChannel, MachineChannel, SessionRequest
from crucible.agent.link.connection import Refused, ServerAddress
from crucible.agent.sessions.session_socket import SessionSocket, open_session_socket
from crucible.agent.storelink.bucket import BucketMailbox
from crucible.agent.storelink.channel import StoreChannel
from crucible.agent.storelink.client import MailboxClient
from crucible.agent.storelink.machine import StoreMachineChannel
from crucible.agent.storelink.mailbox import FolderMailbox
from crucible.agent.storelink.urls import SignedUrls
from crucible.wire.documents.bootstrap import Bootstrap
from crucible.wire.documents.crypto import check_cryptography
from crucible.wire.documents.desired import Assignment
from crucible.wire.documents.mailbox import HOST, host_key, runner_key, runner_party

CONNECT_ATTEMPTS = 8
RETRY_SECONDS = 0.25


def runner_channel_factory(bootstrap: Bootstrap, assignment: Assignment) -> Callable[[], Channel]:
    """Return a function that makes channels for one runner; each channel is for one thread."""
    attempt, rank, secret = assignment.attempt, assignment.rank, assignment.secret
    if bootstrap.store is None:
        return lambda: HttpChannel(server_address(bootstrap), attempt, rank, secret)
    name = runner_party(attempt, rank)
    client = _mailbox_client(bootstrap, bootstrap.store, name, runner_key(secret.encode(), name))
    return lambda: StoreChannel(client, attempt, rank, secret)


def session_socket_factory(bootstrap: Bootstrap, assignment: Assignment) -> Callable[[SessionRequest], SessionSocket]:
    """Return a function that opens a session's socket. Sessions work only over https."""
    path = f"/agent/v1/attempts/{quote(assignment.attempt, safe='')}/{assignment.rank}/sessions"

    def open_socket(request: SessionRequest) -> SessionSocket:
        address = server_address(bootstrap) if request.server_url is None else ServerAddress(request.server_url)
        for _ in range(CONNECT_ATTEMPTS - 1):
            try:
                return open_session_socket(address, f"{path}/{request.id}", assignment.secret)
            except Refused:
                # Several servers may share one address, and another one may have the session.
                time.sleep(RETRY_SECONDS)
        return open_session_socket(address, f"{path}/{request.id}", assignment.secret)

    return open_socket


def open_machine_channel(bootstrap: Bootstrap, secret: str | None) -> MachineChannel:
    """Return the host's channel. Without a secret it can only claim the machine."""
    if bootstrap.store is None:
        return HttpMachineChannel(server_address(bootstrap), bootstrap.machine, secret)
    key = host_key(bootstrap.nonce.encode(), bootstrap.machine) if secret is None else secret.encode()
    path = _urls_file(bootstrap)
    return StoreMachineChannel(
        _mailbox_client(bootstrap, bootstrap.store, HOST, key), key, lambda urls: _save_urls(path, urls)
    )


def check_channel(bootstrap: Bootstrap) -> None:
    """Raise NoCryptography if this machine's documents must be encrypted and its Python cannot do that."""
    if bootstrap.store is None:
        return
    folder = _folder(bootstrap, bootstrap.store)
    if folder is None or not folder.is_private:
        check_cryptography()


def _mailbox_client(bootstrap: Bootstrap, store: Mapping[str, object], name: str, key: bytes) -> MailboxClient:
    folder = _folder(bootstrap, store)
    if folder is not None:
        return MailboxClient(folder, name, key)
    urls = SignedUrls({**_string_map(store.get("urls")), **_string_map(read_json(_urls_file(bootstrap)))})
    return MailboxClient(BucketMailbox(urls), name, key, urls)


def _folder(bootstrap: Bootstrap, store: Mapping[str, object]) -> FolderMailbox | None:
    folder = store.get("folder")
    return FolderMailbox(Path(folder), bootstrap.machine) if isinstance(folder, str) else None


def _urls_file(bootstrap: Bootstrap) -> Path:
    """The file with the latest signed URLs: runners and a restarted host start with them."""
    return bootstrap.work / "store-urls.json"


def _save_urls(path: Path, urls: Mapping[str, str]) -> None:
    if urls:
        write_file(path, json.dumps(dict(urls)).encode())


def _string_map(value: object) -> dict[str, str]:
    return {str(name): str(url) for name, url in value.items()} if isinstance(value, dict) else {}
