"""Texts of many requests, collected for a moment and translated together by one thread."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import TYPE_CHECKING, Any

from seq2seq.errors import UserError

if TYPE_CHECKING:
    from seq2seq.inference.translation import Translation
    from seq2seq.inference.translator import Translator
    from seq2seq.search import Search

log = logging.getLogger(__name__)


class QueueFull(Exception):
    """The queue has no room for more texts."""


@dataclass(frozen=True)
class Gathering:
    """size: texts translated together at most. seconds: how long the first of them waits for others."""

    size: int = 64
    seconds: float = 0.005

    def __post_init__(self) -> None:
        if not isinstance(self.size, int) or isinstance(self.size, bool) or self.size < 1:
            raise UserError(f"batching.size={self.size!r} must be a whole number of at least 1")
        if not isinstance(self.seconds, (int, float)) or not 0 <= self.seconds <= 10:
            raise UserError(f"batching.seconds={self.seconds!r} must be a number from 0 to 10")


@dataclass(frozen=True)
class QueuedText:
    """One text of a request.

    number: its place in its request, which seeds random draws as in `seq2seq translate`. size: see `sizes.search_size`.
    """

    text: str
    number: int
    search: Search
    alignment: bool
    size: int
    future: Future[Translation] = field(default_factory=Future)
    arrived: float = field(default_factory=time.monotonic)


class Batcher:
    """A queue before one translator, which only this object's thread uses.

    Requests take turns, one text each, so that no short request waits for a long one.

    capacity: texts that may wait. size: most that the sizes of the texts in one pass sum to (a larger text goes alone).
    observe: called with the number of texts of each pass.
    """

    def __init__(
        self,
        translator: Translator,
        gathering: Gathering,
        capacity: int,
        size: int,
        observe: Callable[[int], Any] = lambda size: None,
    ) -> None:
        self._translator = translator
        self._gathering = gathering
        self._capacity = capacity
        self._size = size
        self._observe = observe
        self._queue: deque[deque[QueuedText]] = deque()
        self._changed = Condition()
        self._closed = False
        self._thread = Thread(target=self._work, name="translate", daemon=True)
        self._thread.start()

    def waiting(self) -> int:
        """Texts in the queue that are still wanted."""
        with self._changed:
            return sum(not job.future.cancelled() for request in self._queue for job in request)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def submit(
        self, texts: Sequence[str], search: Search, alignment: bool, sizes: Sequence[int]
    ) -> list[Future[Translation]]:
        """One future a text; a future that is cancelled before its turn is left out. sizes: of the jobs.

        Raises:
            QueueFull: there is no room for all of them; none was taken.
        """
        jobs = deque(
            QueuedText(text, number, search, alignment, size)
            for number, (text, size) in enumerate(zip(texts, sizes, strict=True))
        )
        futures = [job.future for job in jobs]
        with self._changed:
            if self._length + len(jobs) > self._capacity:
                wanted = (deque(job for job in request if not job.future.cancelled()) for request in self._queue)
                self._queue = deque(filter(None, wanted))
            if self._closed or self._length + len(jobs) > self._capacity:
                raise QueueFull
            if jobs:
                self._queue.append(jobs)
            self._changed.notify()
        return futures

    @property
    def _length(self) -> int:
        return sum(map(len, self._queue))

    def close(self) -> None:
        """Refuse further texts, and return once all accepted ones are done or cancelled. A running pass is finished."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while batch := self._next():
            groups: dict[tuple[Search, bool], list[QueuedText]] = {}
            for job in batch:
                groups.setdefault((job.search, job.alignment), []).append(job)
            for group in groups.values():
                for jobs in passes(group, self._size):
                    wanted = [job for job in jobs if not job.future.cancelled()]
                    if wanted:
                        self._observe(len(wanted))
                        self._translate(wanted)

    def _next(self) -> list[QueuedText]:
        """The texts of the next batch; none once closed and empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closed)
            if self._queue:
                arrived = min(request[0].arrived for request in self._queue)
                left = arrived + self._gathering.seconds - time.monotonic()
                self._changed.wait_for(lambda: self._length >= self._gathering.size or self._closed, max(0.0, left))
            return [self._take() for _ in range(min(self._gathering.size, self._length))]

    def _take(self) -> QueuedText:
        """The next text of the request whose turn it is; that request then waits for the others."""
        request = self._queue.popleft()
        job = request.popleft()
        if request:
            self._queue.append(request)
        return job

    def _translate(self, jobs: list[QueuedText]) -> None:
        """Fill the futures of texts with the same options; they may be cancelled until then.

        Where the texts fail together, each is tried alone, so that only the faulty one fails.
        """
        try:
            found = self._translator.translate_window(
                [job.text for job in jobs],
                search=jobs[0].search,
                alignment=jobs[0].alignment,
                numbers=[job.number for job in jobs],
            )
        except Exception as error:
            if len(jobs) > 1:
                for job in jobs:
                    if not job.future.cancelled():
                        self._translate([job])
            else:
                if not isinstance(error, UserError):
                    log.exception("a text of %d characters could not be translated", len(jobs[0].text))
                if jobs[0].future.set_running_or_notify_cancel():
                    jobs[0].future.set_exception(error)
            return
        for job, translation in zip(jobs, found, strict=True):
            if job.future.set_running_or_notify_cancel():
                job.future.set_result(translation)


def passes(jobs: Sequence[QueuedText], size: int) -> list[list[QueuedText]]:
    """The texts in their order, in lists whose sizes sum to at most `size` (or of one text)."""
    found: list[list[QueuedText]] = []
    room = 0
    for job in jobs:
        if not found or job.size > room:
            found.append([])
            room = size
        found[-1].append(job)
        room -= job.size
    return found
