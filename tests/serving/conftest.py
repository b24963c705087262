from __future__ import annotations

from collections.abc import Iterator

import pytest
from service import running, three_models

from seq2seq.serving.served import ServedModel


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[ServedModel]:
    return three_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def service(models: list[ServedModel]) -> Iterator[str]:
    """The address of a service of `models` with the default limits."""
    with running(models) as url:
        yield url
