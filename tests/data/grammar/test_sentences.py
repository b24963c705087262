"""Every construction of the grammar against German written by hand."""

import pytest
from trees import ANNA, HE, PETER, SHE, THEY, VIENNA, WE, adjective, adverb, noun, np, pair, pp, verb

from seq2seq.data.grammar.clauses import Clause, Complex, Sentence, Subordinate, relative_clause
from seq2seq.data.grammar.lexicon import AFTER, COPULA, INTO, PLACES, SHIFT, TO, TO_CITY, WITH
from seq2seq.data.grammar.phrases import Coordination, NounPhrase

SEE, SLEEP = verb("see", "transitive"), verb("sleep", "intransitive")
GIVE, EXPLAIN = verb("give", "ditransitive"), verb("explain", "dative_to")
OPEN, BUY, INVITE = verb("open", "transitive"), verb("buy", "transitive"), verb("invite", "transitive")
WAIT, DREAM, LOOK_AFTER = (verb(v, "prepositional") for v in ("wait", "dream", "look"))
GO, HELP, SAY, ASK = verb("go", "motion"), verb("help", "dative"), verb("say", "that"), verb("ask", "whether")
LISTEN, GET_UP, FOLLOW = verb("listen to", "dative"), verb("get up", "intransitive"), verb("follow", "dative")

SIMPLE = [
    (Clause(np("the child"), SLEEP), "The child sleeps.", "Das Kind schläft."),
    (Clause(np("the child"), SLEEP, "past"), "The child slept.", "Das Kind hat geschlafen."),
    (Clause(np("child", True), SLEEP), "Children sleep.", "Kinder schlafen."),
    (Clause(WE, GET_UP), "We get up.", "Wir stehen auf."),
    (Clause(THEY, GET_UP, "past"), "They got up.", "Sie sind aufgestanden."),
    (Clause(SHE, GET_UP, "want"), "She wants to get up.", "Sie will aufstehen."),
    (Clause(SHE, GET_UP, negated=True), "She does not get up.", "Sie steht nicht auf."),
    (Clause(HE, COPULA, predicate=adjective("tired")), "He is tired.", "Er ist müde."),
    (
        Clause(np("the city"), COPULA, "past", True, predicate=adjective("old"), very=True),
        "The city was not very old.",
        "Die Stadt war nicht sehr alt.",
    ),
    (
        Clause(np("the old man"), SEE, object=np("a small dog")),
        "The old man sees a small dog.",
        "Der alte Mann sieht einen kleinen Hund.",
    ),
    (
        Clause(np("a old man"), SEE, object=np("the small cat")),
        "An old man sees the small cat.",
        "Ein alter Mann sieht die kleine Katze.",
    ),
    (
        Clause(np("a small child"), SEE, object=np("a beautiful horse")),
        "A small child sees a beautiful horse.",
        "Ein kleines Kind sieht ein schönes Pferd.",
    ),
    (
        Clause(np("the young prince", True), HELP, object=np("the student")),
        "The young princes help the student.",
        "Die jungen Prinzen helfen dem Studenten.",
    ),
    (
        Clause(np("this boy"), HELP, "past", object=np("two old woman", True)),
        "This boy helped two old women.",
        "Dieser Junge hat zwei alten Frauen geholfen.",
    ),
    (
        Clause(np("many dog", True), FOLLOW, "past", object=np("many small child", True)),
        "Many dogs followed many small children.",
        "Viele Hunde sind vielen kleinen Kindern gefolgt.",
    ),
    (
        Clause(np("my father"), BUY, "past", object=np("a expensive broken lamp")),
        "My father bought an expensive broken lamp.",
        "Mein Vater hat eine teure kaputte Lampe gekauft.",
    ),
    (
        Clause(np("our very old neighbor"), BUY, "could", object=np("green apple", True)),
        "Our very old neighbor could buy green apples.",
        "Unser sehr alter Nachbar konnte grüne Äpfel kaufen.",
    ),
    (
        Clause(np("the teacher"), GIVE, "past", object=np("a book"), indirect=np("the child")),
        "The teacher gave the child a book.",
        "Der Lehrer hat dem Kind ein Buch gegeben.",
    ),
    (
        Clause(np("the teacher"), EXPLAIN, object=np("the story"), indirect=np("her son", True)),
        "The teacher explains the story to her sons.",
        "Der Lehrer erklärt ihren Söhnen die Geschichte.",
    ),
    (
        Clause(np("the guest"), OPEN, negated=True, object=np("the door")),
        "The guest does not open the door.",
        "Der Gast öffnet die Tür nicht.",
    ),
    (
        Clause(HE, SEE, "past", True, object=np("a bird")),
        "He did not see a bird.",
        "Er hat keinen Vogel gesehen.",
    ),
    (Clause(HE, SEE, "can", True, object=np("bird", True)), "He cannot see birds.", "Er kann keine Vögel sehen."),
    (Clause(HE, SEE, "can", True, object=np("the bird")), "He cannot see the bird.", "Er kann den Vogel nicht sehen."),
    (
        Clause(np("the man"), INVITE, object=np("the queen"), time=adverb("today")),
        "The man invites the queen today.",
        "Der Mann lädt heute die Königin ein.",
    ),
    (
        Clause(np("the man"), INVITE, object=ANNA, front=adverb("at night")),
        "At night the man invites Anna.",
        "In der Nacht lädt der Mann Anna ein.",
    ),
    (
        Clause(np("the man"), LISTEN, "past", object=np("the musician"), front=adverb("an hour ago")),
        "An hour ago the man listened to the musician.",
        "Vor einer Stunde hat der Mann dem Musiker zugehört.",
    ),
    (
        Clause(SHE, WAIT, "past", oblique=pp(WAIT.preposition, np("the bus")), manner=adverb("patiently"),
               place=pp(PLACES["in front of"], np("the station")), time=adverb("yesterday")),
        "She waited patiently for the bus in front of the station yesterday.",
        "Sie hat gestern geduldig vor dem Bahnhof auf den Bus gewartet.",
    ),
    (
        Clause(SHE, DREAM, frequency=adverb("often"), oblique=pp(DREAM.preposition, np("the lion"))),
        "She often dreams of the lion.",
        "Sie träumt oft vom Löwen.",
    ),
    (
        Clause(np("the nurse"), LOOK_AFTER, oblique=pp(LOOK_AFTER.preposition, np("the child"))),
        "The nurse looks after the child.",
        "Die Krankenschwester passt auf das Kind auf.",
    ),
    (
        Clause(THEY, GO, "past", oblique=pp(INTO, np("the small house"))),
        "They went into the small house.",
        "Sie sind ins kleine Haus gegangen.",
    ),
    (Clause(HE, GO, oblique=pp(TO, np("the church"))), "He goes to the church.", "Er geht zur Kirche."),
    (Clause(HE, GO, oblique=pp(TO, np("the doctor"))), "He goes to the doctor.", "Er geht zum Arzt."),
    (Clause(HE, GO, "had", oblique=pp(TO_CITY, VIENNA)), "He had to go to Vienna.", "Er musste nach Wien gehen."),
    (
        Clause(HE, SLEEP, place=pp(PLACES["in"], np("the garden")), companion=pp(WITH, np("the dog", True))),
        "He sleeps with the dogs in the garden.",
        "Er schläft mit den Hunden im Garten.",
    ),
    (
        Clause(np("the woman", attribute=np("a hat")), SLEEP, place=pp(PLACES["on"], np("the island"))),
        "The woman with a hat sleeps on the island.",
        "Die Frau mit einem Hut schläft auf der Insel.",
    ),
    (
        Clause(Coordination(ANNA, np("her brother")), SLEEP, "past"),
        "Anna and her brother slept.",
        "Anna und ihr Bruder haben geschlafen.",
    ),
]  # fmt: skip

QUESTIONS = [
    (Clause(np("the child"), SLEEP, question=""), "Does the child sleep?", "Schläft das Kind?"),
    (Clause(THEY, GET_UP, "past", question=""), "Did they get up?", "Sind sie aufgestanden?"),
    (
        Clause(THEY, INVITE, object=np("the actress"), question="why"),
        "Why do they invite the actress?",
        "Warum laden sie die Schauspielerin ein?",
    ),
    (
        Clause(HE, OPEN, "must", object=np("the door"), question="when"),
        "When must he open the door?",
        "Wann muss er die Tür öffnen?",
    ),
    (
        Clause(np("the dog"), COPULA, "past", predicate=adjective("hungry"), question=""),
        "Was the dog hungry?",
        "War der Hund hungrig?",
    ),
]


@pytest.mark.parametrize(
    ("clause", "english", "german"), SIMPLE + QUESTIONS, ids=lambda x: x if isinstance(x, str) else ""
)
def test_main_clause(clause, english, german):
    assert pair(clause) == (english, german)


def embedded(conjunction, *clauses):
    return Subordinate(conjunction, clauses)


def test_subordinate_clause_puts_the_finite_verb_last():
    for inner, english, german in [
        (Clause(HE, INVITE, object=ANNA), "he invites Anna", "er Anna einlädt"),
        (Clause(HE, INVITE, "past", object=ANNA), "he invited Anna", "er Anna eingeladen hat"),
        (Clause(HE, INVITE, "should", object=ANNA), "he should invite Anna", "er Anna einladen sollte"),
        (Clause(HE, GO, "past", True, oblique=pp(INTO, np("the park"))), "he did not go into the park",
         "er nicht in den Park gegangen ist"),
        (Clause(THEY, COPULA, predicate=adjective("happy")), "they are happy", "sie glücklich sind"),
    ]:  # fmt: skip
        assert pair(Complex(Clause(SHE, SLEEP), embedded("because", inner))) == (
            f"She sleeps because {english}.",
            f"Sie schläft, weil {german}.",
        )


def test_fronted_subordinate_clause_inverts_the_main_clause():
    when = embedded("when", Clause(ANNA, SLEEP, "past"), Clause(PETER, SEE, "past", object=np("a wolf")))
    assert pair(Complex(Clause(np("the man"), INVITE, "past", object=np("my friend")), when, fronted=True)) == (
        "When Anna slept and Peter saw a wolf, the man invited my friend.",
        "Als Anna geschlafen hat und Peter einen Wolf gesehen hat, hat der Mann meinen Freund eingeladen.",
    )


def test_reported_clause_with_its_own_subordinate_clause():
    inner = Complex(Clause(PETER, SLEEP), embedded("although", Clause(WE, GET_UP)))
    assert pair(Clause(ANNA, SAY, "past", complement=embedded("that", inner))) == (
        "Anna said that Peter sleeps, although we get up.",
        "Anna hat gesagt, dass Peter schläft, obwohl wir aufstehen.",
    )
    assert pair(Clause(ANNA, ASK, complement=embedded("whether", Clause(HE, SLEEP, "can")))) == (
        "Anna asks whether he can sleep.",
        "Anna fragt, ob er schlafen kann.",
    )


@pytest.mark.parametrize(
    ("noun", "plural", "nominative", "accusative", "dative"),
    [
        ("man", False, "der", "den", "dem"),
        ("woman", False, "die", "die", "der"),
        ("child", False, "das", "das", "dem"),
        ("man", True, "die", "die", "denen"),
    ],
)
def test_relative_pronoun_agrees_with_its_head(noun, plural, nominative, accusative, dative):
    head = np(f"the {noun}", plural)
    german_head = head.render(0)[1]
    english_head = head.render(0)[0]
    see, sees = ("sehen", "see") if plural else ("sieht", "sees")
    cases = [
        (relative_clause(Clause(head, SEE, object=ANNA), head.noun, plural), f"who {sees} Anna",
         f"{nominative} Anna {see}"),
        (relative_clause(Clause(ANNA, SEE, "past"), head.noun, plural, "object"), "whom Anna saw",
         f"{accusative} Anna gesehen hat"),
        (relative_clause(Clause(ANNA, HELP), head.noun, plural, "object"), "whom Anna helps", f"{dative} Anna hilft"),
        (relative_clause(Clause(ANNA, WAIT, oblique=pp(WAIT.preposition, head)), head.noun, plural, "oblique"),
         "for whom Anna waits", f"auf {accusative} Anna wartet"),
    ]  # fmt: skip
    for relative, english, german in cases:
        subject = NounPhrase("the", head.noun, plural, relative=relative)
        finite = "sleep" if plural else "sleeps"
        assert pair(Clause(subject, SLEEP)) == (
            f"T{english_head[1:]} {english} {finite}.",
            f"D{german_head[1:]}, {german}, {'schlafen' if plural else 'schläft'}.",
        )


def test_relative_clause_inside_the_verb_bracket_and_at_the_end():
    house = np("the house")
    clause = Clause(np("the doctor"), SLEEP, "past", place=pp(PLACES["in"], house))
    relative = relative_clause(clause, house.noun, False, "place")
    house.relative = relative
    assert pair(Clause(WE, SEE, "past", object=house)) == (
        "We saw the house in which the doctor slept.",
        "Wir haben das Haus, in dem der Arzt geschlafen hat, gesehen.",
    )
    assert pair(Clause(WE, SEE, object=house)) == (
        "We see the house in which the doctor slept.",
        "Wir sehen das Haus, in dem der Arzt geschlafen hat.",
    )
    assert pair(Clause(WE, GO, oblique=pp(INTO, house))) == (
        "We go into the house in which the doctor slept.",
        "Wir gehen in das Haus, in dem der Arzt geschlafen hat.",
    )


def test_preposition_and_article_contract_only_without_a_relative_clause():
    dog = np("the dog", relative=relative_clause(Clause(HE, SLEEP), noun("dog"), False))
    of = DREAM.preposition
    assert pp(of, np("the dog")).render()[1] == "vom Hund"
    assert pp(of, dog).render()[1] == "von dem Hund, der schläft,"
    assert pp(of, np("this dog")).render()[1] == "von diesem Hund"
    assert pp(AFTER, np("the wedding")).render()[1] == "nach der Hochzeit"
    assert pp(PLACES["in"], np("the city")).render()[1] == "in der Stadt"
    assert pp(INTO, np("the city")).render()[1] == "in die Stadt"


def test_joined_main_clauses():
    he, she, they = Clause(HE, SLEEP), Clause(SHE, GET_UP, "past"), Clause(THEY, HELP, object=ANNA)
    assert pair(he, she, they, he, joiners=("and", "so", ";")) == (
        "He sleeps, and she got up, so they help Anna; he sleeps.",
        "Er schläft, und sie ist aufgestanden, deshalb helfen sie Anna; er schläft.",
    )
    late = Clause(HE, SLEEP, front=adverb("today"))
    with_clause = Complex(he, embedded("until", she))
    assert pair(with_clause, late, joiners=("but",)) == (
        "He sleeps until she got up, but today he sleeps.",
        "Er schläft, bis sie aufgestanden ist, aber heute schläft er.",
    )
    assert pair(with_clause, late, joiners=(";",))[1] == "Er schläft, bis sie aufgestanden ist; heute schläft er."


def links(*parts, joiners=()):
    english, german, encoded, n, m = Sentence(parts, joiners).render()
    source, target = english.split(), german.split()
    assert (n, m) == (len(source), len(target))
    return {(source[link >> SHIFT], target[link & ((1 << SHIFT) - 1)]) for link in encoded}


def test_gold_alignment_of_split_verbs_and_do_support():
    clause = Clause(
        np("the teacher"), INVITE, "past", True, object=np("a queen"), place=pp(PLACES["in"], np("the park"))
    )
    assert links(Complex(Clause(HE, SLEEP), embedded("because", clause))) == {
        ("He", "Er"), ("sleeps", "schläft,"), ("because", "weil"), ("the", "der"), ("teacher", "Lehrer"),
        ("did", "hat."), ("not", "keine"), ("a", "keine"), ("queen", "Königin"), ("invite", "eingeladen"),
        ("in", "im"), ("the", "im"), ("park.", "Park"),
    }  # fmt: skip
    assert links(Clause(THEY, INVITE, object=PETER, question="")) == {
        ("Do", "Laden"), ("they", "sie"), ("invite", "Laden"), ("invite", "ein?"), ("Peter?", "Peter"),
    }  # fmt: skip
    assert links(Clause(HE, GET_UP, "want", time=adverb("an hour ago"))) == {
        ("He", "Er"), ("wants", "will"), ("to", "will"), ("get", "aufstehen."), ("up", "aufstehen."),
        ("an", "einer"), ("hour", "Stunde"), ("ago.", "vor"),
    }  # fmt: skip
    assert links(Clause(SHE, EXPLAIN, "can", True, object=np("novel", True), indirect=np("the boy"))) == {
        ("She", "Sie"), ("cannot", "kann"), ("cannot", "keine"), ("explain", "erklären."), ("novels", "Romane"),
        ("to", "dem"), ("the", "dem"), ("boy.", "Jungen"),
    }  # fmt: skip
