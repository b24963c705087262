"""Listening, and stopping without losing what was accepted."""

from __future__ import annotations

import asyncio
import signal
import socket
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from seq2seq.errors import UserError
from seq2seq.serving.request_limits import Limits

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: on, for no seconds."""
SPARE = 8
"""So many more connections than requests under way may be open, at least: they are what `middleware.Admission`
answers."""


def listen(host: str, port: int) -> socket.socket:
    """An open socket; port 0 takes a free one. Raises UserError if the address cannot be had."""
    if not isinstance(port, int) or not 0 <= port <= 65535:
        raise UserError(f"port={port!r} must be a whole number from 0 to 65535")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, TypeError, UnicodeError) as error:
        reason = error.strerror or error if isinstance(error, OSError) else "that is no host name"
        raise UserError(f"cannot listen on {host}:{port}: {reason}\nGive another port= or host=.") from error


def address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Impatient(H11Protocol):
    """HTTP that does not wait for ever: uvicorn limits how long a connection may idle, `middleware.BodyLimit` how long
    a body may take, and this the rest. A connection is closed if `seconds` after it was made, or after the answer
    before, the next request's head has not arrived; or if its client takes nothing of an answer for so long."""

    def __init__(self, seconds: float, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.seconds = seconds
        self.head: asyncio.TimerHandle | None = None
        self.answer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._await_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._await_head()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_reader(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_waiting_for_reader()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_waiting_for_head()
        self._stop_waiting_for_reader()

    def _await_head(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting_for_head()
        elif self.head is None and not self.transport.is_closing():
            self.head = self.loop.call_later(self.seconds, self.transport.close)

    def _stop_waiting_for_head(self) -> None:
        if self.head is not None:
            self.head.cancel()
            self.head = None

    def _await_reader(self, waiting: int) -> None:
        self.answer = self.loop.call_later(self.seconds, self._check_reader, waiting)

    def _check_reader(self, before: int) -> None:
        waiting = self.transport.get_write_buffer_size()
        if waiting < before:
            self._await_reader(waiting)
        else:
            # Otherwise the kernel would keep what its client does not take.
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            self.transport.abort()

    def _stop_waiting_for_reader(self) -> None:
        if self.answer is not None:
            self.answer.cancel()
            self.answer = None


def configuration(app: Callable[..., Any], limits: Limits) -> uvicorn.Config:
    """uvicorn's settings: at a stop, requests under way have the time that the limits give them."""
    return uvicorn.Config(
        app,
        http=partial(Impatient, limits.seconds),  # type: ignore[arg-type]
        log_level="warning",
        access_log=False,
        lifespan="on",
        limit_concurrency=limits.connections + max(SPARE, limits.connections // 10),
        timeout_graceful_shutdown=int(limits.seconds) + 5,
        server_header=False,
    )


def serve(app: Callable[..., Any], listener: socket.socket, limits: Limits) -> None:
    """Run until SIGINT or SIGTERM; then accept nothing more, answer what was accepted, and return."""
    # uvicorn hands a signal on after its shutdown, which would end the process with that signal's status.
    before = {name: signal.signal(name, lambda *_: None) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        uvicorn.Server(configuration(app, limits)).run(sockets=[listener])
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
        listener.close()
