"""Sentences: the values behind the per-sentence browser and the attention heatmaps."""

from collections.abc import Mapping, Sequence
from typing import Any

from seq2seq.evaluation.metrics import References, sentence_scores
from seq2seq.report.systems import System

MAX_CHARACTERS = 2_000_000
"""Text kept for the browser; of a larger test set every n-th segment is shown, with all its systems."""

ATTENTION_SENTENCES = 6


def sentence_table(
    hypotheses: Mapping[str, Sequence[str]], sources: Sequence[str], references: References
) -> dict[str, Any]:
    """{"rows", "sources", "references", "systems": {name: {"hypotheses", each quick metric's key}}, "step"}.

    "rows" are the segments' numbers in the test set; "step" is n where only every n-th segment fits.
    """
    everything = [sources, references.texts, *hypotheses.values()]
    characters = sum(len(line) for lines in everything for line in lines)
    step = max(1, -(-characters // MAX_CHARACTERS))
    systems = {}
    for name, scores in sentence_scores(hypotheses, references).items():
        rounded = {key: [round(value, 1) for value in values[::step]] for key, values in scores.items()}
        systems[name] = {"hypotheses": list(hypotheses[name][::step]), **rounded}
    return {
        "rows": list(range(0, len(references.texts), step)),
        "sources": list(sources[::step]),
        "references": list(references.texts[::step]),
        "systems": systems,
        "step": step,
    }


def attention_examples(systems: Sequence[System], split: str) -> list[dict[str, Any]]:
    """Attention over the first sentences: {"row", "systems": {name: {"source", "target", "weights"}}}.

    Only of systems that attend. Weights are rounded to three digits: a picture needs no more.
    """
    by_row: dict[int, dict[str, Any]] = {}
    for system in systems:
        for example in system.results[0].attention.get(split, []):
            table = [[round(weight, 3) for weight in row] for row in example["weights"]]
            entry = {"source": example["source"], "target": example["target"], "weights": table}
            by_row.setdefault(example["row"], {})[system.name] = entry
    return [{"row": row, "systems": by_row[row]} for row in sorted(by_row)[:ATTENTION_SENTENCES]]
