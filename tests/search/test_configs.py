"""YAML files of the searches: every option, with the class's own defaults, and nothing else."""

from dataclasses import asdict, fields
from pathlib import Path

import hydra
import pytest
from omegaconf import OmegaConf

from seq2seq.commands.configuration import compose
from seq2seq.search import METHODS, BeamSearch, GreedySearch, Sampling

FOLDER = Path(__file__).parents[2] / "conf" / "search"
EXPECTED = {
    "greedy": GreedySearch(),
    "beam": BeamSearch(),
    "sampling": Sampling(),
    "diverse": BeamSearch(beam_size=6, n_best=3, diverse_groups=3, diversity_strength=0.5),
}


def test_search_files_are_all_known():
    assert {path.stem for path in FOLDER.glob("*.yaml")} == {*EXPECTED, "checkpoint"}


def test_search_checkpoint_has_the_options_of_every_search_and_no_values():
    options = {field.name for method in METHODS.values() for field in fields(method)}
    assert OmegaConf.load(FOLDER / "checkpoint.yaml") == dict.fromkeys(options)


@pytest.mark.parametrize("name", EXPECTED)
def test_search_file_has_every_option_with_its_default(name):
    config = OmegaConf.to_container(compose("translate", [f"search={name}"]).search)
    assert hydra.utils.instantiate(config) == EXPECTED[name]
    assert config.pop("_target_") == f"seq2seq.search.{type(EXPECTED[name]).__name__}"
    assert config == asdict(EXPECTED[name])
