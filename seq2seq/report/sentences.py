"""The payload of the per-sentence browser and of the attention heatmaps."""

from collections.abc import Mapping, Sequence
from typing import Any

from seq2seq.evaluation.metrics import sentence_scores
from seq2seq.report.systems import System

MAX_CHARACTERS = 2_000_000
"""Text kept for the browser; of a larger test set every n-th segment is shown, with all its systems."""

ATTENTION_SENTENCES = 6


def sentence_table(
    hypotheses: Mapping[str, Sequence[str]],
    sources: Sequence[str],
    references: Sequence[str],
    *,
    tokenize: str,
    lowercase: bool,
) -> dict[str, Any]:
    """{"rows", "sources", "references", "systems": {name: {"hypotheses", "bleu", "chrf"}}, "step"}.

    "rows" are the segments' numbers in the test set; "step" is n where only every n-th segment fits.
    """
    everything = [sources, references, *hypotheses.values()]
    characters = sum(len(line) for lines in everything for line in lines)
    step = max(1, -(-characters // MAX_CHARACTERS))
    kept = list(references[::step])
    systems = {}
    lines = {name: list(each[::step]) for name, each in hypotheses.items()}
    for name, scores in sentence_scores(lines, kept, tokenize=tokenize, lowercase=lowercase).items():
        rounded = {metric: [round(value, 1) for value in values] for metric, values in scores.items()}
        systems[name] = {"hypotheses": lines[name], **rounded}
    rows = list(range(0, len(references), step))
    return {"rows": rows, "sources": list(sources[::step]), "references": kept, "systems": systems, "step": step}


def attention_examples(systems: Sequence[System], split: str) -> list[dict[str, Any]]:
    """The first sentences of every system that attends: {"row", "systems": {name: {"source", "target", "weights"}}}.

    Weights are rounded to three digits: a picture needs no more.
    """
    by_row: dict[int, dict[str, Any]] = {}
    for system in systems:
        for example in system.runs[0].attention.get(split, []):
            table = [[round(weight, 3) for weight in row] for row in example["weights"]]
            entry = {"source": example["source"], "target": example["target"], "weights": table}
            by_row.setdefault(example["row"], {})[system.name] = entry
    return [{"row": row, "systems": by_row[row]} for row in sorted(by_row)[:ATTENTION_SENTENCES]]
