"""The queue before a translator, without a socket."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from concurrent.futures import wait as wait_for

import pytest

from seq2seq.errors import UserError
from seq2seq.inference.translation import Candidate, Translation
from seq2seq.search import BeamSearch, GreedySearch, Search
from seq2seq.serving.batcher import Batcher, Gathering, QueueFull

GREEDY = GreedySearch()


class Echo:
    """Stands in for a translator: answers each text with itself, and notes what came together."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.calls: list[tuple[list[str], object, bool, list[int]]] = []
        self.gate = threading.Event()
        self.gate.set()

    def translate_window(self, texts, *, search, alignment, numbers):
        self.begun.set()
        assert self.gate.wait(20)
        self.calls.append((texts, search, alignment, numbers))
        if "bad" in texts:
            raise RuntimeError("this text breaks the model")
        return [Translation([Candidate(text, 0.0, 0.0, [text], True)], [text], 1) for text in texts]


@pytest.fixture
def echo():
    return Echo()


def batcher(echo: Echo, size: int = 8, seconds: float = 0.2, capacity: int = 100) -> Batcher:
    return Batcher(echo, Gathering(size, seconds), capacity, 10)


def submit(queue: Batcher, texts: list[str], search: Search, alignment: bool, sizes: list[int] | None = None):
    return queue.submit(texts, search, alignment, sizes or [1] * len(texts))


def texts(futures: list[Future]) -> list[str]:
    return [future.result(20).text for future in futures]


def test_batcher_translates_requests_together_and_answers_each(echo):
    queue = batcher(echo, size=4, seconds=5)
    first, second = submit(queue, ["a", "b"], GREEDY, False), submit(queue, ["c", "d"], GREEDY, False)
    assert texts(first) == ["a", "b"]
    assert texts(second) == ["c", "d"]
    assert echo.calls == [(["a", "c", "b", "d"], GREEDY, False, [0, 0, 1, 1])]
    queue.close()


def test_batcher_takes_one_text_of_each_request_in_turn(echo):
    echo.gate.clear()
    queue = batcher(echo, size=2, seconds=0)
    busy = submit(queue, ["busy"], GREEDY, False)
    assert echo.begun.wait(20)
    long, short = submit(queue, list("abcdef"), GREEDY, False), submit(queue, ["x"], GREEDY, False)
    echo.gate.set()
    assert texts([*busy, *long, *short]) == ["busy", *"abcdef", "x"]
    assert [call[0] for call in echo.calls[1:]] == [["a", "x"], ["b", "c"], ["d", "e"], ["f"]]
    queue.close()


def test_batcher_translates_a_lone_text_after_its_wait(echo):
    queue = batcher(echo, size=4, seconds=0.01)
    assert texts(submit(queue, ["a"], GREEDY, False)) == ["a"]
    queue.close()


def test_batcher_translates_different_options_separately(echo):
    queue = batcher(echo, size=4, seconds=5)
    asked = [
        submit(queue, ["a"], GREEDY, False),
        submit(queue, ["b"], BeamSearch(), False),
        submit(queue, ["c"], GREEDY, True),
        submit(queue, ["d"], BeamSearch(), False),
    ]
    assert [texts(futures) for futures in asked] == [["a"], ["b"], ["c"], ["d"]]
    assert [call[:3] for call in echo.calls] == [
        (["a"], GREEDY, False),
        (["b", "d"], BeamSearch(), False),
        (["c"], GREEDY, True),
    ]
    queue.close()


def test_batch_has_at_most_its_number_of_texts(echo):
    queue = batcher(echo, size=3)
    assert texts(submit(queue, list("abcdefgh"), GREEDY, False)) == list("abcdefgh")
    assert [len(call[0]) for call in echo.calls] == [3, 3, 2]
    queue.close()


def test_pass_has_at_most_its_size_or_one_text(echo):
    queue = batcher(echo, size=6, seconds=5)
    assert texts(submit(queue, list("abcdef"), GREEDY, False, [4, 6, 1, 20, 9, 1])) == list("abcdef")
    assert [call[0] for call in echo.calls] == [["a", "b"], ["c"], ["d"], ["e", "f"]]
    queue.close()


def test_faulty_text_fails_alone(echo, caplog):
    queue = batcher(echo, size=3, seconds=5)
    good, bad, other = submit(queue, ["good", "bad", "other"], GREEDY, False)
    assert texts([good, other]) == ["good", "other"]
    with pytest.raises(RuntimeError, match="breaks the model"):
        bad.result(20)
    assert texts(submit(queue, ["x", "y", "z"], GREEDY, False)) == ["x", "y", "z"]
    assert "could not be translated" in caplog.text
    queue.close()


def test_full_queue_refuses_a_whole_request(echo):
    echo.gate.clear()
    queue = batcher(echo, size=1, seconds=0, capacity=3)
    busy = submit(queue, ["busy"], GREEDY, False)
    while queue.waiting():
        pass
    taken = submit(queue, ["a", "b"], GREEDY, False)
    with pytest.raises(QueueFull):
        submit(queue, ["c", "d"], GREEDY, False)
    assert queue.waiting() == 2
    last = submit(queue, ["e"], GREEDY, False)
    echo.gate.set()
    assert texts([*busy, *taken, *last]) == ["busy", "a", "b", "e"]
    queue.close()


def test_canceled_text_is_not_translated(echo):
    echo.gate.clear()
    queue = batcher(echo, size=1, seconds=0)
    busy = submit(queue, ["busy"], GREEDY, False)
    while queue.waiting():
        pass
    (late,) = submit(queue, ["late"], GREEDY, False)
    assert late.cancel()
    kept = submit(queue, ["kept"], GREEDY, False)
    echo.gate.set()
    assert texts([*busy, *kept]) == ["busy", "kept"]
    assert ["late"] not in [call[0] for call in echo.calls]
    queue.close()


def test_canceled_texts_make_room_in_the_queue(echo):
    echo.gate.clear()
    queue = batcher(echo, size=1, seconds=0, capacity=10)
    busy = submit(queue, ["busy"], GREEDY, False)
    assert echo.begun.wait(20)
    late = submit(queue, list("abcdefghij"), GREEDY, False)
    assert all(future.cancel() for future in late[:9])
    assert queue.waiting() == 1
    kept = submit(queue, ["k", "l"], GREEDY, False)
    with pytest.raises(QueueFull):
        submit(queue, list("mnopqrst"), GREEDY, False)
    echo.gate.set()
    assert texts([*busy, late[9], *kept]) == ["busy", "j", "k", "l"]
    queue.close()


def test_close_leaves_out_canceled_texts(echo):
    """Three texts of one batch: the first two fail together and would be tried alone, the third is next."""
    echo.gate.clear()
    queue = batcher(echo, size=3, seconds=5)
    futures = submit(queue, ["bad", "a", "b"], GREEDY, False, [5, 5, 1])
    assert echo.begun.wait(20)
    assert all(future.cancel() for future in futures)
    echo.gate.set()
    queue.close()
    assert [call[0] for call in echo.calls] == [["bad", "a"]]


def test_close_finishes_accepted_texts_and_refuses_others(echo):
    echo.gate.clear()
    queue = batcher(echo, size=2)
    futures = submit(queue, list("abcde"), GREEDY, False)
    closer = threading.Thread(target=queue.close)
    closer.start()
    echo.gate.set()
    closer.join(20)
    assert not closer.is_alive()
    assert not queue.alive
    assert not wait_for(futures, 0).not_done
    assert texts(futures) == list("abcde")
    with pytest.raises(QueueFull):
        submit(queue, ["f"], GREEDY, False)


@pytest.mark.parametrize("values", [{"size": 0}, {"size": 1.5}, {"seconds": -1}, {"seconds": 60}])
def test_impossible_batching_is_refused(values):
    (name,) = values
    with pytest.raises(UserError, match=f"batching.{name}"):
        Gathering(**values)
