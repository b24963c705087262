"""scripts/benchmark.py: what each command writes. No test here looks at how fast anything is."""

import json
import random
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

SCRIPTS = Path(__file__).parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))

import benchmark  # noqa: E402
from benchmarks import complexity, decoding, flops, preparation, rivals, startup, training  # noqa: E402
from benchmarks.process import MeasurementFailed, peak_memory_mb  # noqa: E402
from benchmarks.settings import compose_training, prepared  # noqa: E402

WORDS = [f"▁w{number}" for number in range(20)]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Measurements happen in this process, with small matrices, instead of in one of their own each."""

    def call(function: str, settings: dict[str, Any]) -> Any:
        module, _, name = function.rpartition(".")
        measure = getattr(import_module(f"benchmarks.{module}"), name)
        return json.loads(json.dumps(measure(json.loads(json.dumps(settings)))))

    for module in (training, decoding, startup, preparation, complexity, rivals):
        monkeypatch.setattr(module, "fresh", call)
    monkeypatch.setattr(flops, "SIZE", 64)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lines of 1 to 8 subwords separated by spaces."""
    root = tmp_path_factory.mktemp("corpus")
    draw = random.Random(3)
    for split, size in (("train", 90), ("valid", 6), ("test", 9)):
        for language in ("en", "de"):
            lines = [" ".join(draw.choices(WORDS, k=draw.randint(1, 8))) for _ in range(size)]
            (root / f"{split}.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return root


def overrides(corpus: Path, *more: str) -> list[str]:
    shared = [text.replace("max_tokens=4096", "max_tokens=40") for text in rivals.SHARED]
    return [f"data.root={corpus}", f"data.cache_dir={corpus / 'cache'}", *shared, "trainer.threads=1", *more]


TINY = {
    "bahdanau": ["model=bahdanau", "model.width=8", "model.embedding_width=8"],
    "transformer": ["model=transformer", "model.width=8", "model.layers=1", "model.feedforward_width=8"],
}


def written(path: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    assert result["command"].startswith("python scripts/benchmark.py")
    assert result["versions"]["torch"] and result["machine"]["cores"] >= 1 and result["created"]
    return result


@pytest.mark.slow
def test_training_counts_what_it_trains_on(here: None, corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = corpus / "train.json"
    settings = overrides(corpus, *TINY["bahdanau"])
    command = ["train", "--warm-up", "2", "--updates", "3", "--output", str(output), *settings]
    assert benchmark.main(command) == 0
    assert "target tok/s" in capsys.readouterr().out
    (run,) = written(output)["runs"]
    batches = list(prepared(compose_training(settings)).train_loader())[2:5]
    assert run["target_tokens"] == sum(int((batch.target_out != 0).sum()) for batch in batches)
    assert run["sentences_per_update"] * 3 == pytest.approx(sum(len(batch) for batch in batches))
    padded = sum(batch.target_in.numel() for batch in batches)
    assert run["target_padding"] == pytest.approx(1 - run["target_tokens"] / padded)
    assert sum(run["update_seconds"]) == pytest.approx(run["seconds"]) and len(run["update_seconds"]) == 3
    assert run["target_tokens_per_second"] == pytest.approx(run["target_tokens"] / run["seconds"])
    assert run["updates_per_second"] == run["batches_per_second"] == pytest.approx(3 / run["seconds"])
    share = run["flops"]["per_update"] * run["updates_per_second"] / run["flops"]["matmul_per_second"]
    assert run["utilisation"] == pytest.approx(share) and run["parameters"] > 0
    assert 0 < run["peak_memory_mb"] <= peak_memory_mb()


@pytest.mark.slow
def test_a_wrong_setting_is_one_line(corpus: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Through a process of its own, as always outside these tests."""
    command = ["train", "--output", str(corpus / "none.json"), "model.widht=8"]
    assert benchmark.main(command) == 2
    printed = capfd.readouterr().err
    assert "unknown key 'model.widht'" in printed and "Traceback" not in printed
    assert not (corpus / "none.json").exists()
    with pytest.raises(SystemExit) as stop:
        benchmark.main(["complexity", "--widht", "8"])
    assert stop.value.code == 2


@pytest.mark.slow
def test_complexity_measures_fits_and_draws(here: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--lengths", "64", "128", "256", "--fit-from", "64", "--width", "8", "--radius", "2"]
    assert benchmark.main(["complexity", *sizes, "--repetitions", "1", "--output", str(tmp_path)]) == 0
    assert "O(n^2 d)" in capsys.readouterr().out
    result = written(tmp_path / "complexity.json")
    layers = result["layers"]
    assert list(layers) == list(complexity.TEXTBOOK) and result["fit"] == [64, 128, 256]
    for layer in layers.values():
        assert len(layer["seconds"]) == len(layer["bytes"]) == 3
        assert layer["bytes_exponent"] == pytest.approx(complexity.exponent([64, 128, 256], layer["bytes"], 64))
    # Bytes do not depend on the machine: n x n weights grow with a square, everything else with a line.
    assert layers["self-attention"]["bytes_exponent"] > 1.6
    for name in ("recurrent", "convolution", "self-attention, fused", "restricted self-attention"):
        assert layers[name]["bytes_exponent"] == pytest.approx(1, abs=0.15), name
    picture = (tmp_path / "complexity.svg").read_text(encoding="utf-8")
    assert all(name in picture for name in layers) and "fitted over n = 64 to 256" in picture


@pytest.mark.slow
def test_decoding_forces_the_length(here: None, corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = corpus / "decode.json"
    command = ["decode", "--sentences", "12", "--beam-sentences", "3", "--threads", "1", "--output", str(output)]
    assert benchmark.main([*command, *overrides(corpus, *TINY["transformer"])]) == 0
    assert "called directly" in capsys.readouterr().out
    result = written(output)
    rows = {(row["engine"], row["search"], row["batches"]): row for row in result["rows"]}
    assert len(rows) == 20 and result["model"]["exports"] == ["float32", "int8"]
    for (_, search, _), row in rows.items():
        (run,) = row["runs"]
        assert row["sentences"] == (12 if search == "greedy" else 3)
        assert run["sentences_per_second"] == pytest.approx(row["sentences"] / run["seconds"])
        assert run["tokens_per_second"] == pytest.approx(30 * run["sentences_per_second"])
    ours = rows["ctranslate2 int8", "beam5", "its own batches"]["sentences_per_second"]["median"]
    direct = [
        rows["ctranslate2 int8, called directly", "beam5", batches]["sentences_per_second"]["median"]
        for batches in ("threads within a batch", "batches side by side", "batches side by side, text to text")
    ]
    ratios = result["ratios"]["ctranslate2 int8 beam5"]
    assert ratios == {"ratio": pytest.approx(ours / max(direct)), "text": pytest.approx(ours / direct[-1])}


@pytest.mark.slow
def test_startup_runs_the_real_commands(here: None, corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = corpus / "startup.json"
    command = ["startup", "--repetitions", "1", "--uncounted", "0", "--output", str(output)]
    assert benchmark.main([*command, *overrides(corpus, *TINY["bahdanau"])]) == 0
    assert "first translation" in capsys.readouterr().out
    result = written(output)
    assert list(result["seconds"]) == ["seq2seq --help", "first update", "first translation"]
    for name, values in result["seconds"].items():
        assert len(values) == 1 and result["summary"][name]["median"] == values[0] > 0


def test_a_command_that_fails_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup, "PROGRAM", [sys.executable, "-c", "import sys; sys.exit('no such choice')"])
    with pytest.raises(MeasurementFailed, match="train ended early: no such choice"):
        startup.first_update(["model=nothing"])
    with pytest.raises(MeasurementFailed, match="translate ended early: no such choice"):
        startup.first_translation("nowhere")


@pytest.mark.slow
def test_preparation_times_its_stages(here: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "prepare.json"
    sizes = ["--pairs", "60", "--base-pairs", "40", "--batches", "30", "--updates", "1", "--output", str(output)]
    data = ["data.sizes={valid: 3, test: 4}", "data.maximum_words=9", "data.max_tokens=100", "tokenizer=char"]
    assert benchmark.main(["prepare", *sizes, *data, "trainer.threads=1", *TINY["bahdanau"]]) == 0
    assert "times as fast as the model" in capsys.readouterr().out
    result = written(output)
    stages = {name: stage["seconds"] for name, stage in result["stages"].items()}
    assert result["pairs"] == 67 and result["sizes"] == {"train": 60, "valid": 3, "test": 4}
    assert stages["tokenize and cache"] == pytest.approx(stages["tokenizer"] + stages["ids"])
    assert stages["all"] == pytest.approx(sum(stages[name] for name in ("text", "tokenizer", "ids", "overlap")))
    for stage in result["stages"].values():
        assert stage["pairs_per_second"] == pytest.approx(67 / stage["seconds"])
    loader, (large, small) = result["from_cache"]["loader"], result["trainer"]
    assert loader["batches"] == 30 and (large["pairs"], small["pairs"]) == (60, 40)
    assert result["loader_ratio"] == pytest.approx(loader["batches_per_second"] / large["batches_per_second"])
    assert result["extra_memory_mb"] == pytest.approx(large["peak_memory_mb"] - small["peak_memory_mb"])
