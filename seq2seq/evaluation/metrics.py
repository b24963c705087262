"""The metrics: one table that scoring, reports, model cards, the service and significance tests iterate over.

A new metric is one entry, with a scorer of `scorers.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from seq2seq.errors import UserError
from seq2seq.evaluation.bootstrap import SAMPLES, SEED
from seq2seq.evaluation.corpus_statistics import CorpusStatistics, retention
from seq2seq.evaluation.languages import Unit, length_unit, tokenizer_advice
from seq2seq.evaluation.lengths import rows_by_length, split_like_reference
from seq2seq.evaluation.scorers import BleuScorer, ChrfScorer, Scorer, ter_scorer
from seq2seq.evaluation.signatures import signature_settings
from seq2seq.evaluation.words import repetition_rate

logger = logging.getLogger(__name__)

TOKENIZED = 100
"""Lines that end in a period after a space, above which a text is taken for tokenized, as in sacreBLEU."""


@dataclass(frozen=True)
class Metric:
    """A way to score translations.

    key: its place in metrics.json and report.json. name: what people read. explanation: one sentence, without a period.
    scorer: from sacreBLEU's tokenizer, lowercase and the references of a test set; it returns None where the metric has
    no meaning for them, and is None for a metric that needs a model and is computed only where one is given.
    rising: higher is better. digits: decimals to print. quick: counted fast enough to be counted again for paired tests
    and single sentences.
    """

    key: str
    name: str
    explanation: str
    scorer: Callable[[str, bool, Sequence[str]], Scorer | None] | None
    rising: bool = True
    digits: int = 1
    quick: bool = True

    def label(self, signature: str) -> str:
        """Name the metric with what sets a signature apart from its default: 'BLEU (tokenized, lowercased)'."""
        own, usual = signature_settings(signature), _default_settings(self)
        tokenizer = own.get("tok")
        words = [] if tokenizer == usual.get("tok") else ["tokenized" if tokenizer == "none" else f"tok:{tokenizer}"]
        words += ["lowercased"] if own.get("case") == "lc" != usual.get("case") else []
        return f"{self.name} ({', '.join(words)})" if words else self.name

    def cell(self, score: Mapping[str, Any] | None, interval: bool = False) -> str:
        """Format a score as '36.21', with its interval as '36.21 [35.1, 37.4]'; nothing without a score."""
        if not score:
            return ""
        text = f"{score['score']:.{self.digits + 1}f}"
        if not interval or score.get("low") is None:
            return text
        return f"{text} [{score['low']:.{self.digits}f}, {score['high']:.{self.digits}f}]"


METRICS = {
    metric.key: metric
    for metric in (
        Metric(
            "bleu",
            "BLEU",
            "Word n-gram precision with a penalty for brevity",
            lambda tokenize, lowercase, references: BleuScorer(tokenize, lowercase),
        ),
        Metric(
            "chrf",
            "chrF",
            "Character n-gram F-score",
            lambda tokenize, lowercase, references: ChrfScorer(lowercase),
        ),
        Metric(
            "ter",
            "TER",
            "Translation edit rate; lower is better",
            lambda tokenize, lowercase, references: ter_scorer(references),
            rising=False,
            quick=False,
        ),
        Metric(
            "chrfpp",
            "chrF++",
            "F-score of character n-grams and of words and word pairs",
            lambda tokenize, lowercase, references: ChrfScorer(lowercase, word_order=2),
        ),
        Metric(
            "charbleu",
            "charBLEU",
            "BLEU of single characters",
            lambda tokenize, lowercase, references: None if tokenize == "char" else BleuScorer("char", lowercase),
        ),
        Metric("comet", "COMET", "Learned metric, on its model's own scale", None, digits=3),
    )
}
"""By key, in the order in which they are shown.

charBLEU stands for spBLEU, BLEU of subwords: that downloads its SentencePiece model, while characters need nothing and
compare text in any language, with spaces or without. It is left out where tokenize=char makes BLEU the same.
"""

PRIMARY = METRICS["bleu"]
"""The metric that chooses checkpoints and orders reports; retention, parts of segments and beams are measured by it."""

SENTENCE = METRICS["chrf"]
"""The metric of single segments in regressions: too few segments share a 4-gram with their reference for BLEU."""

LEARNED = METRICS["comet"]
"""The metric that needs a model."""


@lru_cache
def _default_settings(metric: Metric) -> Mapping[str, str]:
    scorer = metric.scorer("13a", False, ["words"]) if metric.scorer else None
    return signature_settings(scorer.signature) if scorer else {}


def summary(scores: Mapping[str, Any]) -> str:
    """Format a test set's scores in one line: 'BLEU 36.21, chrF 58.33, TER 46.20'."""
    known = [(metric, scores[metric.key]) for metric in METRICS.values() if scores.get(metric.key)]
    return ", ".join(f"{metric.label(own['signature'])} {metric.cell(own)}" for metric, own in known)


def perplexity_text(value: float) -> str:
    """Format a perplexity: '4.21', '1.3e+30'."""
    return f"{value:.2f}" if value < 1e6 else f"{value:.1e}"


class References:
    """The references of a test set and the settings by which hypotheses are scored against them.

    groups: as in `evaluate_texts`. The statistics of each system are counted once.
    """

    def __init__(
        self,
        texts: Sequence[str],
        tokenize: str = "13a",
        lowercase: bool = False,
        groups: Sequence[int] | None = None,
    ) -> None:
        self.texts = texts
        self.tokenize = tokenize
        self.lowercase = lowercase
        self.groups = groups
        self.scorers = {
            metric: scorer
            for metric in METRICS.values()
            if metric.scorer and (scorer := metric.scorer(tokenize, lowercase, texts)) is not None
        }
        self._counted: dict[tuple[str, tuple[str, ...]], CorpusStatistics] = {}

    def statistics(self, metric: Metric, hypotheses: Sequence[str]) -> CorpusStatistics:
        """The metric's statistics of a system; only for a metric of `scorers`."""
        key = metric.key, tuple(hypotheses)
        if key not in self._counted:
            self._counted[key] = CorpusStatistics(self.scorers[metric], hypotheses, self.texts, self.groups)
        return self._counted[key]


def evaluate_texts(
    hypotheses: Sequence[str],
    references: Sequence[str],
    sources: Sequence[str] | None,
    *,
    tokenize: str = "13a",
    lowercase: bool = False,
    samples: int = SAMPLES,
    seed: int = SEED,
    reference_parts: Sequence[Sequence[str]] | None = None,
    groups: Sequence[int] | None = None,
    languages: tuple[str | None, str | None] = (None, None),
) -> dict[str, Any]:
    """Score one system on one test set; the result is plain values for a run's metrics.json.

    All lists are detokenized text, one entry per segment, in the same order; without sources nothing is scored by
    length. tokenize and lowercase are sacreBLEU's. samples and seed are those of the bootstrap, which draws the
    segments of one of `groups` (a number for each segment) together. languages: codes of source and target, which
    decide between words and characters.

    Returns {"segments", each metric's key, "units", "length_ratio", "repetition_rate", "retention", "by_length",
    "bootstrap"}. A metric is {"score", "low", "high", "signature"}, the bounds a 95% interval, or None below FEWEST
    segments or groups; it is None where it has no meaning for the language. "units" are {"source", "target"}, each
    "words" or "characters": the first is that of "retention" and "by_length", the second that of "repetition_rate" and
    of the parts. "by_length" lists the source-length buckets that hold a segment: {"low", "high", "segments",
    "length_ratio", each metric's key}. With `reference_parts`, the parts that each reference was joined from, "by_part"
    follows: `by_part`. "bootstrap" counts the groups, if there are any.

    Raises UserError for lists of different lengths, no segments at all, or an unknown tokenizer.
    """
    if len({len(texts) for texts in (hypotheses, references, sources) if texts is not None}) > 1:
        of_sources = "" if sources is None else f" of {len(sources)} sources"
        raise UserError(
            f"cannot score {len(hypotheses)} hypotheses against {len(references)} references{of_sources};"
            "\nall need one line per segment"
        )
    if not references:
        raise UserError("cannot score an empty test set; give at least one segment")
    _warn_of_tokenizer(tokenize, hypotheses, references, languages[1])
    unit, target_unit = length_unit(languages[0], sources or ()), length_unit(languages[1], references)
    test_set = References(references, tokenize, lowercase, groups)
    counted = {metric: test_set.statistics(metric, hypotheses) for metric in test_set.scorers}
    primary = counted[PRIMARY]
    result: dict[str, Any] = {"segments": len(references)}
    for metric in METRICS.values():
        if metric.scorer is not None:
            own = counted.get(metric)
            result[metric.key] = own and {**own.interval(None, samples, seed), "signature": own.signature}
    result |= {
        "units": {"source": None if sources is None else unit, "target": target_unit},
        "length_ratio": length_ratio(primary),
        "repetition_rate": repetition_rate(hypotheses, target_unit),
        "retention": None if sources is None else retention(primary, sources, samples, seed, unit),
        "by_length": [
            {
                "low": low,
                "high": high,
                "segments": len(rows),
                "length_ratio": length_ratio(primary, rows),
                **{metric.key: own.interval(rows, samples, seed) for metric, own in counted.items()},
            }
            for low, high, rows in rows_by_length(sources or (), unit)
        ],
    }
    if reference_parts is not None:
        result["by_part"] = by_part(
            hypotheses,
            reference_parts,
            tokenize=tokenize,
            lowercase=lowercase,
            samples=samples,
            seed=seed,
            groups=groups,
            unit=target_unit,
        )
    result["bootstrap"] = {"samples": samples, "seed": seed, "confidence": 0.95}
    if groups is not None:
        result["bootstrap"]["groups"] = len(set(groups))
    return result


def _warn_of_tokenizer(
    tokenize: str, hypotheses: Sequence[str], references: Sequence[str], language: str | None
) -> None:
    ending = sum(text.rstrip().endswith(" .") for text in hypotheses)
    if tokenize != "none" and ending > TOKENIZED:
        logger.warning(
            "%d translations end in ' .', as tokenized text does, which tokenize=%s cuts again: see tokenize=none",
            ending,
            tokenize,
        )
    if advice := tokenizer_advice(tokenize, language, references):
        logger.warning("%s", advice)


def length_ratio(statistics: CorpusStatistics, rows: Sequence[int] | None = None) -> float:
    """Hypothesis tokens / reference tokens of the rows (default all) as BLEU counts them, 0 where there are none of
    these."""
    counts = statistics.counts if rows is None else statistics.counts[list(rows)]
    hypothesis_tokens, reference_tokens = counts[:, :2].sum(axis=0)
    return float(hypothesis_tokens / reference_tokens) if reference_tokens else 0.0


def sentence_scores(systems: Mapping[str, Sequence[str]], references: References) -> dict[str, dict[str, list[float]]]:
    """Each system's score of each segment by every quick metric: {name: {key: [score, ...]}}."""
    quick = [metric for metric in references.scorers if metric.quick]
    return {
        name: {metric.key: references.statistics(metric, hypotheses).sentences() for metric in quick}
        for name, hypotheses in systems.items()
    }


def by_part(
    hypotheses: Sequence[str],
    reference_parts: Sequence[Sequence[str]],
    *,
    tokenize: str = "13a",
    lowercase: bool = False,
    samples: int = SAMPLES,
    seed: int = SEED,
    groups: Sequence[int] | None = None,
    unit: Unit = "words",
) -> list[dict[str, Any]]:
    """Score the 1st, 2nd, ... part of segments that were joined from several, to show what a fixed context forgets.

    Hypotheses are cut where the parts of their reference meet (`lengths.split_like_reference`). Returns
    {"part" (from 1), "segments", the primary metric's key: {"score", "low", "high"}} for each position.
    """
    cut = [split_like_reference(h, parts, unit) for h, parts in zip(hypotheses, reference_parts, strict=True)]
    result = []
    for part in range(max((len(parts) for parts in reference_parts), default=0)):
        rows = [row for row, parts in enumerate(reference_parts) if len(parts) > part]
        references = References(
            [reference_parts[row][part] for row in rows],
            tokenize,
            lowercase,
            None if groups is None else [groups[row] for row in rows],
        )
        interval = references.statistics(PRIMARY, [cut[row][part] for row in rows]).interval(None, samples, seed)
        result.append({"part": part + 1, "segments": len(rows), PRIMARY.key: interval})
    return result
