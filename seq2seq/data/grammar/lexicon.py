"""The lexicon of the built-in English-German grammar: open classes from `words/*.tsv`, closed classes from here.

Cases are 0 nominative, 1 accusative, 2 dative. Genders are 0 masculine, 1 feminine, 2 neuter, 3 plural: German does not
distinguish genders in the plural, so every agreement table below has four rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

NOMINATIVE, ACCUSATIVE, DATIVE = range(3)
PLURAL = 3

Links = tuple[int, ...]
"""Word alignment: each link is `source_position << SHIFT | target_position`, so that adding shifts both ends."""

SHIFT = 10
IDENTITY: tuple[Links, ...] = tuple(tuple(i << SHIFT | i for i in range(n)) for n in range(16))


@dataclass(frozen=True)
class Determiner:
    """english (singular, plural); german[gender][case]; endings[gender][case] of an adjective that follows."""

    english: tuple[str, str]
    german: tuple[tuple[str, str, str], ...]
    endings: tuple[tuple[str, str, str], ...]


def _table(rows: str) -> tuple[tuple[str, str, str], ...]:
    """Four rows (m, f, n, plural) of three cases; `-` is the empty string."""
    cells = ["" if cell == "-" else cell for cell in rows.split()]
    return tuple((cells[i], cells[i + 1], cells[i + 2]) for i in range(0, 12, 3))


_WEAK = _table("e en en  e e en  e e en  en en en")
_MIXED = _table("er en en  e e en  es es en  en en en")
_STRONG = _table("er en em  e e er  es es em  e e en")
_NONE = _table("- - -  - - -  - - -  - - -")
_THIS = _table("er en em  e e er  es es em  e e en")
_POSSESSIVE = _table("- en em  e e er  - - em  e e en")


def _inflect(stem: str, endings: tuple[tuple[str, str, str], ...]) -> tuple[tuple[str, str, str], ...]:
    return tuple((stem + a, stem + b, stem + c) for a, b, c in endings)


DETERMINERS = {
    "the": Determiner(("the", "the"), _table("der den dem  die die der  das das dem  die die den"), _WEAK),
    "this": Determiner(("this", "these"), _inflect("dies", _THIS), _WEAK),
    "every": Determiner(("every", ""), _inflect("jed", _THIS), _WEAK),
    "a": Determiner(("a", ""), _inflect("ein", _POSSESSIVE)[:3] + _NONE[3:], _MIXED[:3] + _STRONG[3:]),
    "my": Determiner(("my", "my"), _inflect("mein", _POSSESSIVE), _MIXED),
    "our": Determiner(("our", "our"), _inflect("unser", _POSSESSIVE), _MIXED),
    "his": Determiner(("his", "his"), _inflect("sein", _POSSESSIVE), _MIXED),
    "her": Determiner(("her", "her"), _inflect("ihr", _POSSESSIVE), _MIXED),
    "": Determiner(("", ""), _NONE, _STRONG),
    "two": Determiner(("", "two"), (*_NONE[:3], ("zwei",) * 3), _STRONG),
    "three": Determiner(("", "three"), (*_NONE[:3], ("drei",) * 3), _STRONG),
    "four": Determiner(("", "four"), (*_NONE[:3], ("vier",) * 3), _STRONG),
    "many": Determiner(("", "many"), (*_NONE[:3], ("viele", "viele", "vielen")), _STRONG),
    "no": Determiner(("no", "no"), _inflect("kein", _POSSESSIVE), _MIXED),
}
"""`no` stands for German kein: it is only reached as the negation of `a` and of the empty determiner."""

RELATIVE_PRONOUNS = _table("der den dem  die die der  das das dem  die die denen")

CONTRACTIONS = {
    ("in", "dem"): "im",
    ("in", "das"): "ins",
    ("an", "dem"): "am",
    ("von", "dem"): "vom",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
}


@dataclass(frozen=True, eq=False)
class Noun:
    """english (singular, plural) and german[0 singular | 1 plural][case]; an empty form does not exist.

    kind is one letter (P person, A animal, T thing, R text, F food, D drink, B building or place, S surface, E event);
    features are the letters that verbs and prepositions select, the kind included.
    """

    english: tuple[str, str]
    german: tuple[tuple[str, str, str], tuple[str, str, str]]
    gender: int
    kind: str
    features: frozenset[str]


@dataclass(frozen=True, eq=False)
class Adjective:
    """german[gender][case] per set of endings is stem + ending; base is the predicative form."""

    english: str
    base: str
    stem: str
    kinds: frozenset[str]
    rank: int
    predicate: bool


@dataclass(frozen=True, eq=False)
class Preposition:
    """english words and the german word with the case that it governs."""

    english: str
    german: str
    case: int


@dataclass(frozen=True, eq=False)
class Verb:
    """english forms carry their particle ("looks at"); past is (third person, plural) and empty where the English past
    would read like the present. german finite forms lack the separable prefix, infinitive and participle have it.
    case is that of the German object.
    """

    english: str
    third: str
    past: tuple[str, str]
    finite: tuple[str, str]
    infinitive: str
    participle: str
    prefix: str
    auxiliary: str
    frame: str
    subjects: frozenset[str]
    objects: frozenset[str]
    case: int
    preposition: Preposition | None
    manner: bool


@dataclass(frozen=True, eq=False)
class Fixed:
    """An uninflected expression with its own word alignment."""

    english: str
    german: str
    links: Links
    kinds: frozenset[str]

    @cached_property
    def piece(self) -> tuple[str, str, Links, int, int]:
        return self.english, self.german, self.links, len(self.english.split()), len(self.german.split())


@dataclass(frozen=True, eq=False)
class Tense:
    """Forms of the finite verb. `english` (singular, plural) is a modal, or empty for the plain present and past.

    english_negated replaces modal or do-support and the word "not"; german is the finite modal (singular, plural).
    """

    past: bool
    english: tuple[str, str] = ("", "")
    english_negated: tuple[str, str] = ("", "")
    german: tuple[str, str] = ("", "")


TENSES = {
    "present": Tense(False, english_negated=("does not", "do not")),
    "past": Tense(True, english_negated=("did not", "did not")),
    "can": Tense(False, ("can", "can"), ("cannot", "cannot"), ("kann", "können")),
    "should": Tense(False, ("should", "should"), ("should not", "should not"), ("sollte", "sollten")),
    "must": Tense(False, ("must", "must"), german=("muss", "müssen")),
    "want": Tense(False, ("wants to", "want to"), german=("will", "wollen")),
    "could": Tense(True, ("could", "could"), ("could not", "could not"), ("konnte", "konnten")),
    "had": Tense(True, ("had to", "had to"), german=("musste", "mussten")),
    "wanted": Tense(True, ("wanted to", "wanted to"), german=("wollte", "wollten")),
}

AUXILIARIES = {"haben": ("hat", "haben"), "sein": ("ist", "sind")}

COPULA = Verb(
    "be", "is", ("was", "were"), ("ist", "sind"), "sein", "", "", "sein", "copula",
    frozenset("PAB"), frozenset(), NOMINATIVE, None, False,
)  # fmt: skip

CONJUNCTIONS = {
    "because": "weil",
    "although": "obwohl",
    "while": "während",
    "before": "bevor",
    "until": "bis",
    "if": "wenn",
    "when": "als",
    "that": "dass",
    "whether": "ob",
}

PLACES = {
    "in": Preposition("in", "in", DATIVE),
    "on": Preposition("on", "auf", DATIVE),
    "behind": Preposition("behind", "hinter", DATIVE),
    "in front of": Preposition("in front of", "vor", DATIVE),
    "next to": Preposition("next to", "neben", DATIVE),
}
INTO = Preposition("into", "in", ACCUSATIVE)
TO = Preposition("to", "zu", DATIVE)
TO_CITY = Preposition("to", "nach", DATIVE)
WITH = Preposition("with", "mit", DATIVE)
AFTER = Preposition("after", "nach", DATIVE)
BEFORE = Preposition("before", "vor", DATIVE)

PRONOUNS = {"he": ("er", False), "she": ("sie", False), "we": ("wir", True), "they": ("sie", True)}
PEOPLE = ("Anna", "Maria", "Julia", "Sophie", "Emma", "Clara", "Peter", "Paul", "Thomas", "Martin")
CITIES = (
    ("Berlin", "Berlin"), ("Hamburg", "Hamburg"), ("Paris", "Paris"), ("London", "London"),
    ("Vienna", "Wien"), ("Munich", "München"), ("Rome", "Rom"), ("Cologne", "Köln"),
)  # fmt: skip
QUESTION_WORDS = {"why": "warum", "when": "wann", "how": "wie"}
JOINERS = {"and": "und", "but": "aber", "so": "deshalb"}


def _rows(name: str) -> list[dict[str, str]]:
    path = Path(__file__).with_name("words") / f"{name}.tsv"
    lines = path.read_text(encoding="utf-8").splitlines()
    header = lines[0].split("\t")
    rows = [dict(zip(header, line.split("\t"), strict=True)) for line in lines[1:]]
    return [{key: "" if value == "-" else value for key, value in row.items()} for row in rows]


def _plural(word: str) -> str:
    if word.endswith(("s", "x", "ch", "sh")):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


def _noun(row: dict[str, str]) -> Noun:
    base, oblique, plural = row["german"], row["oblique"] or row["german"], row["german_plural"]
    english_plural = row["plural"] or _plural(row["english"])
    dative_plural = plural if plural.endswith(("n", "s")) or not plural else plural + "n"
    return Noun(
        (row["english"], english_plural if plural else ""),
        ((base, oblique, oblique), (plural, plural, dative_plural)),
        "mfn".index(row["gender"]),
        row["kind"],
        frozenset(row["kind"] + row["features"]),
    )


def _verb(row: dict[str, str]) -> Verb:
    head, _, particle = row["english"].partition(" ")
    particle = " " + particle if particle else ""
    past = row["past"] + particle if row["past"] else ""
    preposition = None
    if row["preposition"]:
        english, german, case = row["preposition"].split(":")
        preposition = Preposition(english, german, {"accusative": ACCUSATIVE, "dative": DATIVE}[case])
    return Verb(
        row["english"],
        (row["third"] or _plural(head)) + particle,
        (past, past),
        (row["third_german"], row["infinitive"]),
        row["prefix"] + row["infinitive"],
        row["participle"],
        row["prefix"],
        row["auxiliary"],
        row["frame"],
        frozenset(row["subjects"]),
        frozenset(row["objects"]),
        DATIVE if row["frame"] == "dative" else ACCUSATIVE,
        preposition,
        row["manner"] == "yes",
    )


def _fixed(row: dict[str, str]) -> Fixed:
    if row["alignment"]:
        pairs = [pair.split("-") for pair in row["alignment"].split()]
        links = tuple(int(i) << SHIFT | int(j) for i, j in pairs)
    else:
        links = IDENTITY[len(row["english"].split())]
    return Fixed(row["english"], row["german"], links, frozenset(row["kinds"].split()))


class Lexicon:
    """All words. Lists keep the order of the files, which is part of what a seed means."""

    def __init__(self) -> None:
        self.nouns = [_noun(row) for row in _rows("nouns")]
        self.verbs = [_verb(row) for row in _rows("verbs")]
        self.adjectives = [
            Adjective(
                row["english"],
                row["german"],
                row["stem"] or row["german"],
                frozenset(row["kinds"]),
                int(row["rank"]),
                bool(row["predicate"]),
            )
            for row in _rows("adjectives")
        ]
        self.adverbials = [_fixed(row) for row in _rows("adverbials")]


@lru_cache(maxsize=1)
def lexicon() -> Lexicon:
    return Lexicon()
