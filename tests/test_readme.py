"""Examples in the documentation: the README's Python runs, every command composes, every link leads somewhere."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from seq2seq.cli import COMMANDS, run
from seq2seq.commands.configuration import checked, compose

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", "data/README.md", "data/results/README.md", "seq2seq/README.md", "tests/README.md"]
PAGES += [".github/CONTRIBUTING.md", ".github/CHANGELOG.md"]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SMALL = [
    "data.sizes={train: 300, valid: 14, test: 14}",
    "data.maximum_words=20",
    "tokenizer.vocabulary=600",
    "model.width=16",
    "trainer.max_steps=4",
    "trainer.threads=1",
    "schedule.warmup=1",
    "search=greedy",
    "search.max_length_b=2",
]


def blocks(page: str, language: str) -> Iterator[str]:
    """Contents of a page's code blocks in one language."""
    return (found[1] for found in re.finditer(rf"(?ms)^```{language}\n(.*?)^```", page))


def commands(page: str) -> list[str]:
    """The page's `seq2seq` command lines, those inside sentences too; comments and continuation lines joined."""
    shell = "\n".join(blocks(page, "bash")).replace("\\\n", " ").splitlines()
    code = re.findall(r"`(seq2seq [^`]+)`", re.sub(r"(?ms)^```.*?^```", "", page))
    lines = [line.strip() for line in (*shell, *code)]
    return [
        line
        for line in lines
        if line.startswith("seq2seq ") and not re.search(r"COMMAND|=NAME|seq2seq --|\.\.\.", line)
    ]


def examples(help_text: str) -> list[str]:
    """Command lines in the comments of a configuration file, without the remarks beside them."""
    lines = re.sub(r"\\\n#\s+", "", help_text).splitlines()
    found = [re.sub(r"\s{2,}\S.*", "", line[1:].strip()) for line in lines if re.match(r"#\s+(srun )?seq2seq ", line)]
    return [line.removeprefix("srun ") for line in found if "..." not in line]


def first_job(overrides: list[str]) -> list[str]:
    """Overrides with the first of each list of values; an interval, which only a sweeper can draw from, is left out."""
    found = []
    for each in OverridesParser.create().parse_overrides(overrides):
        if each.is_discrete_sweep():
            found.append(f"{each.key_or_group}={next(iter(each.sweep_string_iterator()))}")
        elif not each.is_sweep_override():
            found.append(str(each.input_line))
    return found


def refuse_what_does_not_compose(line: str) -> None:
    words = shlex.split(line.replace("NAME", "rnn").replace("'${", "'\\${"), comments=True)
    words = words[: min((words.index(mark) for mark in ("<", ">", "|", "&&") if mark in words), default=None)]
    command, overrides = words[1], [word for word in words[2:] if word != "-m"]
    assert command in COMMANDS
    if {"--help", "--config-dir"} & {*overrides}:
        return
    if "-m" in words:
        overrides = first_job(overrides)
    checked(compose(command, overrides), command, overrides)


DOCUMENTED = sorted({line for page in PAGES for line in commands((ROOT / page).read_text(encoding="utf-8"))})
HELP = sorted({line for file in (ROOT / "conf").rglob("*.yaml") for line in examples(file.read_text(encoding="utf-8"))})


@pytest.mark.slow
@pytest.mark.parametrize("line", DOCUMENTED)
def test_commands_of_the_documentation_compose(line: str) -> None:
    refuse_what_does_not_compose(line)


@pytest.mark.slow
@pytest.mark.parametrize("line", HELP)
def test_commands_of_help_texts_compose(line: str) -> None:
    refuse_what_does_not_compose(line)


def test_own_experiment_as_the_readme_describes_it_composes(tmp_path: Path) -> None:
    assert "`# @package _global_`" in README and "seq2seq train --config-dir DIR experiment=mine" in README
    file = tmp_path / "experiment" / "mine.yaml"
    file.parent.mkdir()
    file.write_text("# @package _global_\nlabel_smoothing: 0.2\n")
    assert run(["train", "--config-dir", str(tmp_path), "experiment=mine", "--cfg", "job"]) == 0


@pytest.mark.slow
def test_python_of_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = blocks(README, "python")
    duration = '"trainer.max_time=00:00:03:00"'
    assert duration in code
    monkeypatch.chdir(tmp_path)
    exec(code.replace(duration, "*small"), {"small": SMALL})
    assert "tensor(" in capsys.readouterr().out
    assert (tmp_path / "runs" / "bahdanau-grammar-seed1" / "metrics.json").is_file()


def test_first_commands_of_the_readme_are_the_two_scripts() -> None:
    first = next(blocks(README, "bash")).splitlines()
    assert [line.split()[0] for line in first] == ["./scripts/quickstart.sh", "./scripts/test.sh"]
    assert all((ROOT / line.split()[0]).is_file() for line in first)


def test_readme_is_short() -> None:
    assert len(README.split()) <= 1600


@pytest.mark.parametrize("page", PAGES)
def test_links_between_pages_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if not target.startswith("http"):
            assert ((ROOT / page).parent / target).exists(), target
