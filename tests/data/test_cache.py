"""The cache: each folder is built once, whole or not at all, through crashes and races."""

import multiprocessing
import os
import resource
import signal
import time
from pathlib import Path

import pytest

from seq2seq.data.cache import cached_folder, content_key
from seq2seq.errors import UserError


def write(text: str, calls: Path | None = None, seconds: float = 0.0):
    def build(folder: Path) -> None:
        if calls:
            with open(calls, "a") as stream:
                stream.write("x")
        (folder / "one").write_text(text)
        time.sleep(seconds)
        (folder / "two").write_text(text)

    return build


def fail(folder: Path) -> None:
    raise AssertionError("built although it was there")


def prepare(cache: Path, calls: Path, seconds: float) -> None:
    folder = cached_folder(cache, "thing", "key", write("content", calls, seconds))
    assert (folder / "two").read_text() == "content"


def fork(target, *arguments) -> multiprocessing.Process:
    process = multiprocessing.get_context("fork").Process(target=target, args=arguments)
    process.start()
    return process


def test_folder_is_built_once_and_found_again(tmp_path):
    first = cached_folder(tmp_path / "deep" / "cache", "thing", "key", write("a"))
    assert cached_folder(tmp_path / "deep" / "cache", "thing", "key", fail) == first
    assert cached_folder(tmp_path / "deep" / "cache", "thing", "other", write("b")) != first


def test_content_keys_of_different_values_differ():
    values = [1, "1", [1], None, {"a": 1}, {"a": 1.5}, ["a", "b"], ["ab"], ["a", ["b"]]]
    assert len({content_key(value) for value in values}) == len(values)
    assert content_key({"a": 1, "b": 2}) == content_key({"b": 2, "a": 1})


def test_processes_that_ask_at_once_build_once(tmp_path):
    processes = [fork(prepare, tmp_path / "cache", tmp_path / "calls", 0.3) for _ in range(3)]
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert (tmp_path / "calls").read_text() == "x"


@pytest.mark.parametrize("attempt", range(20))
def test_killed_builders_leave_no_folder_that_counts_as_built(tmp_path, attempt):
    cache = tmp_path / "cache"
    process = fork(prepare, cache, tmp_path / "calls", 0.05)
    time.sleep(attempt * 0.004)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    folder = cached_folder(cache, "thing", "key", write("content"))
    assert (folder / "one").read_text() == (folder / "two").read_text() == "content"
    assert not list(cache.glob("*.tmp")) and not list(cache.glob(".*.tmp"))


def test_failed_build_leaves_nothing(tmp_path):
    def build(folder: Path) -> None:
        (folder / "one").write_text("half")
        raise UserError("bad corpus")

    with pytest.raises(UserError, match="bad corpus"):
        cached_folder(tmp_path, "thing", "key", build)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


@pytest.mark.parametrize("damage", ["truncate", "flip", "delete", "manifest"])
def test_damaged_folder_is_noticed_and_built_again(tmp_path, damage, caplog):
    folder = cached_folder(tmp_path, "thing", "key", write("content"))
    path = folder / ("manifest.json" if damage == "manifest" else "two")
    if damage == "delete":
        path.unlink()
    else:
        path.write_text({"truncate": "conten", "flip": "contenT", "manifest": '{"one'}[damage])
    assert (cached_folder(tmp_path, "thing", "key", write("content")) / "two").read_text() == "content"
    assert "is damaged and is built again" in caplog.text
    cached_folder(tmp_path, "thing", "key", fail)


def full_disk(cache: Path, result: Path) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
    try:
        cached_folder(cache, "thing", "key", write("x" * 10_000))
    except UserError as error:
        result.write_text(str(error))


def test_full_disk_is_a_clear_error(tmp_path):
    fork(full_disk, tmp_path / "cache", tmp_path / "result").join()
    message = (tmp_path / "result").read_text()
    assert "cache: File too large.\n" in message and "data.cache_dir=DIR" in message and len(message.splitlines()) == 2
    assert not [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]
    folder = cached_folder(tmp_path / "cache", "thing", "key", write("x" * 10_000))
    assert (folder / "two").stat().st_size == 10_000


def test_a_full_disk_met_by_another_library_is_the_same_error(tmp_path):
    def build(folder: Path) -> None:
        raise RuntimeError("Internal: No space left on device")

    with pytest.raises(UserError, match=r"cannot write the cache folder .*: No space left on device"):
        cached_folder(tmp_path, "thing", "key", build)


def test_folder_that_cannot_be_written_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write the cache folder"):
        cached_folder(tmp_path / "file" / "cache", "thing", "key", write("a"))
    with pytest.raises(UserError, match="cannot write the cache folder /proc/nothing"):
        cached_folder("/proc/nothing", "thing", "key", write("a"))
