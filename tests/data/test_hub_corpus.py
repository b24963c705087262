"""Data sets of the Hugging Face hub, and local folders in their forms."""

import os

import datasets
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from corpus_files import PAIRS, rows

from seq2seq.data.hub_corpus import HubCorpus
from seq2seq.errors import UserError


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
