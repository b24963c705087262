"""Random clauses of the built-in grammar, relative clauses in them, with an exact number of English words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from seq2seq.data.grammar.clauses import Clause, Relative, relative_clause
from seq2seq.data.grammar.lexicon import PLACES, WITH, Noun, Verb
from seq2seq.data.grammar.phrase_sampler import PhraseSampler
from seq2seq.data.grammar.phrases import (
    Coordination,
    Name,
    Nominal,
    NounPhrase,
    PrepositionalPhrase,
    RelativePronoun,
)

LONGEST_CLAUSE = 14

_FRAMES = ("transitive",) * 8 + ("intransitive",) * 4 + ("prepositional",) * 3 + ("motion",) * 3 + (
    "dative", "dative", "ditransitive", "ditransitive", "dative_to", "copula", "copula",
)  # fmt: skip
_EXTENDABLE = frozenset(("the", "a", "this", "two", "three", "four", "many"))
_PRESENT_TENSES = ("present",) * 8 + ("can", "must", "should", "want")
_PAST_TENSES = ("past",) * 9 + ("could", "had", "wanted")
_ANIMATE = frozenset("PA")
_TENSE_WORDS = {"can": 1, "must": 1, "should": 1, "could": 1, "want": 2, "had": 2, "wanted": 2, "present": 0, "past": 0}
_NEGATED_WORDS = {"present": 2, "past": 2, "can": 1, "could": 2, "should": 2}


@dataclass(slots=True)
class _Sizes:
    """Words of each part of a clause; for the parts that are flags, True if the clause has them."""

    phrases: dict[str, int] = field(default_factory=dict)
    front: int = 0
    time: int = 0
    place: int = 0
    companion: int = 0
    manner: bool = False
    frequency: bool = False
    very: bool = False


class ClauseSampler:
    """Draws finite clauses; `random` yields floats in [0, 1)."""

    def __init__(self, random: Callable[[], float]) -> None:
        self.random = random
        self.phrases = PhraseSampler(random)
        self.tables = self.phrases.tables
        self.choose = self.phrases.choose
        self.between = self.phrases.between

    def clause(
        self,
        n: int,
        past: bool,
        front: bool = False,
        affirmative: bool = False,
        question: str | None = None,
    ) -> Clause:
        """A clause of exactly n words, maybe with a relative clause on one of its nouns."""
        while True:
            relative = 0
            if n >= 9 and (n > LONGEST_CLAUSE or self.random() < 0.5):
                relative = self.between(3, min(8, n - 5))
            frame = self.choose(_FRAMES)
            if affirmative and frame == "copula":
                continue
            verb = self.choose(self.tables.frames[frame, past])
            clause = self._fill(verb, n - relative, past, front, affirmative, question)
            if clause is None or (relative and not self._attach_relative(clause, relative, past)):
                continue
            return clause

    def _fill(
        self,
        verb: Verb,
        n: int,
        past: bool,
        front: bool = False,
        affirmative: bool = False,
        question: str | None = None,
        subject: Nominal | None = None,
        extracted: str = "",
    ) -> Clause | None:
        """A clause of exactly n words, or None where these choices cannot give one.

        A given subject counts as one word; `extracted` is the slot that a relative pronoun of one word will fill.
        """
        tables = self.tables
        left = n - tables.shortest[verb]
        if extracted in ("object", "oblique"):
            left += tables.least[verb] - 1
        if left < 0:
            return None
        tense, negated, words = self._tense(verb, past, left, affirmative, question)
        left -= words
        if question:
            left -= 1
        if left < 0:
            return None
        sizes = self._share_out(verb, left, tense, negated, affirmative, question, subject is None, extracted, front)
        if sizes is None:
            return None
        if subject is None:
            subjects, words = tables.subjects[verb], sizes.phrases["subject"]
            subject = self.phrases.nominal(subjects, words, subject=True, definite=negated)
        clause = Clause(subject, verb, tense, negated, question=question)
        if not self._complements(clause, sizes, extracted):
            return None
        self._adjuncts(clause, sizes, past)
        return None if _repeats_a_name(clause) else clause

    def _share_out(
        self,
        verb: Verb,
        left: int,
        tense: str,
        negated: bool,
        affirmative: bool,
        question: str | None,
        own_subject: bool,
        extracted: str,
        front: bool,
    ) -> _Sizes | None:
        """`left` words, beyond the least, among the parts of a clause; None where they find no place."""
        random, frame, least = self.random, verb.frame, self.tables.least[verb]
        sizes = _Sizes({"subject": 1, "object": least, "indirect": 1, "oblique": least})
        phrases = sizes.phrases
        options = ["subject", "subject", "subject"] if own_subject else []
        options += ["time", "place", "companion", "manner"]
        if extracted != "object" and frame in ("transitive", "dative", "ditransitive", "dative_to"):
            options += ["object"] * 4
        if frame in ("ditransitive", "dative_to"):
            options += ["indirect"] * 4
        if extracted != "oblique" and frame in ("prepositional", "motion"):
            options += ["oblique"] * 4
        if frame == "copula":
            options = [option for option in options if option in ("subject", "time")] + ["very"]
        if frame == "motion":
            options.remove("place")
        if not negated and not affirmative:
            options.append("frequency")
        if front:
            options.append("front")
        for option in ("object", "oblique", "subject"):
            if left and option in options and phrases[option] == 1 and random() < 0.85:
                phrases[option] = 2
                left -= 1
        frequent = tense in ("present", "past", "can")
        while left:
            if not options:
                return None
            index = int(random() * len(options))
            option = options[index]
            if option in phrases:  # grows word by word
                limit = 5 if option == "subject" or (option == "object" and frame == "transitive") else 4
                if phrases[option] < limit:
                    phrases[option] += 1
                    left -= 1
                    continue
            elif option == "time" and question != "when" and not sizes.front and left > sizes.frequency:
                sizes.time = min(left, self.between(1 + sizes.frequency, 3))
                left -= sizes.time
            elif option == "place" and left > 1:
                sizes.place = min(left, self.between(2, 5))
                left -= sizes.place
            elif option == "companion" and left > 1 and "P" in verb.subjects:
                sizes.companion = min(left, self.between(2, 4))
                left -= sizes.companion
            elif option == "manner" and verb.manner and not negated and question != "how":
                sizes.manner = True
                left -= 1
            elif option == "frequency" and frequent and sizes.time != 1 and not sizes.front:
                sizes.frequency = True
                left -= 1
            elif option == "front" and not sizes.time and not sizes.frequency:
                sizes.front = min(left, self.between(1, 3))
                left -= sizes.front
            elif option == "very":
                sizes.very = True
                left -= 1
            options[index] = options[-1]
            options.pop()
        return None if question == "how" and not verb.manner else sizes

    def _complements(self, clause: Clause, sizes: _Sizes, extracted: str) -> bool:
        """Give the clause the complements of its verb; False where these sizes do not allow them."""
        verb, tables, phrases, definite = clause.verb, self.tables, sizes.phrases, clause.negated
        frame, nouns = verb.frame, tables.objects[verb]
        if frame in ("transitive", "dative", "ditransitive", "dative_to") and extracted != "object":
            clause.object = self.phrases.object(verb, nouns, phrases["object"], definite)
            if clause.object is None:
                return False
        if frame in ("ditransitive", "dative_to"):
            clause.indirect = self.phrases.nominal(tables.people, phrases["indirect"], definite=definite)
        elif frame == "prepositional":
            assert verb.preposition is not None
            phrase = self.phrases.nominal(nouns, phrases["oblique"], definite=definite, coordinated=False)
            clause.oblique = PrepositionalPhrase(verb.preposition, phrase)
        elif frame == "motion":
            clause.oblique = self.phrases.direction(verb, phrases["oblique"], definite)
            if clause.oblique is None:
                return False
        elif frame == "copula":
            clause.predicate = self.choose(tables.predicates[_kind(clause.subject)])
            clause.very = sizes.very
        return True

    def _adjuncts(self, clause: Clause, sizes: _Sizes, past: bool) -> None:
        tables, tense, definite = self.tables, clause.tense, clause.negated
        if sizes.manner:
            clause.manner = self.choose(tables.manners)
        if sizes.frequency:
            clause.frequency = self.choose(tables.frequencies)
        if sizes.companion:
            phrase = self.phrases.nominal(tables.people, sizes.companion - 1, definite=definite, coordinated=False)
            clause.companion = PrepositionalPhrase(WITH, phrase)
        if sizes.place:
            clause.place = self.phrases.place(sizes.place, definite)
        if sizes.time:
            clause.time = self.phrases.time(sizes.time, tense, past, sizes.frequency, clause.negated)
        if sizes.front:
            if sizes.front == 1 and self.random() < 0.6:
                clause.front = self.choose(tables.past_fronts if past else tables.fronts)
            else:
                clause.front = self.phrases.time(sizes.front, tense, past, sizes.frequency, clause.negated)

    def _tense(
        self, verb: Verb, past: bool, left: int, affirmative: bool, question: str | None
    ) -> tuple[str, bool, int]:
        """Tense, negation, and the words that they add to a plain verb form."""
        plain = "past" if past else "present"
        if verb.frame == "copula":
            negated = question is None and not affirmative and left > 0 and self.random() < 0.15
            return plain, negated, int(negated)
        tense = self.choose(_PAST_TENSES if past else _PRESENT_TENSES)
        if tense in ("want", "wanted") and not verb.subjects <= _ANIMATE:
            tense = plain
        if question is not None:
            tense = plain if tense in ("want", "had", "wanted") else tense
            return tense, False, 1
        if not affirmative and self.random() < 0.15:
            tense = tense if tense in _NEGATED_WORDS else plain
            if _NEGATED_WORDS[tense] <= left:
                return tense, True, _NEGATED_WORDS[tense]
        return (tense, False, _TENSE_WORDS[tense]) if _TENSE_WORDS[tense] <= left else (plain, False, 0)

    def _attach_relative(self, clause: Clause, n: int, past: bool) -> bool:
        """Put a relative clause of n words on the subject, or on the last phrase of the English clause: elsewhere a
        reader could take what follows for a part of the relative clause."""
        candidates = (clause.subject, _last_phrase(clause))
        phrases = [
            phrase
            for phrase in candidates
            if isinstance(phrase, NounPhrase) and phrase.attribute is None and phrase.determiner in _EXTENDABLE
        ]
        if not phrases:
            return False
        phrase = self.choose(phrases)
        phrase.relative = self._relative(phrase.noun, phrase.plural, n, past)
        return phrase.relative is not None

    def _relative(self, noun: Noun, plural: bool, n: int, past: bool) -> Relative | None:
        tables = self.tables
        if n >= 4 and noun.features & frozenset("is") and self.random() < 0.4:
            verb = self.choose(tables.frames["intransitive", past])
            clause = self._fill(verb, n - 2, past, extracted="place")
            if clause is None or clause.place is not None or "P" not in verb.subjects:
                return None
            preposition = PLACES["in" if "i" in noun.features else "on"]
            clause.place = PrepositionalPhrase(preposition, NounPhrase("the", noun, plural))
            return relative_clause(clause, noun, plural, "place")
        verbs = tables.verbs_of_subject[noun]
        if verbs and self.random() < 0.5:
            verb = self.choose(verbs)
            if past and not verb.past[0]:
                return None
            clause = self._fill(verb, n, past, subject=RelativePronoun(noun, plural))
            return relative_clause(clause, noun, plural) if clause is not None else None
        verbs = tables.verbs_of_object[noun]
        if not verbs:
            return None
        verb = self.choose(verbs)
        if past and not verb.past[0]:
            return None
        slot = "oblique" if verb.frame == "prepositional" else "object"
        clause = self._fill(verb, n, past, extracted=slot)
        return relative_clause(clause, noun, plural, slot) if clause is not None else None


def _kind(phrase: Nominal) -> str:
    while isinstance(phrase, Coordination):
        phrase = phrase.first
    return phrase.noun.kind if isinstance(phrase, NounPhrase) else "P"


def _repeats_a_name(clause: Clause) -> bool:
    """True if "Peter" meets "Peter" in one clause."""
    phrases = [clause.subject, clause.object, clause.indirect]
    phrases += [bound.phrase for bound in (clause.oblique, clause.companion) if bound is not None]
    names = [phrase.english for phrase in phrases if isinstance(phrase, Name)]
    return len(set(names)) < len(names)


def _last_phrase(clause: Clause) -> Nominal | None:
    """The phrase that ends the English clause, if a phrase does."""
    if clause.time is not None:
        return None
    for prepositional in (clause.place, clause.companion, clause.oblique):
        if prepositional is not None:
            return prepositional.phrase
    if clause.manner is not None:
        return None
    return clause.indirect if clause.verb.frame == "dative_to" else clause.object
