"""The fault proxy's own process: `python -m tests.faults.proxy_server`. FaultProxy starts it and speaks with it.

It reads a JSON object a line from its standard input, answers each with one, and ends with that input.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

from tests.faults.proxy_http import LARGEST_HEAD, PIECE, Head, answer_body, read_head, request_body
from tests.faults.proxy_rules import Dice, Fault, Loaded, Rule

HOST = "127.0.0.1"
DUPLICATE_SECONDS = 120.0
_AT_ONCE = struct.pack("ii", 1, 0)
_GONE = (OSError, EOFError, ValueError)
"""What reading and writing raise when an end went away, or is no HTTP."""


class Cut(Exception):
    """The exchange ends here, and its connections with it."""


class End:
    """One end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def reset(self) -> None:
        with contextlib.suppress(OSError):
            self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self.writer.transport.abort()

    def close(self) -> None:
        """What was written arrives."""
        self.writer.close()


class Proxy:
    """Passes exchanges on, or does to them what the rules say.

    Two things stop everybody: a partition, in which nothing is lost and nothing arrives, as when packets are;
    and refusing, in which nobody listens and open connections are reset.
    """

    def __init__(self, target: str, port: int) -> None:
        self.target = target
        self.rate: float | None = None
        self.budget: float = float("inf")
        self.counts: Counter[str] = Counter()
        self._dice = Dice((), 0)
        self._joined = asyncio.Event()
        self._joined.set()
        self._port = port
        self._listener: asyncio.Server | None = None
        self._ends: set[End] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self) -> int:
        if self._listener is None:
            self._listener = await asyncio.start_server(self._accept, HOST, self._port, limit=LARGEST_HEAD, backlog=512)
            self._port = self._listener.sockets[0].getsockname()[1]
        return self._port

    def refuse(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self.cut()

    def cut(self) -> None:
        """Every connection that is open now."""
        for end in tuple(self._ends):
            end.reset()

    def part(self, parted: bool) -> None:
        self._joined.clear() if parted else self._joined.set()

    def rule(self, rules: tuple[Rule, ...], seed: str) -> None:
        self._dice = Dice(rules, seed)

    # One connection

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.counts["connections"] += 1
        with self._held(End(reader, writer)) as client, contextlib.suppress(Cut, *_GONE):
            await self._exchanges(client)

    async def _exchanges(self, client: End) -> None:
        with contextlib.ExitStack() as held:
            server: End | None = None
            while head := await read_head(client.reader):
                await self._joined.wait()
                self.counts["requests"] += 1
                loaded = await self._luck(head)
                if loaded is not None and loaded.rule.fault in _UNDELIVERED:
                    await _UNDELIVERED[loaded.rule.fault](client, head, loaded.rule)
                    continue
                if server is None or server.reader.at_eof():
                    server = held.enter_context(self._held(await self._connect()))
                if not await self._exchange(client, server, head, loaded):
                    return

    async def _luck(self, head: Head) -> Loaded | None:
        seconds, loaded = self._dice.throw(head.request)
        if seconds:
            self.counts[Fault.DELAY.value] += 1
            await asyncio.sleep(seconds)
        if loaded is not None:
            self.counts[loaded.rule.fault.value] += 1
            self.counts[f"{loaded.rule.fault.value} {head.words[0]}"] += 1
        return loaded

    async def _connect(self) -> End:
        place = urlsplit(self.target)
        if place.scheme == "unix":
            return End(*await asyncio.open_unix_connection(place.path, limit=LARGEST_HEAD))
        return End(*await asyncio.open_connection(place.hostname, place.port, limit=LARGEST_HEAD))

    @contextlib.contextmanager
    def _held(self, end: End) -> Iterator[End]:
        self._ends.add(end)
        try:
            yield end
        finally:
            self._ends.discard(end)
            end.close()

    # One exchange

    async def _exchange(self, client: End, server: End, head: Head, loaded: Loaded | None) -> bool:
        """Whether the connections are good for another."""
        body = request_body(client.reader, head)
        if loaded is not None and loaded.rule.fault is Fault.DUPLICATE:
            body = self._twice(head, [piece async for piece in body])
        sending = asyncio.ensure_future(self._deliver(head, body, server, loaded))
        try:
            answer = await self._answer(client, server, head, loaded)
            return sending.done() and not (head.last or answer.last)
        finally:
            sending.cancel()  # a server may answer before it has read everything
            with contextlib.suppress(asyncio.CancelledError, Cut, *_GONE):
                await sending

    async def _deliver(self, head: Head, body: AsyncIterator[bytes], server: End, loaded: Loaded | None) -> None:
        limit = None
        if loaded is not None and loaded.rule.fault is Fault.CUT_REQUEST:
            limit = loaded.cut(0, len(head.raw) + head.least)
        try:
            await self._pass(head, body, server, limit)
        except (Cut, *_GONE):
            server.close()  # whoever waits for its answer hears of it
            raise

    async def _answer(self, client: End, server: End, request: Head, loaded: Loaded | None) -> Head:
        while (head := await read_head(server.reader)) is not None and head.status < 200:
            await self._pass(head, answer_body(server.reader, head, request), client, None)
        if head is None:
            raise Cut
        self.counts["answers"] += 1
        body = answer_body(server.reader, head, request)
        fault = None if loaded is None else loaded.rule.fault
        if fault is Fault.DROP_ANSWER:
            raise Cut
        limit = None
        if loaded is not None and fault in (Fault.CUT_ANSWER, Fault.TRUNCATE):
            first = len(head.raw) if fault is Fault.TRUNCATE else 0
            limit = loaded.cut(first, len(head.raw) + (0 if head.bodiless(request) else head.least))
        await self._pass(head, body, client, limit)
        return head

    async def _pass(self, head: Head, body: AsyncIterator[bytes], sink: End, limit: int | None) -> None:
        """Raises Cut after `limit` bytes."""
        left = float("inf") if limit is None else limit
        async for piece in _all(head, body):
            await self._joined.wait()
            self._spend(len(piece))
            sink.writer.write(piece[: int(min(left, len(piece)))])
            await sink.writer.drain()
            left -= len(piece)
            if left <= 0:
                raise Cut
            if self.rate is not None:
                await asyncio.sleep(len(piece) / self.rate)

    def _spend(self, size: int) -> None:
        self.budget -= size
        if self.budget <= 0:
            self.counts["cut_after"] += 1
            self.refuse()
            raise Cut

    async def _twice(self, head: Head, body: list[bytes]) -> AsyncIterator[bytes]:
        again = asyncio.ensure_future(self._again(head, body))
        self._tasks.add(again)
        again.add_done_callback(self._tasks.discard)
        for piece in body:
            yield piece

    async def _again(self, head: Head, body: list[bytes]) -> None:
        with contextlib.suppress(Cut, TimeoutError, *_GONE):
            async with asyncio.timeout(DUPLICATE_SECONDS):
                with self._held(await self._connect()) as server:
                    server.writer.write(head.raw + b"".join(body))
                    answer = await read_head(server.reader)
                    if answer is not None:
                        self.counts["answers"] += 1
                        async for _ in answer_body(server.reader, answer, head):
                            pass


async def _all(head: Head, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield head.raw
    async for piece in body:
        yield piece


async def _reset(client: End, head: Head, rule: Rule) -> None:
    client.reset()
    raise Cut


async def _busy(client: End, head: Head, rule: Rule) -> None:
    async for _ in request_body(client.reader, head):
        pass
    text = json.dumps({"error": {"code": "try_later", "message": "try again later"}})
    lines = (
        f"HTTP/1.1 {rule.status} Later",
        f"Retry-After: {rule.seconds:g}",
        "Content-Type: application/json",
        f"Content-Length: {len(text)}",
    )
    client.writer.write("\r\n".join((*lines, "", text)).encode())
    await client.writer.drain()


async def _swallow(client: End, head: Head, rule: Rule) -> None:
    while await client.reader.read(PIECE):
        pass


_UNDELIVERED = {Fault.RESET: _reset, Fault.BUSY: _busy, Fault.BLACK_HOLE: _swallow}


# Being told what to do


async def obey(proxy: Proxy, order: dict[str, Any]) -> object:
    """Does what the order says; its answer."""
    orders: dict[str, Callable[..., object]] = {
        "rules": lambda rules, seed: proxy.rule(tuple(_rule(**rule) for rule in rules), seed),
        "part": proxy.part,
        "cut": proxy.cut,
        "refuse": proxy.refuse,
        "aim": lambda target: setattr(proxy, "target", target),
        "throttle": lambda rate: setattr(proxy, "rate", rate),
        "cut_after": lambda bytes: setattr(proxy, "budget", bytes),
        "counts": lambda: dict(proxy.counts),
    }
    name = order.pop("do")
    return await proxy.listen() if name == "listen" else orders[name](**order)


def _tell(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Ends that went away are nothing to report."""
    if not isinstance(context.get("exception"), OSError | asyncio.CancelledError):
        loop.default_exception_handler(context)


def _rule(fault: str, **more: Any) -> Rule:
    return Rule(Fault(fault), **more)


async def main(target: str, port: int) -> None:
    proxy = Proxy(target, port)
    asyncio.get_running_loop().set_exception_handler(_tell)
    orders = asyncio.StreamReader(limit=LARGEST_HEAD)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    while line := await orders.readline():
        answer = await obey(proxy, json.loads(line))
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
