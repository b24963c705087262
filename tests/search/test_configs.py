"""The YAML files say all that a search takes, with the class's own defaults, and nothing else."""

from dataclasses import asdict
from pathlib import Path

import hydra
import pytest
from omegaconf import OmegaConf

from seq2seq.commands.configuration import compose
from seq2seq.search import BeamSearch, GreedySearch, Sampling

FOLDER = Path(__file__).parents[2] / "conf" / "search"
EXPECTED = {
    "greedy": GreedySearch(),
    "beam": BeamSearch(),
    "sampling": Sampling(),
    "diverse": BeamSearch(beam_size=6, n_best=3, diverse_groups=3, diversity_strength=0.5),
}


def test_every_file_is_known():
    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_file_is_complete(name):
    config = OmegaConf.to_container(compose("translate", [f"search={name}"]).search)
    assert hydra.utils.instantiate(config) == EXPECTED[name]
    assert config.pop("_target_") == f"seq2seq.search.{type(EXPECTED[name]).__name__}"
    assert config == asdict(EXPECTED[name])
