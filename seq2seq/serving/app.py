"""The application: its routes, and errors in plain words."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import Receive

import seq2seq
from seq2seq.errors import UserError
from seq2seq.inference.translation import Translation
from seq2seq.serving import messages, pages, sizes
from seq2seq.serving.batcher import Batcher, Gathering, QueueFull
from seq2seq.serving.messages import Problem, TranslateRequest, TranslateResponse
from seq2seq.serving.middleware import GONE, Admission, BodyLimit, Count, HeadAsGet
from seq2seq.serving.monitoring import Monitor
from seq2seq.serving.quality import quality_by_length
from seq2seq.serving.request_limits import Limits
from seq2seq.serving.served import ServedModel

FREE = {"/health", "/metrics"}
"""Routes that are answered however many requests are in progress."""
PROBLEMS: dict[int | str, dict[str, Any]] = {
    408: {"model": Problem, "description": "The request took too long to arrive."},
    413: {"model": Problem, "description": "The request is too large."},
    415: {"model": Problem, "description": "The request is not declared as JSON."},
    422: {"model": Problem, "description": "Malformed, too long, or an unknown model or option."},
    429: {"model": Problem, "description": "Too many texts are waiting; try again after Retry-After seconds."},
    500: {"model": Problem, "description": "An internal error."},
    503: {"model": Problem, "description": "No translation within the time limit, or too many requests in progress."},
}

ECHO = 100
"""Characters of a client's name or value that an error repeats."""
SHOWN = 10
"""Errors that are reported for a malformed request: a body may contain hundreds of thousands."""


def create_app(models: Sequence[ServedModel], limits: Limits, gathering: Gathering) -> FastAPI:
    """The service of `models`; each gets a queue and a thread, which live until the application shuts down."""
    monitor = Monitor()
    served = {model.name: model for model in models}
    batchers = {
        name: Batcher(model.translator, gathering, limits.queue, limits.search, monitor.batch_observer(name))
        for name, model in served.items()
    }
    for name, batcher in batchers.items():
        monitor.watch_queue(name, batcher.waiting)
    descriptions = [model.description() for model in models]
    quality = quality_by_length({name: model.run for name, model in served.items()})
    page = pages.main_page(descriptions, quality)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        for batcher in batchers.values():
            await asyncio.to_thread(batcher.close)

    app = FastAPI(
        title="seq2seq",
        version=seq2seq.__version__,
        description="Translation models side by side: translations, n-best lists and attention.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    add_error_handlers(app)

    @app.post("/translate", response_model=TranslateResponse, responses=PROBLEMS, summary="Translate texts")
    async def translate(request: TranslateRequest, connection: Request) -> Response:
        body = await answer(request, connection.receive, served, batchers, limits)
        return Response(body, media_type="application/json")

    @app.get("/models", summary="The served models")
    async def list_models() -> list[dict[str, Any]]:
        return descriptions

    @app.get("/quality", summary="The models' scores by source length, from their runs; null where none are known")
    async def show_quality() -> dict[str, Any] | None:
        return quality

    @app.get("/health", summary="200 while every model can translate", responses={503: {"model": Problem}})
    async def health() -> Response:
        dead = [name for name, batcher in batchers.items() if not batcher.alive]
        if dead:
            return problem(503, f"no thread translates for {', '.join(dead)}")
        return JSONResponse({"status": "ok", "models": list(served)})

    @app.get("/metrics", response_class=PlainTextResponse, summary="Counters in Prometheus' text format")
    async def show_metrics() -> Response:
        return Response(monitor.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/", include_in_schema=False)
    async def show_page() -> Response:
        return HTMLResponse(page, headers=pages.HEADERS)

    @app.get("/docs", include_in_schema=False)
    async def show_docs() -> Response:
        return HTMLResponse(pages.docs_page(app.openapi()), headers=pages.HEADERS)

    app.add_middleware(BodyLimit, size=limits.body, seconds=limits.seconds)
    app.add_middleware(HeadAsGet)
    app.add_middleware(Admission, most=limits.connections, free=FREE)
    app.add_middleware(Count, monitor=monitor, paths={route.path for route in app.routes if isinstance(route, Route)})
    return app


class Gone(Exception):
    """The client has left before its answer."""


async def answer(
    request: TranslateRequest,
    receive: Receive,
    served: Mapping[str, ServedModel],
    batchers: Mapping[str, Batcher],
    limits: Limits,
) -> bytes:
    """A `TranslateResponse` in JSON. receive: reports that the client has left.

    Raises:
        UserError: the request asks for something unknown, or beyond the limits.
        QueueFull: too many texts are waiting.
        TimeoutError, Gone: see `results`.
    """
    request.check(limits)
    name = next(iter(served)) if request.model is None else request.model
    if name not in served:
        raise UserError(f"there is no model {name[:ECHO]!r}; served are {', '.join(served)}")
    translator = served[name].translator
    sources = await asyncio.to_thread(sizes.measure, translator, request.texts)
    search = messages.resolve_search(
        request.search, request.n_best, translator.search, limits, translator.longest_part, sources
    )
    alignment = request.alignment or request.heads
    if alignment:
        size = sum(sizes.attention_size(search, source, served[name].heads) for source in sources)
        if size > limits.attention:
            raise UserError(
                f"the attention of these texts could take {size} numbers; at most {limits.attention} are allowed: "
                "ask for shorter or fewer texts, or without alignment"
            )
    needed = [sizes.search_size(search, source) for source in sources]
    futures = batchers[name].submit(request.texts, search, alignment, needed)
    translations = await results(futures, receive, limits.seconds)
    return await asyncio.to_thread(messages.render, name, translations, request.heads, request.references)


async def results(futures: Sequence[Future[Translation]], receive: Receive, seconds: float) -> list[Translation]:
    """All results. After any error the futures are cancelled, so that nothing is translated in vain.

    Raises:
        TimeoutError: they took longer than `seconds`.
        Gone: `receive`, from which the body has been read, reported that the client has left.
    """
    work = asyncio.ensure_future(gathered(futures))
    gone = asyncio.ensure_future(disconnected(receive))
    try:
        await asyncio.wait((work, gone), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        raise Gone if gone.done() else TimeoutError
    finally:
        work.cancel()
        gone.cancel()
        for future in futures:
            future.cancel()


async def gathered(futures: Sequence[Future[Translation]]) -> list[Translation]:
    return await asyncio.gather(*map(asyncio.wrap_future, futures))


async def disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def problem(status: int, detail: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"detail": detail}, status, headers)


def add_error_handlers(app: FastAPI) -> None:
    """Every error is answered with a `Problem`, which repeats at most ECHO characters of a name from the client."""

    @app.exception_handler(UserError)
    async def refused(_: Request, error: UserError) -> Response:
        return problem(422, str(error))

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> Response:
        if not is_json(request.headers.get("content-type", "")):
            return problem(415, "send JSON, with the header content-type: application/json")
        return problem(422, plain_errors(error.errors()))

    @app.exception_handler(HTTPException)
    async def other(_: Request, error: HTTPException) -> Response:
        if isinstance(error.__cause__, UnicodeDecodeError):
            return problem(422, f"the body is not UTF-8: {error.__cause__.reason} at byte {error.__cause__.start}")
        status = 422 if error.status_code == 400 else error.status_code
        return problem(status, error.detail, dict(error.headers or {}))

    @app.exception_handler(QueueFull)
    async def busy(_: Request, error: QueueFull) -> Response:
        return problem(429, "too many texts are waiting; try again in a moment", {"Retry-After": "1"})

    @app.exception_handler(Gone)
    async def left(_: Request, error: Gone) -> Response:
        return Response(status_code=GONE)

    @app.exception_handler(asyncio.TimeoutError)
    @app.exception_handler(TimeoutError)
    async def late(_: Request, error: Exception) -> Response:
        return problem(503, "no translation within the time limit; try again, or with less text", {"Retry-After": "5"})

    @app.exception_handler(Exception)
    async def fault(_: Request, error: Exception) -> Response:
        return problem(500, "internal error on this request; see the log of the service")


def is_json(content_type: str) -> bool:
    """application/json, or a format that is based on it, whatever parameters follow."""
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def plain_errors(errors: Sequence[dict[str, Any]]) -> str:
    """pydantic's errors as "search.beam_size: input should be a valid integer; ...".

    Of the branches of a union, which all fail, the one that came furthest is reported. Only the first SHOWN errors are.
    """
    by_place: dict[str, str] = {}
    for error in errors[:SHOWN]:
        place = ".".join(str(part)[:ECHO] for part in error["loc"][1:] if part not in ("str", "list[str]"))
        message = "not valid JSON" if error["type"] == "json_invalid" else error["msg"][:1].lower() + error["msg"][1:]
        by_place.setdefault(place, message)
    return "; ".join(
        f"{place}: {message}" if place else message
        for place, message in by_place.items()
        if not any(other.startswith(f"{place}.") for other in by_place)
    )
