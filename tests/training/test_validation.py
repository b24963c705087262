"""Validation, the best checkpoint, and the mean of the last ones."""

from functools import partial
from pathlib import Path

import pytest
import sacrebleu
import torch
import torch.nn.functional as F
from precision import assert_float32_close, float32_approx
from safetensors.torch import load_file
from toy import Letters, ToyData, toy_fit, toy_model

from seq2seq.data.batching import collate
from seq2seq.search import GreedySearch, Sampling, decode_batch
from seq2seq.training.checkpoint import model_weights, read_checkpoint
from seq2seq.training.loop import TrainingResult
from seq2seq.training.schedule import Constant
from seq2seq.training.state import TrainingState
from seq2seq.training.validation import Validation, Validator, likelihood


class Collect:
    def __init__(self) -> None:
        self.validations: list[tuple[int, Validation]] = []

    def on_validation_end(self, state: TrainingState, validation: Validation) -> None:
        self.validations.append((state.update, validation))


def test_it_is_likelihood_and_bleu_of_each_segment_once(tmp_path: Path) -> None:
    collect = Collect()
    data = ToyData(valid=11)
    model = toy_model()
    toy_fit(tmp_path, model=model, data=data, callbacks=(collect,))
    update, last = collect.validations[-1]
    assert update == 30
    model.eval()
    total, tokens, texts = 0.0, 0, []
    for row, pair in enumerate(data.splits["valid"]):
        batch = collate([pair], [row])
        memory = model.encode(batch.source, batch.source_mask)
        logits = model.logits(model.decode(batch.target_in, memory, batch.target_mask).features)
        total += F.cross_entropy(logits[0], batch.target_out[0], reduction="sum").item()
        tokens += batch.target_out.numel()
        best = decode_batch(model, GreedySearch(), batch.source, batch.source_mask)[0][0]
        texts.append(Letters().decode(best.tokens))
    assert last.nll == float32_approx(total / tokens)
    assert last.hypotheses == texts
    assert last.score == pytest.approx(sacrebleu.corpus_bleu(texts, [data.pairs("valid")[1]]).score)


def test_samples_show_text_and_attention() -> None:
    data, model = ToyData(valid=9), toy_model("transformer").eval()
    letters = Letters()
    validator = Validator(
        list(data.evaluation_batches("valid", 100)),
        *data.pairs("valid"),
        GreedySearch(),
        letters.decode,
        letters.pieces,
        letters.pieces,
        samples=3,
    )
    result = validator(model, "cpu")
    assert result is not None and [sample.row for sample in result.samples] == [0, 3, 6]
    for sample in result.samples:
        assert sample.source == data.pairs("valid")[0][sample.row]
        assert sample.source_pieces == [*sample.source.split(), "</s>"]
        assert sample.weights is not None and len(sample.weights) == len(sample.target_pieces)
        assert all(sum(row) == pytest.approx(1, abs=1e-4) for row in sample.weights)
        assert all(len(row) == len(sample.source_pieces) for row in sample.weights)


def test_blank_sources_are_not_translated() -> None:
    """As the translator does, so that valid BLEU is what evaluate finds."""
    data, model = ToyData(valid=4), toy_model("transformer").eval()
    data.splits["valid"][1] = ([], [5])
    (sources, references), letters = data.pairs("valid"), Letters()
    sources = [*sources[:2], "\u3000", sources[3]]
    batches = list(data.evaluation_batches("valid", 100))
    validator = Validator(
        batches, sources, references, GreedySearch(), letters.decode, letters.pieces, letters.pieces, samples=4
    )
    result = validator(model, "cpu")
    assert result is not None
    assert [bool(text) for text in result.hypotheses] == [True, False, False, True]
    assert [sample.target_pieces == ["</s>"] for sample in result.samples] == [False, True, True, False]


def test_draws_do_not_depend_on_the_batches() -> None:
    data, model, letters = ToyData(valid=9), toy_model().eval(), Letters()
    pairs = data.splits["valid"]
    found = []
    for size in (2, 9):
        starts = range(0, 9, size)
        batches = [collate(pairs[row : row + size], range(row, min(row + size, 9))) for row in starts]
        texts = data.pairs("valid")
        validator = Validator(batches, *texts, Sampling(), letters.decode, letters.pieces, letters.pieces)
        result = validator(model, "cpu")
        assert result is not None
        found.append(result.hypotheses)
    assert found[0] == found[1] and len(set(found[0])) > 1


def test_likelihood_by_segment() -> None:
    data, model = ToyData(valid=5), toy_model().eval()
    alone = {}
    for row, pair in enumerate(data.splits["valid"]):
        alone |= likelihood(model, [collate([pair], [row])])
    together = likelihood(model, [collate(data.splits["valid"], range(5))])
    assert alone.keys() == together.keys() == set(range(5))
    for row, (nll, tokens) in alone.items():
        assert together[row] == (float32_approx(nll), tokens)
        assert tokens == len(data.splits["valid"][row][1]) + 1


def test_the_best_checkpoint_is_the_best_validation(tmp_path: Path) -> None:
    collect = Collect()
    result = toy_fit(tmp_path, callbacks=(collect,), trainer={"val_check_interval": 5})
    best = max(collect.validations, key=lambda item: (item[1].score, -item[1].nll))
    assert (result.state.best_update, result.state.best_score) == (best[0], best[1].score)
    assert result.checkpoint == tmp_path / "checkpoints/best.ckpt"
    assert read_checkpoint(result.checkpoint)["seq2seq"]["state"]["update"] == best[0]


def test_patience_ends_training(tmp_path: Path) -> None:
    frozen = partial(torch.optim.SGD, lr=0.0)
    settings = {"max_steps": 1000, "val_check_interval": 2}
    result = toy_fit(tmp_path, optimizer=frozen, trainer={**settings, "patience": 3})
    assert (result.state.stopped, result.state.update, result.state.best_update) == ("patience", 8, 2)


def average_three(run_dir: Path, rate: float, collect: Collect) -> TrainingResult:
    return toy_fit(
        run_dir,
        model=toy_model("transformer", dropout=0.0),
        data=ToyData(train=400, max_tokens=200, seed=3),
        optimizer=partial(torch.optim.Adam, lr=rate),
        schedule=Constant(),
        trainer={"max_steps": 60, "val_check_interval": 10, "average_last": 3},
        callbacks=(collect,),
    )


@pytest.mark.slow
def test_the_mean_of_the_last_is_exported_when_it_is_better(tmp_path: Path) -> None:
    """At a constant high rate the iterates jump about, and their mean is the better model."""
    collect = Collect()
    result = average_three(tmp_path, 0.014, collect)
    files = sorted((tmp_path / "checkpoints/average").glob("*"))
    assert [int(path.stem) for path in files] == [40, 50, 60]
    assert result.averaged and result.checkpoint.name == "averaged.ckpt"
    assert result.state.best_score is not None
    assert result.state.best_score > max(validation.score for _, validation in collect.validations)
    averaged = read_checkpoint(result.checkpoint)
    weights = [load_file(path) for path in files]
    for name, value in model_weights(averaged["state_dict"]).items():
        assert_float32_close(value, sum(each[name] for each in weights) / 3)
    assert averaged["seq2seq"]["tokenizers"] == {"tokenizer": b"letters\x00\xff"}


@pytest.mark.slow
def test_the_mean_is_not_exported_when_it_is_no_better(tmp_path: Path) -> None:
    """At a rate of zero the mean is no better than any."""
    collect = Collect()
    result = average_three(tmp_path, 0.0, collect)
    assert not result.averaged and result.checkpoint.name == "best.ckpt"
    assert not (tmp_path / "checkpoints/averaged.ckpt").exists()
