"""`scripts/benchmark.py rivals` and the drivers of other toolkits, none of which is installed here."""

import json
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

SCRIPTS = Path(__file__).parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))

import benchmark  # noqa: E402
from benchmarks import rivals, startup, toolkits  # noqa: E402
from benchmarks.process import MeasurementFailed, fresh  # noqa: E402
from benchmarks.settings import compose_training, prepared  # noqa: E402
from benchmarks.toolkits import marian, opennmt  # noqa: E402

JOB = {"text": "/text", "folder": "/work", "pairs": 90, "batch_tokens": 4096, "updates": 7, "threads": 2}
LOG = """[2026-12-01 12:46:44] Parameter type float32, optimization type float32
[2026-12-01 12:46:45] Ep. 1 : Up. 1 : Sen. 241 : Cost 9.13489246 : Time 51.74s : 81.23 words/s : gNorm 1.2807
[2026-12-01 12:47:22] Ep. 1 : Up. 2 : Sen. 394 : Cost 8.92709637 : Time 2.00s : 1,500.00 words/s : gNorm 1.1011
[2026-12-01 12:47:56] Ep. 1 : Up. 3 : Sen. 1,563 : Cost 8.77149677 : Time 0.50s : 2000.00 words/s : gNorm 1.0092
[2026-12-01 12:48:32] Ep. 1 : Up. 4 : Sen. 1,993 : Cost 8.53296185 : Time 35.89s : 117.92 words/s : gNorm 1.1372
"""


@pytest.mark.slow
def test_ours_reads_the_tokens_that_are_written(tmp_path: Path) -> None:
    cache = f"data.cache_dir={tmp_path / 'cache'}"
    sizes = ["data.sizes={train: 60, valid: 5, test: 7}", "data.maximum_words=9"]
    corpus = [*rivals.GRAMMAR, "tokenizer=word", *rivals.WORDS, *sizes, cache]
    text = rivals.write_text({"folder": str(tmp_path), "overrides": corpus})
    words = (tmp_path / "vocabulary.txt").read_text(encoding="utf-8").splitlines()
    assert text == {"pairs": 60, "vocabulary": len(words)} and len(set(words)) == len(words)
    size = f"tokenizer.vocabulary={len(words) + 4}"
    data = prepared(compose_training([*rivals.SHARED, f"data.root={tmp_path}", cache, size]))
    assert data.sizes == {"train": 60, "valid": 5, "test": 7}
    assert len(data.tokenizers.source) == len(data.tokenizers.target) == len(words) + 4
    for side, language in (("source", "en"), ("target", "de")):
        lines = (tmp_path / f"train.{language}").read_text(encoding="utf-8").splitlines()
        assert {word for line in lines for word in line.split(" ")} <= set(words)
        ids = getattr(data.tokenizers, side).encode(lines)
        assert [len(one) for one in ids] == [len(line.split(" ")) for line in lines]


def test_configurations_of_opennmt_and_eole_build_the_same_models() -> None:
    flat = opennmt.configuration({**JOB, "toolkit": "opennmt", "model": "T"})
    nested = opennmt.configuration({**JOB, "toolkit": "eole", "model": "T"})
    for key in ("data", "src_vocab", "tgt_vocab", "share_vocab", "vocab_size_multiple", "seed"):
        assert flat[key] == nested[key]
    assert flat["data"]["text"]["path_tgt"] == "/text/train.de" and flat["src_vocab"] == "/work/vocabulary.txt"
    for key in ("batch_type", "batch_size", "label_smoothing", "dropout", "learning_rate", "train_steps", "optim"):
        assert flat[key] == nested["training"][key]
    assert (flat["batch_size"], flat["bucket_size"], flat["train_steps"]) == (4096, 90, 7)
    for key in ("hidden_size", "transformer_ff", "heads", "share_embeddings", "share_decoder_embeddings"):
        assert flat[key] == nested["model"][key]
    assert "world_size" not in flat and "gpu_ranks" not in flat  # with them it asks for a GPU
    flat = opennmt.configuration({**JOB, "toolkit": "opennmt", "model": "B128"})
    nested = opennmt.configuration({**JOB, "toolkit": "eole", "model": "B128"})["model"]
    assert flat["encoder_type"] == nested["encoder"]["encoder_type"] == "brnn"
    assert flat["global_attention"] == nested["decoder"]["global_attention"] == "mlp"
    assert nested["architecture"] == "custom" and nested["embeddings"]["position_encoding_type"] is None


def test_options_of_marian() -> None:
    options = marian.options({**JOB, "model": "T"})
    words = marian.arguments(options)
    assert words[words.index("--train-sets") + 1 :][:2] == ["/text/train.en", "/text/train.de"]
    assert words[words.index("--mini-batch-words") + 1] == "4096" and words[words.index("--after") + 1] == "7u"
    assert words[words.index("--sync-sgd") + 1].startswith("--")


def test_marians_log_gives_tokens_and_seconds() -> None:
    assert marian.measured(LOG, 1, 2) == (pytest.approx(2.0 * 1500 + 0.5 * 2000), pytest.approx(2.5))
    with pytest.raises(RuntimeError, match="the log has 1 updates after 3, not 2"):
        marian.measured(LOG, 3, 2)


def test_marians_limit_gives_the_length_on_average() -> None:
    lines = ["a b c", "a", "a b c d e f g"]  # with their ends 4, 2 and 8 tokens: two batches, as wide as 4 and 8
    factor = marian.length_factor(lines, 2, 30)
    assert factor * (2 * 4 + 8) / 3 == pytest.approx(30)


def test_driver_counts_updates_after_the_warm_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vocabulary.txt").write_text("a\nb\n", encoding="utf-8")
    weight = torch.nn.Parameter(torch.zeros(3))
    seen: list[dict[str, Any]] = []

    class LossCompute:
        padding_idx = 1

        def forward(self, batch: dict[str, torch.Tensor]) -> None: ...

    def main() -> None:
        seen.append(json.loads(Path(sys.argv[2]).read_text(encoding="utf-8")))
        optimizer = torch.optim.Adam([weight])
        weight.grad = torch.ones(3)
        for update in range(9):
            tokens = torch.full((2, 9), 1)
            tokens[:, : update + 2] = 5  # one is <s>, so that 2 * (update + 1) count
            LossCompute().forward({"tgt": tokens[:, :, None]})
            optimizer.step()

    modules = {
        name: ModuleType(name) for name in ("onmt", "onmt.utils", "onmt.utils.loss", "onmt.bin", "onmt.bin.train")
    }
    modules["onmt.utils.loss"].__dict__["LossCompute"] = LossCompute
    modules["onmt.bin.train"].__dict__["main"] = main
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(opennmt, "start", lambda job: None)
    hooks: list[Any] = []
    optimizers = import_module("torch.optim.optimizer")
    register = optimizers.register_optimizer_step_post_hook
    monkeypatch.setattr(optimizers, "register_optimizer_step_post_hook", lambda hook: hooks.append(register(hook)))
    job = {**JOB, "toolkit": "opennmt", "model": "T", "text": str(tmp_path), "folder": str(tmp_path / "own")}
    try:
        run = opennmt.train({**job, "warm_up": 2, "updates": 3, "began": 0.0})
    finally:
        hooks[0].remove()
    assert run["target_tokens_per_update"] * 3 == 2 * (3 + 4 + 5) and run["parameters"] == 3
    assert run["target_tokens_per_second"] == pytest.approx(24 / run["seconds"])
    lines = (tmp_path / "own" / "vocabulary.txt").read_text(encoding="utf-8").splitlines()
    assert lines == ["<unk>\t1", "<blank>\t1", "<s>\t1", "</s>\t1", "a\t1", "b\t1"]
    assert seen[0]["train_steps"] > 5


def test_driver_refuses_outputs_of_another_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Engine:
        def infer_file(self) -> None:
            (tmp_path / "output.txt").write_text("a b c\nd e\n", encoding="utf-8")

    monkeypatch.setattr(opennmt, "start", lambda job: None)
    monkeypatch.setattr(opennmt, "opennmt_engine", lambda job, settings: (Engine(), torch.nn.Linear(2, 3)))
    job = {**JOB, "toolkit": "opennmt", "folder": str(tmp_path), "input": "in.en", "batch": 64, "beams": 5}
    with pytest.raises(RuntimeError, match="outputs have 2 to 3 tokens, not 3"):
        opennmt.decode({**job, "length": 3})


def test_failing_driver_is_one_line(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    with pytest.raises(MeasurementFailed) as failure:
        fresh("toolkits.marian.decode", {}, sys.executable, log)
    missing = "ModuleNotFoundError: No module named '_pymarian'"
    assert str(failure.value) == f"toolkits.marian.decode failed (status 1): {missing} (see {log})"


def environment(folder: Path, script: str) -> None:
    """An environment whose Python is `script`."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    (folder / "bin" / "python").chmod(0o755)


def test_environment_is_made_once(tmp_path: Path) -> None:
    folder = tmp_path / "eole"
    log = tmp_path / "calls"
    environment(folder, f"""echo "$@" >> {log}; [ "$1" = -m ] || echo '["0.6.4", "2.9"]'""")
    for _ in range(2):
        assert toolkits.install("eole", folder) == {"eole": "0.6.4", "torch": "2.9"}
    pip = [line for line in log.read_text(encoding="utf-8").splitlines() if line.startswith("-m pip")]
    assert len(pip) == 2 and pip[0].endswith("--no-deps eole==0.6.4")
    assert f"torch=={torch.__version__.partition('+')[0]} " in pip[1]


def test_rivals_are_compared_repetition_by_repetition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[str, str, dict[str, Any]]] = []
    speeds = iter((10.0, 16.0))

    def measured(function: str, settings: dict[str, Any], python: Any = "", log: Any = None) -> dict[str, Any]:
        asked.append((function, settings.get("toolkit", ""), settings))
        memory = {"peak_memory_mb": 100.0, "parameters": 6}
        if function == "rivals.write_text":
            (Path(settings["folder"]) / "test.en").write_text("a b\nc\n", encoding="utf-8")
            return {"pairs": 20, "vocabulary": 3}
        if function == "decoding.prepare":
            return {"exports": [], "parameters": 9}
        if function == "decoding.ours":
            return {"sentences_per_second": 6.0, "peak_memory_mb": 25.0}
        if function == "training.measure":
            return {"target_tokens_per_second": 40.0, **memory}
        if settings.get("toolkit") == "eole" and function.endswith("train"):
            return {"target_tokens_per_second": next(speeds), **memory, "peak_memory_mb": 200.0, "startup_seconds": 5.0}
        if settings.get("toolkit") == "eole" and function.endswith("decode"):
            return {"sentences_per_second": 2.0, **memory}
        if settings.get("toolkit") == "opennmt" and not function.endswith("save"):
            raise MeasurementFailed("no such option")
        return {}

    monkeypatch.setattr(rivals, "fresh", measured)
    monkeypatch.setattr(startup, "first_update", lambda overrides: 2.5)
    environment(tmp_path / "marian", "echo 'ERROR: No matching distribution found for pymarian==1.12.42' >&2; exit 1")
    for name in ("eole", "opennmt"):
        environment(tmp_path / name, """[ "$1" = -m ] || echo '["0.6", "2.9"]'""")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    command = ["rivals", "--venvs", str(tmp_path), "--repetitions", "2", "--groups", "train_T", "greedy_B128"]
    assert benchmark.main([*command, "--output", str(tmp_path / "rivals.json")]) == 0
    result: dict[str, Any] = json.loads((tmp_path / "rivals.json").read_text(encoding="utf-8"))
    train, greedy = result["groups"]["train_T"], result["groups"]["greedy_B128"]
    assert train["fastest_rival"] == "eole" and list(train["runs"]) == ["ours", "ours dropout", "eole"]
    slow = train["runs"]["eole"]
    assert slow["value"] == {"minimum": 10.0, "median": 13.0, "maximum": 16.0}
    assert slow["value_ratios"]["ours"] == {"minimum": 2.5, "median": 3.25, "maximum": 4.0}
    assert slow["peak_memory_mb_ratios"]["ours"]["median"] == 0.5
    assert train["runs"]["ours"]["startup_seconds"]["median"] == 2.5 and slow["startup_seconds"]["median"] == 5.0
    assert greedy["runs"]["eole"]["value_ratios"]["ours own batches"]["median"] == 3.0
    assert result["failed"] == [
        "marian: ERROR: No matching distribution found for pymarian==1.12.42",
        "opennmt train_T: no such option",
        "opennmt greedy_B128: no such option",
    ]
    assert result["versions_of_rivals"]["eole"] == {"eole": "0.6", "torch": "2.9"}
    assert len(result["records"]) == len((tmp_path / "rivals.jsonl").read_text().splitlines()) == 2 * (3 + 3)
    text = (tmp_path / "rivals.md").read_text(encoding="utf-8")
    assert "### train_T" in text and "3.25 [2.50, 4.00]" in text and text in capsys.readouterr().out
    trained = [settings["overrides"] for function, _, settings in asked if function == "training.measure"]
    assert all("tokenizer=word" in one and "tokenizer.vocabulary=7" in one for one in trained)
    order = [name for function, name, _ in asked if function in ("training.measure", "toolkits.opennmt.train")]
    assert order == ["", "", "opennmt", "eole", "eole", "opennmt", "", ""]  # every second repetition backward
    saved = [settings["model"] for function, name, settings in asked if function.endswith("save") and name == "eole"]
    assert saved == ["T", "B128"]
