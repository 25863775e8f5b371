"""A TCP proxy that does to a connection what networks do.

It runs in its own thread. A test changes its attributes at any moment; they count from the next byte on.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections.abc import Coroutine, Iterator
from typing import Any
from unittest.mock import patch

from colonnade.transport.grpc import LoopbackNetwork

UP, DOWN = "up", "down"
"""Towards the listener and back to the dialer."""


class FaultProxy:
    """Forwards connections from a free loopback port to another port, with faults."""

    def __init__(self, upstream: int, seed: int = 0) -> None:
        self.delay = 0.0
        """Seconds every byte takes longer, without slowing the flow."""
        self.jitter = 0.0
        """At most this many seconds more, drawn anew for each piece; pieces keep their order."""
        self.write_bytes = 2**16
        """The most that is written at once."""
        self.bytes_per_second: float | None = None
        self.narrow = {UP, DOWN}
        """Directions that ``bytes_per_second`` counts for."""
        self.is_stalled = False
        """Nothing moves; nothing is lost."""
        self.stalled: set[str] = set()
        """The same for one direction."""
        self.damages = 0
        """In so many pieces one bit is turned."""
        self.cut_after: int | None = None
        """New connections break after so many bytes from the dialer."""
        self.swallows: set[str] = set()
        """Directions whose bytes are read and thrown away."""
        self.is_black_hole = False
        """New connections are accepted and never answered."""
        self.duplicates = False
        """Every new connection is made twice upstream; the second gets the same bytes and its answers are dropped."""
        self.connections = 0
        self.forwarded = {UP: 0, DOWN: 0}
        self._upstream = upstream
        self._dice = random.Random(seed)
        self._open: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault proxy", daemon=True)
        self._thread.start()
        self.port = 0
        self.port = self._run(self._listen())

    def __enter__(self) -> FaultProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    def reset(self) -> None:
        """Break all connections at once with RST, wherever they are."""
        self._run(self._break(with_reset=True))

    def close_all(self) -> None:
        """End all connections in order, with FIN."""
        self._run(self._break(with_reset=False))

    def refuse(self) -> None:
        """Stop listening: new connections are refused; those there are go on."""
        self._run(self._unlisten())

    def accept(self) -> None:
        """Listen again on the same port."""
        self._run(self._listen())

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _listen(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        return int(self._server.sockets[0].getsockname()[1])

    async def _unlisten(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _break(self, *, with_reset: bool) -> None:
        for writer in list(self._open):
            if with_reset:
                connection = writer.get_extra_info("socket")
                with contextlib.suppress(OSError):
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
            else:
                writer.close()

    async def _stop(self) -> None:
        await self._unlisten()
        await asyncio.sleep(0.05)  # connections accepted in this moment must begin before they can be ended
        await self._break(with_reset=True)
        rest = asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._open.add(writer)
        try:
            if self.is_black_hole:
                while await reader.read(2**16):
                    pass
                return
            with contextlib.suppress(OSError):
                await self._join(reader, writer)
        except asyncio.CancelledError:
            pass  # the test is over
        finally:
            self._open.discard(writer)
            writer.close()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        uppers = [await asyncio.open_connection("127.0.0.1", self._upstream) for _ in range(1 + self.duplicates)]
        self._open.update(upper for _, upper in uppers)
        work = [
            asyncio.create_task(self._pump(reader, [upper for _, upper in uppers], UP)),
            asyncio.create_task(self._pump(uppers[0][0], [writer], DOWN)),
            *(asyncio.create_task(self._pump(answers, [], DOWN)) for answers, _ in uppers[1:]),
        ]
        try:
            # The copy may be thrown out at any time; the connection itself ends when one of its directions does.
            await asyncio.wait(work[:2], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)
            for _, upper in uppers:
                self._open.discard(upper)
                upper.close()

    async def _pump(self, reader: asyncio.StreamReader, writers: list[asyncio.StreamWriter], direction: str) -> None:
        """Read on while earlier pieces are still on their way, as a long line does."""
        on_the_way: asyncio.Queue[tuple[float, bytes] | None] = asyncio.Queue(1000)
        writing = asyncio.create_task(self._write(on_the_way, writers, direction))
        reading = asyncio.create_task(self._read(reader, on_the_way))
        try:
            await asyncio.wait([reading, writing], return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for task in (reading, writing):
                task.cancel()
            await asyncio.gather(reading, writing, return_exceptions=True)

    async def _read(self, reader: asyncio.StreamReader, on_the_way: asyncio.Queue[tuple[float, bytes] | None]) -> None:
        while piece := await reader.read(2**14):
            await on_the_way.put((self._loop.time() + self.delay + self._dice.random() * self.jitter, piece))
        await on_the_way.put(None)

    async def _write(
        self,
        on_the_way: asyncio.Queue[tuple[float, bytes] | None],
        writers: list[asyncio.StreamWriter],
        direction: str,
    ) -> None:
        passed, breaks_after = 0, self.cut_after if direction == UP else None
        while (item := await on_the_way.get()) is not None:
            moment, piece = item
            await asyncio.sleep(max(0.0, moment - self._loop.time()))
            while piece:
                while self.is_stalled or direction in self.stalled:
                    await asyncio.sleep(0.02)
                part, piece = piece[: self.write_bytes], piece[self.write_bytes :]
                if self.bytes_per_second is not None and direction in self.narrow:
                    await asyncio.sleep(len(part) / self.bytes_per_second)
                if direction in self.swallows:
                    continue
                if self.damages > 0:
                    self.damages -= 1
                    part = bytes([part[0] ^ 4]) + part[1:]
                for place, writer in enumerate(writers):
                    try:
                        writer.write(part)
                        await writer.drain()
                    except OSError:
                        if place == 0:
                            raise
                self.forwarded[direction] += len(part)
                passed += len(part)
                if breaks_after is not None and passed >= breaks_after:
                    raise ConnectionResetError


@contextlib.contextmanager
def through_proxies(delay: float = 0.0) -> Iterator[list[FaultProxy]]:
    """Put a proxy in front of every door that is dialled in simulations over gRPC; give those made so far."""
    made: list[FaultProxy] = []
    address = LoopbackNetwork._address

    def through_a_proxy(network: LoopbackNetwork, peer: str) -> str | None:
        direct = address(network, peer)
        if direct is None:
            return None
        made.append(FaultProxy(int(direct.rsplit(":", 1)[1])))
        made[-1].delay = delay
        return f"127.0.0.1:{made[-1].port}"

    with patch.object(LoopbackNetwork, "_address", through_a_proxy):
        yield made
    for proxy in made:
        proxy.__exit__()
