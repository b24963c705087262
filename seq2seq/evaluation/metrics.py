"""BLEU, chrF and TER by sacreBLEU, with bootstrap intervals, length buckets and the two failures past the bottleneck.

Point scores are sacreBLEU's to the last bit: its own segment statistics, summed and scored by its own functions.
Intervals are its own bootstrap too (Koehn, 2004): the same resamples for the same seed, the sums done in one matrix
product instead of a gather, so that every length bucket can afford one. Where segments depend on one another, whole
groups of them are drawn.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from seq2seq.errors import UserError
from seq2seq.evaluation.bootstrap import FEWEST, SAMPLES, SEED, grouped, percentile_interval, resampled_sums
from seq2seq.evaluation.edit_rate import FastTER
from seq2seq.evaluation.lengths import (
    LONG,
    SHORT,
    hardly_spaced,
    rows_by_length,
    rows_of_lengths,
    split_like_reference,
    words_of,
)

logger = logging.getLogger(__name__)

REPEAT_ORDER = 4

TOKENIZED = 100
"""A text of which more lines end in a period that stands alone passes for tokenised, as it does with sacreBLEU."""


class CorpusStatistics:
    """One metric's sufficient statistics of a system, a row a segment; any subset of rows scores without recounting.

    `references` may be None for a metric that was built with them. `groups`, a number for each segment: segments of one
    group are drawn together.
    """

    def __init__(
        self,
        metric: Metric,
        hypotheses: Sequence[str],
        references: Sequence[str] | None,
        groups: Sequence[int] | None = None,
    ) -> None:
        self.metric = metric
        self.groups = groups
        counts = metric._extract_corpus_statistics(hypotheses, None if references is None else [references])
        self.counts = np.array(counts, dtype=np.float64)
        self.signature = metric.get_signature().format()

    def score(self, rows: Sequence[int] | None = None) -> float:
        """Corpus score of the given rows (default all), on sacreBLEU's scale: 0 to 100, TER from 0 upwards."""
        counts = self.counts if rows is None else self.counts[list(rows)]
        return self._score(counts.sum(axis=0))

    def resampled(self, rows: Sequence[int] | None, samples: int, seed: int) -> np.ndarray:
        """(samples,) corpus scores of bootstrap resamples of the rows; (0,) for too few rows or groups of them."""
        everything = range(len(self.counts)) if rows is None else rows
        groups = None if self.groups is None else [self.groups[row] for row in everything]
        counts = grouped(self.counts[list(everything)], groups)
        return np.array([self._score(sums) for sums in resampled_sums(counts, samples, seed)])

    def resampled_pair(
        self, first: Sequence[int], second: Sequence[int], samples: int, seed: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """`resampled` of two disjoint sets of rows: apart, or where groups hold rows of both, from the same groups."""
        groups = np.arange(len(self.counts)) if self.groups is None else np.array(self.groups)
        if min(len(set(groups[list(own)])) for own in (first, second)) < FEWEST:
            return np.empty(0), np.empty(0)
        if self.groups is None:
            return self.resampled(first, samples, seed), self.resampled(second, samples, seed + 1)
        rows = sorted([*first, *second])
        inside = np.isin(rows, first)[:, None]
        columns = np.hstack([self.counts[rows] * inside, self.counts[rows] * ~inside])
        width = self.counts.shape[1]
        sums = list(resampled_sums(grouped(columns, groups[rows]), samples, seed))
        return np.array([self._score(row[:width]) for row in sums]), np.array(
            [self._score(row[width:]) for row in sums]
        )

    def interval(
        self, rows: Sequence[int] | None = None, samples: int = SAMPLES, seed: int = SEED
    ) -> dict[str, float | None]:
        """{"score", "low", "high"}: the score and the 95% bootstrap percentile interval, None and None where there are
        too few rows for one."""
        low, high = percentile_interval(self.resampled(rows, samples, seed))
        return {"score": self.score(rows), "low": low, "high": high}

    def _score(self, sums: np.ndarray) -> float:
        return float(self.metric._compute_score_from_stats(sums.tolist()).score)


def evaluate_texts(
    hypotheses: Sequence[str],
    references: Sequence[str],
    sources: Sequence[str],
    *,
    tokenize: str = "13a",
    lowercase: bool = False,
    samples: int = SAMPLES,
    seed: int = SEED,
    reference_parts: Sequence[Sequence[str]] | None = None,
    groups: Sequence[int] | None = None,
) -> dict[str, Any]:
    """Every score of one system on one test set, as plain values for a run's metrics.json.

    All three lists are detokenised text, one entry a segment, in the same order; `tokenize` and `lowercase` are
    sacreBLEU's (BLEU, and chrF for the latter; TER: `ter_metric`). "samples" and "seed" rule the bootstrap, which draws
    the segments of one of `groups` (a number for each segment) together.

    Returns {"segments", "bleu", "chrf", "ter", "length_ratio", "repetition_rate", "retention", "by_length",
    "bootstrap"}. Each of the three metrics is {"score", "low", "high", "signature"}, the bounds a 95% interval, or None
    below FEWEST segments or groups; "ter" is None in a language for which there is no TER.
    "length_ratio" and "retention" are what the functions of these names say; so is "repetition_rate", of characters
    where the references are hardly spaced. "by_length" lists the source-length buckets that hold a segment:
    {"low", "high", "segments", "bleu", "chrf"}. With `reference_parts`, the parts each reference was joined from,
    "by_part" follows: `bleu_by_part`. "bootstrap" counts the `groups`, if there are any.

    Raises UserError for lists of different lengths, no segments at all, or an unknown tokenizer.
    """
    if not len(hypotheses) == len(references) == len(sources):
        raise UserError(
            f"cannot score {len(hypotheses)} hypotheses against {len(references)} references of {len(sources)} sources;"
            "\nall three need one line a segment"
        )
    if not references:
        raise UserError("cannot score an empty test set; give at least one segment")
    ending = sum(text.rstrip().endswith(" .") for text in hypotheses)
    if tokenize != "none" and ending > TOKENIZED:
        logger.warning(
            "%d translations end in ' .', as tokenised text does, which tokenize=%s cuts again: see tokenize=none",
            ending,
            tokenize,
        )
    bleu = CorpusStatistics(bleu_metric(tokenize, lowercase), hypotheses, references, groups)
    chrf = CorpusStatistics(CHRF(lowercase=lowercase), hypotheses, references, groups)
    edits = ter_metric(references)
    ter = None if edits is None else CorpusStatistics(edits, hypotheses, references, groups)
    result: dict[str, Any] = {"segments": len(references)}
    for name, statistics in (("bleu", bleu), ("chrf", chrf), ("ter", ter)):
        result[name] = None
        if statistics is not None:
            result[name] = {**statistics.interval(None, samples, seed), "signature": statistics.signature}
    result["length_ratio"] = length_ratio(bleu)
    result["repetition_rate"] = repetition_rate(hypotheses, hardly_spaced(references))
    result["retention"] = retention(bleu, sources, samples, seed)
    result["by_length"] = [
        {
            "low": low,
            "high": high,
            "segments": len(rows),
            "bleu": bleu.interval(rows, samples, seed),
            "chrf": chrf.interval(rows, samples, seed),
        }
        for low, high, rows in rows_by_length(sources)
    ]
    if reference_parts is not None:
        result["by_part"] = bleu_by_part(
            hypotheses,
            reference_parts,
            tokenize=tokenize,
            lowercase=lowercase,
            samples=samples,
            seed=seed,
            groups=groups,
        )
    result["bootstrap"] = {"samples": samples, "seed": seed, "confidence": 0.95}
    if groups is not None:
        result["bootstrap"]["groups"] = len(set(groups))
    return result


def length_ratio(bleu: CorpusStatistics) -> float:
    """Hypothesis tokens / reference tokens as BLEU counts them, 0 where there are none of these."""
    hypothesis_tokens, reference_tokens = bleu.counts[:, :2].sum(axis=0)
    return float(hypothesis_tokens / reference_tokens) if reference_tokens else 0.0


def bleu_metric(
    tokenize: str = "13a", lowercase: bool = False, references: Sequence[Sequence[str]] | None = None
) -> BLEU:
    """sacreBLEU's corpus BLEU. Raises UserError for a tokenizer that sacreBLEU does not have, or not here."""
    if tokenize not in BLEU.TOKENIZERS:
        known = ", ".join(sorted(BLEU.TOKENIZERS))
        raise UserError(f"sacreBLEU has no tokenizer {tokenize!r}; choose one of: {known}")
    try:
        return BLEU(tokenize=tokenize, lowercase=lowercase, force=True, references=references)
    except (RuntimeError, ImportError, OSError) as error:  # a package or a download that it needs
        raise UserError(f"tokenize={tokenize} cannot be used here: {' '.join(str(error).split())}") from error


def ter_metric(references: Sequence[str]) -> FastTER | None:
    """sacreBLEU's TER with its defaults; of a language that is hardly spaced, with its Asian words: each Han character
    is one. None where that does not help, as with Thai: an edit rate of whole sentences says nothing."""
    if not hardly_spaced(references):
        return FastTER()
    asian = FastTER(normalized=True, asian_support=True)
    return None if hardly_spaced([asian._preprocess_segment(text) for text in references]) else asian


def sentence_scores(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[str],
    *,
    tokenize: str = "13a",
    lowercase: bool = False,
) -> dict[str, dict[str, list[float]]]:
    """Each system's {"bleu", "chrf"}: sacreBLEU's sentence scores (BLEU with effective order), an entry a segment."""
    bleu = BLEU(lowercase=lowercase, tokenize=tokenize, force=True, effective_order=True, references=[references])
    chrf = CHRF(lowercase=lowercase, references=[references])
    scores: dict[str, dict[str, list[float]]] = {}
    for name, hypotheses in systems.items():
        own = {key: CorpusStatistics(metric, hypotheses, None) for key, metric in (("bleu", bleu), ("chrf", chrf))}
        scores[name] = {key: [each._score(row) for row in each.counts] for key, each in own.items()}
    return scores


def retention(
    bleu: CorpusStatistics, sources: Sequence[str], samples: int = SAMPLES, seed: int = SEED
) -> dict[str, float | None] | None:
    """How much of its quality a system keeps on long sentences: BLEU at 40+ source words / BLEU at 10-19.

    {"score", "low", "high"}, 1.0 meaning that length costs nothing. The two sets are disjoint; their bounds are by
    `CorpusStatistics.resampled_pair`. None where either set is empty or the short one scores 0.
    """
    short, long = rows_of_lengths(sources, *SHORT), rows_of_lengths(sources, *LONG)
    if not short or not long or bleu.score(short) == 0:
        return None
    below, above = bleu.resampled_pair(short, long, samples, seed)
    low, high = percentile_interval(above[below > 0] / below[below > 0])
    return {"score": bleu.score(long) / bleu.score(short), "low": low, "high": high}


def repetition_rate(texts: Sequence[str], characters: bool = False) -> float:
    """Share of white-space words, or of characters, that only say again what was just said, between 0 and 1.

    A word counts when it lies in an n-gram, n = 1 to 4, that equals the n words right before it: all copies but the
    first. "a b a b a b ." has 4 of 7.
    """
    total = repeated = 0
    for text in texts:
        words = words_of(text, characters)
        marked = [False] * len(words)
        for n in range(1, REPEAT_ORDER + 1):
            for start in range(n, len(words) - n + 1):
                if words[start : start + n] == words[start - n : start]:
                    marked[start : start + n] = [True] * n
        total += len(words)
        repeated += sum(marked)
    return repeated / total if total else 0.0


def bleu_by_part(
    hypotheses: Sequence[str],
    reference_parts: Sequence[Sequence[str]],
    *,
    tokenize: str = "13a",
    lowercase: bool = False,
    samples: int = SAMPLES,
    seed: int = SEED,
    groups: Sequence[int] | None = None,
) -> list[dict[str, Any]]:
    """BLEU of the 1st, 2nd, ... part of segments that were joined from several: what a fixed context forgets.

    Hypotheses are cut where the parts of their reference meet (`lengths.split_like_reference`). Returns
    {"part" (from 1), "segments", "bleu": {"score", "low", "high"}} for each position.
    """
    cut = [split_like_reference(h, parts) for h, parts in zip(hypotheses, reference_parts, strict=True)]
    result = []
    for part in range(max((len(parts) for parts in reference_parts), default=0)):
        rows = [row for row, parts in enumerate(reference_parts) if len(parts) > part]
        statistics = CorpusStatistics(
            bleu_metric(tokenize, lowercase),
            [cut[row][part] for row in rows],
            [reference_parts[row][part] for row in rows],
            None if groups is None else [groups[row] for row in rows],
        )
        interval = statistics.interval(None, samples, seed)
        result.append({"part": part + 1, "segments": len(rows), "bleu": interval})
    return result


def signature_settings(signature: str) -> Mapping[str, str]:
    """'nrefs:1|case:mixed|tok:13a' -> {"nrefs": "1", "case": "mixed", "tok": "13a"}; of 'tok:ja-mecab-0.996-IPA', which
    has its dictionary's version too, the tokenizer's name alone."""
    settings = dict(field.split(":", 1) for field in signature.split("|") if ":" in field)
    if names := [name for name in BLEU.TOKENIZERS if settings.get("tok", "").startswith(name)]:
        settings["tok"] = max(names, key=len)
    return settings


def bleu_name(signature: str) -> str:
    """'BLEU', or with what sets it apart from sacreBLEU's default: 'BLEU (tokenised, lower-cased)'."""
    settings = signature_settings(signature)
    tokenizer = settings.get("tok", "13a")
    words = ["tokenised"] if tokenizer == "none" else [f"tok:{tokenizer}"] if tokenizer != "13a" else []
    words += ["lower-cased"] if settings.get("case") == "lc" else []
    return f"BLEU ({', '.join(words)})" if words else "BLEU"
