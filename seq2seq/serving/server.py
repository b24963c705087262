"""Listening, and stopping without losing what was accepted."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from typing import Any

import uvicorn

from seq2seq.errors import UserError
from seq2seq.serving.limits import Limits


def listen(host: str, port: int) -> socket.socket:
    """An open socket; port 0 takes a free one. Raises UserError if the address cannot be had."""
    if not isinstance(port, int) or not 0 <= port <= 65535:
        raise UserError(f"port={port!r} must be a whole number from 0 to 65535")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise UserError(
            f"cannot listen on {host}:{port}: {error.strerror or error}\nGive another port= or host=."
        ) from error


def address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def configuration(app: Callable[..., Any], limits: Limits) -> uvicorn.Config:
    """uvicorn's settings: at a stop, requests under way have the time that the limits give them."""
    return uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="on",
        limit_concurrency=limits.connections,
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
