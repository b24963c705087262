"""Helpers that several test files share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import hydra
import pytest
import torch
from omegaconf import DictConfig
from torch import nn

CONF = Path(__file__).parents[1] / "conf"

BuildModel = Callable[..., nn.Module]


def compose_model(name: str, overrides: Sequence[str]) -> DictConfig:
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        return hydra.compose(overrides=[f"+model={name}", *overrides])


@pytest.fixture(scope="session")
def build_model() -> BuildModel:
    """build_model("luong", ["model.width=8"], source=13, target=11): the configured model with seeded weights."""

    def build(name: str, overrides: Sequence[str] = (), source: int = 13, target: int = 11, seed: int = 0) -> nn.Module:
        config = compose_model(name, overrides)
        torch.manual_seed(seed)
        return hydra.utils.instantiate(
            config.model, source_vocabulary=source, target_vocabulary=target, joint_vocabulary=source == target
        )

    return build
