"""Which way an agent talks: over https, or through a store when its bootstrap names one."""

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

DIALS = 8
DIAL_AGAIN_SECONDS = 0.25


def runner_channel_factory(bootstrap: Bootstrap, assignment: Assignment) -> Callable[[], Channel]:
    """Makes channels of one runner; each is for one thread."""
    a = assignment
    if bootstrap.store is None:
        return lambda: HttpChannel(server_address(bootstrap), a.attempt, a.rank, a.secret)
    name = runner_party(a.attempt, a.rank)
    party = _party(bootstrap, bootstrap.store, name, runner_key(a.secret.encode(), name))
    return lambda: StoreChannel(party, a.attempt, a.rank, a.secret)


def session_socket_factory(bootstrap: Bootstrap, assignment: Assignment) -> Callable[[SessionRequest], SessionSocket]:
    """Opens the lines of sessions of one runner; only over https is anything told of them."""
    a = assignment
    path = f"/agent/v1/attempts/{quote(a.attempt, safe='')}/{a.rank}/sessions"

    def open_line(called: SessionRequest) -> SessionSocket:
        address = server_address(bootstrap) if called.server_url is None else ServerAddress(called.server_url)
        for _ in range(DIALS - 1):
            try:
                return open_session_socket(address, f"{path}/{called.id}", a.secret)
            except Refused:
                # Several servers may stand behind one address, and another of them has the session.
                time.sleep(DIAL_AGAIN_SECONDS)
        return open_session_socket(address, f"{path}/{called.id}", a.secret)

    return open_line


def open_machine_channel(bootstrap: Bootstrap, secret: str | None) -> MachineChannel:
    """The host's line; without a secret it can claim the machine and nothing else."""
    if bootstrap.store is None:
        return HttpMachineChannel(server_address(bootstrap), bootstrap.machine, secret)
    key = host_key(bootstrap.nonce.encode(), bootstrap.machine) if secret is None else secret.encode()
    path = _urls_file(bootstrap)
    return StoreMachineChannel(_party(bootstrap, bootstrap.store, HOST, key), key, lambda urls: _keep(path, urls))


def check_channel(bootstrap: Bootstrap) -> None:
    """Raise NoCryptography if what this machine says has to be encrypted and its Python cannot do that."""
    if bootstrap.store is None:
        return
    folder = _folder(bootstrap, bootstrap.store)
    if folder is None or not folder.is_private:
        check_cryptography()


def _party(bootstrap: Bootstrap, store: Mapping[str, object], name: str, key: bytes) -> MailboxClient:
    folder = _folder(bootstrap, store)
    if folder is not None:
        return MailboxClient(folder, name, key)
    urls = SignedUrls({**_texts(store.get("urls")), **_texts(read_json(_urls_file(bootstrap)))})
    return MailboxClient(BucketMailbox(urls), name, key, urls)


def _folder(bootstrap: Bootstrap, store: Mapping[str, object]) -> FolderMailbox | None:
    folder = store.get("folder")
    return FolderMailbox(Path(folder), bootstrap.machine) if isinstance(folder, str) else None


def _urls_file(bootstrap: Bootstrap) -> Path:
    """Where the host keeps the URLs that it learned last: its runners, and its successor, begin with them."""
    return bootstrap.work / "store-urls.json"


def _keep(path: Path, urls: Mapping[str, str]) -> None:
    if urls:
        write_file(path, json.dumps(dict(urls)).encode())


def _texts(value: object) -> dict[str, str]:
    return {str(name): str(url) for name, url in value.items()} if isinstance(value, dict) else {}
