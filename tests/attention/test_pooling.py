import math
import runpy
from pathlib import Path

import pytest
import torch

from seq2seq.attention import AveragePooling, NadarayaWatson, lengths_to_mask

SCRIPT = Path(__file__).parents[2] / "scripts" / "attention_pooling.py"


def test_average_pooling_is_the_mean_of_unmasked_values():
    values = torch.randn(2, 5, 3, dtype=torch.float64)
    context, weights = AveragePooling()(
        torch.randn(2, 2, 4).double(), torch.randn(2, 5, 4).double(), values, lengths_to_mask(torch.tensor([5, 2]), 5)
    )
    torch.testing.assert_close(context[0, 1], values[0].mean(0))
    torch.testing.assert_close(context[1, 0], values[1, :2].mean(0))
    assert weights[1, 0].tolist() == [0.5, 0.5, 0, 0, 0]


@pytest.mark.parametrize("learned", [False, True])
def test_nadaraya_watson_equals_hand_computed_regression(learned):
    width, keys, values = 0.8, [0.0, 1.0, 2.5], [1.0, -2.0, 3.0]
    model = NadarayaWatson(width, learned).double()
    prediction, weights = model(*(torch.tensor(part).double().view(1, -1, 1) for part in ([0.7, 2.0], keys, values)))
    for row, query in enumerate((0.7, 2.0)):
        kernel = [math.exp(-((query - key) ** 2) / (2 * width**2)) for key in keys]
        assert weights[0, row].tolist() == pytest.approx([part / sum(kernel) for part in kernel])
        expected = sum(part * value for part, value in zip(kernel, values, strict=True)) / sum(kernel)
        assert prediction[0, row].item() == pytest.approx(expected)


@pytest.mark.slow
def test_pooling_script_draws_and_a_learned_width_fits_best(tmp_path, capsys):
    runpy.run_path(str(SCRIPT))["main"](["--output", str(tmp_path / "pooling.png")])
    printed = capsys.readouterr().out
    errors = [float(line.split()[-1]) for line in printed.splitlines() if "mean squared error" in line]
    assert len(errors) == 3 and errors == sorted(errors, reverse=True) and errors[2] < errors[0] / 3
    assert (tmp_path / "pooling.png").read_bytes().startswith(b"\x89PNG")
