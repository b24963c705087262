"""Clauses and sentences of the built-in grammar, and their rendering (see `phrases` for pieces and commas).

German word order, with the middle field
    [time] [frequency] [manner] [indirect object] [object] [nicht] [companion] [place] [oblique] [predicate]:
    MAIN      subject, finite verb, middle field, rest of the verb, that-clause
    INVERTED  [fronted expression], finite verb, subject, middle field, rest of the verb, that-clause
    FINAL     [relative pronoun], subject, middle field, rest of the verb, finite verb, that-clause
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from seq2seq.data.grammar.lexicon import (
    AUXILIARIES,
    CONJUNCTIONS,
    DATIVE,
    IDENTITY,
    JOINERS,
    NOMINATIVE,
    QUESTION_WORDS,
    SHIFT,
    TENSES,
    Adjective,
    Fixed,
    Links,
    Noun,
    Verb,
)
from seq2seq.data.grammar.phrases import (
    Nominal,
    NounPhrase,
    Piece,
    PrepositionalPhrase,
    RelativePronoun,
    comma,
    concatenate,
)

MAIN, INVERTED, FINAL = range(3)

(FRONT, SUBJECT, MODAL, NOT, FREQUENCY, MAIN_VERB, INDIRECT, OBJECT, TO_OBJECT, PREDICATE, MANNER, OBLIQUE, COMPANION,
 PLACE, TIME, COMPLEMENT, FINITE, REST) = range(18)  # fmt: skip

_ENGLISH: tuple[int, ...] = tuple(range(FRONT, COMPLEMENT + 1))
_ENGLISH_QUESTION = (FRONT, MODAL, SUBJECT, *range(NOT, COMPLEMENT + 1))
_MIDDLE = (TIME, FREQUENCY, MANNER, INDIRECT, TO_OBJECT, OBJECT, NOT, COMPANION, PLACE, OBLIQUE, PREDICATE)
_GERMAN: tuple[tuple[int, ...], ...] = (
    (SUBJECT, FINITE, *_MIDDLE, REST, COMPLEMENT),
    (FRONT, FINITE, SUBJECT, *_MIDDLE, REST, COMPLEMENT),
    (FRONT, SUBJECT, *_MIDDLE, REST, FINITE, COMPLEMENT),
)
_EXTRACTED = {
    name: (
        (slot, *(other for other in _ENGLISH if other != slot)),
        (slot, *(other for other in _GERMAN[FINAL] if other != slot)),
    )
    for name, slot in (("object", OBJECT), ("oblique", OBLIQUE), ("place", PLACE))
}


@dataclass(slots=True)
class Clause:
    """A finite clause. `tense` is a key of TENSES; English simple past is German Perfekt, modals and "be" apart.

    The verb's frame says which of object, indirect, oblique, predicate and complement it has. `front` is a fronted
    expression (time or sentence adverb), `question` makes it a question: "" for yes/no or a key of QUESTION_WORDS.
    `relative` is set in relative clauses: the slot ("subject", "object", "oblique", "place") of the relative pronoun.
    """

    subject: Nominal
    verb: Verb
    tense: str = "present"
    negated: bool = False
    object: Nominal | None = None
    indirect: Nominal | None = None
    oblique: PrepositionalPhrase | None = None
    predicate: Adjective | None = None
    very: bool = False
    manner: Fixed | None = None
    frequency: Fixed | None = None
    companion: PrepositionalPhrase | None = None
    place: PrepositionalPhrase | None = None
    time: Fixed | None = None
    front: Fixed | None = None
    complement: Subordinate | None = None
    question: str | None = None
    relative: str = "subject"

    def render(self, order: int = MAIN) -> Piece:
        verb = self.verb
        pieces: list[Piece | None] = [None] * 18
        pieces[SUBJECT] = self.subject.render(NOMINATIVE)
        negation = self._negation() if self.negated else ""
        if self.object is not None:
            if negation == "kein":
                assert isinstance(self.object, NounPhrase)
                pieces[OBJECT] = self.object.render(verb.case, negated=True)
            else:
                pieces[OBJECT] = self.object.render(verb.case)
        if self.indirect is not None:
            if verb.frame == "dative_to":
                english, german, links, n, m = self.indirect.render(DATIVE)
                links = (0, *(link + (1 << SHIFT) for link in links))
                pieces[TO_OBJECT] = ("to " + english, german, links, n + 1, m)
            else:
                pieces[INDIRECT] = self.indirect.render(DATIVE)
        if self.predicate is not None:
            pieces[PREDICATE] = (self.predicate.english, self.predicate.base, IDENTITY[1], 1, 1)
            if self.very:
                pieces[PREDICATE] = ("very " + self.predicate.english, "sehr " + self.predicate.base, IDENTITY[2], 2, 2)
        if self.oblique is not None:
            pieces[OBLIQUE] = self.oblique.render()
        if self.manner is not None:
            pieces[MANNER] = self.manner.piece
        if self.frequency is not None:
            pieces[FREQUENCY] = self.frequency.piece
        if self.companion is not None:
            pieces[COMPANION] = self.companion.render()
        if self.place is not None:
            pieces[PLACE] = self.place.render()
        if self.time is not None:
            pieces[TIME] = self.time.piece
        if self.complement is not None:
            pieces[COMPLEMENT] = self.complement.render()
        english_order, german_order = _ENGLISH, _GERMAN[order]
        if self.question is not None:
            english_order, german_order = _ENGLISH_QUESTION, _GERMAN[INVERTED]
            if self.question:
                pieces[FRONT] = (self.question, QUESTION_WORDS[self.question], IDENTITY[1], 1, 1)
        elif self.front is not None:
            pieces[FRONT] = self.front.piece
            german_order = _GERMAN[INVERTED]
        elif self.relative != "subject":
            english_order, german_order = _EXTRACTED[self.relative]
        finite, rest, finite_link, rest_link = self._verb_complex(pieces)
        return self._linearise(
            pieces, english_order, german_order, finite, rest, finite_link, rest_link, negation, order == FINAL
        )

    def _negation(self) -> str:
        indefinite = type(self.object) is NounPhrase and self.object.determiner in ("a", "")
        return "kein" if indefinite and self.verb.case != DATIVE else "nicht"

    def _verb_complex(self, pieces: list[Piece | None]) -> tuple[str, str, tuple[int, ...], tuple[int, ...]]:
        """Put the English verb words into their slots; return the German finite verb and the rest of the verb (prefix,
        participle or infinitive), and the English slots that each of them translates."""
        verb, tense = self.verb, TENSES[self.tense]
        number = 1 if self.subject.plural else 0
        if verb.frame == "copula":
            if tense.past:
                english, finite = verb.past[number], ("war", "waren")[number]
            else:
                english, finite = ("is", "are")[number], verb.finite[number]
            pieces[MODAL] = (english, "", (), 1, 0)
            if self.negated:
                pieces[NOT] = ("not", "nicht", IDENTITY[1], 1, 1)
            return finite, "", (MODAL,), ()
        plain = not tense.english[0]
        modal = tense.english[number]
        if self.negated:
            modal, _, negator = tense.english_negated[number].partition(" ")
            pieces[NOT] = (negator, "nicht", IDENTITY[1], 1, 1) if negator else None
        elif plain and self.question is not None:
            modal = tense.english_negated[number].partition(" ")[0]
        english = verb.english
        if not modal:
            english = verb.past[number] if tense.past else (verb.third if number == 0 else verb.english)
        else:
            pieces[MODAL] = (modal, "", (), modal.count(" ") + 1, 0)
        pieces[MAIN_VERB] = (english, "", (), english.count(" ") + 1, 0)
        if not plain:
            return tense.german[number], verb.infinitive, (MODAL,), (MAIN_VERB,)
        if tense.past:
            finite_link = (MODAL,) if modal else (MAIN_VERB,)
            return AUXILIARIES[verb.auxiliary][number], verb.participle, finite_link, (MAIN_VERB,)
        return verb.finite[number], verb.prefix, (MODAL, MAIN_VERB) if modal else (MAIN_VERB,), (MAIN_VERB,)

    def _linearise(
        self,
        pieces: list[Piece | None],
        english_order: tuple[int, ...],
        german_order: tuple[int, ...],
        finite: str,
        rest: str,
        finite_slots: tuple[int, ...],
        rest_slots: tuple[int, ...],
        negation: str,
        final: bool,
    ) -> Piece:
        english: list[str] = []
        start = [0] * 18
        i = 0
        for slot in english_order:
            piece = pieces[slot]
            if piece is not None:
                english.append(piece[0])
                start[slot] = i << SHIFT
                i += piece[3]
        cannot = self.negated and pieces[NOT] is None
        if cannot:
            start[NOT] = start[MODAL]
            pieces[NOT] = ("", "nicht", IDENTITY[1], 0, 1)
        if final and rest and rest == self.verb.prefix:
            finite, rest, rest_slots = rest + finite, "", ()
        pieces[FINITE] = (finite, finite, self._words(pieces, start, finite_slots), 0, 1)
        pieces[REST] = (rest, rest, self._words(pieces, start, rest_slots), 0, 1) if rest else None
        german: list[str] = []
        links: list[int] = []
        j = 0
        for slot in german_order:
            piece = pieces[slot]
            if piece is None:
                continue
            if slot == NOT and negation == "kein":
                continue
            if slot == OBJECT and negation == "kein":
                links.append(start[NOT] + j)
            if slot == COMPLEMENT:
                german[-1] = comma(german[-1])
            german.append(piece[1])
            shift = start[slot] + j
            links += [link + shift for link in piece[2]]
            j += piece[4]
        return " ".join(english), " ".join(german), tuple(links), i, j

    @staticmethod
    def _words(pieces: list[Piece | None], start: list[int], slots: tuple[int, ...]) -> Links:
        """Links from every English word of these slots to one German word."""
        links: list[int] = []
        for slot in slots:
            piece = pieces[slot]
            assert piece is not None
            links += [start[slot] + (k << SHIFT) for k in range(piece[3])]
        return tuple(links)


@dataclass(slots=True)
class Relative:
    """A restrictive relative clause; `clause.relative` names the slot that its pronoun fills (set to any phrase)."""

    clause: Clause

    def render(self) -> Piece:
        english, german, links, n, m = self.clause.render(FINAL)
        return english, comma(german), links, n, m


@dataclass(slots=True)
class Subordinate:
    """A conjunction (key of CONJUNCTIONS) over one clause, or several joined by "and"."""

    conjunction: str
    clauses: tuple[Clause | Complex, ...]

    def render(self) -> Piece:
        """German ends with the closing comma."""
        pieces: list[Piece] = [(self.conjunction, CONJUNCTIONS[self.conjunction], IDENTITY[1], 1, 1)]
        for number, clause in enumerate(self.clauses):
            if number:
                pieces.append(("and", "und", IDENTITY[1], 1, 1))
            pieces.append(clause.render(FINAL))
        english, german, links, n, m = concatenate(*pieces)
        return english, comma(german), links, n, m


@dataclass(slots=True)
class Complex:
    """A clause with an adverbial subordinate clause behind it, or before it when `fronted`."""

    clause: Clause
    subordinate: Subordinate
    fronted: bool = False

    def render(self, order: int = MAIN) -> Piece:
        english, german, links, n, m = self.subordinate.render()
        if self.fronted:
            return concatenate((english + ",", german, links, n, m), self.clause.render(INVERTED))
        first, first_german, first_links, first_n, first_m = self.clause.render(order)
        if self.subordinate.conjunction == "although":
            first += ","
        return concatenate((first, comma(first_german), first_links, first_n, first_m), (english, german, links, n, m))


@dataclass(slots=True)
class Sentence:
    """Main clauses joined by "and", "but", "so" or ";"; `joiners` has one entry fewer than `parts`."""

    parts: tuple[Clause | Complex, ...]
    joiners: tuple[str, ...] = ()

    def render(self) -> Piece:
        """The finished pair: capitalized, with its final full stop or question mark."""
        pieces = [self.parts[0].render()]
        for joiner, part in zip(self.joiners, self.parts[1:], strict=True):
            english, german, links, n, m = pieces[-1]
            if joiner == ";":
                pieces[-1] = (english + ";", german.removesuffix(",") + ";", links, n, m)
                pieces.append(part.render())
                continue
            pieces[-1] = (english + ",", comma(german), links, n, m)
            pieces.append((joiner, JOINERS[joiner], IDENTITY[1], 1, 1))
            pieces.append(part.render(INVERTED if joiner == "so" else MAIN))
        english, german, links, n, m = concatenate(*pieces)
        first = self.parts[0]
        clause = first.clause if isinstance(first, Complex) else first
        mark = "." if clause.question is None else "?"
        english, german = english + mark, german.removesuffix(",") + mark
        return english[0].upper() + english[1:], german[0].upper() + german[1:], tuple(sorted(links)), n, m


def relative_clause(clause: Clause, noun: Noun, plural: bool, slot: str = "subject") -> Relative:
    """The clause with a relative pronoun for `noun` in `slot`; it replaces what the slot held."""
    pronoun = RelativePronoun(noun, plural)
    if slot == "subject":
        return Relative(replace(clause, subject=pronoun, relative=slot))
    if slot == "object":
        return Relative(replace(clause, object=pronoun, relative=slot))
    phrase = clause.oblique if slot == "oblique" else clause.place
    assert phrase is not None
    bound = PrepositionalPhrase(phrase.preposition, pronoun)
    if slot == "oblique":
        return Relative(replace(clause, oblique=bound, relative=slot))
    return Relative(replace(clause, place=bound, relative=slot))
