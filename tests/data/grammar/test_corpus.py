"""The corpus around the grammar: reproducible, disjoint, stratified, deterministic, refused when misconfigured."""

import hashlib
import subprocess
import sys
from collections import Counter
from random import Random

import pytest

from seq2seq.data.grammar.clauses import Clause, Sentence
from seq2seq.data.grammar.corpus import BUCKETS, CHUNK_ROWS, GrammarCorpus
from seq2seq.data.grammar.lexicon import lexicon
from seq2seq.data.grammar.phrases import Pronoun
from seq2seq.data.grammar.variants import variants
from seq2seq.errors import UserError

SIZES = {"train": 2500, "valid": 70, "test": 140}
DIGESTS = {"train": "4bcadedfa6b47e44", "valid": "6fd562d0b1cbd067", "test": "05edc169cc451932"}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("grammar")


@pytest.fixture(scope="module")
def tables(cache):
    corpus = GrammarCorpus(sizes=SIZES, cache_dir=cache)
    return {split: corpus.load(split) for split in corpus.splits()}


def lines(table):
    columns = table.read()
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def digest(table, rows=200):
    rows = {name: values[:rows] for name, values in table.read().items()}
    return hashlib.sha256(repr((rows["source"], rows["target"], rows["alignment"])).encode()).hexdigest()[:16]


def bucket(source):
    return next(k for k, (low, high) in enumerate(BUCKETS) if low <= len(source.split()) <= high)


def test_splits_have_their_sizes_and_columns(tables):
    assert {split: len(table) for split, table in tables.items()} == SIZES
    for table in tables.values():
        assert table.column_names == ["source", "target", "alignment"]


def test_text_of_a_seed_never_changes(tables):
    """Raise nothing here without need: a new digest means that no earlier result can be compared any more."""
    assert {split: digest(table) for split, table in tables.items()} == DIGESTS


@pytest.mark.slow
def test_text_does_not_depend_on_process_hash_seed_or_order():
    program = (
        "from seq2seq.data.grammar.corpus import GrammarCorpus; c = GrammarCorpus();"
        "print(c._recipe.chunk(7, 20), c._recipe.evaluation('test', 14))"
    )
    outputs = set()
    for hash_seed in ("1", "2"):
        environment = {"PYTHONHASHSEED": hash_seed, "PATH": "", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        outputs.add(done.stdout.strip())
    recipe = GrammarCorpus()._recipe
    recipe.chunk(3, 5)
    outputs.add(f"{recipe.chunk(7, 20)} {recipe.evaluation('test', 14)}")
    assert len(outputs) == 1


@pytest.mark.slow
def test_parallel_generation_gives_the_same_rows(tables, tmp_path):
    parallel = GrammarCorpus(sizes=SIZES, processes=2, cache_dir=tmp_path).load("train")
    assert parallel.read() == tables["train"].read()


def test_a_script_that_its_processes_would_run_again_is_refused(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from seq2seq.data.grammar.corpus import GrammarCorpus\n"
        f"GrammarCorpus(sizes={SIZES}, processes=2, cache_dir={str(tmp_path)!r}).load('train')\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "processes=2 imports the calling script" in done.stderr
    assert "UserError: a process that generates text has died" in done.stderr


def test_larger_corpora_begin_with_the_same_chunks(tables):
    chunk = GrammarCorpus()._recipe.chunk(1, CHUNK_ROWS)
    assert [pair[0] for pair in chunk] == tables["train"].column("source")[CHUNK_ROWS : 2 * CHUNK_ROWS]


def test_seed_changes_the_text(cache):
    other = GrammarCorpus(seed=2, sizes={"train": 50}, cache_dir=cache)
    assert other.fingerprint() != GrammarCorpus(sizes={"train": 50}).fingerprint()
    assert other._recipe.chunk(0, 5) != GrammarCorpus()._recipe.chunk(0, 5)


def test_splits_share_no_source_and_evaluation_holds_none_twice(tables):
    sources = {split: table.column("source") for split, table in tables.items()}
    assert len(set(sources["valid"])) == SIZES["valid"]
    assert len(set(sources["test"])) == SIZES["test"]
    short = GrammarCorpus(minimum_words=3, maximum_words=5)._recipe
    train = {pair[0] for k in range(4) for pair in short.chunk(k, CHUNK_ROWS)} | set(sources["train"])
    valid = {pair[0] for pair in short.evaluation("valid", 200)} | set(sources["valid"])
    test = {pair[0] for pair in short.evaluation("test", 200)} | set(sources["test"])
    assert not train & valid
    assert not train & test
    assert not valid & test
    assert len(train) < 4 * CHUNK_ROWS + SIZES["train"]  # repetitions do occur: the splits were put to the test


def test_evaluation_is_stratified_and_training_uniform_by_default(tables):
    for split in ("valid", "test"):
        assert set(Counter(map(bucket, tables[split].column("source"))).values()) == {SIZES[split] // len(BUCKETS)}
    lengths = Counter(len(source.split()) for source in tables["train"].column("source"))
    assert set(lengths) == set(range(3, 71))
    assert max(lengths.values()) < 4 * SIZES["train"] / 68


def test_length_weights_and_limits(tmp_path):
    corpus = GrammarCorpus(
        sizes={"train": 1000, "valid": 4, "test": 4},
        minimum_words=5,
        maximum_words=33,
        length_weights=[3, 0, 0, 1, 0, 0, 5],
        cache_dir=tmp_path,
    )
    lengths = Counter(len(source.split()) for source in corpus.load("train").column("source"))
    assert set(lengths) == {5, 6, 7, 8, 9, 30, 31, 32, 33}
    assert 700 < sum(lengths[n] for n in range(5, 10)) < 800
    assert sorted(map(bucket, corpus.load("test").column("source"))) == [0, 0, 3, 3]


def test_training_and_test_lengths_are_set_apart(tmp_path):
    sizes = {"train": 300, "valid": 12, "test": 28}
    corpus = GrammarCorpus(sizes=sizes, train_minimum_words=5, train_maximum_words=12, cache_dir=tmp_path)
    lengths = {split: [len(source.split()) for source in corpus.load(split).column("source")] for split in sizes}
    assert set(lengths["train"]) == set(range(5, 13))
    assert min(lengths["valid"]) >= 5 and max(lengths["valid"]) <= 12
    assert sorted(map(bucket, corpus.load("test").column("source"))) == sorted(4 * list(range(7)))
    weighted = GrammarCorpus(sizes=sizes, train_maximum_words=25, length_weights=[1, 0, 1, 0, 0, 0, 0])._recipe
    assert [first for first, _, _ in weighted.buckets()] == [3, 20]
    assert [first for first, _, _ in weighted.buckets("test")] == [3, 20, 30, 40, 50, 60]


@pytest.mark.slow
def test_one_translation_for_each_source():
    recipe = GrammarCorpus(length_weights=[6, 3, 1, 0, 0, 0, 0])._recipe
    translations = {}
    for number in range(8):
        for source, target, *_ in recipe.chunk(number, CHUNK_ROWS):
            assert translations.setdefault(source, target) == target


def test_german_to_english_swaps_columns_and_alignment():
    forward = GrammarCorpus()._recipe
    backward = GrammarCorpus(source_language="de", target_language="en")._recipe
    by_source = {pair[0]: pair for pair in forward.chunk(0, CHUNK_ROWS)}
    common = 0
    for german, english, links, n, m in backward.chunk(0, CHUNK_ROWS):
        assert (n, m) == (len(german.split()), len(english.split()))
        assert 3 <= n <= 70
        if english in by_source:
            _, target, forward_links, _, _ = by_source[english]
            assert target == german
            assert sorted((link & 1023, link >> 10) for link in links) == [
                (link >> 10, link & 1023) for link in forward_links
            ]
            common += 1
    assert common > 10


def test_alignment_column_is_in_range(tables):
    for row in lines(tables["test"]):
        pairs = row["alignment"]
        assert {i for i, _ in pairs} == set(range(len(row["source"].split())))
        assert {j for _, j in pairs} == set(range(len(row["target"].split())))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"sizes": {"dev": 3}}, "dev"),
        ({"sizes": {"train": 0}}, "train=0"),
        ({"minimum_words": 2}, "minimum_words=2"),
        ({"minimum_words": 9, "maximum_words": 8}, "maximum_words=8"),
        ({"train_minimum_words": 9, "train_maximum_words": 8}, "train_maximum_words=8"),
        ({"train_maximum_words": 900}, "train_maximum_words=900"),
        ({"length_weights": [1, 2]}, "length_weights"),
        ({"length_weights": [0, 0, 0, 0, 0, 0, 1], "maximum_words": 20}, "length_weights"),
        ({"length_weights": [-1, 0, 0, 0, 0, 0, 1]}, "length_weights"),
        ({"source_language": "fr"}, "fr"),
        ({"processes": 0}, "processes=0"),
        ({"variants": 0}, "variants=0"),
    ],
)
def test_bad_settings_are_named(arguments, named):
    with pytest.raises(UserError, match=named):
        GrammarCorpus(**arguments)


def test_unknown_split_and_too_many_distinct_sentences(tmp_path, monkeypatch):
    with pytest.raises(UserError, match="dev"):
        GrammarCorpus(cache_dir=tmp_path).load("dev")
    monkeypatch.setattr("seq2seq.data.grammar.corpus._ATTEMPTS", 200)
    with pytest.raises(UserError, match="too few distinct"):
        GrammarCorpus(sizes={"test": 5000}, maximum_words=3, cache_dir=tmp_path).load("test")


def test_verbs_of_several_words_are_not_exchanged_in_part():
    random = Random(1).random
    for verb in lexicon().verbs:
        if verb.frame == "intransitive" and (verb.prefix or " " in verb.english):
            for tense in ("present", "past", "can"):
                for subject in (Pronoun("she"), Pronoun("they")):
                    piece = Sentence((Clause(subject, verb, tense),)).render()
                    assert {variant[:2] for variant in variants(piece, 20, random)} == {piece[:2]}


def readings(pairs):
    """Each English word with the German words that it is aligned to."""
    seen = set()
    for source, target, links, *_ in pairs:
        english, german = ([word.strip(".,;?").lower() for word in text.split()] for text in (source, target))
        aligned = {}
        for link in links:
            aligned.setdefault(link >> 10, []).append(german[link & 1023])
        seen |= {(english[i], *words) for i, words in aligned.items()}
    return seen


def test_variants_hold_only_verbs_of_the_lexicon():
    varied = readings(pair for k in range(6) for pair in GrammarCorpus(variants=16)._recipe.chunk(k, CHUNK_ROWS))
    finite, brackets = set(), set()
    for verb in lexicon().verbs:
        finite |= {verb.prefix + form for form in verb.finite} | set(verb.finite)
        auxiliaries = ("hat", "haben") if verb.auxiliary == "haben" else ("ist", "sind")
        heads = {verb.english.split()[0], verb.third.split()[0], verb.past[0].split(" ")[0]}
        brackets |= {(head, *sorted((a, verb.participle))) for head in heads for a in auxiliaries}
        brackets |= {(head, *sorted((form, verb.prefix))) for head in heads for form in verb.finite if verb.prefix}
    heads = {bracket[0] for bracket in brackets}
    for english, *german in varied:
        if english in ("does", "do"):
            assert len(german) == 1
            assert german[0] in finite
        elif english == "did":
            assert german[0] in ("hat", "haben", "ist", "sind")
        elif english in heads and len(german) == 2:
            assert (english, *sorted(german)) in brackets
    assert sum(english in heads and len(german) == 2 for english, *german in varied) > 100


@pytest.mark.slow
def test_variants_keep_structure_and_grammar(tmp_path):
    """Words are exchanged within a class, so that every variant is a sentence the grammar could have drawn."""
    corpus = GrammarCorpus(sizes={"train": 3000}, length_weights=[5, 4, 1, 0, 0, 0, 0], variants=16, cache_dir=tmp_path)
    plain = GrammarCorpus(length_weights=[6, 3, 1, 0, 0, 0, 0])._recipe
    translations = {pair[0]: pair[1] for k in range(6) for pair in plain.chunk(k, CHUNK_ROWS)}
    common = 0
    table = corpus.load("train")
    for row in lines(table):
        common += row["source"] in translations
        assert translations.get(row["source"], row["target"]) == row["target"]
        assert {i for i, _ in row["alignment"]} == set(range(len(row["source"].split())))
        assert {j for _, j in row["alignment"]} == set(range(len(row["target"].split())))
    assert common > 5
    assert len(set(table.column("source"))) > 2000
