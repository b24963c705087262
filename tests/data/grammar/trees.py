"""Trees of the grammar from few words."""

from seq2seq.data.grammar.clauses import Sentence
from seq2seq.data.grammar.lexicon import DETERMINERS, lexicon
from seq2seq.data.grammar.phrases import Name, NounPhrase, PrepositionalPhrase, Pronoun

words = lexicon()
ANNA, PETER, VIENNA = Name("Anna", "Anna"), Name("Peter", "Peter"), Name("Vienna", "Wien")
HE, SHE, WE, THEY = Pronoun("he"), Pronoun("she"), Pronoun("we"), Pronoun("they")


def np(text, plural=False, **more):
    """ "the old teacher" as a tree; the noun is given in the singular."""
    *front, last = text.split()
    determiner = front.pop(0) if front and front[0] in DETERMINERS else ""
    adjectives = tuple(adjective(word) for word in front if word != "very")
    return NounPhrase(determiner, noun(last), plural, adjectives, "very" in front, **more)


def noun(english):
    return next(noun for noun in words.nouns if noun.english[0] == english)


def adjective(english):
    return next(adjective for adjective in words.adjectives if adjective.english == english)


def verb(english, frame):
    return next(verb for verb in words.verbs if (verb.english, verb.frame) == (english, frame))


def pp(preposition, phrase):
    return PrepositionalPhrase(preposition, phrase)


def adverb(english):
    return next(adverbial for adverbial in words.adverbials if adverbial.english == english)


def pair(*parts, joiners=()):
    english, german, *_ = Sentence(parts, joiners).render()
    return english, german
