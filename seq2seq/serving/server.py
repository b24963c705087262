"""Listening, and stopping once every accepted request is answered."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

import uvicorn

from seq2seq.errors import UserError
from seq2seq.serving.connections import Connections
from seq2seq.serving.request_limits import Limits

SPARE = 8
"""Connections that may be open beyond those of requests in progress: `middleware.Admission` answers them."""


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


def configuration(app: Callable[..., Any], limits: Limits) -> uvicorn.Config:
    """uvicorn's settings. After a stop, requests in progress have the time that the limits give them."""
    connections = Connections(app, limits.seconds)
    config = uvicorn.Config(
        connections,
        http="h11",
        ws="none",
        proxy_headers=False,  # which would replace the addresses that `Connections` goes by
        log_level="warning",
        access_log=False,
        lifespan="on",
        limit_concurrency=limits.connections + max(SPARE, limits.connections // 10),
        timeout_graceful_shutdown=int(limits.seconds) + 5,
        server_header=False,
    )
    config.load()
    config.http_protocol_class = partial(connections.protocol, config.http_protocol_class)  # type: ignore[assignment]
    return config


def serve(app: Callable[..., Any], listener: socket.socket, limits: Limits) -> None:
    """Run until SIGINT or SIGTERM; then accept nothing more, answer what was accepted, and return."""
    # uvicorn raises the signal again after its shutdown, which would end the process with that signal's status.
    before = {name: signal.signal(name, lambda *_: None) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        uvicorn.Server(configuration(app, limits)).run(sockets=[listener])
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
        listener.close()
