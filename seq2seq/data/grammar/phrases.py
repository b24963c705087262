"""Noun phrases of the built-in grammar, and their rendering as aligned English-German pieces.

Every node renders to a piece `(english, german, links, english_words, german_words)`. A word is a whitespace-separated
token of the text as written, with its punctuation: "schläft," is one word. links pair the positions of words that
translate each other (see `lexicon.Links`).

German commas: a piece whose German ends with a subordinate or relative clause ends with the comma that closes it.
Anything that follows stands after that comma, and the end of the sentence replaces it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from seq2seq.data.grammar.lexicon import (
    CONTRACTIONS,
    DATIVE,
    DETERMINERS,
    IDENTITY,
    NOMINATIVE,
    PLURAL,
    PRONOUNS,
    RELATIVE_PRONOUNS,
    SHIFT,
    Adjective,
    Links,
    Noun,
    Preposition,
)

Piece = tuple[str, str, Links, int, int]


class RelativeClause(Protocol):
    """A clause that follows a noun (see `clauses.Relative`)."""

    def render(self) -> Piece: ...


def comma(german: str) -> str:
    return german if german.endswith(",") else german + ","


def concatenate(*pieces: Piece) -> Piece:
    """Pieces one after another in both languages."""
    links: list[int] = []
    i = j = 0
    for _, _, own, source_words, target_words in pieces:
        shift = i << SHIFT | j
        links += [link + shift for link in own]
        i += source_words
        j += target_words
    return " ".join(p[0] for p in pieces), " ".join(p[1] for p in pieces), tuple(links), i, j


@dataclass(slots=True)
class Pronoun:
    """A personal pronoun, subject only: "he", "she", "we", "they"."""

    english: str
    relative = None

    @property
    def plural(self) -> bool:
        return PRONOUNS[self.english][1]

    def render(self, case: int) -> Piece:
        return self.english, PRONOUNS[self.english][0], IDENTITY[1], 1, 1


@dataclass(slots=True)
class Name:
    """A person or a city: the same form in every case."""

    english: str
    german: str
    plural = False
    relative = None

    def render(self, case: int) -> Piece:
        return self.english, self.german, IDENTITY[1], 1, 1


@dataclass(slots=True)
class RelativePronoun:
    """Agrees with its head noun in gender and number; its case comes from the relative clause."""

    noun: Noun
    plural: bool

    def render(self, case: int) -> Piece:
        german = RELATIVE_PRONOUNS[PLURAL if self.plural else self.noun.gender][case]
        if self.noun.kind != "P":
            return "that", german, IDENTITY[1], 1, 1
        return "who" if case == NOMINATIVE else "whom", german, IDENTITY[1], 1, 1


@dataclass(slots=True)
class NounPhrase:
    """[determiner] [very] [adjectives] noun [with ...] [relative clause]. `determiner` is a key of DETERMINERS."""

    determiner: str
    noun: Noun
    plural: bool = False
    adjectives: tuple[Adjective, ...] = ()
    very: bool = False
    attribute: NounPhrase | None = None
    relative: RelativeClause | None = None

    def render(self, case: int, negated: bool = False) -> Piece:
        """negated renders German kein for "a" or no determiner."""
        number = 1 if self.plural else 0
        agreement = PLURAL if self.plural else self.noun.gender
        determiner = DETERMINERS[self.determiner]
        english = [determiner.english[number]] if self.determiner else []
        words = len(english)
        if negated:
            determiner = DETERMINERS["no"]
        german_determiner = determiner.german[agreement][case]
        german = [german_determiner] if german_determiner else []
        if self.very:
            english.append("very")
            german.append("sehr")
        if self.adjectives:
            ending = determiner.endings[agreement][case]
            for adjective in self.adjectives:
                english.append(adjective.english)
                german.append(adjective.stem + ending)
        english.append(self.noun.english[number])
        german.append(self.noun.german[number][case])
        if self.determiner == "a" and english[1][0] in "aeiouAEIOU":
            english[0] = "an"
        n, m = len(english), len(german)
        links = IDENTITY[n] if n == m else tuple(link + (1 - words) for link in IDENTITY[n])
        piece: Piece = (" ".join(english), " ".join(german), links, n, m)
        if self.attribute is not None:
            piece = concatenate(piece, ("with", "mit", IDENTITY[1], 1, 1), self.attribute.render(DATIVE))
        if self.relative is not None:
            english_text, german_text, links, n, m = piece
            piece = concatenate((english_text, german_text + ",", links, n, m), self.relative.render())
        return piece


@dataclass(slots=True)
class Coordination:
    """Two noun phrases joined by "and"; as a subject it is plural."""

    first: Nominal
    second: Nominal
    plural = True
    relative = None

    def render(self, case: int) -> Piece:
        return concatenate(self.first.render(case), ("and", "und", IDENTITY[1], 1, 1), self.second.render(case))


Nominal = NounPhrase | Name | Pronoun | Coordination | RelativePronoun


@dataclass(slots=True)
class PrepositionalPhrase:
    """Preposition and article contract (im, ins, am, vom, zum, zur), unless a relative clause follows the noun."""

    preposition: Preposition
    phrase: Nominal

    def render(self) -> Piece:
        preposition = self.preposition
        english, german, links, n, m = self.phrase.render(preposition.case)
        words = preposition.english.count(" ") + 1
        english = preposition.english + " " + english
        if type(self.phrase) is RelativePronoun and english.endswith(" that"):
            english = english[:-4] + "which"
        if type(self.phrase) is NounPhrase and self.phrase.determiner == "the" and self.phrase.relative is None:
            article, rest = german.split(" ", 1)
            contracted = CONTRACTIONS.get((preposition.german, article))
            if contracted is not None:
                links = tuple(i << SHIFT for i in range(words)) + tuple(link + (words << SHIFT) for link in links)
                return english, contracted + " " + rest, links, n + words, m
        shift = words << SHIFT | 1
        links = tuple(i << SHIFT for i in range(words)) + tuple(link + shift for link in links)
        return english, preposition.german + " " + german, links, n + words, m + 1
