"""The mailboxes in the deployment's store, and what an agent needs to reach its own."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from pathlib import Path

from crucible.control.runtime.ports import Ports
from crucible.storage import NotFound
from crucible.storage.layout import agent_key
from crucible.storage.store import Method, Signs
from crucible.wire.documents.mailbox import (
    CLAIM,
    HOST,
    ROOT,
    control_document_name,
    heartbeat_name,
    is_private,
    mailbox_folder,
)

LANE = "mailbox"
DEADLINE = 30.0
COPY_DEADLINE = 120.0
LASTING_URL_SECONDS = 6 * 24 * 3600
"""How long a signed URL is valid by which an agent lives on while the control plane is away.

All URLs end sooner if the credentials that signed them do.
"""
URL_SECONDS = 3600
"""How long other signed URLs are valid. An agent whose URL is refused requests another."""


class Mailboxes:
    """`folder` is the store's path when it is a folder that agents see under the same path."""

    def __init__(self, ports: Ports, folder: Path | None = None) -> None:
        self._ports = ports
        self._store = ports.store
        self._folder = folder
        self._urls: dict[tuple[str, Method], tuple[str, float]] = {}

    async def invitation(self, machine: str, agent: str | None = None) -> dict[str, object]:
        """Return the bootstrap's section on the store. For a bucket it holds signed URLs, which are secrets.

        With `agent`, the hash of an agent file, it says where in the store that file is.
        """
        invitation: dict[str, object] = {}
        if self._folder is not None:
            invitation["folder"] = str(self._folder)
        else:
            wants = (f"PUT {CLAIM}", f"GET {CLAIM}", *own_wants(HOST))
            granted = {want: f"{mailbox_folder(machine)}/{want[4:]}" for want in wants}
            invitation["urls"] = await self.sign_urls(granted, LASTING_URL_SECONDS)
        if agent is not None:
            invitation["agent_file"] = await self._locate_agent(agent_key(agent))
        return invitation

    async def _locate_agent(self, key: str) -> str:
        if self._folder is not None:
            return str(self._folder / key)
        return (await self.sign_urls({"GET agent": key}, LASTING_URL_SECONDS))["GET agent"]

    async def is_private(self) -> bool:
        """Return whether the store is a folder that only this system user can open, as its mode is now."""
        folder = self._folder
        return folder is not None and await self._ports.calls.run(LANE, lambda: is_private(folder), DEADLINE)

    async def sign_urls(self, wants: Mapping[str, str], seconds: int = URL_SECONDS) -> dict[str, str]:
        """Return signed URLs for `METHOD name` -> key, valid for `seconds`; empty where agents see the store's folder.

        A URL is reused for half its life: a new one each time would change the document each time.
        """
        store, now = self._store, self._ports.clock.now()
        if not isinstance(store, Signs):
            return {}
        asked = {(key, _method(want)) for want, key in wants.items()}
        stale = [pair for pair in asked if self._urls.get(pair, ("", 0.0))[1] < now]
        if stale:
            signed = await self._ports.calls.run(LANE, lambda: [store.signed_url(*p, seconds) for p in stale], DEADLINE)
            self._urls.update({pair: (url, now + seconds / 2) for pair, url in zip(stale, signed, strict=True)})
        return {want: self._urls[key, _method(want)][0] for want, key in wants.items()}

    async def list_machines(self) -> list[str]:
        """Return the machines that have a mailbox."""

        def names() -> set[str]:
            return {key.split("/")[1] for key, _ in self._store.list(ROOT) if key.count("/") > 1}

        return sorted(await self._ports.calls.run(LANE, names, DEADLINE))

    async def list_names(self, machine: str) -> dict[str, int]:
        """Return the names in the machine's mailbox, with their sizes."""
        root = mailbox_folder(machine)

        def sizes() -> dict[str, int]:
            return {key[len(root) + 1 :]: size for key, size in self._store.list(root)}

        return await self._ports.calls.run(LANE, sizes, DEADLINE)

    async def get(self, machine: str, name: str, limit: int) -> bytes | None:
        """Return the object; None if it is missing or larger than `limit`."""
        key = f"{mailbox_folder(machine)}/{name}"

        def read() -> bytes | None:
            try:
                data = self._store.get_range(key, 0, limit + 1)
            except NotFound:
                return None
            return data if len(data) <= limit else None

        return await self._ports.calls.run(LANE, read, DEADLINE)

    async def put(self, machine: str, name: str, data: bytes) -> None:
        key = f"{mailbox_folder(machine)}/{name}"
        await self._ports.calls.run(LANE, lambda: self._store.put(key, data), DEADLINE)

    async def read_chunks(self, machine: str, name: str) -> AsyncIterator[bytes]:
        """Yield the object's bytes. Raises NotFound."""
        key = f"{mailbox_folder(machine)}/{name}"
        run = self._ports.calls.run
        opened: Iterator[bytes] = await run(LANE, lambda: self._store.open_range(key), DEADLINE)
        while (piece := await run(LANE, lambda: next(opened, b""), COPY_DEADLINE)) != b"":
            yield piece

    async def delete(self, machine: str, names: Iterable[str]) -> None:
        keys = [f"{mailbox_folder(machine)}/{name}" for name in names]
        for key in keys:
            self._urls.pop((key, "PUT"), None)
            self._urls.pop((key, "GET"), None)

        def delete() -> None:
            for key in keys:
                self._store.delete(key)

        if keys:
            await self._ports.calls.run(LANE, delete, COPY_DEADLINE)

    async def clear(self, machine: str, below: str = "") -> None:
        """Forget URLs, and remove what deleting leaves in a folder store: empty folders and unfinished writes."""
        prefix = f"{mailbox_folder(machine)}/{below}"
        self._urls = {pair: url for pair, url in self._urls.items() if not pair[0].startswith(prefix)}
        if self._folder is None:
            return
        path = self._folder / mailbox_folder(machine) / below
        await self._ports.calls.run(LANE, lambda: shutil.rmtree(path, ignore_errors=True), COPY_DEADLINE)


def _method(want: str) -> Method:
    return "PUT" if want.startswith("PUT ") else "GET"


def own_wants(party: str) -> tuple[str, str]:
    """Return what every party needs all the time."""
    return f"PUT {heartbeat_name(party)}", f"GET {control_document_name(party)}"
