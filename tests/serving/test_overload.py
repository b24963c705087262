"""The service under more than it takes: long bodies, full queues, too many requests, faults."""

from __future__ import annotations

import asyncio
import threading
import time

import httpx
import pytest
from service import ask, counted, replaced, running

from seq2seq.serving.batcher import Gathering
from seq2seq.serving.request_limits import Limits


@pytest.mark.slow
def test_body_beyond_the_limit_is_answered_413(models):
    with running(models[:1], Limits(body=1000)) as url:
        assert ask(url, text="a" * 900).status_code == 200
        for size in (1001, 5_000, 50_000):
            response = ask(url, text="a" * size)
            assert response.status_code == 413
            assert "longer than 1000 bytes" in response.json()["detail"]

        def chunks():
            for _ in range(50):
                yield b"a" * 100

        assert httpx.post(f"{url}/translate", content=chunks()).status_code == 413
        assert ask(url, text="a").status_code == 200


@pytest.mark.slow
def test_full_queue_is_answered_429_and_the_time_limit_503(models):
    """The model is stuck: of 12 clients 3 or 4 fit into queue and model, and run out of time there."""
    gate = threading.Event()

    def stuck(own, texts, **options):
        assert gate.wait(60)
        return own(texts, **options)

    async def everybody(url: str) -> list[httpx.Response]:
        async with httpx.AsyncClient(timeout=60) as client:
            return await asyncio.gather(*(client.post(f"{url}/translate", json={"text": "a"}) for _ in range(12)))

    with running([replaced(models[0], stuck)], Limits(texts=3, queue=3, seconds=2), Gathering(1, 0)) as url:
        responses = asyncio.run(everybody(url))
        statuses = [response.status_code for response in responses]
        assert sorted(set(statuses)) == [429, 503]
        assert statuses.count(503) in (3, 4)
        for response in responses:
            assert int(response.headers["retry-after"]) > 0
            assert "try again" in response.json()["detail"]
        gate.set()
        while counted(url, "seq2seq_waiting_texts")[("attentive",)]:
            time.sleep(0.01)
        assert ask(url, text="a").status_code == 200
        assert httpx.get(f"{url}/health").json()["status"] == "ok"
        assert counted(url, "seq2seq_requests_total")["/translate", "429"] == statuses.count(429)


def test_too_many_requests_are_answered_503_and_counted(models):
    gate = threading.Event()

    def stuck(own, texts, **options):
        assert gate.wait(60)
        return own(texts, **options)

    with running([replaced(models[0], stuck)], Limits(connections=2), Gathering(1, 0)) as url:
        asking = [threading.Thread(target=ask, args=(url,), kwargs={"text": "a"}) for _ in range(2)]
        for one in asking:
            one.start()
        while not counted(url, "seq2seq_waiting_texts")[("attentive",)]:
            time.sleep(0.01)
        response = ask(url, text="a")
        assert response.status_code == 503 and int(response.headers["retry-after"]) > 0
        assert "too many requests" in response.json()["detail"]
        assert httpx.get(f"{url}/health").status_code == 200
        assert counted(url, "seq2seq_requests_total")["/translate", "503"] == 1
        gate.set()
        for one in asking:
            one.join()
        assert ask(url, text="a").status_code == 200


def test_internal_error_is_answered_500_and_the_service_continues(models):
    def broken(own, texts, **options):
        if "bad" in texts:
            raise RuntimeError("secret detail")
        return own(texts, **options)

    with running([replaced(models[0], broken)]) as url:
        response = ask(url, text=["good", "bad"])
        assert response.status_code == 500
        assert "secret" not in response.text and "log" in response.json()["detail"]
        assert ask(url, text="good").status_code == 200
        assert counted(url, "seq2seq_requests_total") == {
            ("/translate", "500"): 1, ("/translate", "200"): 1,
        }  # fmt: skip
