"""Scorers: sufficient statistics of one segment, which add up over a test set, and the score of their sum.

Scores and signatures are those of sacreBLEU (Post, 2018), through its public interface. What that does not offer,
n-gram matches for chrF and a fast edit rate, is counted here; the tests hold both to sacreBLEU's own scores.
"""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.helpers import extract_all_char_ngrams, extract_word_ngrams
from sacrebleu.metrics.ter import TER
from sacrebleu.tokenizers.tokenizer_ter import TercomTokenizer

from seq2seq.errors import UserError
from seq2seq.evaluation.edit_rate import translation_edits
from seq2seq.evaluation.languages import hardly_spaced

NOTHING = [[""]]
"""References that make a metric of sacreBLEU ready to state its signature."""

CACHED_SEGMENTS = 1 << 14
"""Segments whose character n-grams are kept for the next metric that counts them."""


class Scorer(Protocol):
    """One way to score. signature: sacreBLEU's signature of its settings."""

    signature: str

    def count(self, hypothesis: str, reference: str) -> Sequence[float]:
        """Statistics of one segment, the same number for each."""
        ...

    def score(self, counts: Sequence[float]) -> float:
        """Corpus score of summed statistics, on sacreBLEU's scale."""
        ...

    def sentence(self, counts: Sequence[float]) -> float:
        """Score of one segment's statistics."""
        ...


class BleuScorer:
    """BLEU (Papineni et al., 2002).

    Statistics: tokens of the hypothesis and of the reference, then matches and n-grams of the hypothesis, n = 1 to 4.
    Raises UserError for a tokenizer that sacreBLEU does not have, or that cannot be used here.
    """

    def __init__(self, tokenize: str = "13a", lowercase: bool = False) -> None:
        if tokenize not in BLEU.TOKENIZERS:
            known = ", ".join(sorted(BLEU.TOKENIZERS))
            raise UserError(f"sacreBLEU has no tokenizer {tokenize!r}; choose one of: {known}")
        try:
            corpus = BLEU(lowercase=lowercase, tokenize=tokenize, references=NOTHING)
            self._segment = BLEU(lowercase=lowercase, tokenize=tokenize, force=True, effective_order=True)
        except (RuntimeError, ImportError, OSError) as error:  # a package or a download that it needs
            raise UserError(f"tokenize={tokenize} cannot be used here: {' '.join(str(error).split())}") from error
        self.signature = corpus.get_signature().format()

    def count(self, hypothesis: str, reference: str) -> Sequence[float]:
        found = self._segment.sentence_score(hypothesis, [reference])
        return [found.sys_len, found.ref_len, *found.counts, *found.totals]

    def score(self, counts: Sequence[float], effective_order: bool = False) -> float:
        hypothesis, reference, *ngrams = map(int, counts)
        order = len(ngrams) // 2
        found = BLEU.compute_bleu(
            ngrams[:order], ngrams[order:], hypothesis, reference, "exp", effective_order=effective_order
        )
        return float(found.score)

    def sentence(self, counts: Sequence[float]) -> float:
        """With effective order: n-grams that are longer than the segment do not count."""
        return self.score(counts, effective_order=True)


class ChrfScorer:
    """chrF (Popović, 2015); with word_order 2 chrF++ (Popović, 2017).

    Statistics: n-grams of the hypothesis, of the reference, and matches, for characters of n = 1 to 6, then for words.
    """

    characters = 6
    beta = 2

    def __init__(self, lowercase: bool = False, word_order: int = 0) -> None:
        self.lowercase = lowercase
        self.word_order = word_order
        metric = CHRF(self.characters, word_order, self.beta, lowercase=lowercase, references=NOTHING)
        self.signature = metric.get_signature().format()

    def count(self, hypothesis: str, reference: str) -> Sequence[float]:
        if self.lowercase:
            hypothesis, reference = hypothesis.lower(), reference.lower()
        counts = _character_counts(hypothesis, reference, self.characters)
        if not self.word_order:
            return counts
        words = _words_and_marks(hypothesis), _words_and_marks(reference)
        orders = range(1, self.word_order + 1)
        return [*counts, *_matches(*([extract_word_ngrams(each, n) for n in orders] for each in words))]

    def score(self, counts: Sequence[float]) -> float:
        precision = recall = 0.0
        orders = 0
        for hypothesis, reference, matched in zip(counts[::3], counts[1::3], counts[2::3], strict=True):
            if hypothesis > 0 and reference > 0:
                precision += matched / hypothesis
                recall += matched / reference
                orders += 1
        if not precision + recall:
            return 0.0
        precision, recall = precision / orders, recall / orders
        return 100 * ((1 + self.beta**2) * precision * recall / (self.beta**2 * precision + recall))

    def sentence(self, counts: Sequence[float]) -> float:
        return self.score(counts)


class TerScorer:
    """Translation edit rate (Snover et al., 2006). Statistics: edits and reference words.

    characters: whether each Chinese or Japanese character is a word, as sacreBLEU's Asian support has it.
    """

    def __init__(self, characters: bool = False) -> None:
        settings = {"normalized": characters, "asian_support": characters}
        self.signature = TER(**settings, references=NOTHING).get_signature().format()
        self._tokenizer = TercomTokenizer(**settings, no_punct=False, case_sensitive=False)

    def words(self, text: str) -> list[str]:
        """The words that edits are counted in."""
        words: list[str] = self._tokenizer(text.rstrip()).split()
        return words

    def count(self, hypothesis: str, reference: str) -> Sequence[float]:
        words = self.words(reference)
        return [translation_edits(self.words(hypothesis), words), len(words)]

    def score(self, counts: Sequence[float]) -> float:
        edits, words = counts
        return 100 * (edits / words if words else float(edits > 0))

    def sentence(self, counts: Sequence[float]) -> float:
        return self.score(counts)


def ter_scorer(references: Sequence[str]) -> TerScorer | None:
    """Create TER with sacreBLEU's defaults, or of characters where the references hardly have spaces.

    None where that does not help, as in Thai: an edit rate of whole sentences says nothing.
    """
    if not hardly_spaced(references):
        return TerScorer()
    asian = TerScorer(characters=True)
    return None if hardly_spaced([" ".join(asian.words(text)) for text in references]) else asian


@lru_cache(maxsize=CACHED_SEGMENTS)
def _character_counts(hypothesis: str, reference: str, order: int) -> tuple[int, ...]:
    return tuple(_matches(*(extract_all_char_ngrams(text, order) for text in (hypothesis, reference))))


def _matches(hypothesis: Sequence[Counter[str]], reference: Sequence[Counter[str]]) -> list[int]:
    """For each order (n-grams of the hypothesis, 0 where the reference has none; of the reference; matches)."""
    counts = []
    for ours, theirs in zip(hypothesis, reference, strict=True):
        matched = 0
        for ngram, count in ours.items():
            other = theirs.get(ngram, 0)
            matched += count if count < other else other
        counts += [sum(ours.values()) if theirs else 0, sum(theirs.values()), matched]
    return counts


def _words_and_marks(text: str) -> list[str]:
    """Words as chrF++ counts them: one punctuation mark at a word's end, or else at its beginning, is a word."""
    words = []
    for word in text.split():
        if len(word) > 1 and word[-1] in string.punctuation:
            words += [word[:-1], word[-1]]
        elif len(word) > 1 and word[0] in string.punctuation:
            words += [word[0], word[1:]]
        else:
            words.append(word)
    return words
