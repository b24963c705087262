"""Random noun phrases, places and times of the built-in grammar with an exact number of English words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeVar

from seq2seq.data.grammar.lexicon import (
    AFTER,
    BEFORE,
    CITIES,
    COPULA,
    INTO,
    PEOPLE,
    PLACES,
    PRONOUNS,
    TO,
    TO_CITY,
    Adjective,
    Fixed,
    Lexicon,
    Noun,
    Preposition,
    Verb,
    lexicon,
)
from seq2seq.data.grammar.phrases import Coordination, Name, Nominal, NounPhrase, PrepositionalPhrase, Pronoun

T = TypeVar("T")

_SINGULAR = ("the",) * 9 + ("a",) * 6 + ("my", "our", "his", "her", "this", "this", "every")
_PLURAL = ("the",) * 8 + ("two", "three", "four", "many", "many", "", "my", "our", "his", "her", "this", "this")
_DEFINITE = ("the",) * 9 + ("my", "our", "his", "her", "this", "this")
_NEGATABLE = (*_DEFINITE, "a", "a", "a", "a", "a", "a")
LOCATION_FEATURES = {"in": "i", "on": "s", "behind": "n", "in front of": "n", "next to": "n"}
_LOCATION_WORDS = {name: name.count(" ") + 1 for name in PLACES}


class PhraseSampler:
    """Draws phrases; `random` yields floats in [0, 1). `definite` phrases are those that negation leaves alone."""

    def __init__(self, random: Callable[[], float]) -> None:
        self.random = random
        self.tables = lexicon_tables()

    def choose(self, options: Sequence[T]) -> T:
        return options[int(self.random() * len(options))]

    def between(self, low: int, high: int) -> int:
        return low + int(self.random() * (high - low + 1))

    def time(self, n: int, tense: str, past: bool, frequency: bool, negated: bool) -> Fixed:
        if frequency:
            name = "general"
        elif past:
            name = "past"
        elif tense != "present":
            name = "future"
        else:
            name = "present" if negated else "habitual"
        return self.choose(self.tables.times[name][n])

    def object(self, verb: Verb, nouns: list[Noun], n: int, negated: bool) -> Nominal | None:
        if nouns[0].kind == "D":
            return self.mass(self.choose(nouns), n)
        if not negated:
            return self.nominal(nouns, n)
        if verb.frame == "dative":
            return self.nominal(nouns, n, definite=True)
        return self.nominal(nouns, n, determiners=_NEGATABLE)

    def mass(self, noun: Noun, n: int) -> NounPhrase | None:
        if n > 3:
            return None
        adjectives = (self.choose(self.tables.first["D"]),) if n == 3 else ()
        return NounPhrase("" if n == 1 else self.choose(_DEFINITE), noun, adjectives=adjectives)

    def nominal(
        self,
        nouns: list[Noun],
        n: int,
        subject: bool = False,
        definite: bool = False,
        determiners: Sequence[str] = (),
        coordinated: bool = True,
    ) -> Nominal:
        """n words for one of these nouns."""
        random = self.random
        noun = self.choose(nouns)
        if n == 1:
            while not noun.english[1]:
                noun = self.choose(nouns)
            if noun.kind == "P":
                draw = random()
                if subject and draw < 0.5:
                    return self.choose(self.tables.pronouns)
                if draw < 0.85:
                    return self.choose(self.tables.names)
            return NounPhrase("", noun, True)
        if n >= 3 and coordinated and not determiners and (n == 5 or random() < 0.12):
            if n == 5 and noun.kind == "P" and random() < 0.5:
                attribute = NounPhrase("a", self.choose(self.tables.wearable))
                return NounPhrase(self.choose(_DEFINITE), noun, attribute=attribute)
            first = 2 if n == 5 else 1
            if first == 2 or noun.kind == "P":
                others = [other for other in nouns if other.kind == noun.kind and other is not noun]
                if others:
                    one = self.nominal([noun], first, definite=definite)
                    other = self.nominal(others, n - 1 - first, definite=definite)
                    while other is one:
                        other = self.nominal(others, n - 1 - first, definite=definite)
                    return Coordination(one, other)
        plural = noun.english[1] != "" and random() < 0.3
        if determiners:
            determiner = self.choose(determiners)
            plural = plural and determiner != "a"
        else:
            determiner = self.choose(_DEFINITE if definite else _PLURAL if plural else _SINGULAR)
        modifiers = n - 1 - (determiner != "")
        return self.noun_phrase(determiner, noun, plural, modifiers)

    def noun_phrase(self, determiner: str, noun: Noun, plural: bool, modifiers: int) -> NounPhrase:
        tables, kind = self.tables, noun.kind
        if modifiers == 0:
            return NounPhrase(determiner, noun, plural)
        if modifiers == 1:
            if tables.second[kind] and self.random() < 0.25:
                return NounPhrase(determiner, noun, plural, (self.choose(tables.second[kind]),))
            return NounPhrase(determiner, noun, plural, (self.choose(tables.first[kind]),))
        if modifiers == 2 and tables.second[kind] and self.random() < 0.6:
            pair = (self.choose(tables.first[kind]), self.choose(tables.second[kind]))
            return NounPhrase(determiner, noun, plural, pair)
        adjectives: tuple[Adjective, ...] = (self.choose(tables.gradable[kind]),)
        if modifiers == 3:
            adjectives = (*adjectives, self.choose(tables.second[kind] or tables.first[kind]))
        return NounPhrase(determiner, noun, plural, adjectives, very=True)

    def place(self, n: int, definite: bool) -> PrepositionalPhrase:
        if n == 2:
            return PrepositionalPhrase(PLACES["in"], self.choose(self.tables.cities))
        name = self.choose(("in", "in", "in", "in", "on", "on", "behind", "next to", "in front of"))
        if n - _LOCATION_WORDS[name] < 2:
            name = "in"
        nouns, words = self.tables.located[name], n - _LOCATION_WORDS[name]
        return PrepositionalPhrase(PLACES[name], self.nominal(nouns, words, definite=definite, coordinated=False))

    def direction(self, verb: Verb, n: int, definite: bool) -> PrepositionalPhrase | None:
        if n == 1:
            return PrepositionalPhrase(TO_CITY, self.choose(self.tables.cities)) if "c" in verb.objects else None
        places = [code for code in "iz" if code in verb.objects]
        if not places:
            return None
        inside = self.choose(places) == "i"
        nouns = self.tables.inside if inside else self.tables.destinations
        phrase = self.nominal(nouns, n, definite=definite, coordinated=False)
        return PrepositionalPhrase(INTO if inside else TO, phrase)


class Tables:
    """The lexicon arranged for drawing."""

    def __init__(self, words: Lexicon) -> None:
        def matching(features: frozenset[str]) -> list[Noun]:
            return [noun for noun in words.nouns if noun.features & features]

        self.frames: dict[tuple[str, bool], list[Verb]] = {}
        for verb in [*words.verbs, COPULA]:
            for past in (False, True):
                if not past or verb.past[0]:
                    self.frames.setdefault((verb.frame, past), []).append(verb)
        verbs = [*words.verbs, COPULA]
        self.subjects: dict[Verb, list[Noun]] = {verb: matching(verb.subjects) for verb in verbs}
        self.objects: dict[Verb, list[Noun]] = {verb: matching(verb.objects) for verb in verbs}
        self.least = {verb: self._least(verb) for verb in verbs}
        beside_object = {"prepositional": 1, "ditransitive": 1, "dative_to": 2, "motion": 1}
        self.shortest = {
            verb: 2 + verb.english.count(" ") + self.least[verb] + beside_object.get(verb.frame, 0) for verb in verbs
        }
        self.verbs_of_subject: dict[Noun, list[Verb]] = {}
        self.verbs_of_object: dict[Noun, list[Verb]] = {}
        for noun in words.nouns:
            ordinary = [verb for verb in verbs if verb.frame not in ("that", "whether")]
            self.verbs_of_subject[noun] = [v for v in ordinary if v.subjects & noun.features and v.frame != "copula"]
            with_object = [v for v in ordinary if v.frame in ("transitive", "dative", "prepositional")]
            self.verbs_of_object[noun] = [v for v in with_object if v.objects & noun.features]
        kinds = {noun.kind for noun in words.nouns}
        adjectives = words.adjectives
        self.first = {kind: [a for a in adjectives if kind in a.kinds and a.rank < 2] for kind in kinds}
        self.gradable = {kind: [a for a in adjectives if kind in a.kinds and a.rank == 1] for kind in kinds}
        self.second = {kind: [a for a in adjectives if kind in a.kinds and a.rank == 2] for kind in kinds}
        self.predicates = {kind: [a for a in adjectives if kind in a.kinds and a.predicate] for kind in kinds}
        self.people = matching(frozenset("P"))
        self.wearable = matching(frozenset("y"))
        self.located = {name: matching(frozenset(code)) for name, code in LOCATION_FEATURES.items()}
        self.inside = matching(frozenset("i"))
        self.destinations = matching(frozenset("z")) + self.people[:8]
        self.names = [Name(name, name) for name in PEOPLE]
        self.cities = [Name(english, german) for english, german in CITIES]
        self.pronouns = [Pronoun(english) for english in PRONOUNS]
        self.frequencies = self._fixed(words, "frequency")
        self.manners = self._fixed(words, "manner")
        self.past_fronts = self._fixed(words, "sentence") + self._fixed(words, "past_sentence")
        self.fronts = self._fixed(words, "sentence")
        self.times: dict[str, dict[int, list[Fixed]]] = {}
        events = [noun for noun in words.nouns if noun.kind == "E"]
        after_events = [_event(preposition, noun) for preposition in (AFTER, BEFORE) for noun in events]
        kinds_of_time = {
            "past": ("past",),
            "present": ("present",),
            "habitual": ("present", "habit"),
            "future": ("future",),
            "general": ("general",),
        }
        for name, members in kinds_of_time.items():
            fixed = [a for kind in members for a in self._fixed(words, kind)]
            by_length = {n: [a for a in fixed if a.piece[3] == n] for n in (1, 2, 3)}
            by_length[3] = by_length[3] + after_events
            self.times[name] = by_length

    def _least(self, verb: Verb) -> int:
        """Words of the shortest object (or its substitute): a name, a bare plural or mass noun, else two."""
        if verb.frame in ("intransitive", "that", "whether"):
            return 0
        nouns = self.objects[verb]
        if verb.frame in ("copula", "motion") or nouns[0].kind == "D":
            return 1
        return 1 if verb.frame != "dative_to" and any(noun.english[1] for noun in nouns) else 2

    @staticmethod
    def _fixed(words: Lexicon, kind: str) -> list[Fixed]:
        return [adverbial for adverbial in words.adverbials if kind in adverbial.kinds]


def _event(preposition: Preposition, noun: Noun) -> Fixed:
    english, german, links, _, _ = PrepositionalPhrase(preposition, NounPhrase("the", noun)).render()
    return Fixed(english, german, links, frozenset(("event",)))


@lru_cache(maxsize=1)
def lexicon_tables() -> Tables:
    return Tables(lexicon())
