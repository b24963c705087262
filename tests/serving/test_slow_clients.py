"""Clients that stop halfway, send nothing, take nothing or vanish: none of them costs the others their answers."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import threading
import time
from urllib.parse import urlsplit

import httpx
import pytest
from service import SOURCES, ask, counted, replaced, running

from seq2seq.serving.batcher import Gathering
from seq2seq.serving.request_limits import Limits


def connect(url: str, sent: bytes) -> socket.socket:
    place = urlsplit(url)
    one = socket.create_connection((place.hostname, place.port))
    one.settimeout(30)
    one.sendall(sent)
    return one


def closed(one: socket.socket) -> bool:
    try:
        return one.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.slow
def test_slow_and_vanishing_clients_do_not_delay_others(models):
    head = b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n"
    with running(models[:1], Limits(seconds=3)) as url:
        half = [connect(url, head + b'{"text"') for _ in range(60)]
        for _ in range(20):
            connect(url, head + b'{"text": "a"}').close()
        assert ask(url, text=SOURCES[0]).status_code == 200
        late = connect(url, head + b'{"text"')
        assert httpx.get(f"{url}/health").status_code == 200
        late.sendall(b': "a"}')
        assert late.recv(15) == b"HTTP/1.1 200 OK"
        assert half[0].recv(12) == b"HTTP/1.1 408"
        for one in (*half, late):
            one.close()
        assert ask(url, text=SOURCES[0]).status_code == 200


def test_texts_of_clients_that_have_left_are_dropped(models):
    """The queue is full of them while the model is busy with the first; then there is room at once."""
    gate, begun, done = threading.Event(), threading.Event(), []

    def slow(own, texts, **options):
        begun.set()
        assert gate.wait(60)
        done.extend(texts)
        return own(texts, **options)

    body = json.dumps({"text": ["a"] * 5}).encode()
    head = b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with running([replaced(models[0], slow)], Limits(texts=5, queue=5, seconds=60), Gathering(1, 0)) as url:
        gone = connect(url, head % len(body) + body)
        assert begun.wait(30)
        gone.close()
        while counted(url, "seq2seq_requests_total").get(("/translate", "499")) != 1:
            time.sleep(0.01)
        assert counted(url, "seq2seq_waiting_texts")[("attentive",)] == 0
        gate.set()
        assert ask(url, text=["b"] * 5).status_code == 200
        assert done == ["a", *"bbbbb"]


@pytest.mark.slow
def test_heads_that_never_end_are_closed(models):
    """Silence, half a head, a second one that comes byte by byte: all are cut off, and nobody else notices."""
    half = b"POST /translate HTTP/1.1\r\nHost: x\r\nX-Slow: "
    with running(models[:1], Limits(seconds=2, connections=60)) as url:
        slow = [connect(url, half[:number]) for number in range(50)]
        assert ask(url, text=SOURCES[0]).status_code == 200
        lasting = connect(url, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert lasting.recv(15) == b"HTTP/1.1 200 OK"
        lasting.sendall(half)
        for _ in range(3):
            for one in slow:
                with contextlib.suppress(OSError):
                    one.sendall(b"x")
            assert ask(url, text=SOURCES[0]).status_code == 200
            time.sleep(0.3)
        assert all(closed(one) for one in slow)
        while lasting.recv(1000):
            pass
        assert ask(url, text=SOURCES[0]).status_code == 200


@pytest.mark.slow
def test_more_silent_clients_than_connections_are_closed(models):
    with running(models[:1], Limits(seconds=2, connections=40)) as url:
        slow = [connect(url, b"GET / HT") for _ in range(60)]
        assert ask(url, text="a").status_code == 503
        assert all(closed(one) for one in slow)
        assert ask(url, text="a").status_code == 200


@pytest.mark.slow
def test_client_that_reads_no_answer_is_reset(models):
    """It asks for the page again and again, and reads nothing: its connection is reset."""
    with running(models[:1], Limits(seconds=2)) as url:
        deaf = connect(url, b"")
        deaf.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            deaf.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 1_000_000)
        assert ask(url, text="a").status_code == 200
        waiting = select.poll()
        waiting.register(deaf, 0)
        ((_, event),) = waiting.poll(60_000)
        assert event & (select.POLLHUP | select.POLLERR)
        assert ask(url, text="a").status_code == 200
