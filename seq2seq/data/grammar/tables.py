"""The lexicon of the built-in grammar arranged for drawing: which words go with which."""

from __future__ import annotations

from functools import lru_cache

from seq2seq.data.grammar.lexicon import (
    AFTER,
    BEFORE,
    CITIES,
    COPULA,
    PEOPLE,
    PRONOUNS,
    Fixed,
    Lexicon,
    Noun,
    Preposition,
    Verb,
    lexicon,
)
from seq2seq.data.grammar.phrases import Name, NounPhrase, PrepositionalPhrase, Pronoun

LOCATION_FEATURES = {"in": "i", "on": "s", "behind": "n", "in front of": "n", "next to": "n"}


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
        """Words of the shortest object (or what stands for it): a name, a bare plural or mass noun, else two."""
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
