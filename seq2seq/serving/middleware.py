"""ASGI middleware: limits on requests and bodies, HEAD, and counting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from seq2seq.serving.monitoring import Monitor

DRAINED = 8
"""Multiple of the limit that is read and dropped of a longer body, so that its sender reads the answer."""

GONE = 499
"""Status that is counted where the client left before its answer."""


class HeadAsGet:
    """Answers HEAD as GET; uvicorn leaves out the body."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}
        await self.app(scope, receive, send)


class Admission:
    """Lets at most `most` requests be in progress at once, without those for the paths `free`; others get 503."""

    def __init__(self, app: ASGIApp, most: int, free: Collection[str]) -> None:
        self.app = app
        self.most = most
        self.free = free
        self.in_progress = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self.free:
            await self.app(scope, receive, send)
            return
        if self.in_progress >= self.most:
            headers = {"Retry-After": "1", "Connection": "close"}
            problem = JSONResponse({"detail": "too many requests are in progress; try again"}, 503, headers)
            await problem(scope, receive, send)
            return
        self.in_progress += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self.in_progress -= 1


class BodyLimit:
    """Passes on a request once its body has arrived: at most `size` bytes, else 413, within `seconds`, else 408."""

    def __init__(self, app: ASGIApp, size: int, seconds: float) -> None:
        self.app = app
        self.size = size
        self.seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            body = await asyncio.wait_for(self._read(receive), self.seconds)
        except asyncio.TimeoutError:
            problem = JSONResponse({"detail": f"the request did not arrive within {self.seconds:g} seconds"}, 408)
            await problem(scope, receive, send)
            return
        except _TooLong:
            problem = JSONResponse({"detail": f"the request is longer than {self.size} bytes"}, 413)
            await problem(scope, receive, send)
            return
        if body is None:
            return
        replay: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def once() -> Message:
            return replay.pop() if replay else await receive()

        await self.app(scope, once, send)

    async def _read(self, receive: Receive) -> bytes | None:
        """The body; None if the client has left."""
        chunks, size, more = [], 0, True
        while more and size <= DRAINED * self.size:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            more = message.get("more_body", False)
            size += len(message.get("body", b""))
            if size <= self.size:
                chunks.append(message.get("body", b""))
        if size > self.size:
            raise _TooLong
        return b"".join(chunks)


class _TooLong(Exception):
    pass


class Count:
    """Counts and times requests by path; those outside `paths` are "other"."""

    def __init__(self, app: ASGIApp, monitor: Monitor, paths: Collection[str]) -> None:
        self.app = app
        self.monitor = monitor
        self.paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.monotonic(), GONE

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, watch)
        except Exception:
            status = 500
            raise
        finally:
            path = scope["path"] if scope["path"] in self.paths else "other"
            self.monitor.request(path, status, time.monotonic() - start)
