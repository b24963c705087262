"""Time limits on open connections, by asyncio's public interface around the HTTP server's own protocol.

uvicorn closes connections that are idle after an answer; `middleware.BodyLimit` ends requests whose body does not
arrive. This module is for heads that never arrive and for clients that do not read their answer.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: on, for zero seconds."""


class Connections:
    """An ASGI application around another, which informs each open connection of its requests.

    protocol makes the protocols of connections: each is closed if the head of a request has not arrived `seconds` after
    the connection was made, or after the last answer; it is reset if its client reads nothing for that long.
    """

    def __init__(self, app: ASGIApp, seconds: float) -> None:
        self.app = app
        self.seconds = seconds
        self.open: dict[Any, Connection] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = self.open.get(tuple(scope.get("client") or ()))
        if connection is None:
            await self.app(scope, receive, send)
            return
        connection.stop_waiting_for_head()
        try:
            await self.app(scope, receive, send)
        finally:
            connection.wait_for_head()

    def protocol(self, make: Callable[..., Any], **arguments: Any) -> Connection:
        """The protocol of a new connection around the one that `make` makes."""
        return Connection(self, make(**arguments))


class Connection(asyncio.Protocol):
    """Passes everything on to the server's protocol, and keeps the time."""

    def __init__(self, connections: Connections, protocol: Any) -> None:
        self.connections = connections
        self.protocol = protocol
        self.transport: asyncio.Transport | None = None
        self.head: asyncio.TimerHandle | None = None
        self.reader: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.client = tuple(transport.get_extra_info("peername")[:2])
        self.connections.open[self.client] = self
        self.wait_for_head()
        self.protocol.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self.protocol.data_received(data)

    def eof_received(self) -> Any:
        return self.protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self.stop_waiting_for_head()
        self.stop_waiting_for_reader()
        if self.connections.open.get(self.client) is self:
            del self.connections.open[self.client]
        self.transport = None
        self.protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        assert self.transport is not None
        self.wait_for_reader(self.transport.get_write_buffer_size())
        self.protocol.pause_writing()

    def resume_writing(self) -> None:
        self.stop_waiting_for_reader()
        self.protocol.resume_writing()

    def wait_for_head(self) -> None:
        if self.transport is not None and self.head is None:
            self.head = asyncio.get_running_loop().call_later(self.connections.seconds, self.transport.close)

    def stop_waiting_for_head(self) -> None:
        if self.head is not None:
            self.head.cancel()
            self.head = None

    def wait_for_reader(self, waiting: int) -> None:
        self.reader = asyncio.get_running_loop().call_later(self.connections.seconds, self.check_reader, waiting)

    def check_reader(self, before: int) -> None:
        """Reset the connection unless its client has read some of the `before` bytes that were waiting for it."""
        if self.transport is None:
            return
        waiting = self.transport.get_write_buffer_size()
        if waiting < before:
            self.wait_for_reader(waiting)
            return
        # Without this the kernel would keep what the client does not read.
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.transport.abort()

    def stop_waiting_for_reader(self) -> None:
        if self.reader is not None:
            self.reader.cancel()
            self.reader = None
