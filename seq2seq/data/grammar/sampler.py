"""Random derivations of the built-in grammar with an exact number of English words."""

from __future__ import annotations

from collections.abc import Callable

from seq2seq.data.grammar.clause_sampler import LONGEST_CLAUSE, ClauseSampler
from seq2seq.data.grammar.clauses import Clause, Complex, Sentence, Subordinate
from seq2seq.data.grammar.phrases import Coordination

SHORTEST_CLAUSE = 2
LONGEST_PART = 2 * LONGEST_CLAUSE - 1

_CONJUNCTIONS = (
    ("because", "although", "while", "before", "until", "if", "if"),
    ("because", "although", "while", "before", "until", "when", "when"),
)
_JOINERS = ("and",) * 5 + ("but",) * 3 + ("so",) * 2 + (";",) * 3


class Sampler:
    """Draws derivations; `random` yields floats in [0, 1) and is the only source of chance."""

    def __init__(self, random: Callable[[], float]) -> None:
        self.random = random
        self.clauses = ClauseSampler(random)
        self.phrases = self.clauses.phrases
        self.choose = self.phrases.choose
        self.between = self.phrases.between

    def sentence(self, length: int) -> Sentence:
        """A sentence of exactly `length` (3 or more) English words."""
        if 4 <= length <= 16 and self.random() < 0.12:
            return Sentence((self._question(length),))
        parts: list[Clause | Complex] = []
        joiners: list[str] = []
        left = length
        joiner = ""
        while left > LONGEST_PART or (left > 12 and self.random() < 0.5):
            following = self.choose(_JOINERS)
            words = 0 if following == ";" else 1
            size = self.between(4, min(20, left - words - 3))
            parts.append(self._part(size, front=joiner != "so"))
            joiners.append(following)
            joiner = following
            left -= size + words
        parts.append(self._part(left, front=joiner != "so"))
        return Sentence(tuple(parts), tuple(joiners))

    def _part(self, n: int, front: bool = True) -> Clause | Complex:
        """A main clause of n words and the clauses that depend on it. front: may something stand before the subject?"""
        past = self.random() < 0.55
        if n < 7 or (n <= LONGEST_CLAUSE and self.random() < 0.45):
            return self.clauses.clause(n, past, front=front)
        if n >= 6 and self.random() < 0.25:
            return self._reported(n, past)
        return self._complex(n, past, fronted=front and self.random() < 0.5)

    def _complex(self, n: int, past: bool, fronted: bool = False) -> Complex:
        first = self.between(max(SHORTEST_CLAUSE, n - 1 - LONGEST_CLAUSE), min(n - 4, LONGEST_CLAUSE))
        conjunction = self.choose(_CONJUNCTIONS[past])
        clause = self.clauses.clause(first, past)
        return Complex(clause, self._subordinate(conjunction, n - first, past), fronted)

    def _subordinate(self, conjunction: str, n: int, past: bool) -> Subordinate:
        n -= 1
        affirmative = conjunction in ("while", "before", "until")
        if n >= 9 and (n > LONGEST_CLAUSE or self.random() < 0.25):
            first = self.between(max(3, n - 1 - LONGEST_CLAUSE), min(n - 4, LONGEST_CLAUSE))
            one = self.clauses.clause(first, past, affirmative=affirmative)
            other = self.clauses.clause(n - 1 - first, past, affirmative=affirmative)
            while isinstance(other.subject, Coordination):  # "he saw Anna and Peter and Maria slept" has two readings
                other = self.clauses.clause(n - 1 - first, past, affirmative=affirmative)
            return Subordinate(conjunction, (one, other))
        return Subordinate(conjunction, (self.clauses.clause(n, past, affirmative=affirmative),))

    def _reported(self, n: int, past: bool) -> Clause:
        """A clause whose object is a that- or whether-clause."""
        frame = "that" if self.random() < 0.8 else "whether"
        verb = self.choose(self.phrases.tables.frames[frame, past])
        words = verb.english.count(" ") + 1
        subject_words = self.between(1, min(3, n - words - 4))
        subject = self.phrases.nominal(self.phrases.tables.subjects[verb], subject_words, subject=True)
        tense = "past" if past else "present"
        inner = n - words - subject_words - 1
        embedded_past = past or self.random() < 0.3
        embedded: Clause | Complex
        if inner > LONGEST_CLAUSE or (inner >= 8 and self.random() < 0.3):
            embedded = self._complex(inner, embedded_past)
        else:
            embedded = self.clauses.clause(inner, embedded_past)
        return Clause(subject, verb, tense, complement=Subordinate(frame, (embedded,)))

    def _question(self, n: int) -> Clause:
        return self.clauses.clause(
            n, self.random() < 0.55, question=self.choose(("", "", "", "why", "why", "when", "how"))
        )
