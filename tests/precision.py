"""Equality as far as float32 reaches, on any processor and in a batch of any size."""

from __future__ import annotations

from typing import Any

import pytest
import torch

FLOAT32 = 2.0**-14
"""512 units in the last place: sums of products come out tens of them apart under other instruction sets."""


def float32_approx(expected: Any) -> Any:
    """`pytest.approx`, relative to the expected value or to 1, whichever is greater."""
    return pytest.approx(expected, rel=FLOAT32, abs=FLOAT32)


def assert_float32_close(actual: Any, expected: Any) -> None:
    """`torch.testing.assert_close` with the same tolerance."""
    torch.testing.assert_close(actual, expected, rtol=FLOAT32, atol=FLOAT32)
