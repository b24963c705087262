"""Translating from the command line. Most tests call it in this process: a start of its own costs seconds."""

import gc
import gzip
import json
import os
import pickle
import shutil
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from precision import float32_approx

from seq2seq.cli import run
from seq2seq.commands.configuration import compose
from seq2seq.commands.translate import Progress
from seq2seq.inference import bundle
from seq2seq.inference.bundle import Bundle, load_bundle
from seq2seq.inference.line_translation import LineCounts

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "tests" / "inference" / "kept"
BUNDLE = f"checkpoint={KEPT / 'bundle'}"
KNOWN = [json.loads(line) for line in (KEPT / "expected.jsonl").read_text().splitlines()]
TEXTS = [one["source"] for one in KNOWN]
DIRTY = [
    b"the cat",
    b"",
    b"   ",
    b"\t\xc2\xa0\xe3\x80\x80",
    b"the cat\r",
    b"the\x00 cat \x1b[31m \x07\x0b\x0c",
    "a dog 😀 👩‍👩‍👧 🇩🇪".encode(),
    "שלום עולם ‏مرحبا".encode(),
    b"\xff\xfe caf\xe9",
    "\u2028 line\u2029 separators \x85".encode(),
    b"<s> </s> <pad> <unk>",
    b"the big red dog sees a tree. " * 715,
    b"a" * 5000,
    b"the cat",
]
QUICK = ["search=greedy", "search.max_length_a=0.3", "search.max_length_b=3"]


def write(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(f"{text}\n" for text in texts))
    return path


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    write(tmp_path / "in.txt", TEXTS)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "seq2seq", *arguments]


@pytest.mark.slow
def test_translate_writes_one_line_per_input_line_for_any_bytes() -> None:
    done = subprocess.run(
        command("translate", BUNDLE, "window=5", "threads=1", *QUICK),
        input=b"\n".join(DIRTY),
        capture_output=True,
        timeout=300,
        check=True,
    )
    lines = done.stdout.decode("utf-8").split("\n")
    assert lines.pop() == ""
    assert len(lines) == len(DIRTY)
    assert lines[1:4] == ["", "", ""]
    assert lines[0] == lines[4] == lines[13] != ""
    notes = done.stderr.decode()
    for words in ("1 line had invalid UTF-8", "2 lines were too long for one pass and were split", "14 lines in"):
        assert words in notes
    assert "Traceback" not in notes and "\r" not in notes


@pytest.mark.fork
@pytest.mark.slow
def test_translate_into_a_closed_pipe_ends_without_an_error() -> None:
    write(Path("many.txt"), TEXTS * 40)
    line = " ".join(command("translate", BUNDLE, "threads=1", *QUICK)) + " < many.txt | head -1"
    done = subprocess.run(["bash", "-c", f"{line}; exit ${{PIPESTATUS[0]}}"], capture_output=True, timeout=300)
    assert done.returncode == 0
    assert done.stdout.count(b"\n") == 1
    assert done.stderr == b""


@pytest.mark.slow
def test_join_refuses_unfinished_shards_and_joins_resumed_ones(capfd: pytest.CaptureFixture[str]) -> None:
    shards = [BUNDLE, "input=in.txt", "output=out.txt", "shard.count=3"]
    assert run(["translate", "-m", *shards, "shard.index=0,2"]) == 0
    join = ["translate", "output=out.txt", "shard.count=3", "join=true"]
    assert run(join) == 2
    assert "out.txt.1-of-3 does not exist" in capfd.readouterr().err
    assert run(["translate", *shards, "shard.index=1"]) == 0
    whole = Path("out.txt.1-of-3").read_bytes()
    Path("out.txt.1-of-3").write_bytes(whole[: len(whole) // 2])
    assert run(join) == 2
    assert "not finished" in capfd.readouterr().err
    assert not Path("out.txt").exists()
    assert run(["translate", *shards, "shard.index=1", "resume=true"]) == 0
    Path("out.txt.1-of-3.done").rename("kept")
    assert run(join) == 2
    assert "out.txt.1-of-3 is not finished" in capfd.readouterr().err
    Path("kept").rename("out.txt.1-of-3.done")
    assert Path("out.txt.1-of-3").read_bytes() == whole
    assert run(join) == 0
    assert Path("out.txt").read_text() == "".join(f"{one['text']}\n" for one in KNOWN)


@pytest.mark.fork
@pytest.mark.slow
def test_shards_translated_by_joblib_join_to_the_output_of_one_process() -> None:
    arguments = [BUNDLE, "input=in.txt", "output=out.txt", "shard.count=2", "shard.index=0,1", "threads=1"]
    assert run(["translate", "-m", *arguments, "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]) == 0
    assert run(["translate", "output=out.txt", "shard.count=2", "join=true"]) == 0
    assert Path("out.txt").read_text() == "".join(f"{one['text']}\n" for one in KNOWN)


def test_device_can_refer_to_the_shard_number() -> None:
    config = compose("translate", ["checkpoint=run", "shard.count=2", "shard.index=1", "device='cuda:${shard.index}'"])
    assert config.device == "cuda:1"


@pytest.mark.fork
@pytest.mark.slow
def test_a_second_process_writing_one_output_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither from the start nor resuming; and the lock goes with a process that is killed."""
    write(Path("out.txt"), ["one", "two"])
    code = (
        "import time; from seq2seq.files import hold; f = hold('out.txt'); print('held', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None and owner.stdout.readline() == b"held\n"
        for resume in ("true", "false"):
            assert run(["translate", BUNDLE, "input=in.txt", "output=out.txt", f"resume={resume}"]) == 2
            assert "error: another process is writing out.txt" in capsys.readouterr().err
        assert Path("out.txt").read_text() == "one\ntwo\n"
        owner.kill()
    assert run(["translate", BUNDLE, "input=in.txt", "output=out.txt", "resume=true"]) == 0
    assert Path("out.txt").read_text().splitlines()[:3] == ["one", "two", KNOWN[2]["text"]]
    assert run(["translate", BUNDLE, "input=in.txt", "output=/dev/null"]) == 0


def test_score_of_json_lines_repeats_their_scores(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["translate", BUNDLE, "input=in.txt", "output=out.jsonl", "format=jsonl", "n_best=2"]) == 0
    records = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    assert [one["line"] for one in records] == list(range(30))
    assert [one["text"] for one in records] == [one["text"] for one in KNOWN]
    assert [one["score"] for one in records] == float32_approx([one["score"] for one in KNOWN])
    assert all(len(one["n_best"]) == 2 and len(one["alignment"]) == len(one["tokens"]) for one in records)
    assert all(one["finished"] for one in records)
    capsys.readouterr()
    assert run(["score", BUNDLE, "sources=in.txt", "translations=out.jsonl"]) == 0
    scores = [float(line) for line in capsys.readouterr().out.splitlines()]
    assert scores == float32_approx([one["score"] for one in records])
    for name, content in (("renamed.txt", Path("out.jsonl").read_bytes()), ("out.jsonl.gz", None)):
        Path(name).write_bytes(content or gzip.compress(Path("out.jsonl").read_bytes()))
        assert run(["score", BUNDLE, "sources=in.txt", f"translations={name}"]) == 0
        assert [float(line) for line in capsys.readouterr().out.splitlines()] == scores
    records[3]["finished"] = records[7]["finished"] = False
    Path("cut.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    assert run(["score", BUNDLE, "sources=in.txt", "translations=cut.jsonl"]) == 0
    assert capsys.readouterr().err == (
        "warning: 2 translations were cut at the maximum length; they are scored as if they ended there\n"
    )
    Path("out.jsonl").write_text("not json\n" * 30)
    assert run(["score", BUNDLE, "sources=in.txt", "translations=out.jsonl"]) == 2
    assert "out.jsonl:1" in capsys.readouterr().err


def test_average_of_a_model_with_itself_translates_the_same() -> None:
    twice = f"checkpoints=[{KEPT / 'bundle'},{KEPT / 'bundle'}]"
    assert run(["average", twice, "output=mean"]) == 0
    assert run(["translate", "checkpoint=mean", "input=in.txt", "output=out.txt"]) == 0
    assert Path("out.txt").read_text() == "".join(f"{one['text']}\n" for one in KNOWN)
    assert run(["average", twice, "output=mean"]) == 2


@pytest.mark.slow
def test_average_holds_one_further_checkpoint_at_a_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded: list[weakref.ref[Any]] = []
    alive: list[int] = []

    def load(path: str) -> Bundle:
        gc.collect()
        alive.append(sum(model() is not None for model in loaded))
        found = load_bundle(path)
        loaded.append(weakref.ref(found.model))
        return found

    monkeypatch.setattr(bundle, "load_bundle", load)
    for number in range(4):
        shutil.copytree(KEPT / "bundle", str(number))
    assert run(["average", "checkpoints=['0','1','2','3']", "output=mean"]) == 0
    assert alive == [0, 1, 1, 1]  # the first, which takes the mean
    other = yaml.safe_load(Path("1/config.yaml").read_text())
    other["model"]["dropout"] = 0.5
    Path("1/config.yaml").write_text(yaml.safe_dump(other))
    assert run(["average", "checkpoints=['0','1']", "output=less_dropout"]) == 0
    other["model"]["attention"]["alignment"]["_target_"] = "seq2seq.attention.HardAlignment"
    Path("1/config.yaml").write_text(yaml.safe_dump(other))
    assert run(["average", "checkpoints=['0','1']", "output=other"]) == 2
    assert "1 has another model than 0: model.attention.alignment._target_: " in capsys.readouterr().err
    assert not Path("other").exists()


@pytest.mark.slow
def test_an_exported_bundle_translates_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["export", BUNDLE, "output=copy"]) == 0
    assert capsys.readouterr().out == "copy\n"
    assert run(["translate", "checkpoint=copy", "input=in.txt", "output=out.txt", "engine=torch"]) == 0
    assert Path("out.txt").read_text() == "".join(f"{one['text']}\n" for one in KNOWN)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["checkpoint=nowhere", "input=in.txt"], "checkpoint=nowhere does not exist"),
        (["checkpoint=in.txt", "input=in.txt"], "in.txt cannot be read as a checkpoint"),
        (["checkpoint=.", "input=in.txt"], "is neither a run's folder, a bundle nor a .ckpt file"),
        ([BUNDLE, "input=in.txt", "output=in.txt"], "is the input itself"),
        ([BUNDLE, "input=in.txt", "output=link.txt"], "is the input itself"),
        ([BUNDLE, "input=none.txt"], "none.txt: No such file"),
        ([BUNDLE, "input=in.txt", "output=long.txt", "resume=true"], "already has 31 lines"),
        ([BUNDLE, "input=in.txt", "resume=true"], "resume=true needs output"),
        ([BUNDLE, "input=in.txt", "engine=ctranslate2"], "seq2seq export"),
        ([BUNDLE, "input=in.txt", "output=o", "shard.count=2", "shard.index=2"], "shard.index=2"),
        ([BUNDLE, "shard.count=2"], "need input=FILE and output=FILE"),
        ([BUNDLE, "processes=4"], "shard.count=2 shard.index=0,1 hydra/launcher=joblib"),
        ([BUNDLE, "input=in.txt", "output=long.txt", "format=xyz"], "format='xyz'"),
        ([BUNDLE, "input=in.txt", "output=long.txt", "search=greedy", "n_best=3"], "n_best=3"),
        ([BUNDLE, "input=in.txt", "output=long.txt", "resume=no"], "resume='no'"),
        ([BUNDLE, "input=in.txt", "output=1"], "output=1"),
        ([BUNDLE, "input=in.txt", "threads=0"], "threads=0"),
        ([BUNDLE, "input=in.txt", "output=long.txt", "n_best=3"], "n_best=3 needs format=jsonl"),
        ([BUNDLE, "input=/dev/null", "output=o", "shard.count=2"], "can be read only once"),
        (["join=true", "output=o", "shard.count=2", "input=in.txt"], "leave out input="),
        (["join=true", "output=o"], "needs shard.count"),
        ([BUNDLE, "input=in.txt", "output=o.gz"], "translations are not compressed"),
        ([BUNDLE, "input=.", "output=o"], "input=. is a folder"),
        ([BUNDLE, "input=in.txt", "resume=true"], "resume=true needs output=FILE"),
        ([BUNDLE, "input=in.txt", "output=o", "engine=onx"], "did you mean 'onnx'?"),
    ],
)
def test_translate_refuses_impossible_arguments_and_changes_no_file(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("link.txt").symlink_to("in.txt")
    write(Path("long.txt"), [*TEXTS, "one more"])
    before = Path("long.txt").read_bytes()
    assert run(["translate", *arguments]) == 2
    told = capsys.readouterr()
    assert told.err.startswith("error: ") and message in told.err and told.err.count("\n") <= 2
    assert Path("in.txt").read_text().splitlines() == TEXTS
    assert Path("long.txt").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["format=ctranslate2"], "model=transformer only"),
        (["format=tflite"], "format='tflite' is unknown"),
        (["sample=in.txt"], "a bundle is the model itself"),
        (["quantization=int8"], "format=ctranslate2"),
    ],
)
def test_export_refuses_impossible_arguments(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["export", BUNDLE, "output=out", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not Path("out").exists()


class Surprise:
    """Stands for what unpickling would call."""

    def __reduce__(self):
        return os.mkdir, ("executed",)


@pytest.mark.parametrize("trick", ["target", "pickled weights", "pickled checkpoint"])
def test_a_malicious_bundle_executes_nothing(trick: str, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(KEPT / "bundle", "stranger")
    checkpoint = "stranger"
    if trick == "target":
        config = Path("stranger/config.yaml")
        config.write_text(config.read_text().replace("seq2seq.models.create_bahdanau", "os.mkdir"))
    elif trick == "pickled weights":
        Path("stranger/model.safetensors").write_bytes(pickle.dumps(Surprise()))
    else:
        checkpoint = "stranger.ckpt"
        torch.save(Surprise(), checkpoint)
    assert run(["translate", f"checkpoint={checkpoint}", "input=in.txt"]) == 2
    told = capsys.readouterr()
    assert told.out == "" and told.err.startswith("error: stranger")
    assert not Path("executed").exists()


def test_the_progress_line_is_erased_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(True) as progress:
        progress(LineCounts(lines=1234, seconds=2.0))
    assert capsys.readouterr().err == "\r\x1b[K1,234 lines, 617.0 per second\r\x1b[K"
    with Progress(False) as progress:
        progress(LineCounts(lines=1, seconds=1.0))
    assert capsys.readouterr().err == ""
