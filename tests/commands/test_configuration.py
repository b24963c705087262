"""Misspelt, misplaced and impossible settings end in two lines at most that name them and the way out."""

import errno
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from seq2seq.cli import guarded, run
from seq2seq.commands import configuration, train
from seq2seq.commands.choices import groups
from seq2seq.commands.composition import compose
from seq2seq.commands.config_check import check
from seq2seq.pipeline.build import fits
from seq2seq.pipeline.job import assemble
from seq2seq.pipeline.suggestions import nearest
from seq2seq.search import METHODS, GreedySearch

REFUSED = {
    "a misspelt key": (["trainer.max_tim=1"], ["trainer.max_tim", "trainer.max_time"]),
    "a misspelt group": (["modl=rnn"], ["modl", "model"]),
    "a misspelt choice": (["model=bahdanu"], ["bahdanu", "bahdanau"]),
    "a misplaced key": (["beam_size=3"], ["beam_size", "search.beam_size"]),
    "a nested choice": (["model/attention/score=aditive"], ["aditive", "additive"]),
    "attention for a model without the switch": (
        ["model=transformer", "model/attention/score=dot"],
        ["attention/score"],
    ),
    "a text for a number": (["model.width=wide"], ["model.width", "int"]),
    "a list for a switch": (["data.streaming=[1]"], ["data.streaming"]),
    "heads that do not divide the width": (["model=transformer", "model.heads=3"], ["heads", "3"]),
    "dropout of two": (["model.dropout=2"], ["dropout", "2"]),
    "a misspelt key of the data": (["+data.max_lenght=20"], ["data.max_lenght=20", "max_length"]),
    "a folder for a corpus without one": (
        ["data=grammar", "data.root=text"],
        ["data.root=text", "does not take it"],
    ),
    "a misspelt key of the joining": (["+data.concatenation.trian=2"], ["trian", "train"]),
    "a beam of nothing": (["search.beam_size=0"], ["beam_size", "0"]),
    "coverage without attention": (["model=rnn", "search.coverage_penalty=0.2"], ["coverage_penalty", "attention"]),
    "a tokenizer that is not installed": (["tokenize=ja-mecab"], ["tokenize=ja-mecab", "sacrebleu[ja]"]),
    "a rate below zero": (["optimizer.lr=-1"], ["learning rate", "optimizer"]),
    "no end": (["trainer.max_steps=null"], ["trainer.max_steps"]),
    "a negative length": (["data.max_length=-1"], ["max_length", "-1"]),
    "a time that is none": (["trainer.max_time=soon"], ["max_time", "soon"]),
    "a foreign target": (["model._target_=os.system"], ["os.system"]),
    "a target of Lightning's": (["trainer._target_=lightning.fabric.Fabric"], ["lightning", "is refused"]),
    "an added key": (["+model.depth=3"], ["model.depth"]),
    "an added root key": (["+speed=3"], ["speed", "seed"]),
    "a text for the seed": (["seed=one"], ["seed", "int"]),
    "a seed below zero": (["seed=-1"], ["seed=-1"]),
    "a seed beyond every generator": (["seed=123456789012345678901234567890"], ["seed=1234", "below"]),
    "a vocabulary beyond all": (["tokenizer.vocabulary=99999999999"], ["vocabulary", "99999999999"]),
    "no number": (["trainer.gradient_clip_val=nan"], ["gradient_clip_val=nan", "float"]),
    "a language that YAML takes for a number": (
        ["data=files", "data.root=.", "data.target_language=nan"],
        ["target_language=nan", "two pairs of quotes"],
    ),
    "a data set without a name": (["data=hub"], ["data.root="]),
    "a group taken away": (["~logger"], ["logger=", "removed"]),
    "an environment variable that is not set": (["data.max_tokens=${oc.env:NOT_SET}"], ["data.max_tokens", "NOT_SET"]),
    "nothing for a choice": (["model=null"], ["string", "NoneType"]),
    "a mean of one": (["trainer.average_last=1"], ["average_last=1", "2 or more"]),
    "a score that needs one width": (
        ["model=bahdanau", "model/attention/score=dot", "model.width=8", "model.encoder_width=16"],
        ["one width", "8", "16"],
    ),
    "neither true nor false": (["dry_run=maybe"], ["dry_run", "bool"]),
    "a text for a list": (["test_splits=test"], ["test_splits", "list"]),
    "a test set that is not there": (["test_splits=[tset]"], ["tset", "test"]),
    "too much smoothing": (["label_smoothing=2"], ["smoothing", "2"]),
    "a size without its braces": (["data.sizes=train:600"], ["sizes='train:600'", "{name: int}"]),
    "a precision that cannot be": (["trainer.precision=bf16-true"], ["trainer.precision", "bf16-mixed"]),
    "a number for a list": (["data.concatenation.test=3"], ["data.concatenation.test", "[3]"]),
    "attention for a model that has none": (
        ["model=rnn", "model/attention/score=dot"],
        ["model/attention/score goes with model=bahdanau", "model=luong only"],
    ),
    "several values": (["model=rnn,conv"], ["model=[rnn,conv]", "-m"]),
    "a setting as an option": (["--model", "rnn"], ["there is no option --model", "model=VALUE"]),
    "a setting as an option with a value": (["--model=rnn"], ["there is no option --model=rnn", "model=rnn"]),
    "an option without its value": (["--cfg"], ["--cfg: invalid choice", "job"]),
    "a path with a comma": (["data.root=c,d/lat"], ["data.root=[c,d/lat]", "'data.root=\"c,d/lat\"'"]),
    "words apart": (["model", "=", "rnn"], ["cannot read 'model'", "KEY=VALUE"]),
    "a folder that is not there": (["--config-dir", "nowhere"], ["--config-dir nowhere does not exist"]),
    "a broken override": (["model.width=[1"], ["model.width"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("overrides, words", REFUSED.values(), ids=REFUSED)
def test_a_wrong_setting_is_refused_in_two_lines_that_name_it(
    overrides: list[str], words: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    assert run(["train", *overrides, f"run_dir={folder}", f"data.cache_dir={tmp_path}"]) == 2
    printed = capsys.readouterr()
    lines = printed.err.strip().splitlines()
    assert lines[0].startswith("error: ") and len(lines) <= 2, printed.err
    assert printed.out == ""
    for word in words:
        assert word in printed.err, printed.err
    assert not folder.exists()


def test_an_empty_run_dir_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "run_dir="]) == 2
    assert "run_dir= is empty" in capsys.readouterr().err


def test_a_damaged_config_yaml_is_refused_by_name(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("model: [")
    assert run(["train", f"run_dir={tmp_path}", f"data.cache_dir={tmp_path}"]) == 2
    assert "config.yaml is damaged" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["train"], ["compare", "models=[rnn]"]], ids=["train", "compare"])
def test_a_run_dir_with_an_interpolation_is_refused(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command, "run_dir=a\\${b}"]) == 2
    assert "run_dir=a${b}: a folder's name must not contain ${" in capsys.readouterr().err


def test_a_full_disk_is_reported_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def full() -> int:
        raise OSError(errno.ENOSPC, "No space left on device", "out.txt")

    assert guarded(full) == 2
    assert capsys.readouterr().err == "error: out.txt: No space left on device\n"


@pytest.mark.parametrize("choice", ["model=rnn", "experiment=quickstart"])
def test_a_choice_of_another_command_is_refused(choice: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evaluate", "checkpoint=run", choice]) == 2
    group = choice.split("=")[0]
    assert capsys.readouterr().err.splitlines() == [
        f"error: {choice}: evaluate has no choice of {group}",
        "See seq2seq evaluate --help",
    ]


def test_a_misspelled_command_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["trian"]) == 2
    assert "'train'" in capsys.readouterr().err


CHOICES = [
    (group, option)
    for group, options in groups().items()
    if group not in ("experiment", "recipe") and "common" not in group
    for option in options
    if option != "checkpoint"
]


@pytest.mark.slow
@pytest.mark.parametrize("group, option", CHOICES, ids=lambda value: str(value))
def test_every_choice_composes_and_passes_the_check(group: str, option: str) -> None:
    model = ["model=luong"] if group.startswith("model/") else []
    root = ["data.root=somewhere"] if group == "data" and option != "grammar" else []
    config = configuration.compose("train", [*model, f"{group}={option}", *root, "trainer.max_time=00:01:00:00"])
    check(config, "train")


def test_multi30k_takes_a_revision_of_the_hub() -> None:
    job = assemble(compose("data=multi30k", "data.revision=1a2b3c"))
    assert job.data.corpus.corpus.revision == "1a2b3c"


def test_fits_compares_values_with_type_hints() -> None:
    assert fits(1, int) and fits(1, float) and fits(None, int | None) and fits("a", str | int)
    assert not fits(True, int) and not fits("1", int) and not fits(1.5, int | None) and not fits(None, str)


@pytest.mark.parametrize("overrides", [[], ["search=checkpoint"]])
def test_search_checkpoint_without_values_is_the_checkpoints_own(overrides: list[str]) -> None:
    config = configuration.compose("translate", ["checkpoint=run", *overrides])
    assert configuration.chosen_search(config.search) is None


def test_search_checkpoint_with_values_changes_those_options() -> None:
    config = configuration.compose("translate", ["checkpoint=run", "search.beam_size=7", "search.min_length_b=0"])
    assert configuration.chosen_search(config.search) == {"beam_size": 7, "min_length_b": 0}


def test_any_other_search_is_taken_whole() -> None:
    config = configuration.compose("translate", ["checkpoint=run", "search=greedy"])
    assert configuration.chosen_search(config.search) == GreedySearch()


def test_search_checkpoint_names_every_option_of_every_search() -> None:
    names = {field for method in METHODS.values() for field in inspect.signature(method).parameters}
    assert names == {*configuration.compose("translate", ["checkpoint=run"]).search}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["translate", "checkpoint=.", "search.beam_size=wide"], "search.beam_size='wide' has the wrong type: int"),
        (["train", "search=checkpoint"], "search=checkpoint is not for train"),
    ],
)
def test_search_checkpoint_is_refused_where_it_cannot_work(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_refusals_by_name_are_made_before_torch_is_imported(tmp_path: Path) -> None:
    commands = [
        *(
            ["train", text]
            for text in ("model=nothing", "trainer.max_tim=1", "--model=rnn", "experiment=wmt14_ende_luong")
        ),
        *(["train", text] for text in ("seed=one", "data.root=c,d", "--config-dir=nowhere")),
        *(["translate"], ["translate", "checkpoint=nowhere"], ["translate", "processes=2"]),
        *(["evaluate", "checkpoint=nowhere"], ["score", "checkpoint=nowhere", "sources=a", "translations=b"]),
        *(["average", "checkpoints=nowhere", "output=o"], ["export", "checkpoint=nowhere", "output=o"], ["report"]),
    ]
    code = (
        "import sys; from seq2seq.cli import run; "
        f"print([arguments for arguments in {commands} if run(arguments) != 2 or 'torch' in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_nearest_is_empty_without_a_near_match() -> None:
    assert nearest("zzz", ["model", "data"]) == ""


def test_an_unknown_key_in_a_file_is_refused() -> None:
    config = configuration.compose("train", [])
    OmegaConf.set_struct(config, False)
    config.optimiser = {"lr": 1}
    with pytest.raises(Exception, match=r"optimiser.*optimizer"):
        check(config, "train")


@pytest.mark.parametrize(
    ("command", "wrong", "right"),
    [
        (["translate", "checkpoint=run", "search.beamsize=3"], "search.beamsize", "search.beam_size"),
        (
            ["score", "checkpoint=run", "sources=a", "translations=b", "serach.beam_size=3"],
            "serach",
            "search.beam_size",
        ),
        (["train", "data=files", "data.root=text", "data.maximum_length=9"], "data.maximum_length", "data.max_length"),
        (["train", "beam_size=3"], "beam_size", "search.beam_size"),
        (["train", "mdoel=rnn"], "mdoel", "model"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest(
    command: list[str], wrong: str, right: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command) == 2
    line = capsys.readouterr().err.splitlines()[0]
    assert line.startswith(f"error: unknown key '{wrong}")
    assert f"did you mean '{right}'" in line


@pytest.mark.slow
def test_keys_of_experiments_are_accepted_by_compare(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    study = ["compare", "experiments=[multi30k_rnn]", f"run_dir={tmp_path / 'study'}"]
    assert run([*study, f"data.root={tmp_path}"]) == 2
    assert "multi30k_rnn-seed1" in capsys.readouterr().err
    assert run([*study, f"data.root={tmp_path}", "+data.max_lenght=3"]) == 2
    told = capsys.readouterr().err.replace("-seed1", "")
    assert "multi30k_rnn: data.max_lenght=3: corpus multi30k does not take it (did you mean 'max_length'" in told


def test_a_missing_key_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["translate"]) == 2
    assert capsys.readouterr().err == "error: checkpoint= is needed\nSee seq2seq translate --help\n"


@pytest.mark.parametrize(
    "chosen, checkpoint, overrides, name",
    [
        ({}, None, ["model=rnn", "data=files", "seed=2"], "rnn-files-seed2"),
        ({}, None, ["model=rnn", "optimizer.lr=0.1"], "rnn-files-seed2-optimizer.lr=0.1"),
        ({"experiment": "mine"}, None, ["experiment=mine", "model=rnn"], "mine-seed2-model=rnn"),
        ({"recipe": "base"}, None, ["recipe=base", "optimizer.lr=0.1"], "base-files-seed2-optimizer.lr=0.1"),
        ({}, "runs/big/bundle", ["data=files"], "files-seed2-from-big"),
        ({}, "runs/big/checkpoints/best.ckpt", ["model=rnn"], "files-seed2-from-big-model=rnn"),
    ],
)
def test_a_run_of_a_sweep_is_named_after_what_differs(
    chosen: dict[str, str], checkpoint: str | None, overrides: list[str], name: str
) -> None:
    config = OmegaConf.create({"run_dir": None, "seed": 2, "checkpoint": checkpoint})
    choices = {"model": "rnn", "data": "files", "experiment": None, **chosen}
    assert train.run_dir(config, choices, overrides, True) == Path("runs") / name
