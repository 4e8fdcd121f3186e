"""Which way an agent talks: over https, or through a store when its bootstrap names one."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Callable
from urllib.parse import quote

from crucible.agent.files import read_json, write_file
from crucible.agent.host.bootstrap import address_of
from crucible.agent.link.channel import Called, Channel, HttpChannel, MachineChannel, MachineLine
from crucible.agent.link.connection import Address, Refused
from crucible.agent.sessions.line import Line, dial
from crucible.agent.storelink.bucket import BucketMail
from crucible.agent.storelink.channel import StoreChannel
from crucible.agent.storelink.machine import StoreMachineLine
from crucible.agent.storelink.mail import FolderMail
from crucible.agent.storelink.party import Party
from crucible.agent.storelink.urls import Urls
from crucible.wire.documents.bootstrap import Bootstrap
from crucible.wire.documents.crypto import check_cryptography
from crucible.wire.documents.desired import Assignment
from crucible.wire.documents.mailbox import HOST, host_key, party_of, runner_key

DIALS = 8
DIAL_AGAIN_SECONDS = 0.25


def runner_channels(bootstrap: Bootstrap, assignment: Assignment) -> Callable[[], Channel]:
    """Makes channels of one runner; each is for one thread."""
    a = assignment
    if bootstrap.store is None:
        return lambda: HttpChannel(address_of(bootstrap), a.attempt, a.rank, a.secret)
    name = party_of(a.attempt, a.rank)
    party = _party(bootstrap, bootstrap.store, name, runner_key(a.secret.encode(), name))
    return lambda: StoreChannel(party, a.attempt, a.rank, a.secret)


def session_lines(bootstrap: Bootstrap, assignment: Assignment) -> Callable[[Called], Line]:
    """Opens the lines of sessions of one runner; only over https is anything told of them."""
    a = assignment
    path = f"/agent/v1/attempts/{quote(a.attempt, safe='')}/{a.rank}/sessions"

    def open_line(called: Called) -> Line:
        address = address_of(bootstrap) if called.at is None else Address(called.at)
        for _ in range(DIALS - 1):
            try:
                return dial(address, f"{path}/{called.id}", a.secret)
            except Refused:
                # Several servers may stand behind one address, and another of them has the session.
                time.sleep(DIAL_AGAIN_SECONDS)
        return dial(address, f"{path}/{called.id}", a.secret)

    return open_line


def machine_line(bootstrap: Bootstrap, secret: str | None) -> MachineLine:
    """The host's line; without a secret it can claim the machine and nothing else."""
    if bootstrap.store is None:
        return MachineChannel(address_of(bootstrap), bootstrap.machine, secret)
    key = host_key(bootstrap.nonce.encode(), bootstrap.machine) if secret is None else secret.encode()
    path = _urls_file(bootstrap)
    return StoreMachineLine(_party(bootstrap, bootstrap.store, HOST, key), key, lambda urls: _keep(path, urls))


def check_channel(bootstrap: Bootstrap) -> None:
    """Raise NoCryptography if what this machine says has to be encrypted and its Python cannot do that."""
    if bootstrap.store is None:
        return
    folder = _folder(bootstrap, bootstrap.store)
    if folder is None or not folder.is_private:
        check_cryptography()


def _party(bootstrap: Bootstrap, store: Mapping[str, object], name: str, key: bytes) -> Party:
    folder = _folder(bootstrap, store)
    if folder is not None:
        return Party(folder, name, key)
    urls = Urls({**_texts(store.get("urls")), **_texts(read_json(_urls_file(bootstrap)))})
    return Party(BucketMail(urls), name, key, urls)


def _folder(bootstrap: Bootstrap, store: Mapping[str, object]) -> FolderMail | None:
    folder = store.get("folder")
    return FolderMail(Path(folder), bootstrap.machine) if isinstance(folder, str) else None


def _urls_file(bootstrap: Bootstrap) -> Path:
    """Where the host keeps the URLs that it learned last: its runners, and its successor, begin with them."""
    return bootstrap.work / "store-urls.json"


def _keep(path: Path, urls: Mapping[str, str]) -> None:
    if urls:
        write_file(path, json.dumps(dict(urls)).encode())


def _texts(value: object) -> dict[str, str]:
    return {str(name): str(url) for name, url in value.items()} if isinstance(value, dict) else {}
