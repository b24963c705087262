"""More sentences from one: words exchanged for others that agreement and selection treat alike.

Two word pairs (English form, German form) are exchangeable if grammar and meaning classes treat them alike: nouns of
one gender, declension and semantic class, adjectives of one class with the same ending, verbs of one frame, auxiliary
and semantic classes in the same form. Length, word order and alignment stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from seq2seq.data.grammar.lexicon import PEOPLE, SHIFT, Lexicon, lexicon
from seq2seq.data.grammar.phrases import Piece

Pair = tuple[str, str]

_MARKS = ".,;?"
_NAME_POSITION = {name: position for position, name in enumerate(PEOPLE)}
_ENDINGS = ("", "e", "en", "er", "es", "em")


def _forms(words: Lexicon) -> Iterator[tuple[object, Pair]]:
    """(class, pair) of every form; pairs of one class are exchangeable."""
    for noun in words.nouns:
        singular, plural = noun.german
        pattern = (noun.gender, noun.features, singular[0] == singular[1], plural[0] == plural[2])
        for number, forms in enumerate((singular, plural)):
            if noun.english[number]:
                for case in (0, 1, 2):
                    yield ("noun", number, case, *pattern), (noun.english[number], forms[case])
    for adjective in words.adjectives:
        for ending in _ENDINGS:
            german = adjective.stem + ending if ending else adjective.base
            group = (adjective.kinds, adjective.rank, adjective.predicate)
            yield ("adjective", ending, *group), (adjective.english, german)
    for adverbial in words.adverbials:
        if " " not in adverbial.english + adverbial.german:
            yield ("adverbial", adverbial.kinds), (adverbial.english, adverbial.german)
    for verb in words.verbs:
        if verb.prefix or " " in verb.english:
            continue
        preposition = (verb.preposition.english, verb.preposition.german) if verb.preposition else ()
        signature = ("verb", verb.frame, verb.subjects, verb.objects, verb.auxiliary, verb.manner, preposition)
        yield (*signature, "third"), (verb.third, verb.finite[0])
        yield (*signature, "plural"), (verb.english, verb.finite[1])
        yield (*signature, "base third"), (verb.english, verb.finite[0])
        yield (*signature, "participle", bool(verb.past[0])), (verb.past[0] or verb.english, verb.participle)
        yield (*signature, "base participle", bool(verb.past[0])), (verb.english, verb.participle)


def _parts_of_longer_verbs(words: Lexicon) -> set[Pair]:
    """("gives", "gibt") of "gives up" and "gibt ... auf": one word of it must not be exchanged alone."""
    pairs = set()
    for verb in words.verbs:
        if verb.prefix or " " in verb.english:
            third, plural, past = (form.split(" ")[0] for form in (verb.third, verb.english, verb.past[0]))
            pairs |= {(third, verb.finite[0]), (plural, verb.finite[0]), (plural, verb.finite[1])}
            pairs |= {(form, german) for form in (past, plural) for german in (verb.participle, verb.infinitive)}
    return pairs


@lru_cache(maxsize=1)
def _exchangeable() -> dict[Pair, tuple[Pair, ...]]:
    """The alternatives of each pair, itself included; pairs with only one, or with two readings, are omitted."""
    classes: dict[object, list[Pair]] = {}
    for key, pair in _forms(lexicon()):
        vowel = pair[0][:1] in "aeiouAEIOU"  # "a" before it must not become "an"
        members = classes.setdefault((key, vowel), [])
        if pair not in members:
            members.append(pair)
    readings: dict[Pair, list[tuple[Pair, ...]]] = {}
    for members in classes.values():
        for pair in members:
            readings.setdefault(pair, []).append(tuple(members))
    longer = _parts_of_longer_verbs(lexicon())
    return {
        pair: options[0]
        for pair, options in readings.items()
        if pair not in longer and len(options[0]) > 1 and all(_same(option, options[0]) for option in options)
    }


def _same(one: Iterable[Pair], other: Iterable[Pair]) -> bool:
    return set(one) == set(other)


def variants(piece: Piece, count: int, uniform: Callable[[], float]) -> Iterator[Piece]:
    """`count` sentences with the structure of this one."""
    english, german, links, n, m = piece
    table = _exchangeable()
    source, target = english.split(" "), german.split(" ")
    slots = []
    names = []
    for link in links:
        i, j = link >> SHIFT, link & ((1 << SHIFT) - 1)
        one, other = source[i].rstrip(_MARKS), target[j].rstrip(_MARKS)
        marks = source[i][len(one) :], target[j][len(other) :]
        if one == other and one in _NAME_POSITION:
            names.append((i, j, _NAME_POSITION[one], *marks))
            continue
        options = table.get((one, other))
        if options is None and (i == 0 or j == 0):
            options = table.get((_lower(one, i), _lower(other, j))) or table.get((_lower(one, i), other))
        if options is not None:
            slots.append((i, j, options, *marks))
    for _ in range(count):
        for i, j, options, source_marks, target_marks in slots:
            one, other = options[int(uniform() * len(options))]
            source[i] = one + source_marks
            target[j] = other + target_marks
        shift = int(uniform() * len(PEOPLE))
        for i, j, position, source_marks, target_marks in names:
            name = PEOPLE[(position + shift) % len(PEOPLE)]
            source[i] = name + source_marks
            target[j] = name + target_marks
        english, german = " ".join(source), " ".join(target)
        yield english[0].upper() + english[1:], german[0].upper() + german[1:], links, n, m


def _lower(word: str, position: int) -> str:
    return word if position else word[0].lower() + word[1:]
