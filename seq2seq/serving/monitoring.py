"""Counters for Prometheus, at `GET /metrics`."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Monitor:
    """The counters of one service, in a registry that no other service shares."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._requests = Counter(
            "seq2seq_requests",
            "Answered requests (status 499: the client had left)",
            ["path", "status"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "seq2seq_request_seconds", "Time to answer", ["path"], buckets=SECONDS, registry=self.registry
        )
        self._texts = Counter("seq2seq_texts", "Texts translated", ["model"], registry=self.registry)
        self._sizes = Histogram(
            "seq2seq_batch_texts", "Texts translated together", ["model"], buckets=SIZES, registry=self.registry
        )
        self._waiting = Gauge("seq2seq_waiting_texts", "Texts in the queue", ["model"], registry=self.registry)

    def request(self, path: str, status: int, seconds: float) -> None:
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def batch_observer(self, model: str) -> Callable[[int], None]:
        """A function for the model's batcher to call with the size of each batch."""
        texts, sizes = self._texts.labels(model), self._sizes.labels(model)

        def observe(size: int) -> None:
            texts.inc(size)
            sizes.observe(size)

        return observe

    def watch_queue(self, model: str, waiting: Callable[[], int]) -> None:
        self._waiting.labels(model).set_function(waiting)

    def text(self) -> bytes:
        """In Prometheus' text format."""
        return generate_latest(self.registry)
